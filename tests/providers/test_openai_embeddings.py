"""OpenAIEmbeddingModel: over a real connection, and in as many requests as the service wants."""

import asyncio
import json
import traceback
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from agentcore.embeddings import EmbeddingModel, EmbeddingOptions, EmbeddingResponse
from agentcore.errors import ConfigurationError, DecodeError, InvalidInputError, ProviderError
from agentcore.providers.embedding_batches import EmbeddingLimits
from agentcore.providers.openai_embeddings import OpenAIEmbeddingModel
from agentcore.usage import UNKNOWN_USAGE, Usage
from tests.support.embeddings_wire import embedded, embeddings_body, vector_of
from tests.support.loopback import CLOSE, HANG, RESET, Loopback, json_reply, reply

KEY = "sk-live-0123456789abcdefXYZ"
ONE = json_reply(embeddings_body([[1.0, 2.0]]))
TWO_TEXTS = EmbeddingLimits(max_texts=2)
TEXTS = [f"text {number * 37}" for number in range(7)]

pytestmark = pytest.mark.asyncio


async def no_wait(seconds: float) -> None:
    """A backoff that takes no time."""


def model_at(url: str, **settings: Any) -> OpenAIEmbeddingModel:
    settings = {"timeout": 5, **settings}
    model = OpenAIEmbeddingModel("m", api_key=KEY, base_url=url + "/v1", **settings)
    model.retries = replace(model.retries, sleep=no_wait)
    return model


def serving(answer: Callable[[httpx.Request], Awaitable[httpx.Response]], **settings: Any) -> OpenAIEmbeddingModel:
    """A model whose service is a function."""
    return model_at("http://service", http_client=httpx.AsyncClient(transport=httpx.MockTransport(answer)), **settings)


class Service:
    """A service that embeds; notes the texts of each request, and how many requests were under way at once."""

    def __init__(self, *, wait_for: int = 0) -> None:
        self.requests: list[list[str]] = []
        self.bodies: list[Any] = []
        self.at_once = self.most_at_once = 0
        self.cancelled = 0
        self.wait_for = wait_for
        self.together = asyncio.Event()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        self.requests.append(body["input"])
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.at_once >= self.wait_for:
                self.together.set()
            await self.together.wait()
            return await self.answer(request)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.at_once -= 1

    async def answer(self, request: httpx.Request) -> httpx.Response:
        headers = {"x-request-id": f"req_{self.requests.index(json.loads(request.content)['input'])}"}
        return httpx.Response(200, json=embedded(request.content), headers=headers)


# --- one request


async def test_request_goes_out_as_documented() -> None:
    async with Loopback(ONE) as server, model_at(server.url, dimensions=2) as model:
        response = await model.embed(["hello"])
    request = server.requests[0]
    assert (request.method, request.target) == ("POST", "/v1/embeddings")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json == {"model": "m", "input": ["hello"], "dimensions": 2, "encoding_format": "base64"}
    assert response == EmbeddingResponse((array("f", [1, 2]),), Usage(input_tokens=7), "embedder-001")


async def test_single_text_is_not_taken_for_its_letters() -> None:
    async with Loopback(ONE) as server, model_at(server.url) as model:
        assert len((await model.embed("hello")).embeddings) == 1
    assert server.requests[0].json["input"] == ["hello"]


async def test_options_of_a_call_stand_over_those_of_the_model() -> None:
    async with (
        Loopback(ONE) as server,
        model_at(
            server.url,
            dimensions=512,
            options=EmbeddingOptions(model="x", dimensions=9, extra={"user": "u"}),
            encoding_format="float",
            dimensions_field="output_dimension",
            headers={"X-Team": "blue"},
            organization="org",
        ) as model,
    ):
        await model.embed(["a"], options=EmbeddingOptions(dimensions=2, extra={"input_type": "query"}))
    assert server.requests[0].json == {
        "model": "m",
        "input": ["a"],
        "output_dimension": 2,
        "user": "u",
        "input_type": "query",
    }
    assert server.requests[0].headers["x-team"] == "blue"
    assert server.requests[0].headers["openai-organization"] == "org"


async def test_request_id_is_kept() -> None:
    headers = {"x-request-id": "req_7"}
    async with Loopback(json_reply(embeddings_body([[1.0]]), headers=headers)) as server, model_at(server.url) as model:
        assert (await model.embed(["a"])).request_ids == ("req_7",)


async def test_no_text_makes_no_request() -> None:
    async with Loopback(ONE) as server, model_at(server.url) as model:
        response = await model.embed([])
    assert (response.embeddings, response.usage, server.requests) == ((), UNKNOWN_USAGE, [])


@pytest.mark.parametrize(
    ("texts", "words"),
    [(["a", ""], "text 1 is empty"), ("", "text 0 is empty"), (["a", "b", None], "text 2 is a NoneType")],
)
async def test_text_that_no_service_takes_is_named_and_nothing_is_sent(texts: Any, words: str) -> None:
    async with Loopback(ONE) as server, model_at(server.url) as model:
        with pytest.raises(InvalidInputError, match=words):
            await model.embed(texts)
    assert server.requests == []


async def test_model_can_be_used_again_after_it_was_closed() -> None:
    async with Loopback(ONE) as server:
        model: OpenAIEmbeddingModel = model_at(server.url)
        protocol: EmbeddingModel = model
        await protocol.embed(["a"])
        await model.aclose()
        await model.embed(["a"])
        await model.aclose()
        assert server.connections == 2


# --- errors and retries: the same as those of the chat models


@pytest.mark.parametrize(
    "first",
    [
        json_reply({"error": {"message": "slow"}}, status=429),
        json_reply({"error": {"message": "x"}}, status=503),
        json_reply({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
        json_reply({"data": []}),
        [RESET],
        [CLOSE],
    ],
    ids=["limited", "overloaded", "limited-in-200", "empty", "reset", "closed"],
)
async def test_failure_that_may_pass_is_retried(first: Any) -> None:
    async with Loopback(first, ONE) as server, model_at(server.url) as model:
        assert (await model.embed(["a"])).dimensions == 2
        assert len(server.requests) == 2
        assert server.requests[0].body == server.requests[1].body


async def test_silence_is_retried_and_then_told() -> None:
    async with Loopback([HANG]) as server, model_at(server.url, timeout=0.05, max_retries=1) as model:
        with pytest.raises(ProviderError) as caught:
            await model.embed(["a"])
        assert (caught.value.kind, len(server.requests)) == ("timeout", 2)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request"), (401, "auth"), (404, "not_found"), (402, "quota")]
)
async def test_failure_that_stays_is_told_at_once(status: int, kind: str) -> None:
    body = {"error": {"message": "no such thing"}}
    async with (
        Loopback(json_reply(body, status=status, headers={"x-request-id": "r"})) as server,
        model_at(server.url) as model,
    ):
        with pytest.raises(ProviderError, match="no such thing") as caught:
            await model.embed(["a"])
        error = caught.value
        assert (error.kind, error.status, error.request_id, len(server.requests)) == (kind, status, "r", 1)


async def test_error_shows_no_key() -> None:
    async with (
        Loopback(json_reply({"error": {"message": f"wrong key {KEY}, or {KEY[:12]}"}}, status=401)) as server,
        model_at(server.url) as model,
    ):
        with pytest.raises(ProviderError) as caught:
            await model.embed(["a"])
        shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert KEY[:12] not in shown + repr(caught.value) + repr(model) + str(vars(model))


async def test_unreadable_reply_is_completed_with_its_request_id() -> None:
    async with (
        Loopback(reply(b"<html>", headers={"x-request-id": "r9"})) as server,
        model_at(server.url) as model,
    ):
        with pytest.raises(DecodeError) as caught:
            await model.embed(["a"])
    assert (caught.value.request_id, caught.value.provider) == ("r9", "openai")


async def test_redirect_is_told_not_followed() -> None:
    async with (
        Loopback(json_reply({}, status=307, headers={"location": "https://elsewhere/v1"})) as server,
        model_at(server.url) as model,
    ):
        with pytest.raises(ProviderError, match="redirects to https://elsewhere/v1"):
            await model.embed(["a"])


async def test_reply_larger_than_the_cap_is_refused() -> None:
    async with Loopback(ONE) as server, model_at(server.url, max_response_bytes=20) as model:
        with pytest.raises(DecodeError, match="larger than 20 bytes"):
            await model.embed(["a"])


async def test_too_much_at_once_says_how_much_it_was() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if "long" not in json.loads(request.content)["input"][-1]:
            return httpx.Response(200, json=embedded(request.content))
        return httpx.Response(400, json={"error": {"message": "Too many tokens in batch. Max is 16384 got 17555"}})

    async with serving(answer, limits=EmbeddingLimits(max_texts=2)) as model:
        with pytest.raises(ProviderError, match=r"Max is 16384") as caught:
            await model.embed(["a", "b", "c", "long " * 100])
    assert caught.value.kind == "context_length"
    assert "2 texts, 2 to 3, of about" in str(caught.value)
    assert "the longest is text 3" in str(caught.value)


# --- batches


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
async def test_texts_are_spread_over_requests_and_come_back_in_order(count: int) -> None:
    service = Service()
    async with serving(service, limits=TWO_TEXTS) as model:
        response = await model.embed(TEXTS[:count])
    assert [vector.tolist() for vector in response.embeddings] == [vector_of(text) for text in TEXTS[:count]]
    assert sorted(map(len, service.requests)) == sorted([2] * (count // 2) + [1] * (count % 2))
    assert (response.usage, response.model) == (Usage(input_tokens=count), "embedder-001")
    assert len(response.request_ids) == len(service.requests)


async def test_requests_are_under_way_at_once_within_the_limit() -> None:
    service = Service(wait_for=3)
    async with serving(service, limits=EmbeddingLimits(max_texts=1), max_concurrency=3) as model:
        await model.embed(TEXTS)
    assert (service.most_at_once, len(service.requests)) == (3, 7)


async def test_slow_first_request_does_not_change_the_order() -> None:
    last_done = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        if texts == TEXTS[:2]:
            await last_done.wait()
        elif texts == TEXTS[6:]:
            last_done.set()
        return httpx.Response(200, json=embedded(request.content))

    async with serving(answer, limits=TWO_TEXTS) as model:
        response = await model.embed(TEXTS)
    assert [vector.tolist() for vector in response.embeddings] == [vector_of(text) for text in TEXTS]


class Failing(Service):
    """Fails on one text, when all requests are under way; the others wait for ever."""

    async def answer(self, request: httpx.Request) -> httpx.Response:
        if TEXTS[2] in json.loads(request.content)["input"]:
            return httpx.Response(401, json={"error": {"message": "key revoked"}})
        await asyncio.Event().wait()
        raise AssertionError


async def test_first_failure_ends_the_other_requests_and_comes_alone() -> None:
    service = Failing(wait_for=4)
    async with serving(service, limits=TWO_TEXTS) as model:
        with pytest.raises(ProviderError, match="key revoked") as caught:
            await model.embed(TEXTS)
    assert not isinstance(caught.value, BaseExceptionGroup)
    assert (service.cancelled, service.at_once) == (3, 0)


async def test_cause_of_a_failure_in_a_batch_is_kept() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route")

    async with serving(answer, limits=TWO_TEXTS, max_retries=0) as model:
        with pytest.raises(ProviderError) as caught:
            await model.embed(TEXTS)
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


async def test_cancellation_ends_all_requests() -> None:
    class Endless(Service):
        async def answer(self, request: httpx.Request) -> httpx.Response:
            await asyncio.Event().wait()
            raise AssertionError

    service = Endless(wait_for=4)
    async with serving(service, limits=TWO_TEXTS) as model:
        task = asyncio.create_task(model.embed(TEXTS))
        await service.together.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (service.cancelled, service.at_once) == (4, 0)


async def test_each_request_is_retried_by_itself() -> None:
    failed: set[str] = set()

    async def answer(request: httpx.Request) -> httpx.Response:
        first = json.loads(request.content)["input"][0]
        if first not in failed:
            failed.add(first)
            return httpx.Response(429, json={"error": {"message": "slow"}})
        return httpx.Response(200, json=embedded(request.content))

    async with serving(answer, limits=TWO_TEXTS) as model:
        assert len((await model.embed(TEXTS)).embeddings) == 7
    assert len(failed) == 4


async def test_usage_that_no_request_tells_is_unknown() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        body = embedded(request.content)
        del body["usage"]
        return httpx.Response(200, json=body)

    async with serving(answer, limits=TWO_TEXTS) as model:
        assert (await model.embed(TEXTS)).usage == UNKNOWN_USAGE


async def test_vectors_of_different_lengths_are_not_mixed() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        return httpx.Response(200, json=embeddings_body([[1.0] * (2 + len(texts))] * len(texts)))

    async with serving(answer, limits=TWO_TEXTS) as model:
        with pytest.raises(DecodeError, match="of 3 and of 4 dimensions"):
            await model.embed(TEXTS)


async def test_tokens_a_request_are_kept_below_the_limit() -> None:
    service = Service()
    limits = EmbeddingLimits(max_texts=100, max_tokens=10)
    async with serving(service, limits=limits, count_tokens=len) as model:
        await model.embed(["12345", "12345", "1", "12345678901234567890", "1234567890", "1"])
    assert sorted(service.requests) == [["1"], ["1"], ["12345", "12345"], ["1234567890"], ["12345678901234567890"]]


async def test_no_request_at_once_is_no_setting() -> None:
    with pytest.raises(ConfigurationError, match="max_concurrency"):
        OpenAIEmbeddingModel("m", api_key=KEY, max_concurrency=0)


async def test_key_is_asked_for_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIEmbeddingModel("text-embedding-3-small")
