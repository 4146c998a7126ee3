"""Hand-off: one history, several personas."""

from typing import Any

import pytest

from agentcore import (
    ChatClient,
    ChatOptions,
    ConfigurationError,
    InMemoryChatMemory,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
    tool,
)
from agentcore.agents.handoff import HandoffFilter, Persona
from agentcore.testing import ScriptedModel

pytestmark = pytest.mark.asyncio


@tool
async def refund() -> str:
    """Refund."""
    return "refunded"


@tool
async def clock() -> str:
    """Tell the time."""
    return "noon"


TO_BILLING = ToolCall("h1", "transfer_to_billing")


def personas(**of_billing: Any) -> list[Persona]:
    return [
        Persona(name="triage", instructions="You sort."),
        Persona(name="billing", instructions="You bill.", description="Money.", tools=[refund], **of_billing),
    ]


def client(model: ScriptedModel, memory: InMemoryChatMemory, /, *, keep: bool = True, **of_billing: Any) -> ChatClient:
    handoff = HandoffFilter(personas(**of_billing), memory=memory if keep else None)
    return ChatClient(model, tools=[clock], memory=memory, filters=[handoff], system="unused")


def shown(model: ScriptedModel, number: int) -> tuple[Any, list[str]]:
    request = model.requests[number]
    return request.messages[0], [one.name for one in request.tools]


async def test_conversation_moves_and_the_history_stays_one() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([TO_BILLING, ToolCall("r1", "refund"), "Done.", "Still billing."])
    one = client(model, memory)
    result = await one.invoke("my money!", conversation_id="u1")
    assert (result.text, result.tool_context["persona"]) == ("Done.", "billing")
    assert shown(model, 0) == (SystemMessage("You sort."), ["clock", "transfer_to_billing"])
    assert shown(model, 1) == (SystemMessage("You bill."), ["clock", "refund", "transfer_to_triage"])
    stored = await memory.get("u1")
    assert stored[0] == UserMessage("my money!")
    assert not any(isinstance(message, SystemMessage) for message in stored)
    assert check_history(stored) == []
    await one.invoke("thanks", conversation_id="u1")
    assert shown(model, 3)[0] == SystemMessage("You bill.")


async def test_who_speaks_is_kept_with_the_conversation() -> None:
    memory = InMemoryChatMemory()
    await client(ScriptedModel([TO_BILLING, "ok"]), memory).invoke("a", conversation_id="u1")
    model = ScriptedModel(["b", "c"])
    other = client(model, memory)
    await other.invoke("b", conversation_id="u1")
    await other.invoke("c", conversation_id="u2")
    assert [shown(model, n)[0].content for n in (0, 1)] == ["You bill.", "You sort."]


async def test_without_a_store_the_caller_says_who_speaks() -> None:
    model = ScriptedModel(["a", "b"])
    one = client(model, InMemoryChatMemory(), keep=False)
    await one.invoke("a", tool_context={"persona": "billing"})
    await one.invoke("b", tool_context={"persona": "nobody"})
    assert [shown(model, n)[0].content for n in (0, 1)] == ["You bill.", "You sort."]


async def test_persona_brings_its_model_and_settings() -> None:
    first, second = ScriptedModel([TO_BILLING]), ScriptedModel(["done"])
    one = client(first, InMemoryChatMemory(), model=second, options=ChatOptions(temperature=0.1))
    result = await one.invoke("a", conversation_id="u1", options=ChatOptions(max_tokens=5))
    assert result.text == "done"
    assert (second.requests[0].options.temperature, second.requests[0].options.max_tokens) == (0.1, 5)
    assert [type(m).__name__ for m in second.requests[0].messages] == [
        "SystemMessage",
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]


async def test_tool_of_another_persona_does_not_run() -> None:
    model = ScriptedModel([ToolCall("r1", "refund"), "sorry"])
    result = await client(model, InMemoryChatMemory()).invoke("a", conversation_id="u1")
    message = result.messages[2]
    assert isinstance(message, ToolMessage)
    assert (message.is_error, "There is no tool named 'refund'" in str(message.content)) == (True, True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "at least one"),
        ([Persona(name="a", instructions=""), Persona(name="a", instructions="")], "one name"),
        ([Persona(name="a", instructions="", handoffs=["b"])], "cannot hand over to 'b'; the others are nobody"),
        ([Persona(name="a", instructions="", handoffs=["a"]), Persona(name="b", instructions="")], "to 'a'"),
        (
            [
                Persona(name="a", instructions="", tools=[refund]),
                Persona(name="b", instructions="", tools=[refund.renamed("x").renamed("refund")]),
            ],
            "different tools named 'refund'",
        ),
        (
            [
                Persona(name="a", instructions="", tools=[clock.renamed("transfer_to_b")]),
                Persona(name="b", instructions=""),
            ],
            "a tool named 'transfer_to_b' of its own",
        ),
    ],
    ids=["none", "names", "nobody", "itself", "tools", "taken"],
)
async def test_personas_that_cannot_work_are_refused_by_name(given: list[Persona], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        HandoffFilter(given)
