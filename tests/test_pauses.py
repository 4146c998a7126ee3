"""Pauses: a turn that waits for a person goes on once, as decided, in this process or another."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agentcore import (
    AssistantMessage,
    ChatClient,
    Decision,
    EnvironmentToolError,
    InMemoryChatMemory,
    Limits,
    Message,
    Pause,
    PauseError,
    PendingCall,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolFinished,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
    check_history,
    tool,
)
from agentcore.testing import Reply, ScriptedModel

pytestmark = pytest.mark.asyncio

PAY = ToolCall("c1", "pay", {"amount": 5})
LOOK = ToolCall("c2", "look", {})


class Shop:
    """Tools that leave a trace."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.looks = 0

    def tools(self, approval: Any = True) -> list[Any]:
        @tool(approval=approval)
        async def pay(amount: int) -> str:
            self.paid.append(amount)
            return f"paid {amount}"

        @tool
        async def look() -> str:
            self.looks += 1
            return "seen"

        return [pay, look]


def client(shop: Shop, script: Sequence[Any], memory: InMemoryChatMemory, **settings: Any) -> ChatClient:
    approval = settings.pop("approval", True)
    return ChatClient(ScriptedModel(list(script)), tools=shop.tools(approval), memory=memory, **settings)


async def paused(
    shop: Shop, memory: InMemoryChatMemory, calls: Sequence[ToolCall] = (PAY, LOOK), **settings: Any
) -> Pause:
    result = await client(shop, [list(calls)], memory, **settings).invoke("buy it", conversation_id="u1")
    assert result.status == "paused"
    assert result.pause is not None
    return result.pause


async def test_gated_call_pauses_the_turn_and_nothing_of_its_batch_runs() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    one = client(shop, [[PAY, LOOK]], memory)
    result = await one.invoke("buy it", conversation_id="u1")
    assert (result.status, shop.paid, shop.looks) == ("paused", [], 0)
    assert result.pause is not None
    assert [(c.call, c.kind) for c in result.pause.calls] == [(PAY, "approval")]
    assert list(await memory.get("u1")) == [UserMessage("buy it"), AssistantMessage(None, (PAY, LOOK))]
    assert await one.open_pause("u1") == result.pause
    assert await one.open_pause("u2") is None


async def test_approved_turn_goes_on_in_another_client_on_the_same_store() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    model = ScriptedModel(["done"])
    other = ChatClient(model, tools=shop.tools(), memory=memory)
    result = await other.resume("u1", pause.calls[0].approve())
    assert (result.status, result.text, shop.paid, shop.looks) == ("completed", "done", [5], 1)
    history: list[Message] = [
        UserMessage("buy it"),
        AssistantMessage(None, (PAY, LOOK)),
        ToolMessage("c1", "pay", "paid 5"),
        ToolMessage("c2", "look", "seen"),
        AssistantMessage("done"),
    ]
    assert list(await memory.get("u1")) == history
    assert list(model.requests[0].messages) == history[:-1]
    assert (result.turn_id, result.model_calls, result.tool_calls) == (pause.turn_id, 2, 2)
    assert await other.open_pause("u1") is None


async def test_resumed_turn_can_be_streamed_and_pauses_again_at_the_next_gate() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    again = ToolCall("c3", "pay", {"amount": 7})
    conversation = client(shop, [again, "done"], memory).conversation("u1")
    async with conversation.resume_stream(pause.calls[0].approve()) as turn:
        finished = [event.message.content async for event in turn if isinstance(event, ToolFinished)]
    assert sorted(str(text) for text in finished) == ["paid 5", "seen"]
    assert turn.result.status == "paused"
    second = await conversation.open_pause()
    assert second is not None
    assert second.id != pause.id
    result = await conversation.resume([second.calls[0].approve()])
    assert (result.text, shop.paid) == ("done", [5, 7])
    assert check_history(await memory.get("u1")) == []


async def test_other_arguments_are_run_and_the_model_is_told() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory, [PAY])
    await client(shop, ["ok"], memory).resume("u1", pause.calls[0].approve({"amount": 1}))
    assert shop.paid == [1]
    message = (await memory.get("u1"))[2]
    assert isinstance(message, ToolMessage)
    assert message.content == '(A person had it run with other arguments: {"amount":1})\npaid 1'


@pytest.mark.parametrize(
    ("decide", "content", "is_error"),
    [
        (lambda call: call.reject("too dear"), "Not run: a person refused it: too dear", True),
        (lambda call: call.reject(), "Not run: a person refused it.", True),
        (lambda call: call.reply("paid by hand"), "paid by hand", False),
        (lambda call: call.reply("it broke", is_error=True), "it broke", True),
        (lambda call: call.approve({"amount": "much"}), None, True),
    ],
    ids=["reason", "no-reason", "reply", "error", "bad-arguments"],
)
async def test_decision_in_the_tools_place_is_what_the_model_is_told(
    decide: Any, content: str | None, is_error: bool
) -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    result = await client(shop, ["ok"], memory).resume("u1", decide(pause.calls[0]))
    assert (result.status, shop.paid, shop.looks) == ("completed", [], 1)
    message = (await memory.get("u1"))[2]
    assert isinstance(message, ToolMessage)
    assert content is None or message.content == content
    assert message.is_error == is_error


async def test_gate_is_asked_in_call_order_and_may_let_calls_pass() -> None:
    asked: list[int] = []

    async def over_ten(call: ToolCall, context: ToolContext) -> bool | str:
        asked.append(call.args["amount"])
        return f"{context['user_id']} pays {call.args['amount']}" if call.args["amount"] > 10 else False

    shop, memory = Shop(), InMemoryChatMemory()
    calls = [ToolCall(f"c{n}", "pay", {"amount": n}) for n in (20, 3, 30)]
    one = client(shop, [calls, "done"], memory, approval=over_ten)
    result = await one.invoke("buy", conversation_id="u1", tool_context={"user_id": "kim"})
    assert asked == [20, 3, 30]
    assert result.pause is not None
    assert [(c.call.id, c.reason) for c in result.pause.calls] == [("c20", "kim pays 20"), ("c30", "kim pays 30")]
    decisions = [result.pause.calls[0].approve(), result.pause.calls[1].reject()]
    await one.resume("u1", decisions, tool_context={"user_id": "kim"})
    assert sorted(shop.paid) == [3, 20]


async def test_gate_that_fails_keeps_the_call_waiting() -> None:
    def broken(call: ToolCall, context: ToolContext) -> bool:
        raise RuntimeError("no rules")

    pause = await paused(Shop(), InMemoryChatMemory(), approval=broken)
    assert pause.calls[0].reason == "the gate of pay failed: RuntimeError: no rules"


@pytest.mark.parametrize(
    "call",
    [ToolCall("c1", "pay", {"amount": "much"}), ToolCall("c1", "pay", {}, "{amount:"), ToolCall("c1", "nothing")],
    ids=["bad", "unreadable", "unknown"],
)
async def test_call_that_cannot_run_asks_for_nobodys_consent(call: ToolCall) -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    result = await client(shop, [call, "sorry"], memory).invoke("buy", conversation_id="u1")
    assert (result.status, shop.paid) == ("completed", [])


async def test_tool_that_runs_elsewhere_waits_for_its_reply() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    where = ToolDefinition("location", "Where the user is.")
    one = ChatClient(
        ScriptedModel([[ToolCall("c9", "location"), LOOK], "Oslo"]), tools=[where, *shop.tools()], memory=memory
    )
    result = await one.invoke("where am I?", conversation_id="u1")
    assert result.pause is not None
    assert [c.kind for c in result.pause.calls] == ["client_tool"]
    with pytest.raises(PauseError, match="waits as client_tool: use reject, reply"):
        await one.resume("u1", result.pause.calls[0].approve())
    assert (await one.resume("u1", result.pause.calls[0].reply("59.9, 10.7"))).text == "Oslo"


async def test_decisions_travel_as_json() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = msgspec.json.decode(msgspec.json.encode(await paused(shop, memory)), type=Pause)
    decision = msgspec.json.decode(msgspec.json.encode(pause.calls[0].approve()), type=Decision)
    assert (await client(shop, ["ok"], memory).resume("u1", decision)).status == "completed"


async def test_resuming_twice_is_refused_by_name_and_runs_nothing() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    one = client(shop, ["ok"], memory)
    await one.resume("u1", pause.calls[0].approve())
    with pytest.raises(PauseError, match="resumed already") as caught:
        await one.resume("u1", pause.calls[0].approve())
    assert (caught.value.reason, shop.paid) == ("resumed", [5])


async def test_of_two_who_resume_at_once_one_goes_on() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    clients = [client(shop, ["ok"], memory) for _ in range(2)]
    outcomes = await asyncio.gather(
        *(one.resume("u1", pause.calls[0].approve()) for one in clients), return_exceptions=True
    )
    assert shop.paid == [5]
    [refused] = [outcome for outcome in outcomes if isinstance(outcome, PauseError)]
    assert refused.reason in ("resumed", "stale")
    assert check_history(await memory.get("u1")) == []


async def test_resuming_nothing_says_so() -> None:
    with pytest.raises(PauseError, match="nothing waits") as caught:
        await client(Shop(), [], InMemoryChatMemory()).resume("u1", [])
    assert caught.value.reason == "nothing"
    with pytest.raises(PauseError, match="keeps no pauses"):
        await ChatClient(ScriptedModel([])).resume("u1", [])


async def test_new_turn_over_a_pause_abandons_it() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    one = client(shop, ["never mind then", "?"], memory)
    assert (await one.invoke("forget it", conversation_id="u1")).status == "completed"
    with pytest.raises(PauseError, match="a new turn began") as caught:
        await one.resume("u1", pause.calls[0].approve())
    assert (caught.value.reason, shop.paid) == ("stale", [])
    results = [m for m in await memory.get("u1") if isinstance(m, ToolMessage)]
    assert [m.content for m in results] == ["Not run: it waited for a decision, and the user went on without one."] * 2
    assert check_history(await memory.get("u1")) == []


async def test_pause_expires_by_the_stores_clock() -> None:
    now = [1000.0]
    shop, memory = Shop(), InMemoryChatMemory(clock=lambda: now[0])
    one = client(shop, [[PAY], "too late"], memory, pause_expires_in=60)
    result = await one.invoke("buy", conversation_id="u1")
    assert result.pause is not None
    now[0] += 61
    assert await one.open_pause("u1") is None
    with pytest.raises(PauseError, match="has expired") as caught:
        await one.resume("u1", result.pause.calls[0].approve())
    assert (caught.value.reason, shop.paid) == ("expired", [])
    assert (await one.invoke("hello?", conversation_id="u1")).text == "too late"
    assert check_history(await memory.get("u1")) == []


@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (lambda _: [], "incomplete"),
        (lambda _: Decision(call_id="c1", digest="0" * 64, action="approve"), "forged"),
        (lambda pause: replace(pause.calls[0].approve(), call_id="c2"), "stale"),
        (lambda pause: [pause.calls[0].approve(), pause.calls[0].reject()], "forged"),
        (lambda pause: pause.calls[0].retry(), "forged"),
    ],
    ids=["missing", "digest", "other-call", "two", "action"],
)
async def test_decision_that_is_not_on_what_was_shown_is_refused_and_the_pause_stays(forge: Any, reason: str) -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    one = client(shop, ["ok"], memory)
    with pytest.raises(PauseError) as caught:
        await one.resume("u1", forge(pause))
    assert (caught.value.reason, shop.paid, shop.looks) == (reason, [], 0)
    assert (await one.resume("u1", pause.calls[0].approve())).status == "completed"


async def test_decision_of_one_pause_is_no_decision_of_another_with_the_same_call() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    first = await paused(shop, memory)
    await client(shop, ["ok"], memory).resume("u1", first.calls[0].reject())
    second = await paused(shop, memory)
    with pytest.raises(PauseError, match="other arguments or for another pause"):
        await client(shop, ["ok"], memory).resume("u1", first.calls[0].approve())
    assert second.calls[0].digest != first.calls[0].digest


async def test_approver_decides_at_once_and_the_turn_does_not_pause() -> None:
    asked: list[PendingCall] = []

    async def approver(pending: PendingCall, context: ToolContext) -> Decision:
        asked.append(pending)
        return pending.approve()

    shop = Shop()
    one = ChatClient(ScriptedModel([[PAY, LOOK], "done"]), tools=shop.tools(), approver=approver)
    assert (await one.invoke("buy")).status == "completed"
    assert ([p.call.name for p in asked], shop.paid) == (["pay"], [5])


async def test_approver_that_fails_leaves_a_whole_history() -> None:
    async def approver(pending: PendingCall, context: ToolContext) -> Decision:
        raise RuntimeError("terminal gone")

    shop, memory = Shop(), InMemoryChatMemory()
    with pytest.raises(RuntimeError, match="terminal gone"):
        await client(shop, [[PAY, LOOK]], memory, approver=approver).invoke("buy", conversation_id="u1")
    assert (shop.paid, check_history(await memory.get("u1"))) == ([], [])


@pytest.mark.parametrize("remembered", [False, True])
async def test_turn_that_could_never_be_resumed_tells_the_model_instead(remembered: bool) -> None:
    shop = Shop()
    model = ScriptedModel([[PAY, LOOK], "I cannot pay here."])
    one = ChatClient(model, tools=shop.tools(), memory=InMemoryChatMemory() if remembered else None)
    result = await one.invoke("buy")
    assert (result.status, result.text, shop.paid, shop.looks) == ("completed", "I cannot pay here.", [], 1)
    assert "this conversation cannot wait for one" in str(result.messages[2].content)


WHERE = ToolDefinition("where", "Where the user is.")
ASK = ToolCall("c9", "where", {})


@pytest.mark.parametrize("remembered", [False, True], ids=["no-memory", "no-conversation"])
@pytest.mark.parametrize("streamed", [False, True], ids=["invoke", "stream"])
async def test_callers_tool_ends_a_turn_without_a_conversation_and_the_caller_goes_on(
    remembered: bool, streamed: bool
) -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    model = ScriptedModel([[LOOK], [ASK, LOOK], "In Oslo."])
    one = ChatClient(model, tools=shop.tools(), memory=memory if remembered else None)
    if streamed:
        async with one.stream("where am I?", tools=[WHERE]) as turn:
            async for _ in turn:
                pass
        result = turn.result
    else:
        result = await one.invoke("where am I?", tools=[WHERE])
    assert (result.status, result.finish_reason, shop.looks) == ("paused", "tool_calls", 1)  # the second is not run
    assert result.pause is not None
    assert [(one.call, one.kind) for one in result.pause.calls] == [(ASK, "client_tool")]
    assert result.message == AssistantMessage(None, (ASK, LOOK))
    assert await memory.list_conversations() == await InMemoryChatMemory().list_conversations()
    history = [UserMessage("where am I?"), AssistantMessage(None, (ASK,)), ToolMessage("c9", "where", "Oslo")]
    after = await one.invoke(history, tools=[WHERE])
    assert (after.status, after.text) == ("completed", "In Oslo.")
    assert list(model.requests[2].messages) == history


async def test_callers_tool_beside_a_gated_call_ends_the_turn_and_neither_runs() -> None:
    shop = Shop()
    one = ChatClient(ScriptedModel([[PAY, ASK]]), tools=shop.tools())
    result = await one.invoke("buy it here", tools=[WHERE])
    assert result.pause is not None
    assert [(one.call.id, one.kind) for one in result.pause.calls] == [("c1", "approval"), ("c9", "client_tool")]
    assert shop.paid == []


async def test_clients_own_definition_and_a_gate_still_tell_the_model_where_nobody_can_answer() -> None:
    shop = Shop()
    one = ChatClient(ScriptedModel([[ASK], [PAY], "no"]), tools=[WHERE, *shop.tools()])
    other = ToolDefinition("other")
    result = await one.invoke("buy it here", tools=[other])
    assert (result.status, result.text, shop.paid) == ("completed", "no", [])
    assert [m.is_error for m in result.messages if isinstance(m, ToolMessage)] == [True, True]


async def test_callers_tool_in_a_conversation_that_cannot_wait_tells_the_model() -> None:
    one = ChatClient(ScriptedModel([[ASK], "no"]))  # an id, but nothing is kept under it
    result = await one.invoke("where am I?", conversation_id="u1", tools=[WHERE])
    assert (result.status, result.text) == ("completed", "no")


async def test_callers_tool_in_a_conversation_pauses_it_and_is_given_again_to_resume() -> None:
    memory = InMemoryChatMemory()
    model = ScriptedModel([[ASK], "In Oslo."])
    one = ChatClient(model, memory=memory)
    result = await one.invoke("where am I?", conversation_id="u1", tools=[WHERE])
    assert result.pause is not None
    resumed = await one.resume("u1", result.pause.calls[0].reply("Oslo"), tools=[WHERE])
    assert (resumed.status, resumed.text) == ("completed", "In Oslo.")
    assert [tool.name for tool in model.requests[1].tools] == ["where"]


async def test_external_loop_asks_for_decisions_too() -> None:
    shop = Shop()
    one = ChatClient(ScriptedModel([]), tools=shop.tools())
    batch = await one.run_tools([PAY, LOOK])
    assert ([p.call.id for p in batch.pending], batch.messages, shop.looks) == (["c1"], (), 0)
    batch = await one.run_tools([PAY, LOOK], decisions=[batch.pending[0].approve()])
    assert [m.content for m in batch.messages] == ["paid 5", "seen"]


class Vault:
    """A tool whose surroundings fail until they are mended."""

    def __init__(self) -> None:
        self.open = False
        self.runs = 0

    def tools(self) -> list[Any]:
        @tool
        async def fetch() -> Any:
            self.runs += 1
            if not self.open:
                raise EnvironmentToolError("the credentials have expired")
            return ToolResult("gold", writes={"fetched": True})

        return [fetch, *Shop().tools()]


FETCH = ToolCall("c3", "fetch", {})


async def test_failed_surroundings_pause_the_turn_and_a_retry_goes_on() -> None:
    vault, memory = Vault(), InMemoryChatMemory()
    model = ScriptedModel([[FETCH, LOOK], "rich"])
    one = ChatClient(model, tools=vault.tools(), memory=memory, pause_on_environment_error=True)
    result = await one.invoke("fetch it", conversation_id="u1")
    assert (result.status, result.tool_calls) == ("paused", 2)
    assert result.pause is not None
    assert [(c.kind, c.reason) for c in result.pause.calls] == [("environment", "the credentials have expired")]
    assert [m.content for m in (await memory.get("u1"))[2:]] == ["seen"]  # what ran is a fact
    vault.open = True
    result = await one.resume("u1", result.pause.calls[0].retry())
    assert (result.text, vault.runs, result.tool_context["fetched"]) == ("rich", 2, True)
    assert check_history(await memory.get("u1")) == []
    assert [m.content for m in model.requests[1].messages if isinstance(m, ToolMessage)] == ["gold", "seen"]


async def test_failed_surroundings_may_be_told_to_the_model_after_all() -> None:
    vault, memory = Vault(), InMemoryChatMemory()
    one = ChatClient(
        ScriptedModel([FETCH, "no gold"]), tools=vault.tools(), memory=memory, pause_on_environment_error=True
    )
    result = await one.invoke("fetch it", conversation_id="u1")
    assert result.pause is not None
    result = await one.resume("u1", result.pause.calls[0].proceed())
    assert (result.text, vault.runs) == ("no gold", 1)
    assert (await memory.get("u1"))[2] == ToolMessage("c3", "fetch", "the credentials have expired", is_error=True)


async def test_failed_surroundings_are_told_to_the_model_unless_asked_otherwise() -> None:
    vault = Vault()
    result = await ChatClient(ScriptedModel([FETCH, "no gold"]), tools=vault.tools()).invoke("fetch it")
    assert (result.status, result.text) == ("completed", "no gold")


async def test_limits_count_what_was_before_the_pause() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    usage = Usage(input_tokens=10, output_tokens=1)
    one = client(shop, [Reply(tool_calls=[PAY], usage=usage), LOOK], memory, limits=Limits(model_calls=2))
    result = await one.invoke("buy", conversation_id="u1")
    assert result.pause is not None
    result = await one.resume("u1", result.pause.calls[0].approve())
    assert (result.status, result.limit, result.model_calls, result.usage.input_tokens) == (
        "limit",
        "model_calls",
        2,
        10,
    )


async def test_fork_takes_the_pause_along_and_each_side_resumes_its_own() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    pause = await paused(shop, memory)
    await memory.fork("u1", "u2", at=2)
    for conversation_id in ("u1", "u2"):
        await client(shop, ["ok"], memory).resume(conversation_id, pause.calls[0].approve())
        assert check_history(await memory.get(conversation_id)) == []
    assert shop.paid == [5, 5]


async def test_rollback_takes_the_pause_back() -> None:
    shop, memory = Shop(), InMemoryChatMemory()
    await memory.add("u1", [UserMessage("a"), AssistantMessage("b")])
    pause = await paused(shop, memory)
    await memory.rollback("u1", to=2)
    with pytest.raises(PauseError, match="nothing waits"):
        await client(shop, [], memory).resume("u1", pause.calls[0].approve())
