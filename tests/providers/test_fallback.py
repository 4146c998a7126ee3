"""FallbackModel: who answers, when, and never two halves of two answers."""

import pytest

from agentcore.chat import ChatRequest
from agentcore.client import ChatClient
from agentcore.errors import ConfigurationError, ErrorKind, ProviderError, UnsupportedContentError
from agentcore.events import TextDelta
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.providers.fallback import CURABLE_KINDS, FallbackModel
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio
REQUEST = ChatRequest([UserMessage("hi")])


def failing(kind: ErrorKind) -> ProviderError:
    return ProviderError("no", kind=kind)


async def streamed(model: FallbackModel) -> str:
    async with model.stream(REQUEST) as stream:
        return "".join([event.text async for event in stream if isinstance(event, TextDelta)])


@pytest.mark.parametrize("kind", sorted(CURABLE_KINDS))
async def test_next_model_answers_what_another_could_cure(kind: ErrorKind, caplog: pytest.LogCaptureFixture) -> None:
    assert (await FallbackModel([ScriptedModel([failing(kind)]), ScriptedModel(["b"])]).chat(REQUEST)).text == "b"
    assert await streamed(FallbackModel([ScriptedModel([failing(kind)]), ScriptedModel(["b"])])) == "b"
    assert "going on to the next model" in caplog.text


@pytest.mark.parametrize("kind", ["invalid_request", "content_filter"])
async def test_failure_that_is_the_same_everywhere_is_raised(kind: ErrorKind) -> None:
    second = ScriptedModel(["b"])
    with pytest.raises(ProviderError) as caught:
        await FallbackModel([ScriptedModel([failing(kind)]), second]).chat(REQUEST)
    assert (caught.value.kind, second.calls) == (kind, 0)


async def test_part_one_provider_cannot_carry_goes_to_the_next() -> None:
    model = FallbackModel([ScriptedModel([UnsupportedContentError("no audio")]), ScriptedModel(["b"])])
    assert (await model.chat(REQUEST)).text == "b"


async def test_first_model_answers_alone() -> None:
    second = ScriptedModel(["b"])
    model = FallbackModel([ScriptedModel(["a", Reply(text=["a", "a"])]), second])
    assert (await model.chat(REQUEST)).text == "a"
    assert await streamed(model) == "aa"
    assert second.calls == 0


async def test_last_models_failure_is_the_answer() -> None:
    with pytest.raises(ProviderError) as caught:
        await FallbackModel([ScriptedModel([failing("server")]), ScriptedModel([failing("quota")])]).chat(REQUEST)
    assert caught.value.kind == "quota"


async def test_stream_that_has_delivered_is_never_begun_again() -> None:
    memory = InMemoryChatMemory()
    second = ScriptedModel([Reply(text="Twice")])
    model = FallbackModel([ScriptedModel([Reply(text=["Once"], error=failing("network"))]), second])
    seen = ""
    with pytest.raises(ProviderError) as caught:
        async with ChatClient(model, memory=memory).stream("hi", conversation_id="u1") as turn:
            async for piece in turn.text:
                seen += piece
    assert (caught.value.kind, seen, second.calls) == ("network", "Once", 0)
    assert (await memory.get("u1"))[-1] == AssistantMessage("Once", finish_reason="interrupted")


async def test_stream_gives_the_response_of_the_model_that_answered() -> None:
    model = FallbackModel(
        [ScriptedModel([failing("server")], name="a"), ScriptedModel([Reply(text=["x", "y"])], name="b")]
    )
    async with model.stream(REQUEST) as stream:
        events = [event async for event in stream]
    assert (len(events), stream.response.text, stream.response.model) == (2, "xy", "b")


async def test_empty_reply_is_a_reply() -> None:
    second = ScriptedModel(["b"])
    assert await streamed(FallbackModel([ScriptedModel([""]), second])) == ""
    assert second.calls == 0


async def test_closing_closes_all_and_none_is_refused() -> None:
    class Closing(ScriptedModel):
        closed = False

        async def aclose(self) -> None:
            self.closed = True

    models = [Closing([]), Closing([]), ScriptedModel([])]
    async with FallbackModel(models) as model:
        assert model.check([UserMessage("x")]) == []
    assert all(one.closed for one in models if isinstance(one, Closing))
    with pytest.raises(ConfigurationError, match="at least one"):
        FallbackModel([])


async def test_failure_in_an_opened_stream_closes_it_and_is_raised() -> None:
    model = FallbackModel([ScriptedModel([ValueError("a bug")]), ScriptedModel(["b"])])
    with pytest.raises(ValueError, match="a bug"):
        await streamed(model)


async def test_models_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
    model = FallbackModel(["openai:gpt-5-mini", ScriptedModel(["b"])])
    assert "gpt-5-mini" in repr(model)
    assert "sk-x" not in repr(model)
    await model.aclose()
