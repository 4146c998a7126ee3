"""HTTPChatModel over a real connection: retries, errors, streams that break, secrets that stay secret."""

import asyncio
import json
import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import httpx_aiohttp
import pytest
from msgspec.structs import replace

from agentcore import (
    AnthropicChatModel,
    AssistantMessage,
    ChatModel,
    ChatOptions,
    ChatRequest,
    ConfigurationError,
    ImagePart,
    OpenAIChatModel,
    ProviderError,
    UserMessage,
)
from agentcore.chat import BatchedChatStream
from agentcore.providers import http_model
from agentcore.providers.http_model import HTTPChatModel
from agentcore.providers.pool import PooledTransport
from agentcore.providers.retries import RetryEvent
from tests.support.loopback import (
    CLOSE,
    DONE,
    HALF_CLOSE,
    HANG,
    RESET,
    SSE_HEADERS,
    Loopback,
    chunk,
    completion,
    json_reply,
    reply,
    sse,
)

KEY = "sk-live-0123456789abcdefXYZ"
REQUEST = ChatRequest([UserMessage("hi")])
OK = json_reply(completion())
WHOLE = sse(chunk("Once"), chunk(finish="stop"), DONE)
LIMITED = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
COMMENT = b": ping\n\n"

pytestmark = pytest.mark.asyncio


class Waits:
    """A clock that only notes: no test waits for a backoff."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def model_at(server: Loopback, *, waits: Waits | None = None, **settings: Any) -> OpenAIChatModel:
    settings = {"timeout": 5, **settings}
    model = OpenAIChatModel("m", api_key=KEY, base_url=server.url + "/v1", **settings)
    model.retries = replace(
        model.retries,
        sleep=waits or Waits(),
        random=lambda: 0.0,
        now=lambda: datetime(2026, 12, 1, 12, tzinfo=UTC),
    )
    return model


async def read(model: HTTPChatModel, into: list[str]) -> str:
    """Stream a reply, noting each piece; the whole text afterwards."""
    async with model.stream(REQUEST) as stream:
        async for event in stream:
            into.append(event.text)
    return stream.response.text


async def text_of(model: HTTPChatModel, how: str) -> str:
    return (await model.chat(REQUEST)).text if how == "chat" else await read(model, [])


both = pytest.mark.parametrize("how", ["chat", "stream"])


def good(how: str) -> Any:
    return json_reply(completion("Once")) if how == "chat" else WHOLE


def limited(**headers: str) -> Any:
    return json_reply(LIMITED, status=429, headers={name.replace("_", "-"): value for name, value in headers.items()})


# --- retries


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, 0.5),
        ({"retry_after": "3"}, 3),
        ({"retry_after": "Tue, 01 Dec 2026 12:00:03 GMT"}, 3),
        ({"retry_after_ms": "350", "retry_after": "5"}, 0.35),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        *[({"retry_after": value}, 0.5) for value in ("-5", "nan", "inf", "soon")],
    ],
    ids=lambda value: str(value)[:40],
)
@both
async def test_rate_limit_is_waited_out(how: str, headers: dict[str, str], wait: float) -> None:
    waits = Waits()
    async with Loopback(limited(**headers), good(how)) as server, model_at(server, waits=waits) as model:
        assert await text_of(model, how) == "Once"
        assert (waits.seconds, len(server.requests)) == ([wait], 2)
        assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
@both
async def test_status_that_may_pass_is_retried(how: str, status: int) -> None:
    async with (
        Loopback(json_reply({"error": {"message": "x"}}, status=status), good(how)) as server,
        model_at(server) as model,
    ):
        assert await text_of(model, how) == "Once"
        assert server.connections == 1  # the refusal's body was read, so its connection was kept


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
@both
async def test_status_that_will_not_pass_is_told_at_once(how: str, status: int) -> None:
    async with Loopback(json_reply({"error": {"message": "no such thing"}}, status=status), good(how)) as server:
        async with model_at(server) as model:
            with pytest.raises(ProviderError, match="no such thing") as caught:
                await text_of(model, how)
        assert (caught.value.status, caught.value.retryable, len(server.requests)) == (status, False, 1)


@pytest.mark.parametrize(
    "steps", [[RESET], [CLOSE], [SSE_HEADERS + b"\r\n", RESET]], ids=["reset", "closed", "after-headers"]
)
@both
async def test_connection_that_breaks_before_the_first_event_is_retried(how: str, steps: Any) -> None:
    async with Loopback(steps, steps, good(how)) as server, model_at(server) as model:
        assert await text_of(model, how) == "Once"
        assert len(server.requests) == 3


@both
async def test_silence_before_the_first_byte_is_retried(how: str) -> None:
    async with Loopback([HANG], good(how)) as server, model_at(server, timeout=0.1) as model:
        assert await text_of(model, how) == "Once"


@pytest.mark.parametrize(
    "steps", [(DONE,), (COMMENT, CLOSE), (b"data: \n\n", DONE)], ids=["done-only", "comment-only", "blank"]
)
async def test_empty_stream_is_retried(steps: Any) -> None:
    async with Loopback(sse(*steps), WHOLE) as server, model_at(server) as model:
        assert await read(model, []) == "Once"
        assert len(server.requests) == 2


async def test_error_event_before_any_text_is_retried() -> None:
    overloaded = b'data: {"error": {"message": "busy", "type": "overloaded_error"}}\n\n'
    async with Loopback(sse(overloaded, CLOSE), WHOLE) as server, model_at(server) as model:
        assert await read(model, []) == "Once"


async def test_stream_is_never_retried_once_an_event_was_handed_out() -> None:
    got: list[str] = []
    async with Loopback(sse(chunk("Once"), RESET), WHOLE) as server, model_at(server) as model:
        with pytest.raises(ProviderError) as caught:
            await read(model, got)
        assert (got, caught.value.partial_text, caught.value.kind) == (["Once"], "Once", "network")
        assert len(server.requests) == 1


async def test_quota_is_never_retried() -> None:
    body = {"error": {"message": "You exceeded your current quota: see billing", "code": "insufficient_quota"}}
    async with (
        Loopback(json_reply(body, status=429, headers={"retry-after": "1"})) as server,
        model_at(server) as model,
    ):
        with pytest.raises(ProviderError, match="billing") as caught:
            await model.chat(REQUEST)
        assert (caught.value.kind, caught.value.retryable, len(server.requests)) == ("quota", False, 1)


async def test_wait_above_the_cap_is_told_at_once_with_the_wait() -> None:
    waits = Waits()
    async with Loopback(limited(retry_after="3600")) as server, model_at(server, waits=waits) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(REQUEST)
        assert (caught.value.retry_after, caught.value.kind, waits.seconds) == (3600, "rate_limit", [])
        assert len(server.requests) == 1


@pytest.mark.parametrize("word", ["false", "False", " false"])
async def test_service_that_says_not_to_retry_is_obeyed(word: str) -> None:
    async with Loopback(limited(x_should_retry=word)) as server, model_at(server) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(REQUEST)
        assert (caught.value.retryable, len(server.requests)) == (False, 1)


async def test_hook_sees_each_attempt() -> None:
    told: list[RetryEvent] = []
    async with (
        Loopback(limited(), limited(retry_after="7"), OK) as server,
        model_at(server, on_retry=told.append) as model,
    ):
        await model.chat(REQUEST)
    assert [(event.attempt, event.wait, event.error.kind) for event in told] == [
        (1, 0.5, "rate_limit"),
        (2, 7, "rate_limit"),
    ]


async def test_retries_end_with_the_last_error() -> None:
    async with Loopback(limited()) as server, model_at(server, max_retries=3) as model:
        with pytest.raises(ProviderError, match="slow down"):
            await model.chat(REQUEST)
        assert len(server.requests) == 4


async def test_chat_that_breaks_within_an_unasked_stream_is_retried_since_nobody_saw_it() -> None:
    async with Loopback(sse(chunk("On"), RESET), OK) as server, model_at(server) as model:
        assert (await model.chat(REQUEST)).text == "ok"
        assert len(server.requests) == 2


# --- errors


async def test_error_carries_what_the_reply_knows() -> None:
    headers = {"x-request-id": "req_77", "retry-after": "9"}
    async with (
        Loopback(json_reply({"error": {"message": "boom"}}, status=500, headers=headers)) as server,
        model_at(server, max_retries=0, provider="gate") as model,
    ):
        with pytest.raises(ProviderError, match=r"gate server 500: boom \(request req_77\)") as caught:
            await model.chat(REQUEST)
    error = caught.value
    assert (error.status, error.request_id, error.retry_after, error.provider) == (500, "req_77", 9, "gate")
    assert error.retryable


@pytest.mark.parametrize("header", ["x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "cf-ray"])
@both
async def test_request_id_is_kept_on_the_response(how: str, header: str) -> None:
    body = completion()
    async with Loopback(json_reply(body, headers={header: "r-1"})) as server, model_at(server) as model:
        if how == "chat":
            assert (await model.chat(REQUEST)).request_id == "r-1"
        else:
            async with model.stream(REQUEST) as stream:
                async for _ in stream:
                    pass
            assert stream.response.request_id == "r-1"


@pytest.mark.parametrize("status", [200, 502])
@both
async def test_html_page_is_told_in_a_few_words(how: str, status: int) -> None:
    page = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>" + b"<p>x</p>" * 5000
    async with (
        Loopback(reply(page, status=status, content_type="text/html")) as server,
        model_at(server, max_retries=0) as model,
    ):
        with pytest.raises(ProviderError) as caught:
            await text_of(model, how)
    assert len(str(caught.value)) < 300
    assert "502 Bad Gateway" in str(caught.value)


@pytest.mark.parametrize("end", [RESET, CLOSE], ids=["reset", "closed"])
async def test_refusal_whose_body_breaks_is_still_that_refusal(end: Any) -> None:
    head = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n"
    async with Loopback([head, b'{"error":', end]) as server, model_at(server) as model:
        with pytest.raises(ProviderError) as caught:
            await model.chat(REQUEST)
    assert (caught.value.kind, caught.value.status, caught.value.retryable) == ("auth", 401, False)


async def test_refusal_whose_body_never_ends_is_still_that_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcore.providers.http.ERROR_BODY_SECONDS", 0.05)
    head = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 500\r\n\r\nno entry"
    async with Loopback([head, HANG], OK) as server, model_at(server, timeout=60) as model:
        with pytest.raises(ProviderError, match="no entry") as caught:
            await model.chat(REQUEST)
        assert caught.value.kind == "permission"
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_refusal_with_an_endless_body_is_read_only_so_far() -> None:
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n\r\n"
    async with Loopback([head, *[b"x" * 65536] * 64, HANG]) as server, model_at(server) as model:
        with pytest.raises(ProviderError) as caught:
            await asyncio.wait_for(model.chat(REQUEST), 10)
        assert len(str(caught.value)) < 400
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_refused_streams_free_their_connections() -> None:
    async with Loopback(*[limited()] * 20, WHOLE) as server:
        async with httpx.AsyncClient(transport=PooledTransport(max_connections=4)) as client:
            model = model_at(server, http_client=client, max_retries=0)
            results = await asyncio.gather(*[read(model, []) for _ in range(20)], return_exceptions=True)
            assert {(type(r), getattr(r, "kind", None), getattr(r, "message", None)) for r in results} == {
                (ProviderError, "rate_limit", "slow down")
            }
            assert await read(model, []) == "Once"
        assert server.most_open <= 4


# --- streams


async def test_stream_asked_for_and_answered_with_json_is_delivered_as_events() -> None:
    for content_type in ("application/json; charset=utf-8", "text/plain", "application/octet-stream"):
        got: list[str] = []
        async with (
            Loopback(reply(json.dumps(completion("all")).encode(), content_type=content_type)) as server,
            model_at(server) as model,
        ):
            assert await read(model, got) == "all"
        assert got == ["all"], content_type


async def test_reply_asked_for_and_answered_with_a_stream_is_collected() -> None:
    async with Loopback(WHOLE) as server, model_at(server) as model:
        response = await model.chat(REQUEST)
        assert (response.text, response.request_id) == ("Once", "req_1")


async def test_unasked_stream_that_stays_open_after_its_end_does_not_hang_chat() -> None:
    async with Loopback(sse(chunk("Once", finish="stop"), DONE, HANG)) as server, model_at(server) as model:
        assert (await asyncio.wait_for(model.chat(REQUEST), 10)).text == "Once"
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_stream_that_stays_open_after_its_end_does_not_hang() -> None:
    async with Loopback(sse(chunk("Once", finish="stop"), DONE, HANG)) as server, model_at(server) as model:
        assert await asyncio.wait_for(read(model, []), 10) == "Once"
        await asyncio.wait_for(server.all_closed.wait(), 10)


@pytest.mark.parametrize("end", [RESET, CLOSE, HALF_CLOSE], ids=["reset", "closed", "half-closed"])
@pytest.mark.parametrize(
    "steps",
    [(chunk("Once", finish="stop"), DONE), (chunk("Once"), chunk(finish="stop"))],
    ids=["after-done", "after-finish-reason"],
)
async def test_stream_whose_end_was_announced_is_whole_whatever_the_connection_does(steps: Any, end: Any) -> None:
    got: list[str] = []
    async with Loopback(sse(*steps, end)) as server, model_at(server, max_retries=0) as model:
        assert await read(model, got) == "Once"
    assert got == ["Once"]


@pytest.mark.parametrize("end", [RESET, CLOSE, HALF_CLOSE], ids=["reset", "closed", "half-closed"])
async def test_stream_that_ends_without_saying_so_is_a_network_error_with_the_text_so_far(end: Any) -> None:
    got: list[str] = []
    async with Loopback(sse(chunk("Once"), chunk(" upon"), end)) as server, model_at(server) as model:
        with pytest.raises(ProviderError) as caught:
            await read(model, got)
        assert (caught.value.kind, caught.value.partial_text, "".join(got)) == ("network", "Once upon", "Once upon")
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_events_before_an_error_in_the_same_read_are_delivered_first() -> None:
    error = b'data: {"error": {"message": "worn out", "code": 500}}\n\n'
    got: list[str] = []
    async with Loopback(sse(chunk("a") + chunk("b") + error, HANG)) as server, model_at(server) as model:
        with pytest.raises(ProviderError, match="worn out") as caught:
            await read(model, got)
        assert (got, caught.value.partial_text, caught.value.request_id) == (["a", "b"], "ab", "req_1")
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_silence_within_a_stream_is_a_timeout_with_the_text_so_far() -> None:
    got: list[str] = []
    async with Loopback(sse(chunk("thinking"), HANG)) as server, model_at(server, timeout=0.1) as model:
        with pytest.raises(ProviderError, match=r"sent nothing for 0\.1 s") as caught:
            await read(model, got)
        assert (caught.value.kind, caught.value.partial_text) == ("timeout", "thinking")
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_timeout_of_the_request_counts_before_the_models() -> None:
    async with Loopback([HANG]) as server, model_at(server, timeout=60, max_retries=0) as model:
        with pytest.raises(ProviderError, match=r"0\.05 s"):
            await model.chat(ChatRequest([UserMessage("hi")], options=ChatOptions(timeout=0.05)))


class Clock:
    """Jumps whenever somebody looks at it."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize("heartbeat", [COMMENT, b"event: ping\ndata: {}\n\n"], ids=["comment", "ping"])
async def test_heartbeats_do_not_count_as_events(heartbeat: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_model, "time", Clock(step=2.0))
    gates = [asyncio.Event() for _ in range(3)]
    steps = [step for gate in gates for step in (gate, heartbeat)]
    async with Loopback(sse(chunk("one"), *steps, HANG)) as server, model_at(server, timeout=5) as model:
        async with model.stream(REQUEST) as stream:
            events = aiter(stream)
            assert (await anext(events)).text == "one"
            for gate in gates:
                gate.set()
            with pytest.raises(ProviderError, match="no event for 5 s") as caught:
                await anext(events)
        assert (caught.value.kind, caught.value.partial_text) == ("timeout", "one")


async def test_slow_reader_is_not_taken_for_a_silent_service(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(step=0.0)
    monkeypatch.setattr(http_model, "time", clock)
    gates = [asyncio.Event(), asyncio.Event()]
    steps = (chunk("a"), gates[0], COMMENT, gates[1], chunk("b", finish="stop"), DONE)
    async with Loopback(sse(*steps)) as server, model_at(server, timeout=5) as model, model.stream(REQUEST) as stream:
        got: list[str] = []
        async for event in stream:
            got.append(event.text)
            clock.now += 3600  # the reader thinks
            for gate in gates:
                gate.set()
    assert got == ["a", "b"]


async def test_leaving_a_stream_early_closes_its_connection() -> None:
    async with Loopback(sse(chunk("a"), HANG), WHOLE) as server, model_at(server) as model:
        async with model.stream(REQUEST) as stream:
            async for _ in stream:
                break
        await asyncio.wait_for(server.all_closed.wait(), 10)
        assert await read(model, []) == "Once"


async def test_error_in_the_readers_code_closes_the_connection() -> None:
    async with Loopback(sse(chunk("a"), HANG)) as server, model_at(server) as model:

        async def fail() -> None:
            async with model.stream(REQUEST) as stream:
                async for _ in stream:
                    raise KeyError("the reader's own")

        with pytest.raises(KeyError):
            await fail()
        await asyncio.wait_for(server.all_closed.wait(), 10)


@pytest.mark.parametrize("first", [(HANG,), (chunk("a"), HANG)], ids=["before-the-first-event", "between-events"])
async def test_cancelled_stream_closes_its_connection(first: Any) -> None:
    started = asyncio.Event()

    async def consume(model: HTTPChatModel) -> None:
        async with model.stream(REQUEST) as stream:
            async for _ in stream:
                started.set()

    async with Loopback(sse(*first)) as server, model_at(server) as model:
        task = asyncio.create_task(consume(model))
        await server.arrived.wait()
        if len(first) > 1:
            await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.all_closed.wait(), 10)


async def test_batches_hold_all_events_of_one_network_read() -> None:
    gate = asyncio.Event()
    async with Loopback(sse(chunk("a") + chunk("b"), gate, chunk("c", finish="stop") + DONE)) as server:
        async with model_at(server) as model, model.stream(REQUEST) as stream:
            assert isinstance(stream, BatchedChatStream)
            batches: list[list[str]] = []
            async for batch in stream.batches():
                batches.append([event.text for event in batch])
                gate.set()
        assert batches == [["a", "b"], ["c"]]


async def test_response_of_an_unread_stream_says_how_to_get_it() -> None:
    async with Loopback(WHOLE) as server, model_at(server) as model, model.stream(REQUEST) as stream:
        with pytest.raises(RuntimeError, match="iterate it first"):
            _ = stream.response


# --- the models


def anthropic_at(server: Loopback, **settings: Any) -> AnthropicChatModel:
    return AnthropicChatModel("claude", api_key=KEY, base_url=server.url, timeout=5, **settings)


async def test_anthropic_request_has_its_path_and_headers() -> None:
    body = {"id": "m1", "type": "message", "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"}
    async with (
        Loopback(json_reply(body, headers={"request-id": "req_a"})) as server,
        anthropic_at(server, headers={"Anthropic-Version": "2099-01-01"}) as model,
        anthropic_at(server) as plain,
    ):
        response = await model.chat(REQUEST)
        await plain.chat(REQUEST)
    assert (response.text, response.request_id) == ("ok", "req_a")
    first, second = server.requests
    assert (first.target, first.headers["x-api-key"]) == ("/v1/messages", KEY)
    assert "authorization" not in first.headers
    assert (first.headers["anthropic-version"], second.headers["anthropic-version"]) == ("2099-01-01", "2023-06-01")


async def test_openai_headers_name_organization_and_project() -> None:
    async with Loopback(OK) as server, model_at(server, organization="org-1", project="proj-1") as model:
        await model.chat(REQUEST)
    assert server.requests[0].headers["openai-organization"] == "org-1"
    assert server.requests[0].headers["openai-project"] == "proj-1"


async def test_key_and_address_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Loopback(OK) as server:
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with OpenAIChatModel("m") as model:
            await model.chat(REQUEST)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("make", "url", "variable"),
    [
        *[
            (OpenAIChatModel, url, "OPENAI_API_KEY")
            for url in (None, "https://api.openai.com", "HTTPS://API.OPENAI.COM/v1/", "https://eu.api.openai.com/v1")
        ],
        (AnthropicChatModel, None, "ANTHROPIC_API_KEY"),
    ],
)
async def test_service_that_needs_a_key_is_not_asked_without_one(
    make: Any, url: str | None, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=variable):
        make("m", base_url=url)


async def test_server_of_ones_own_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with Loopback(OK) as server, OpenAIChatModel("m", base_url=server.url) as model:
        await model.chat(REQUEST)
    assert "authorization" not in server.requests[0].headers


async def test_callers_own_authorization_stands_in_for_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = OpenAIChatModel("m", headers={"Authorization": "Bearer gateway"})
    assert model.endpoint._headers({})["authorization"] == "Bearer gateway"


async def test_model_satisfies_the_protocol_and_reports_losses_without_a_request() -> None:
    async with Loopback(OK) as server, model_at(server) as model:
        same: ChatModel = model
        assert same is model
        image = ImagePart(url="https://h/x.png")
        assert model.check([UserMessage("hi"), AssistantMessage("ok")]) == []
        from agentcore.codecs.dialect import Dialect

        blind = OpenAIChatModel("m", api_key=KEY, base_url=server.url, dialect=Dialect(images=False))
        assert len(blind.check([UserMessage("hi"), UserMessage([image])])) == 1
        assert server.requests == []


# --- secrets

ECHO = {"error": {"message": f"Incorrect API key provided: {KEY}; header 'Bearer {KEY[:14]}' is wrong"}}
FAILURES: dict[str, Any] = {
    "refused": json_reply(ECHO, status=401),
    "rate-limit": json_reply(ECHO, status=429),
    "error-in-good-status": json_reply(ECHO),
    "not-json": reply(f"<<{KEY}>>".encode()),
    "html": reply(f"<html><title>{KEY}</title>".encode(), status=502, content_type="text/html"),
    "redirect": json_reply({}, status=302, headers={"location": f"https://h/{KEY}"}),
    "reset": [RESET],
    "closed": [CLOSE],
    "silent": [HANG],
    "not-http": [b"hello\r\n\r\n", CLOSE],
    "stream-error": sse(chunk("a"), f'data: {{"error": {{"message": "{KEY}"}}}}\n\n'.encode(), CLOSE),
    "stream-garbage": sse(chunk("a"), f"data: {{{KEY}\n\n".encode(), CLOSE),
    "stream-reset": sse(chunk("a"), RESET),
    "stream-silent": sse(chunk("a"), HANG),
}
CLIENTS: dict[str, Callable[[], Any]] = {
    "ours": lambda: None,
    "httpx": httpx.AsyncClient,
    "httpx2": httpx2.AsyncClient,
    "aiohttp": lambda: httpx.AsyncClient(transport=httpx_aiohttp.AiohttpTransport()),
}


def shown(error: BaseException) -> str:
    """All that a crash reporter shows: messages, causes, and the locals of our frames and the libraries' beneath."""
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    lines = "".join(report.format())
    return f"{lines}\n{error!r}\n{error}\n{vars(error)}"


@pytest.mark.parametrize("make", [OpenAIChatModel, AnthropicChatModel])
@pytest.mark.parametrize("client", list(CLIENTS))
@pytest.mark.parametrize("failure", list(FAILURES))
@both
async def test_no_failure_shows_the_key(how: str, failure: str, client: str, make: Any) -> None:
    http_client = CLIENTS[client]()
    async with Loopback(FAILURES[failure]) as server:
        model = make(
            "m",
            api_key=KEY,
            base_url=server.url,
            http_client=http_client,
            max_retries=1,
            timeout=0.05,
            max_retry_after=0,
        )
        model.retries = replace(model.retries, sleep=Waits())
        with pytest.raises(ProviderError) as caught:
            await text_of(model, how)
        text = shown(caught.value.with_traceback(_without_this_file(caught.value)))
        assert not any(KEY[start : start + 12] in text for start in range(len(KEY) - 11))
        assert KEY not in f"{model!r} {model.endpoint!r} {vars(model)} {vars(model.endpoint)}"
        await model.aclose()
        if http_client is not None:
            await http_client.aclose()


def _without_this_file(error: BaseException) -> Any:
    """The traceback without the test's own frames: its globals are not captured, but its locals hold the key."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


@pytest.mark.parametrize("client", list(CLIENTS))
async def test_cancelled_call_does_not_show_the_key(client: str) -> None:
    http_client = CLIENTS[client]()
    async with Loopback([HANG]) as server:
        model = AnthropicChatModel("m", api_key=KEY, base_url=server.url, http_client=http_client)
        task = asyncio.create_task(model.chat(REQUEST))
        await server.arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert KEY not in shown(caught.value)
        await model.aclose()
        if http_client is not None:
            await http_client.aclose()


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "nowhere"},
        {"headers": {"x-gate": f"{KEY}\nx"}},
        {"headers": {"x gate": KEY}},
        {"api_key": f"{KEY} {KEY}"},
        {"api_key": f"{KEY}\x00"},
    ],
    ids=["address", "header-value", "header-name", "key-with-space", "key-with-nul"],
)
@pytest.mark.parametrize("make", [OpenAIChatModel, AnthropicChatModel])
async def test_wrong_setting_is_told_without_the_key(make: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make("m", **{"api_key": KEY, "base_url": "http://127.0.0.1:1", **settings})
    assert KEY not in shown(caught.value.with_traceback(_without_this_file(caught.value)))


async def test_logs_of_a_call_do_not_hold_the_key(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with Loopback(OK) as server, model_at(server) as model:
            await model.chat(REQUEST)
    assert caplog.records
    assert KEY not in caplog.text


async def test_model_being_made_can_be_looked_at() -> None:
    assert repr(OpenAIChatModel.__new__(OpenAIChatModel)) == "OpenAIChatModel(…)"
    assert SimpleNamespace(model=OpenAIChatModel("m", base_url="http://h/v1", api_key=KEY)).model.name == "m"
