"""The HTTP seam: the same small suite over every client it has to fit, addresses, proxies, event loops."""

import asyncio
import contextlib
import gc
import resource
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import httpx2
import httpx_aiohttp
import pytest
import pytest_asyncio

from agentcore import (
    ChatOptions,
    ChatRequest,
    ConfigurationError,
    OpenAIChatModel,
    ProviderError,
    TextDelta,
    UserMessage,
)
from agentcore.providers import http_model
from agentcore.providers.http import own_client, request_url, shown_url, without_frames
from agentcore.providers.pool import PooledTransport
from tests.support.loopback import CLOSE, DONE, HANG, RESET, Loopback, chunk, completion, json_reply, reply, sse

KEY = "sk-live-0123456789abcdefXYZ"
REQUEST = ChatRequest([UserMessage("hi")])
OK = json_reply(completion())
CLIENTS: dict[str, Callable[[], Any]] = {
    "ours": lambda: None,
    "httpx": lambda: httpx.AsyncClient(follow_redirects=True),
    "httpx2": lambda: httpx2.AsyncClient(follow_redirects=True),
    "aiohttp": lambda: httpx.AsyncClient(transport=httpx_aiohttp.AiohttpTransport(), follow_redirects=True),
}


@pytest_asyncio.fixture(params=list(CLIENTS))
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    client = CLIENTS[request.param]()
    yield client
    if client is not None:
        await client.aclose()


def model_at(server: Loopback, client: Any = None, **settings: Any) -> OpenAIChatModel:
    settings = {"max_retries": 0, "timeout": 5, **settings}
    return OpenAIChatModel("m", api_key=KEY, base_url=server.url + "/v1", http_client=client, **settings)


@pytest.mark.asyncio
async def test_request_goes_out_as_the_contract_says(client: Any) -> None:
    async with Loopback(OK) as server, model_at(server, client, headers={"X-Tenant": "t1"}) as model:
        assert (await model.chat(REQUEST)).text == "ok"
    [received] = server.requests
    assert (received.method, received.target) == ("POST", "/v1/chat/completions")
    assert received.json["messages"] == [{"role": "user", "content": "hi"}]
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["x-tenant"] == "t1"
    assert received.headers["content-type"] == "application/json"
    assert "gzip" in received.headers["accept-encoding"]
    assert "expect" not in received.headers
    names = [line.partition(":")[0].lower() for line in received.header_lines]
    assert len(names) == len(set(names))


def needs(client: Any, encoding: str) -> None:
    if client is not None and encoding not in client.headers["accept-encoding"]:
        pytest.skip(f"{type(client).__module__} does not ask for {encoding}")


@pytest.mark.asyncio
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_compressed_body_is_read(client: Any, encoding: str) -> None:
    needs(client, encoding)
    answer = json_reply(completion("zipped"), encoding=encoding)
    async with Loopback(answer) as server, model_at(server, client) as model:
        assert (await model.chat(REQUEST)).text == "zipped"
    assert encoding in server.requests[0].headers["accept-encoding"]


@pytest.mark.asyncio
@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
async def test_compressed_stream_is_read(client: Any, encoding: str) -> None:
    needs(client, encoding)
    events = b"".join((chunk("zip"), chunk("ped"), chunk(finish="stop"), b"data: [DONE]\n\n"))
    stream = reply(events, content_type="text/event-stream", encoding=encoding)
    async with Loopback(stream) as server, model_at(server, client) as model, model.stream(REQUEST) as got:
        assert "".join([event.text async for event in got if isinstance(event, TextDelta)]) == "zipped"


@pytest.mark.asyncio
@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
async def test_compressed_error_is_read(client: Any, encoding: str) -> None:
    needs(client, encoding)
    refusal = json_reply({"error": {"message": "no such model"}}, status=404, encoding=encoding)
    async with Loopback(refusal) as server, model_at(server, client) as model:
        with pytest.raises(ProviderError, match="no such model"):
            await model.chat(REQUEST)


@pytest.mark.asyncio
async def test_body_that_is_not_gzip_though_it_says_so_is_a_network_error(client: Any) -> None:
    async with (
        Loopback(json_reply(completion(), headers={"content-encoding": "gzip"})) as server,
        model_at(server, client) as model,
    ):
        with pytest.raises(ProviderError) as caught:
            await model.chat(REQUEST)
    assert (caught.value.kind, caught.value.retryable) == ("network", True)


@pytest.mark.asyncio
async def test_stream_arrives_and_its_connection_is_kept(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_model, "DRAIN_SECONDS", 5.0)  # a busy machine may take its time
    async with Loopback(sse(chunk("a"), chunk("b", finish="stop"), DONE)) as server, model_at(server, client) as model:
        for _ in range(3):
            async with model.stream(REQUEST) as stream:
                assert "".join([event.text async for event in stream]) == "ab"
            assert stream.response.text == "ab"
        assert server.connections == 1


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        ([RESET], "network", "broke"),
        ([CLOSE], "network", "broke"),
        (
            [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{", RESET],
            "network",
            "broke",
        ),
        (
            [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{", CLOSE],
            "network",
            "broke",
        ),
        ([b"SSH-2.0-server\r\n\r\n", CLOSE], "network", "broke"),
        ([HANG], "timeout", "sent nothing for 0.2 s"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", HANG], "timeout", "sent nothing for 0.2 s"),
    ],
    ids=["reset", "closed", "reset-in-body", "closed-in-body", "not-http", "silent", "silent-in-body"],
)
@pytest.mark.asyncio
async def test_broken_connection_is_told_with_its_host(client: Any, steps: list[Any], kind: str, words: str) -> None:
    async with Loopback(steps) as server, model_at(server, client, timeout=0.2) as model:
        with pytest.raises(ProviderError, match=words) as caught:
            await model.chat(REQUEST)
        assert (caught.value.kind, caught.value.retryable, caught.value.provider) == (kind, True, "openai")
        assert f"127.0.0.1:{server.port}" in caught.value.message


@pytest.mark.asyncio
async def test_refused_connection_names_host_and_port(client: Any) -> None:
    async with Loopback(OK) as server:
        port = server.port
        model = model_at(server, client)
    with pytest.raises(ProviderError, match=rf"cannot connect to 127\.0\.0\.1:{port}: .*[Cc]onnect") as caught:
        await model.chat(REQUEST)
    assert (caught.value.kind, caught.value.retryable) == ("network", True)
    await model.aclose()


@pytest.mark.asyncio
async def test_server_without_tls_behind_https_is_a_network_error(client: Any) -> None:
    async with Loopback([], greeting=b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        url = server.url.replace("http:", "https:")
        async with OpenAIChatModel(
            "m", api_key=KEY, base_url=url, http_client=client, max_retries=0, timeout=5
        ) as model:
            with pytest.raises(ProviderError) as caught:
                await model.chat(REQUEST)
    assert (caught.value.kind, caught.value.retryable) == ("network", True)


@pytest.mark.asyncio
async def test_unknown_host_is_a_network_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    async with OpenAIChatModel("m", base_url="https://nowhere.invalid/v1", api_key=KEY, max_retries=0) as model:
        with pytest.raises(ProviderError, match=r"cannot connect to nowhere\.invalid:443: Name or service not known"):
            await model.chat(REQUEST)


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://other.example/v2?token=abc", "https://other.example/v2;"),
        ("/elsewhere", "/elsewhere"),
        (None, "without a target"),
    ],
    ids=["another-host", "path", "no-target"],
)
@pytest.mark.asyncio
async def test_redirect_is_not_followed_but_told(client: Any, location: str | None, told: str) -> None:
    headers = {"location": location} if location else {}
    async with Loopback(json_reply({}, status=307, headers=headers), OK) as server, model_at(server, client) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(REQUEST)
        assert told in caught.value.message
        assert "token=" not in caught.value.message
        assert server.url in caught.value.message
        assert (caught.value.status, caught.value.retryable, len(server.requests)) == (307, False, 1)


@pytest.mark.asyncio
async def test_body_above_the_cap_is_refused(client: Any) -> None:
    async with Loopback(json_reply(completion("x" * 5000))) as server:
        async with model_at(server, client, max_response_bytes=4000) as model:
            with pytest.raises(ProviderError, match=r"larger than 4000 bytes.*max_response_bytes") as caught:
                await model.chat(REQUEST)
            assert (caught.value.kind, caught.value.retryable) == ("decode", False)
        async with model_at(server, client, max_response_bytes=8000) as model:
            assert len((await model.chat(REQUEST)).text) == 5000


@pytest.mark.asyncio
async def test_cancelled_request_closes_its_connection(client: Any) -> None:
    async with Loopback([HANG], OK) as server, model_at(server, client) as model:
        task = asyncio.create_task(model.chat(REQUEST))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.all_closed.wait(), 10)
        assert (await model.chat(REQUEST)).text == "ok"


@pytest.mark.asyncio
async def test_callers_client_is_left_open() -> None:
    for make in (CLIENTS["httpx"], CLIENTS["httpx2"], CLIENTS["aiohttp"]):
        client = make()
        async with Loopback(OK) as server:
            async with model_at(server, client) as model:
                await model.chat(REQUEST)
            await model.aclose()
            assert not client.is_closed
        await client.aclose()


@pytest.mark.parametrize("name", ["httpx", "httpx2", "aiohttp"])
@pytest.mark.asyncio
async def test_callers_closed_client_is_a_configuration_error(name: str) -> None:
    client = CLIENTS[name]()
    await client.aclose()
    async with Loopback(OK) as server:
        with pytest.raises(ConfigurationError, match=r"http_client.*closed"):
            await model_at(server, client).chat(REQUEST)


@pytest.mark.asyncio
async def test_error_inside_a_callers_transport_is_not_ours_to_hide() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise RuntimeError("a bug of the caller's")

    async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
        with pytest.raises(RuntimeError, match="a bug of the caller's"):
            await OpenAIChatModel("m", api_key=KEY, http_client=client).chat(REQUEST)


@pytest.mark.asyncio
async def test_pool_without_a_free_connection_is_a_timeout_that_says_so() -> None:
    async with Loopback([HANG]) as server, httpx.AsyncClient(transport=PooledTransport(max_connections=1)) as client:
        holder = asyncio.create_task(model_at(server, client).chat(REQUEST))
        await server.arrived.wait()
        with pytest.raises(ProviderError, match=r"no free connection.*max_connections") as caught:
            await model_at(server, client, timeout=0.05).chat(REQUEST)
        assert (caught.value.kind, caught.value.retryable) == ("timeout", True)
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)


@pytest.mark.asyncio
async def test_thousand_conversations_share_one_model_by_default() -> None:
    count, (soft, hard) = 1000, resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 200  # both ends of each connection are descriptors of this process
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this machine allows a process only {hard} open files")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    gate = asyncio.Event()
    async with Loopback([gate, *OK]) as server, model_at(server, timeout=60) as model:
        tasks = [asyncio.create_task(model.chat(REQUEST)) for _ in range(count)]
        while len(server.requests) < count:
            server.arrived.clear()
            await server.arrived.wait()
        gate.set()
        assert {response.text for response in await asyncio.gather(*tasks)} == {"ok"}
        assert server.most_open == count


def run_in_new_loop(work: Callable[[], Any]) -> Any:
    with asyncio.Runner() as runner:
        return runner.run(work())


def test_second_event_loop_is_refused_with_the_cure_and_works_after_aclose() -> None:
    async def call(model: OpenAIChatModel, *, close: bool) -> str:
        async with Loopback(OK) as server:
            model.endpoint.base_url = server.url
            model.endpoint._urls.clear()
            try:
                return (await model.chat(REQUEST)).text
            finally:
                if close:
                    await model.aclose()

    model = OpenAIChatModel("m", api_key=KEY, base_url="http://127.0.0.1:1/v1")
    assert run_in_new_loop(lambda: call(model, close=True)) == "ok"
    assert run_in_new_loop(lambda: call(model, close=True)) == "ok"

    async def in_two() -> None:
        async with Loopback(OK) as server:
            used = model_at(server)
            await used.chat(REQUEST)

            def elsewhere() -> None:
                with pytest.raises(ConfigurationError, match=r"another event loop.*aclose\(\)"):
                    run_in_new_loop(lambda: used.chat(REQUEST))
                with pytest.raises(ConfigurationError, match="another event loop"):
                    run_in_new_loop(used.aclose)

            await asyncio.to_thread(elsewhere)
            assert (await used.chat(REQUEST)).text == "ok"
            await used.aclose()

    run_in_new_loop(in_two)


@pytest.fixture
def outliving_url() -> Iterator[str]:
    """A server in a thread of its own, whose connections stay open when an event loop here ends."""
    held: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):  # the listener is closed: the test is over
            while True:
                connection, _ = listener.accept()
                held.append(connection)
                connection.recv(65536)
                connection.sendall(b"".join(step for step in OK if isinstance(step, bytes)))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    for connection in held:
        connection.close()


# The connections of the first loop were not closed, as the warnings rightly say.
@pytest.mark.filterwarnings("ignore:unclosed", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_model_whose_loop_has_ended_can_be_closed_and_used_in_the_next(outliving_url: str) -> None:
    async def second(model: OpenAIChatModel) -> str:
        with pytest.raises(ConfigurationError, match="another event loop"):
            await model.chat(REQUEST)
        await model.aclose()
        async with model:
            return (await model.chat(REQUEST)).text

    model = OpenAIChatModel("m", api_key=KEY, base_url=outliving_url)
    run_in_new_loop(lambda: model.chat(REQUEST))
    assert run_in_new_loop(lambda: second(model)) == "ok"
    gc.collect()


def test_nothing_is_left_to_warn_about_after_aclose() -> None:
    async def use() -> None:
        async with Loopback(OK, sse(chunk("a"), HANG), sse(chunk("b", finish="stop"), DONE)) as server:
            model = model_at(server)
            await model.chat(REQUEST)
            async with model.stream(REQUEST) as stream:
                async for _ in stream:
                    break
            async with model.stream(REQUEST) as stream:
                assert [event.text async for event in stream] == ["b"]
            await model.aclose()
            await model.aclose()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run_in_new_loop(use)
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.parametrize(
    ("base_url", "path", "expected"),
    [
        ("http://h/v1", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1//", "/chat/completions", "http://h/v1/chat/completions"),
        (" http://h/v1\n", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h", "/chat/completions", "http://h/chat/completions"),
        ("http://h/v1/chat/completions", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/v1/chat/completions/", "/chat/completions", "http://h/v1/chat/completions"),
        ("http://h/chat", "/chat/completions", "http://h/chat/chat/completions"),
        (
            "http://h/o/v1?api-version=2024-10-21",
            "/chat/completions",
            "http://h/o/v1/chat/completions?api-version=2024-10-21",
        ),
        ("http://h/v1/chat/completions?a=1", "/chat/completions", "http://h/v1/chat/completions?a=1"),
        ("http://h/a%2Fb/v1", "/chat/completions", "http://h/a%2Fb/v1/chat/completions"),
        ("https://h", "/v1/messages", "https://h/v1/messages"),
        ("https://h/", "/v1/messages", "https://h/v1/messages"),
        ("https://h/v1", "/v1/messages", "https://h/v1/messages"),
        ("https://h/v1/messages", "/v1/messages", "https://h/v1/messages"),
        ("https://h/anthropic", "/v1/messages", "https://h/anthropic/v1/messages"),
        ("http://[::1]:8/v1", "/chat/completions", "http://[::1]:8/v1/chat/completions"),
    ],
)
def test_path_is_put_behind_the_base_url(base_url: str, path: str, expected: str) -> None:
    assert str(request_url(base_url, path)) == expected


@pytest.mark.parametrize(
    "base_url", ["api.example.com/v1", "localhost:8000/v1", "ftp://h/v1", "http://", "", "http://h:port/v1"]
)
def test_base_url_that_is_none_is_refused_where_the_model_is_made(base_url: str) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        OpenAIChatModel("m", api_key=KEY, base_url=base_url or " ")


def test_shown_url_keeps_user_password_and_query_to_itself() -> None:
    assert shown_url("https://user:pass@h:8/v1?key=abc#f") == "https://h:8/v1"
    model = OpenAIChatModel("m", api_key=KEY, base_url="https://user:pass@h:8/v1?key=abc")
    assert "pass" not in repr(model)
    assert "abc" not in repr(model)


@pytest.mark.parametrize(
    ("environment", "pooled"),
    [
        ({}, True),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128"}, False),
        ({"ALL_PROXY": "http://127.0.0.1:3128"}, False),
        ({"HTTPS_PROXY": "http://127.0.0.1:3128", "NO_PROXY": "example.com"}, True),
    ],
    ids=["none", "https", "all", "not-for-this-host"],
)
@pytest.mark.asyncio
async def test_proxy_of_the_environment_is_left_to_httpx(
    environment: dict[str, str], pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with own_client("api.example.com") as client:
        assert isinstance(client._transport, PooledTransport) is pooled


@pytest.mark.asyncio
async def test_request_goes_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(OK) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        async with OpenAIChatModel("m", api_key=KEY, base_url="http://model.example/v1") as model:
            assert (await model.chat(REQUEST)).text == "ok"
        assert proxy.requests[0].target == "http://model.example/v1/chat/completions"


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (httpx.ConnectTimeout(""), "timeout", "no connection to h:443 within 5 s"),
        (httpx.WriteTimeout(""), "timeout", "h:443 took no bytes for 5 s"),
        (httpx.ReadTimeout(""), "timeout", "h:443 sent nothing for 5 s"),
        (httpx.PoolTimeout(""), "timeout", "no free connection to h:443 in the pool for 5 s"),
        (httpx.ConnectError("no route"), "network", "cannot connect to h:443: no route"),
        (httpx.RemoteProtocolError("odd bytes"), "network", "the connection to h:443 broke: odd bytes"),
        (httpx.WriteError(""), "network", "the connection to h:443 broke: WriteError"),
        (httpx.UnsupportedProtocol(""), "invalid_request", "'https://h/v1' is not a URL"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
@pytest.mark.asyncio
async def test_each_transport_error_has_its_kind_and_words(error: Exception, kind: str, told: str) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    async with httpx.AsyncClient(transport=httpx.MockTransport(handler)) as client:
        model = OpenAIChatModel("m", api_key=KEY, base_url="https://h/v1", http_client=client, max_retries=0, timeout=5)
        with pytest.raises(ProviderError) as caught:
            await model.chat(REQUEST)
    assert told in caught.value.message
    assert (caught.value.kind, caught.value.retryable) == (kind, kind != "invalid_request")


@pytest.mark.asyncio
async def test_our_own_pool_without_a_free_connection_names_the_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcore.providers.http.PooledTransport", lambda: PooledTransport(max_connections=1))
    async with Loopback([HANG]) as server, model_at(server) as model:
        holder = asyncio.create_task(model.chat(REQUEST))
        await server.arrived.wait()
        with pytest.raises(ProviderError, match=r"PooledTransport\(max_connections=…\)"):
            await model.chat(ChatRequest([UserMessage("hi")], options=ChatOptions(timeout=0.05)))
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)


@pytest.mark.asyncio
async def test_headers_of_one_request_do_not_stay_for_the_next(client: Any) -> None:
    async with Loopback(OK) as server, model_at(server, client) as model:
        for headers in ({"x-beta": "1"}, {}):
            response = await model.endpoint.post("/chat/completions", b"{}", headers, 5)
            await model.endpoint.read(response, 5)
    assert [received.headers.get("x-beta") for received in server.requests] == ["1", None]


def test_frames_are_taken_off_a_whole_chain_groups_included() -> None:
    def raised(error: BaseException) -> BaseException:
        try:
            raise error
        except BaseException as caught:
            return caught

    inner = raised(ValueError("inner"))
    group = raised(ExceptionGroup("group", [inner]))
    outer, context = raised(OSError("outer")), raised(KeyError("context"))
    outer.__cause__, outer.__context__ = group, context
    context.__context__ = outer  # a circle
    without_frames(outer)
    assert [error.__traceback__ for error in (inner, group, outer, context)] == [None] * 4


def test_text_that_is_no_url_is_not_shown() -> None:
    assert shown_url("http://h:port") == "(not a URL)"
