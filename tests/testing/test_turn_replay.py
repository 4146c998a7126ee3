"""A stored turn runs again without a network and without its tools, and asks the same, byte for byte."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from agentcore import (
    AssistantMessage,
    ChatClient,
    ConfigurationError,
    EnvironmentToolError,
    Filter,
    HandoffFilter,
    InMemoryChatMemory,
    InvalidInputError,
    OpenAIChatModel,
    Persona,
    ProviderError,
    SQLiteChatMemory,
    SummarizingChatMemory,
    Tool,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
    tool,
)
from agentcore.memory.ledger import record_result
from agentcore.testing import (
    ReplayError,
    Reply,
    ScriptedModel,
    TurnDocument,
    TurnRecorder,
    TurnTape,
    export_turn,
    replay_turn,
)
from tests.support.loopback import RESET, Loopback, chunk, json_reply, sse
from tests.support.loopback import Reply as WireReply
from tests.support.turn_wires import WIRES, Shop, Wire, client_of

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
WIRE = WIRES["chat completions"]
Make = Callable[[TurnTape], ChatClient]


def maker(url: str, shop: Shop | None = None, wire: Wire = WIRE) -> Make:
    return lambda tape: client_of(wire, url, tape, shop or Shop())


async def run(client: ChatClient, text: str, *, streamed: bool, conversation_id: str = "u1") -> Any:
    if not streamed:
        return await client.invoke(text, conversation_id=conversation_id)
    async with client.stream(text, conversation_id=conversation_id) as turn:
        async for _ in turn:
            pass
    return turn.result


async def resume(client: ChatClient, decisions: Any, *, streamed: bool) -> Any:
    if not streamed:
        return await client.resume("u1", decisions)
    async with client.resume_stream("u1", decisions) as turn:
        async for _ in turn:
            pass
    return turn.result


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", list(WIRES))
async def test_exported_turn_replays_in_another_process_without_a_network(
    tmp_path: Path, name: str, streamed: bool
) -> None:
    wire, shop = WIRES[name], Shop()
    replies = [
        *(wire.reply(f"hello {number}", streamed=streamed) for number in range(3)),
        wire.reply(
            "both at once", [("c1", "look", {"city": "北京"}), ("c2", "fail", {"why": "so"})], streamed=streamed
        ),
        wire.reply("now", [("c1", "pay", {"amount": 9}), ("c3", "look", {"city": "Oslo"})], streamed=streamed),
        wire.reply(calls=[("c4", "nothing_like_it", {})], streamed=streamed),
        wire.reply("all is paid", streamed=streamed),
    ]
    file = tmp_path / "turn.json"
    async with Loopback(*replies) as server, SQLiteChatMemory(tmp_path / "chats.db") as memory:
        async with TurnRecorder(memory) as recorder, client_of(wire, server.url, recorder, shop) as client:
            for number in range(3):
                await run(client, f"hi {number}", streamed=streamed)
            paused = await run(client, "look, then pay", streamed=streamed)
        # Another process would go on with it: here another recorder and client.
        async with TurnRecorder(memory) as recorder, client_of(wire, server.url, recorder, shop) as client:
            decisions = [one.approve({"amount": 5}) for one in paused.pause.calls]
            result = await resume(client, decisions, streamed=streamed)
        assert (result.status, result.text) == ("completed", "all is paid")
        document = await export_turn(memory, "u1")
        await document.save(file)
    asked = [exchange.request.encode() for one in document.runs for exchange in one.exchanges]
    assert asked == [request.body for request in server.requests[3:]]
    assert "sk-very-secret" not in file.read_text()
    assert shop.done == ["look 北京", "fail so", "pay 5", "look Oslo"]
    child = subprocess.run(
        [sys.executable, "-m", "tests.support.turn_wires", "replay", name, str(file)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (child.returncode, child.stdout) == (0, "all is paid\n"), child.stderr


async def record_one(
    memory: Any, replies: Sequence[WireReply], make: Callable[[str], Make], text: str = "hi", *, streamed: bool = False
) -> TurnDocument:
    """A turn of a client over a server that plays these replies, exported."""
    async with Loopback(*replies) as server, TurnRecorder(memory) as recorder, make(server.url)(recorder) as client:
        with suppress(ProviderError):
            await run(client, text, streamed=streamed)
        return TurnDocument.from_json((await export_turn(memory, "u1")).to_json())


async def test_other_request_is_an_error_that_shows_where_it_differs() -> None:
    shop = Shop()
    document = await record_one(InMemoryChatMemory(), [WIRE.reply("hello")], lambda url: maker(url, shop))

    def changed(tape: TurnTape) -> ChatClient:
        return ChatClient(
            WIRE.model("http://nowhere.invalid", tape.http_client),
            tools=tape.tools(shop.tools()),
            memory=tape.memory,
            filters=[tape.filter],
            system="Be verbose.",
        )

    with pytest.raises(ReplayError, match=r"request 1 is another one: at byte \d+ of") as caught:
        await replay_turn(document, changed)
    assert "(messages[0].content)" in str(caught.value)
    assert "Be brief." in str(caught.value)
    assert "Be verbose." in str(caught.value)


async def test_call_without_a_result_on_record_is_an_error_and_runs_nothing() -> None:
    replies = [WIRE.reply(calls=[("c1", "look", {"city": "Oslo"})]), WIRE.reply("grey")]
    shop = Shop()
    document = await record_one(InMemoryChatMemory(), replies, lambda url: maker(url))
    lost = replace(
        document, messages=tuple(one for one in document.messages if not isinstance(one.message, ToolMessage))
    )
    with pytest.raises(ReplayError, match=r"look, call 'c1' with \{'city': 'Oslo'\}, has no result on record"):
        await replay_turn(lost, maker("http://nowhere.invalid", shop))
    assert shop.done == []


async def test_turn_that_ends_earlier_or_otherwise_is_an_error() -> None:
    replies = [WIRE.reply(calls=[("c1", "look", {"city": "Oslo"})]), WIRE.reply("grey")]
    document = await record_one(InMemoryChatMemory(), replies, lambda url: maker(url))

    def stopping(tape: TurnTape) -> ChatClient:
        return ChatClient(
            WIRE.model("http://nowhere.invalid", tape.http_client),
            tools=tape.tools(Shop().tools()),
            memory=tape.memory,
            filters=[tape.filter],
            system="Be brief.",
            run_tools_if=lambda _response, _turn: False,
        )

    with pytest.raises(ReplayError, match="ended as 'stopped' before it asked what is on record: /v1/chat/completions"):
        await replay_turn(document, stopping)
    [run_] = document.runs
    other = replace(document, runs=(replace(run_, status="blocked"),))
    with pytest.raises(ReplayError, match="ended as 'completed'; when it was recorded, as 'blocked'"):
        await replay_turn(other, maker("http://nowhere.invalid"))
    shorter = replace(document, runs=(replace(run_, exchanges=run_.exchanges[:1]),))
    with pytest.raises(ReplayError, match="request 2 to /v1/chat/completions, where the recorded turn had no answer"):
        await replay_turn(shorter, maker("http://nowhere.invalid"))


async def test_client_that_leaves_the_tape_out_is_refused() -> None:
    document = await record_one(InMemoryChatMemory(), [WIRE.reply("hello")], lambda url: maker(url))

    def without_filter(tape: TurnTape) -> ChatClient:
        return ChatClient(WIRE.model("http://nowhere.invalid", tape.http_client), memory=tape.memory)

    def without_memory(tape: TurnTape) -> ChatClient:
        return ChatClient(WIRE.model("http://nowhere.invalid", tape.http_client), filters=[tape.filter])

    with pytest.raises(ConfigurationError, match="leaves out the tape's filter"):
        await replay_turn(document, without_filter)
    with pytest.raises(ConfigurationError, match="memory is not the tape's"):
        await replay_turn(document, without_memory)


async def test_turn_that_was_not_recorded_can_be_exported_and_says_that_it_cannot_be_replayed() -> None:
    memory = InMemoryChatMemory()
    client = ChatClient(ScriptedModel(["one", "two \ud800"]), memory=memory)
    first = await client.invoke("a", conversation_id="u1")
    await client.invoke("b", conversation_id="u1")
    early = await export_turn(memory, "u1", first.turn_id)
    assert [one.message for one in early.messages] == list(first.messages)
    assert (early.history, early.runs) == ((), ())
    late = await export_turn(memory, "u1")
    assert TurnDocument.from_json(late.to_json()) == late
    assert [one.message for one in late.history] == list(first.messages)
    with pytest.raises(InvalidInputError, match="was not recorded"):
        await replay_turn(late, maker("http://nowhere.invalid"))


async def test_export_names_what_is_missing() -> None:
    class Plain:
        async def get(self, conversation_id: str) -> Sequence[Any]:
            return ()

        async def add(self, conversation_id: str, messages: Sequence[Any]) -> None: ...

        async def clear(self, conversation_id: str) -> None: ...

    with pytest.raises(InvalidInputError, match=r"no turn in conversation 'u1'; its last ones: none"):
        await export_turn(InMemoryChatMemory(), "u1")
    memory = InMemoryChatMemory()
    result = await ChatClient(ScriptedModel(["one"]), memory=memory).invoke("a", conversation_id="u1")
    with pytest.raises(InvalidInputError, match=f"no turn 'other' .* its last ones: {result.turn_id}"):
        await export_turn(memory, "u1", "other")
    with pytest.raises(ConfigurationError, match="Plain does not keep which turn stored what"):
        await export_turn(Plain(), "u1")
    with pytest.raises(ConfigurationError, match="no turn can be recorded in Plain"):
        TurnRecorder(Plain())
    with pytest.raises(InvalidInputError, match="no exported turn"):
        TurnDocument.from_json(b"{}")
    with pytest.raises(InvalidInputError, match="format 99"):
        data = (await export_turn(memory, "u1")).to_json()
        TurnDocument.from_json(data.replace(b'"format": 1', b'"format": 99'))


async def test_turn_that_failed_and_stored_nothing_is_the_last_one_and_fails_again() -> None:
    memory = InMemoryChatMemory()
    await record_one(memory, [WIRE.reply("hello")], lambda url: maker(url))
    document = await record_one(memory, [json_reply({"error": "no"}, status=400)], lambda url: maker(url), "again")
    assert document.messages == ()
    assert len(document.history) == 2
    with pytest.raises(ProviderError) as caught:
        await replay_turn(document, maker("http://nowhere.invalid"))
    assert caught.value.status == 400


async def test_request_that_was_sent_again_is_not_waited_for_again() -> None:
    replies = [json_reply({}, status=429, headers={"retry-after": "0"}), [RESET], WIRE.reply("hello")]
    document = await record_one(InMemoryChatMemory(), replies, lambda url: maker(url))
    [run_] = document.runs
    assert [one.status for one in run_.exchanges] == [429, 0, 200]
    slow = replace(run_.exchanges[0], headers={"retry-after": "3600"})
    patient = replace(document, runs=(replace(run_, exchanges=(slow, *run_.exchanges[1:])),))
    turn = await replay_turn(patient, maker("http://nowhere.invalid"))
    assert turn.result.text == "hello"


async def test_stream_that_broke_breaks_again_and_leaves_the_same() -> None:
    broken = sse(chunk("Hel"), RESET)
    document = await record_one(InMemoryChatMemory(), [broken], lambda url: maker(url), streamed=True)
    assert document.messages[-1].message == AssistantMessage("Hel", finish_reason="interrupted")
    with pytest.raises(ProviderError) as caught:
        await replay_turn(document, maker("http://nowhere.invalid"))
    assert (caught.value.kind, caught.value.partial_text) == ("network", "Hel")


async def test_stream_that_its_reader_left_is_left_there_again() -> None:
    memory = InMemoryChatMemory()
    async with Loopback(sse(chunk("Hel"), "hang")) as server, TurnRecorder(memory) as recorder:
        client = maker(server.url)(recorder)
        async with client.stream("hi", conversation_id="u1") as turn:
            async for _ in turn:
                break
    document = await export_turn(memory, "u1")
    with pytest.raises(ProviderError, match="not read any further"):
        await replay_turn(document, maker("http://nowhere.invalid"))


async def test_failed_surroundings_fail_again_and_the_retry_has_its_result() -> None:
    memory, broken = InMemoryChatMemory(), [True]

    def make(url: str) -> Make:
        @tool
        async def mail(to: str) -> str:
            """Send a mail."""
            if broken:
                raise EnvironmentToolError(f"no password for {to}")
            return f"sent to {to}"

        return lambda tape: ChatClient(
            WIRE.model(url, tape.http_client),
            tools=tape.tools([mail, *Shop().tools()]),
            memory=tape.memory,
            filters=[tape.filter],
            pause_on_environment_error=True,
        )

    calls = [("c1", "mail", {"to": "Kim"}), ("c2", "look", {"city": "Oslo"}), ("c3", "mail", {"to": "Ada"})]
    async with Loopback(WIRE.reply(calls=calls), WIRE.reply("sent")) as server, TurnRecorder(memory) as recorder:
        client = make(server.url)(recorder)
        paused = await run(client, "write", streamed=False)
        assert [one.kind for one in paused.pause.calls] == ["environment"] * 2
        waiting = await export_turn(memory, "u1")
        broken.clear()
        await client.resume("u1", [paused.pause.calls[0].retry(), paused.pause.calls[1].proceed()])
    broken.append(True)
    assert (await replay_turn(waiting, make("http://nowhere.invalid"))).result.status == "paused"
    document = await export_turn(memory, "u1")
    turn = await replay_turn(document, make("http://nowhere.invalid"))
    assert [one.status for one in turn.results] == ["paused", "completed"]
    assert turn.messages == tuple(one.message for one in document.messages)


async def test_toolsets_stay_closed_and_tools_of_one_call_are_on_record() -> None:
    class Remote:
        def __init__(self) -> None:
            self.opened = 0

        async def open(self) -> None:
            self.opened += 1

        async def tools(self) -> Sequence[Tool | ToolDefinition]:
            return [tool(answer)]

        async def aclose(self) -> None: ...

    def answer(question: str) -> str:
        """Answer."""
        return "42"

    def make(url: str, remote: Remote) -> Make:
        return lambda tape: ChatClient(
            WIRE.model(url, tape.http_client), tools=tape.tools([remote]), memory=tape.memory, filters=[tape.filter]
        )

    remote = Remote()
    clock = ToolDefinition("clock", "Tell the time.", {"type": "object", "properties": {}})
    memory = InMemoryChatMemory()
    replies = [WIRE.reply(calls=[("c1", "answer", {"question": "?"}), ("c2", "clock", {})]), WIRE.reply("now")]
    async with Loopback(*replies) as server, TurnRecorder(memory) as recorder:
        client = make(server.url, remote)(recorder)
        paused = await client.invoke("when?", conversation_id="u1", tools=[clock])
        assert paused.pause is not None
        [pending] = paused.pause.calls
        await client.resume("u1", pending.reply("noon"), tools=[clock])
    assert remote.opened
    remote = Remote()
    turn = await replay_turn(await export_turn(memory, "u1"), make("http://nowhere.invalid", remote))
    assert [type(one).__name__ for one in turn.messages[2:4]] == ["ToolMessage"] * 2
    assert turn.result.text == "now"
    assert remote.opened == 0


async def test_own_filters_take_part() -> None:
    class Hurry(Filter):
        async def around_chat(self, request: Any, call_next: Any) -> Any:
            return await call_next(replace(request, messages=[*request.messages, UserMessage("Hurry.")]))

    def make(url: str, *filters: Filter) -> Make:
        return lambda tape: ChatClient(
            WIRE.model(url, tape.http_client), memory=tape.memory, filters=[tape.filter, *filters]
        )

    document = await record_one(InMemoryChatMemory(), [WIRE.reply("hello")], lambda url: make(url, Hurry()))
    assert (await replay_turn(document, make("http://nowhere.invalid", Hurry()))).result.text == "hello"
    with pytest.raises(ReplayError, match=r"messages, 2 items recorded and 1 sent"):
        await replay_turn(document, make("http://nowhere.invalid"))


async def test_summary_and_speaker_from_before_the_turn_are_there() -> None:
    def make(url: str) -> Make:
        def client(tape: TurnTape) -> ChatClient:
            model = WIRE.model(url, tape.http_client)
            people = [Persona(name="desk", instructions="Greet."), Persona(name="bank", instructions="Count.")]
            return ChatClient(
                model,
                memory=SummarizingChatMemory(tape.memory, model, max_messages=6, keep_turns=1),
                filters=[tape.filter, HandoffFilter(people, memory=tape.memory)],
            )

        return client

    said = [
        WIRE.reply(calls=[("c1", "transfer_to_bank", {})]),
        *(WIRE.reply(text) for text in ("one", "two", "a summary", "three", "four", "another summary", "five")),
    ]
    memory = InMemoryChatMemory()
    documents: list[TurnDocument] = []
    async with Loopback(*said) as server, TurnRecorder(memory) as recorder, make(server.url)(recorder) as client:
        for text in ("a", "b", "c", "d", "e"):
            await run(client, text, streamed=False)
            documents.append(await export_turn(memory, "u1"))
    requests = [len(one.runs[0].exchanges) for one in documents]
    assert sorted(requests) != [1] * len(requests)
    assert any({record.kind for record in one.runs[0].beside} >= {"summary", "persona"} for one in documents)
    for document in documents:
        turn = await replay_turn(document, make("http://nowhere.invalid"))
        assert turn.messages == tuple(one.message for one in document.messages)


async def test_turn_after_a_rollback_an_abandoned_pause_and_a_crash_heals_as_it_did(tmp_path: Path) -> None:
    async with SQLiteChatMemory(tmp_path / "chats.db") as memory:
        first = ChatClient(ScriptedModel(["one"] * 3), memory=memory)
        await first.invoke("a", conversation_id="u1")
        kept = await memory.version("u1")
        await first.invoke("b", conversation_id="u1")
        await memory.rollback("u1", to=kept)
        paying = ChatClient(ScriptedModel([ToolCall("c0", "pay", {"amount": 1})]), tools=Shop().tools(), memory=memory)
        assert (await paying.invoke("pay", conversation_id="u1")).status == "paused"
        after_pause = await record_one(memory, [WIRE.reply("never mind")], lambda url: maker(url))
        assert "waited for a decision" in after_pause.runs[0].exchanges[0].request
        # A process ended in the middle of this batch: one call had come to its end.
        calls = (ToolCall("c1", "look", {"city": "Oslo"}), ToolCall("c2", "look", {"city": "Rom"}))
        asked = Reply(tool_calls=calls)
        await memory.append(
            "u1", [UserMessage("look"), ScriptedModel([]).response_to(asked).message], turn_id="crashed", position=0
        )
        await record_result(memory, "u1", await memory.version("u1"), 0, ToolMessage("c1", "look", "grey"))
        after_crash = await record_one(memory, [WIRE.reply("go on")], lambda url: maker(url))
        assert '"grey"' in after_crash.runs[0].exchanges[0].request
    for document in (after_pause, after_crash):
        turn = await replay_turn(document, maker("http://nowhere.invalid"))
        assert turn.messages == tuple(one.message for one in document.messages)


async def test_record_goes_with_the_conversation_and_turns_without_one_leave_none() -> None:
    memory = InMemoryChatMemory()
    async with Loopback(WIRE.reply("hello")) as server, TurnRecorder(memory) as recorder:
        client = maker(server.url)(recorder)
        await client.invoke("hi")
        with pytest.raises(InvalidInputError, match="no turn in conversation"):
            await export_turn(memory, "u1")
        await client.invoke("hi", conversation_id="u1")
        assert (await export_turn(memory, "u1")).runs
        await memory.clear("u1")
    with pytest.raises(InvalidInputError, match="no turn in conversation"):
        await export_turn(memory, "u1")


async def test_what_tools_ask_by_themselves_is_not_part_of_the_turn() -> None:
    def make(url: str) -> Make:
        def client(tape: TurnTape) -> ChatClient:
            inner = ChatClient(WIRE.model(url, tape.http_client))

            @tool
            async def ask(question: str) -> str:
                """Ask somebody else."""
                return (await inner.invoke(question)).text

            return ChatClient(
                WIRE.model(url, tape.http_client), tools=tape.tools([ask]), memory=tape.memory, filters=[tape.filter]
            )

        return client

    replies = [WIRE.reply(calls=[("c1", "ask", {"question": "?"})]), WIRE.reply("inside"), WIRE.reply("outside")]
    document = await record_one(InMemoryChatMemory(), replies, make)
    assert len(document.runs[0].exchanges) == 2
    assert (await replay_turn(document, make("http://nowhere.invalid"))).result.text == "outside"


async def test_request_to_another_place_is_named() -> None:
    document = await record_one(InMemoryChatMemory(), [WIRE.reply("hello")], lambda url: maker(url))

    def elsewhere(tape: TurnTape) -> ChatClient:
        model = OpenAIChatModel("m", base_url="http://nowhere.invalid/other", http_client=tape.http_client)
        return ChatClient(model, memory=tape.memory, filters=[tape.filter], system="Be brief.")

    with pytest.raises(ReplayError, match="goes to POST /other/chat/completions; the recorded one went to POST /v1/"):
        await replay_turn(document, elsewhere)


async def test_recorder_sends_over_a_transport_that_is_given() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=WIRE.whole("from elsewhere", ()))

    memory = InMemoryChatMemory()
    async with TurnRecorder(memory, transport=httpx.MockTransport(answer)) as recorder:
        await run(maker("http://nowhere.invalid")(recorder), "hi", streamed=False)
    turn = await replay_turn(await export_turn(memory, "u1"), maker("http://nowhere.invalid"))
    assert turn.result.text == "from elsewhere"
