"""FaultyTransport gives each request its fault, and the library answers as it promises."""

import httpx
import pytest

from agentcore import ChatRequest, OpenAIChatModel, ProviderError, TextDelta, UserMessage
from agentcore.testing import FaultyTransport, faults
from agentcore.testing.faulty import Fault
from tests.support.loopback import Loopback, chunk, completion, json_reply, sse

pytestmark = pytest.mark.asyncio
HI = ChatRequest([UserMessage("hi")])
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("fault", "kind", "status"),
    [
        (faults.refused(), "network", None),
        (faults.unreachable(), "timeout", None),
        (faults.silent(), "timeout", None),
        (faults.reset(), "network", None),
        (faults.reset(after=10), "network", None),
        (faults.stalled(after=0), "timeout", None),
        (faults.status(429), "rate_limit", 429),
        (faults.status(529, {"error": {"type": "overloaded_error", "message": "x"}}), "overloaded", 529),
        (faults.status(502, "<html><title>Bad</title>", content_type="text/html"), "server", 502),
    ],
    ids=["refused", "unreachable", "silent", "reset", "reset-in-body", "stalled", "429", "529", "html"],
)
async def test_fault_is_named_and_another_attempt_passes(fault: Fault, kind: str, status: int | None) -> None:
    async with Loopback(json_reply(completion("ok"))) as server:
        for retries in (0, 1):
            transport = FaultyTransport([fault])
            async with httpx.AsyncClient(transport=transport) as http_client:
                model = OpenAIChatModel("m", base_url=server.url, http_client=http_client, max_retries=retries)
                if retries:
                    assert (await model.chat(HI)).text == "ok"
                    assert len(transport.requests) == 2
                else:
                    with pytest.raises(ProviderError) as caught:
                        await model.chat(HI)
                    assert (caught.value.kind, caught.value.status) == (kind, status)


@pytest.mark.parametrize(
    ("make", "kind"), [(faults.reset, "network"), (faults.stalled, "timeout"), (faults.closed, "network")]
)
async def test_stream_cut_after_some_bytes_keeps_its_text(make: type[Fault], kind: str) -> None:
    first = chunk("Hel")
    async with Loopback(sse(first, chunk("lo", finish="stop") + DONE)) as server:
        transport = FaultyTransport([make(len(first))])  # type: ignore[call-arg]
        async with httpx.AsyncClient(transport=transport) as http_client:
            model = OpenAIChatModel("m", base_url=server.url, http_client=http_client)
            seen = ""
            with pytest.raises(ProviderError) as caught:
                async with model.stream(HI) as stream:
                    async for event in stream:
                        assert isinstance(event, TextDelta)
                        seen += event.text
    assert (caught.value.kind, caught.value.partial_text, seen) == (kind, "Hel", "Hel")


async def test_retry_after_is_passed_on() -> None:
    async with httpx.AsyncClient(transport=FaultyTransport([faults.status(429, retry_after="3600")])) as http_client:
        model = OpenAIChatModel("m", base_url="http://nowhere.invalid", http_client=http_client)
        with pytest.raises(ProviderError) as caught:
            await model.chat(HI)
    assert caught.value.retry_after == 3600
