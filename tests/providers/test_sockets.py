"""The sockets beneath the pool: reading, writing, closing, racing for an address, TLS."""

import asyncio
import gc
import shutil
import socket
import ssl
import subprocess
import warnings
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

from agentcore.providers import sockets
from agentcore.providers.pool import PooledTransport
from agentcore.providers.sockets import AsyncioBackend
from tests.support.loopback import DONE, HANG, RESET, Loopback, chunk, completion, json_reply, sse

pytestmark = pytest.mark.asyncio
BACKEND = AsyncioBackend()
OK = json_reply(completion())


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("a certificate for the test needs the openssl program")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(cert), "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return key, cert


def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate[1], certificate[0])
    return context


async def raw_server(handle: Any) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_tls_requests_and_streams_share_one_connection(certificate: tuple[Path, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate[1]))
    async with Loopback(OK, sse(chunk("a"), DONE), OK, tls=server_context(certificate)) as server:
        async with httpx.AsyncClient(transport=PooledTransport(verify=trusting), timeout=5) as client:
            for _ in range(3):
                assert (await client.post(server.url, content=b"{}" * 50_000)).status_code == 200
        assert server.connections == 1
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_certificate_nobody_vouches_for_is_a_connect_error(certificate: tuple[Path, Path]) -> None:
    async with (
        Loopback(OK, tls=server_context(certificate)) as server,
        httpx.AsyncClient(transport=PooledTransport(), timeout=5) as client,
    ):
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await client.post(server.url, content=b"{}")


async def test_handshake_that_is_not_answered_is_a_connect_timeout() -> None:
    async with Loopback([HANG]) as server, httpx.AsyncClient(transport=PooledTransport(verify=False)) as client:
        with pytest.raises(httpx.ConnectTimeout):
            await client.post(server.url.replace("http", "https"), content=b"{}", timeout=0.05)
        await asyncio.wait_for(server.all_closed.wait(), 10)


@pytest.mark.parametrize("rounds", range(12))
async def test_connecting_cancelled_at_any_moment_leaves_no_socket(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    async with Loopback([HANG]) as server:
        address = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", server.port))

        async def resolve(*_: object, **__: object) -> Any:
            return [address, address]  # two, so that they race

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            task = asyncio.create_task(BACKEND.connect_tcp("two.example", server.port, timeout=5))
            for _ in range(rounds):
                await asyncio.sleep(0)
            task.cancel()
            [outcome] = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(outcome, BaseException):
                await outcome.aclose()
            if server.open:
                await asyncio.wait_for(server.all_closed.wait(), 10)
            del task, outcome
            gc.collect()


async def test_next_address_is_tried_when_the_first_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(OK) as gone:
        closed_port = gone.port
    async with Loopback(OK) as server:
        addresses = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", closed_port)),
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", server.port)),
        ]
        await _resolve_to(addresses, monkeypatch)
        stream = await BACKEND.connect_tcp("two.example", 80, timeout=5)
        assert stream.get_extra_info("server_addr")[1] == server.port
        await stream.aclose()


async def test_next_address_is_tried_when_the_first_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_NEXT_ADDRESS_SECONDS", 0.01)
    connect_to = sockets._connect_to

    async def slow_first(address: tuple[Any, ...], local: Any) -> Any:
        if address[4][1] == 1:
            await asyncio.Event().wait()
        return await connect_to(address, local)

    monkeypatch.setattr(sockets, "_connect_to", slow_first)
    async with Loopback(OK) as server:
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in (1, server.port)]
        await _resolve_to(addresses, monkeypatch)
        stream = await asyncio.wait_for(BACKEND.connect_tcp("two.example", 80), 10)
        assert stream.get_extra_info("server_addr")[1] == server.port
        await stream.aclose()


async def test_all_addresses_refusing_is_one_connect_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(OK) as gone:
        port = gone.port
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))] * 3
    await _resolve_to(addresses, monkeypatch)
    with pytest.raises(httpcore.ConnectError, match=str(port)):
        await BACKEND.connect_tcp("three.example", 80, timeout=5)


async def _resolve_to(addresses: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object, **__: object) -> Any:
        return addresses

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)


async def test_much_data_waits_in_the_network_not_in_memory() -> None:
    total = 8 * 1024 * 1024

    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * total)
        await writer.drain()
        writer.close()

    server, port = await raw_server(send)
    async with server:
        stream = await BACKEND.connect_tcp("127.0.0.1", port, timeout=5)
        received = most = 0
        while data := await stream.read(64 * 1024, timeout=5):
            assert len(data) <= 64 * 1024
            received += len(data)
            most = max(most, len(stream._arrived))  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        assert received == total
        assert most < 1024 * 1024
        await stream.aclose()


async def test_write_to_a_peer_that_does_not_read_is_a_write_timeout() -> None:
    release = asyncio.Event()

    async def ignore(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    server, port = await raw_server(ignore)
    async with server:
        stream = await BACKEND.connect_tcp("127.0.0.1", port, timeout=5)
        with pytest.raises(httpcore.WriteTimeout):
            await stream.write(b"x" * 32 * 1024 * 1024, timeout=0.05)
        await stream.aclose()
        with pytest.raises(httpcore.WriteError):
            await stream.write(b"x", timeout=1)
        release.set()


async def test_read_after_a_reset_gives_the_bytes_before_it_then_the_error() -> None:
    async with Loopback([b"before", RESET]) as server:
        stream = await BACKEND.connect_tcp("127.0.0.1", server.port, timeout=5)
        await stream.write(b"POST / HTTP/1.1\r\n\r\n", timeout=1)
        assert await stream.read(100, timeout=5) == b"before"
        with pytest.raises(httpcore.ReadError):
            await stream.read(100, timeout=5)
        await stream.aclose()


async def test_read_without_data_times_out_and_can_be_tried_again() -> None:
    gate = asyncio.Event()
    async with Loopback([gate, b"late", HANG]) as server:
        stream = await BACKEND.connect_tcp("127.0.0.1", server.port, timeout=5)
        await stream.write(b"POST / HTTP/1.1\r\n\r\n")
        with pytest.raises(httpcore.ReadTimeout):
            await stream.read(100, timeout=0.01)
        gate.set()
        assert await stream.read(100) == b"late"
        await stream.aclose()
        await stream.aclose()


async def test_connection_is_readable_once_the_peer_has_closed_it() -> None:
    closed = asyncio.Event()

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closed.wait()
        writer.close()
        await writer.wait_closed()

    server, port = await raw_server(close)
    async with server:
        stream = await BACKEND.connect_tcp("127.0.0.1", port, timeout=5)
        assert not stream.get_extra_info("is_readable")
        closed.set()
        assert await stream.read(10, timeout=5) == b""
        assert stream.get_extra_info("is_readable")
        await stream.aclose()
