"""The pool: connections handed out again, given back, closed, and never lost."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator

import anyio
import httpx
import pytest
import pytest_asyncio

from agentcore.providers import pool as pool_module
from agentcore.providers.pool import PooledTransport
from tests.support.loopback import CLOSE, HANG, RESET, SSE_HEADERS, Loopback, completion, json_reply, sse

pytestmark = pytest.mark.asyncio
OK = json_reply(completion())


@pytest_asyncio.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=PooledTransport(max_connections=2), timeout=5) as client:
        yield client


async def test_connection_is_used_again(client: httpx.AsyncClient) -> None:
    async with Loopback(OK) as server:
        for _ in range(5):
            assert (await client.post(server.url, content=b"{}")).status_code == 200
        assert server.connections == 1


async def test_origins_do_not_share_connections(client: httpx.AsyncClient) -> None:
    async with Loopback(OK) as one, Loopback(OK) as other:
        for server in (one, other, one, other):
            await client.post(server.url, content=b"{}")
        assert (one.connections, other.connections) == (1, 1)
        assert (len(one.requests), len(other.requests)) == (2, 2)


async def test_connection_the_server_closed_meanwhile_is_not_used_again(client: httpx.AsyncClient) -> None:
    async with Loopback([*OK, CLOSE]) as server:
        for _ in range(3):
            await client.post(server.url, content=b"{}")
            await server.all_closed.wait()
        assert server.connections == 3


async def test_connection_that_was_idle_too_long_is_closed() -> None:
    async with Loopback(OK) as server, httpx.AsyncClient(transport=PooledTransport(keepalive=-1)) as client:
        for _ in range(3):
            await client.post(server.url, content=b"{}")
        assert server.connections == 3


async def test_requests_above_the_limit_wait_their_turn_in_order(client: httpx.AsyncClient) -> None:
    gate = asyncio.Event()
    async with Loopback([gate, *OK]) as server:
        order: list[int] = []

        async def request(number: int) -> None:
            await client.post(server.url, content=b"{}", headers={"x-number": str(number)})
            order.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(request(number))
            await server.arrived.wait()
            gate.set()
        assert server.most_open <= 2
        assert sorted(order) == list(range(8))
        # Two go out at once, and the server may read the second of them first.
        arrived = [int(r.headers["x-number"]) for r in server.requests]
        assert all(abs(number - place) <= 1 for place, number in enumerate(arrived))


async def test_no_free_connection_in_time_is_a_pool_timeout(client: httpx.AsyncClient) -> None:
    async with Loopback([HANG]) as server:
        holders = [asyncio.create_task(client.post(server.url, content=b"{}")) for _ in range(2)]
        await server.arrived.wait()
        with pytest.raises(httpx.PoolTimeout):
            await client.post(server.url, content=b"{}", timeout=httpx.Timeout(5, pool=0.01))
        for holder in holders:
            holder.cancel()
        await asyncio.gather(*holders, return_exceptions=True)


async def test_cancelled_requests_free_their_places_and_close_their_connections(client: httpx.AsyncClient) -> None:
    async with Loopback([HANG], [HANG], OK) as server:
        tasks = [asyncio.create_task(client.post(server.url, content=b"{}")) for _ in range(2)]
        while len(server.requests) < 2:
            server.arrived.clear()
            await server.arrived.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.all_closed.wait()
        assert (await client.post(server.url, content=b"{}")).status_code == 200


async def test_cancelled_waiter_leaves_the_queue_whole(client: httpx.AsyncClient) -> None:
    gate = asyncio.Event()
    async with Loopback([gate, *OK]) as server:
        tasks = [asyncio.create_task(client.post(server.url, content=b"{}")) for _ in range(6)]
        await server.arrived.wait()
        for task in tasks[2:4]:
            task.cancel()
        gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(r, asyncio.CancelledError) for r in results] == [False, False, True, True, False, False]
        again = await asyncio.gather(*[client.post(server.url, content=b"{}") for _ in range(4)])
        assert [r.status_code for r in again] == [200] * 4


async def test_place_that_comes_while_its_waiter_is_cancelled_goes_to_the_next() -> None:
    transport = PooledTransport(max_connections=1)
    await transport._take_place(None)
    first = asyncio.create_task(transport._take_place(None))
    second = asyncio.create_task(transport._take_place(None))
    await asyncio.sleep(0)
    transport._give_place()  # for the first, which is cancelled before it can run
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.wait_for(second, 1)


async def test_request_cancelled_within_the_tls_handshake_closes_its_socket() -> None:
    async with Loopback([HANG]) as server, httpx.AsyncClient(transport=PooledTransport(verify=False)) as client:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            task = asyncio.create_task(client.post(server.url.replace("http", "https"), content=b"{}"))
            while not server.open:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.all_closed.wait(), 10)
            del task
            gc.collect()


async def test_stream_left_early_closes_its_connection(client: httpx.AsyncClient) -> None:
    async with Loopback(sse(b"data: 1\n\n", HANG)) as server:
        async with client.stream("POST", server.url, content=b"{}") as response:
            async for _ in response.aiter_bytes():
                break
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_stream_read_whole_gives_its_connection_back(client: httpx.AsyncClient) -> None:
    async with Loopback(sse(b"data: 1\n\n")) as server:
        for _ in range(3):
            async with client.stream("POST", server.url, content=b"{}") as response:
                await response.aread()
        assert server.connections == 1


async def test_closing_the_pool_closes_idle_and_busy_connections() -> None:
    transport = PooledTransport()
    async with Loopback(OK, [SSE_HEADERS + b"\r\n", HANG]) as server:
        client = httpx.AsyncClient(transport=transport, timeout=5)
        await client.post(server.url, content=b"{}")
        response = await client.send(client.build_request("POST", server.url, content=b"{}"), stream=True)
        await client.aclose()
        await asyncio.wait_for(server.all_closed.wait(), 10)
        await response.aclose()
        await client.aclose()


async def test_idle_connections_of_a_burst_are_closed_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_PRUNED", 2)
    transport = PooledTransport()
    gate = asyncio.Event()
    async with Loopback([gate, *OK]) as server, httpx.AsyncClient(transport=transport, timeout=5) as client:
        burst = [asyncio.create_task(client.post(server.url, content=b"{}")) for _ in range(6)]
        while len(server.requests) < 6:
            server.arrived.clear()
            await server.arrived.wait()
        gate.set()
        await asyncio.gather(*burst)
        [idle] = transport._idle.values()
        assert len(idle) == 6
        for connection in list(idle)[:5]:
            monkeypatch.setattr(connection, "has_expired", lambda: True)
        await client.post(server.url, content=b"{}")
        assert len(idle) == 4


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([RESET], httpx.ReadError),
        ([CLOSE], httpx.RemoteProtocolError),
        ([b"SSH-2.0-server\r\n\r\n"], httpx.RemoteProtocolError),
        ([HANG], httpx.ReadTimeout),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", CLOSE], httpx.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", RESET], httpx.ReadError),
    ],
    ids=["reset", "closed", "not-http", "silent", "body-cut", "body-reset"],
)
async def test_failures_are_httpx_own_and_free_the_place(steps: list[bytes], expected: type[Exception]) -> None:
    async with (
        Loopback(steps, OK) as server,
        httpx.AsyncClient(transport=PooledTransport(max_connections=1), timeout=0.2) as client,
    ):
        with pytest.raises(expected):
            await client.post(server.url, content=b"{}")
        assert (await client.post(server.url, content=b"{}")).status_code == 200


async def test_refused_connection_is_a_connect_error(client: httpx.AsyncClient) -> None:
    async with Loopback(OK) as server:
        url = server.url
    for _ in range(3):  # more than there are places: none is lost
        with pytest.raises(httpx.ConnectError):
            await client.post(url, content=b"{}")


async def test_cancel_scope_ends_a_request_and_leaks_nothing(client: httpx.AsyncClient) -> None:
    async with Loopback([HANG], OK) as server:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await server.arrived.wait()
                    scope.cancel()

                group.start_soon(cancel)
                await client.post(server.url, content=b"{}")
        await asyncio.wait_for(server.all_closed.wait(), 10)
        assert (await client.post(server.url, content=b"{}")).status_code == 200
