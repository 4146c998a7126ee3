"""Routes for the AI SDK: what its chat and its transport make of them, and the odd cases without them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from agentcore import (
    AssistantMessage,
    ChatClient,
    ChatMemory,
    EnvironmentToolError,
    Filter,
    InMemoryChatMemory,
    Limits,
    Message,
    ProviderError,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolMessage,
    Usage,
    UserMessage,
    agent_tool,
    check_history,
    tool,
)
from agentcore.messages import FilePart, ImagePart, TextPart
from agentcore.testing import Reply, ScriptedModel
from agentcore.web import ChatRoutes, allow_everyone, chat_routes
from agentcore.web.vercel import vercel_routes
from tests.support.javascript import JavaScript
from tests.support.web import serving

pytestmark = pytest.mark.asyncio


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


WHERE = ToolDefinition("where", "Where the user is.")


def a_client(*script: Any, **settings: Any) -> ChatClient:
    settings.setdefault("memory", InMemoryChatMemory())
    return ChatClient(ScriptedModel(script), **settings)


@asynccontextmanager
async def api_on(client: ChatClient, **settings: Any) -> AsyncGenerator[tuple[str, ChatRoutes]]:
    settings.setdefault("authorize", allow_everyone)
    chat = chat_routes(client, **settings)
    app = Starlette(routes=vercel_routes(chat).routes, lifespan=chat.lifespan)
    async with serving(app) as url:
        yield f"{url}/api/chat", chat


def parts(message: Mapping[str, Any]) -> list[Any]:
    """What a message shows, in few words."""
    told: list[Any] = []
    for part in message["parts"]:
        match part["type"]:
            case "text" | "reasoning":
                told.append((part["type"], part["text"]))
            case "step-start":
                pass
            case kind if kind.startswith("tool-"):
                told.append((kind, part["state"], part.get("output", part.get("errorText"))))
            case kind:
                told.append((kind, part.get("data")))
    return told


async def contents(client: ChatClient, chat: str = "c1") -> list[Any]:
    return [one.content for one in await client.conversation(chat).history()]


# ---------------------------------------------------------------------------------------------------- the real client


async def test_turns_stream_into_the_messages_of_the_chat(node: JavaScript) -> None:
    usage = Usage(input_tokens=7, output_tokens=2)
    client = a_client(Reply(text=["Hel", "lo"], reasoning="greet", usage=usage), "Again")
    async with api_on(client) as (url, _):
        async with node.running("vercel.mjs", "turns", url=url, chat="c1", say=["hi", "once more"]) as front_end:
            first, second = [told async for told in front_end]
    assert (first["status"], first.get("error")) == ("ready", None)
    assert parts(first["messages"][1]) == [("reasoning", "greet"), ("text", "Hello")]
    assert first["messages"][1]["metadata"] == {
        "status": "completed",
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    assert first["finishes"] == [{"finishReason": "stop", "isAbort": False, "isDisconnect": False, "isError": False}]
    assert [one["role"] for one in second["messages"]] == ["user", "assistant"] * 2
    assert len({one["id"] for one in second["messages"]}) == 4
    assert await contents(client) == ["hi", "Hello", "once more", "Again"]


async def test_parallel_tools_of_the_server_are_shown_with_their_results(node: JavaScript) -> None:
    calls = [ToolCall("t1", "look", {"where": "left"}), ToolCall("t2", "look", {"nowhere": 1})]
    client = a_client(Reply(text="Let me see.", tool_calls=calls), "Nothing.", tools=[look])
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "turns", url=url, chat="c1", say=["look"])
    [said, left, failed, answer] = parts(told["messages"][1])
    assert (said, left, answer) == (
        ("text", "Let me see."),
        ("tool-look", "output-available", "seen left"),
        ("text", "Nothing."),
    )
    assert failed[:2] == ("tool-look", "output-error")
    steps = [part for part in told["messages"][1]["parts"] if part["type"] == "step-start"]
    assert len(steps) == 2  # one for each model call


async def test_call_ids_that_a_server_counts_anew_in_each_reply_are_shown_apart(node: JavaScript) -> None:
    client = a_client(
        ToolCall("0", "look", {"where": "left"}), ToolCall("0", "look", {"where": "right"}), "No.", tools=[look]
    )
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "turns", url=url, chat="c1", say=["look"])
    assert [part[2] for part in parts(told["messages"][1])[:2]] == ["seen left", "seen right"]


@pytest.mark.parametrize(
    ("answer", "state", "result"),
    [
        ({"approved": True}, ("output-available", "paid 5"), "paid 5"),
        ({"approved": False, "reason": "too much"}, ("output-denied", None), "too much"),
    ],
    ids=["approved", "rejected"],
)
async def test_call_that_waits_for_a_person_is_approved_or_not(
    node: JavaScript, answer: dict[str, Any], state: Any, result: str
) -> None:
    calls = [ToolCall("t1", "pay", {"amount": 5}), ToolCall("t2", "look", {"where": "up"})]
    client = a_client(Reply(text="I pay.", reasoning="why not", tool_calls=calls), "Done.", tools=[pay, look])
    async with api_on(client) as (url, _):
        async with node.running("vercel.mjs", "approval", url=url, chat="c1", answers=[answer]) as front_end:
            first, second = [told async for told in front_end]
    shown = [("reasoning", "why not"), ("text", "I pay.")]
    # The other call is not shown before it runs: the SDK would wait for its end before it sends the approval.
    assert parts(first["messages"][1]) == [*shown, ("tool-pay", "approval-requested", None)]
    assert first["finishes"][0]["finishReason"] == "tool-calls"
    assert len(second["messages"]) == 2  # it goes on in the same message
    assert parts(second["messages"][1]) == [
        *shown,
        ("tool-pay", *state),
        ("tool-look", "output-available", "seen up"),
        ("text", "Done."),
    ]
    assert [one["type"] for one in second["messages"][1]["parts"]].count("step-start") == 2
    stored = await client.conversation("c1").history()
    assert isinstance(stored[2], ToolMessage)
    assert result in str(stored[2].content)
    assert check_history(stored) == []


@pytest.mark.parametrize(
    ("output", "content", "is_error"),
    [
        ({"output": "Oslo"}, "Oslo", False),
        ({"output": {"lat": 59.9}}, '{"lat":59.9}', False),
        ({"state": "output-error", "errorText": "no signal"}, "no signal", True),
    ],
    ids=["text", "object", "error"],
)
async def test_tool_that_runs_in_the_browser_sends_its_output(
    node: JavaScript, output: dict[str, Any], content: str, is_error: bool
) -> None:
    client = a_client([ToolCall("t1", "where"), ToolCall("t2", "look", {"where": "up"})], "There.", tools=[WHERE, look])
    async with api_on(client) as (url, _):
        async with node.running("vercel.mjs", "client_tools", url=url, chat="c1", output=output) as front_end:
            first, second = [told async for told in front_end]
    assert [part[1] for part in parts(first["messages"][1])] == ["input-available"]
    assert parts(second["messages"][1])[1:] == [("tool-look", "output-available", "seen up"), ("text", "There.")]
    assert second.get("error") is None
    stored = await client.conversation("c1").history()
    assert stored[2] == ToolMessage("t1", "where", content, is_error=is_error)


async def test_output_that_comes_with_the_next_words_is_taken(node: JavaScript) -> None:
    client = a_client(ToolCall("t1", "where"), "Hurry then.", tools=[WHERE])
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "result_with_words", url=url, chat="c1")
    assert told.get("error") is None
    assert await contents(client) == ["where am I?", None, "Oslo", "and hurry", "Hurry then."]


async def test_page_that_is_loaded_again_joins_the_answer_from_its_beginning(node: JavaScript) -> None:
    gate, begun, joins = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await gate.wait()

    async def authorize(request: Request, conversation_id: str) -> Mapping[str, Any]:
        if request.method == "GET":
            joins.set()  # the run is looked up before anybody else has a turn
        return {}

    client = a_client(Reply(text=["one ", "two"], wait_between=wait))
    async with api_on(client, authorize=authorize) as (url, _):
        async with node.running("vercel.mjs", "resumes", url=url, chat="c1") as front_end:
            await begun.wait()
            front_end.go_on()
            assert await front_end.until("resuming")
            await joins.wait()
            gate.set()
            both = await anext(front_end)
    assert [parts(one["messages"][1]) for one in both] == [[("text", "one two")]] * 2
    assert both[0]["messages"][1]["id"] == both[1]["messages"][1]["id"]


async def test_nothing_to_join_is_no_error(node: JavaScript) -> None:
    async with api_on(a_client("never")) as (url, _):
        told = await node.run("vercel.mjs", "resumes_nothing", url=url, chat="c1")
    assert (told["messages"], told["status"], told.get("error")) == ([], "ready", None)


@pytest.mark.parametrize("approved", [True, False])
async def test_page_loaded_again_after_an_approval_shows_the_whole_message(node: JavaScript, approved: bool) -> None:
    gate, begun, joins = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await gate.wait()

    async def authorize(request: Request, conversation_id: str) -> Mapping[str, Any]:
        if request.method == "GET":
            joins.set()  # the run is looked up before anybody else has a turn
        return {}

    client = a_client(
        Reply(reasoning="look first", tool_calls=[ToolCall("t0", "look", {"where": "up"})]),
        Reply(text="Paying.", tool_calls=[ToolCall("t1", "pay", {"amount": 5})]),
        Reply(text=["Do", "ne."], wait_between=wait),
        tools=[pay, look],
    )
    async with api_on(client, authorize=authorize) as (url, _):
        given = {"approved": approved}
        async with node.running("vercel.mjs", "resumes_after_approval", url=url, chat="c1", answer=given) as front_end:
            await begun.wait()
            front_end.go_on()
            assert await front_end.until("resuming")
            await joins.wait()
            gate.set()
            first, second = await anext(front_end)
    state = ("output-available", "paid 5") if approved else ("output-denied", None)
    looked = [("reasoning", "look first"), ("tool-look", "output-available", "seen up")]
    assert parts(second["messages"][1]) == [*looked, ("text", "Paying."), ("tool-pay", *state), ("text", "Done.")]
    assert parts(first["messages"][1]) == parts(second["messages"][1])
    assert first["messages"][1]["id"] == second["messages"][1]["id"]


async def test_front_end_that_stops_ends_the_turn_where_that_is_wanted(node: JavaScript) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await gate.wait()

    client = a_client(Reply(text=["one ", "two"], wait_between=wait))
    async with api_on(client, on_disconnect="cancel") as (url, chat):
        async with node.running("vercel.mjs", "stops", url=url, chat="c1") as front_end:
            await begun.wait()
            run = chat.runs.running("c1")
            assert run is not None
            front_end.go_on()
            told = await anext(front_end)
        async with asyncio.timeout(20):
            assert (await run.finished()).status == "cancelled"
    assert told["status"] == "ready"
    assert (await contents(client))[0] == "count"


async def test_turn_that_is_stopped_by_its_route_ends_as_an_abort(node: JavaScript) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await gate.wait()

    client = a_client(Reply(text=["one ", "two"], wait_between=wait))
    async with api_on(client) as (url, _):
        async with node.running("vercel.mjs", "is_stopped", url=url, chat="c1") as front_end:
            await begun.wait()
            front_end.go_on()
            told = await anext(front_end)
    assert told.get("error") is None
    assert parts(told["messages"][1]) == [("text", "one ")]
    assert await contents(client) == ["count", "one "]


async def test_error_in_mid_stream_is_shown_and_the_words_can_be_said_again(node: JavaScript) -> None:
    broken = ProviderError("https://internal refused", kind="network", provider="x")
    client = a_client(Reply(text=["Hel", "lo"], error=broken))
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "turns", url=url, chat="c1", say=["hi"])
    assert (told["status"], told["error"]) == ("error", "the model could not answer")


async def test_error_before_the_first_event_is_a_status(node: JavaScript) -> None:
    broken = ProviderError("https://internal refused", kind="overloaded", provider="x")
    async with api_on(a_client(broken)) as (url, _):
        told = await node.run("vercel.mjs", "turns", url=url, chat="c1", say=["hi"])
    assert told["status"] == "error"
    assert json.loads(told["error"]) == {"error": {"kind": "overloaded", "message": "the model could not answer"}}


@pytest.mark.parametrize(
    ("script", "first", "which", "after"),
    [
        (["a", "b", "c"], ["one", "a", "two", "b"], None, ["one", "a", "two", "c"]),
        (["a", "b", "c"], ["one", "a", "two", "b"], 1, ["one", "c"]),
        (
            ["a", ProviderError("down", kind="invalid_request", provider="x"), "c"],
            ["one", "a"],
            None,
            ["one", "a", "two", "c"],
        ),
        (
            [*[ProviderError("down", kind="invalid_request", provider="x")] * 2, "c"],
            [],
            None,
            ["one", "two", "c"],
        ),
    ],
    ids=["last", "earlier", "after-a-failure", "after-failures-alone"],
)
async def test_regenerated_answer_takes_the_place_of_the_old_one(
    node: JavaScript, script: list[Any], first: list[str], which: int | None, after: list[str]
) -> None:
    client = a_client(*script)
    async with api_on(client) as (url, _):
        async with node.running(
            "vercel.mjs", "regenerates", url=url, chat="c1", say=["one", "two"], which=which
        ) as front_end:
            await anext(front_end)
            assert await contents(client) == first
            front_end.go_on()
            told = await anext(front_end)
    assert told["status"] == "ready", told
    assert await contents(client) == after
    assert [parts(one)[0][1] for one in told["messages"]] == after


async def test_regenerated_turn_says_all_that_it_held(node: JavaScript) -> None:
    down = ProviderError("down", kind="invalid_request", provider="x")
    client = a_client(down, "a", "b")
    async with api_on(client) as (url, _):
        async with node.running("vercel.mjs", "regenerates", url=url, chat="c1", say=["one", "two"]) as front_end:
            await anext(front_end)
            assert await contents(client) == ["one", "two", "a"]
            front_end.go_on()
            await anext(front_end)
    assert await contents(client) == ["one", "two", "b"]


async def test_edited_message_takes_back_what_came_after_it(node: JavaScript) -> None:
    client = a_client("a", "b", "c")
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "edits", url=url, chat="c1", say=["one", "two"], instead="ONE", which=0)
    assert told["status"] == "ready", told
    assert await contents(client) == ["ONE", "c"]


async def test_agents_and_progress_come_as_data(node: JavaScript) -> None:
    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        await context.emit({"percent": 50})
        return "worked"

    inner = ChatClient(ScriptedModel([ToolCall("t1", "work"), "found it"]), tools=[work])
    agent = agent_tool(inner, name="researcher", description="Finds.")
    client = a_client(
        [ToolCall("t1", "researcher", {"task": "find"}), ToolCall("t2", "work")], "There.", tools=[agent, work]
    )
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "turns", url=url, chat="c1", say=["find it"])
    assert told.get("error") is None
    assert {one["type"] for one in told["data"]} == {"data-agent", "data-tool-progress"}
    agents = [one["data"] for one in told["data"] if one["type"] == "data-agent"]
    assert {(one["agent"], one["call_id"]) for one in agents} == {("researcher", "t1")}
    assert ("data-tool-progress", {"call_id": "t2", "data": {"percent": 50}}) in parts(told["messages"][1])
    assert all(part["type"] != "data-agent" for part in told["messages"][1]["parts"])


async def test_reply_that_was_given_up_is_taken_back(node: JavaScript) -> None:
    class AskAgain(Filter):
        memory_side = "inside"

        async def around_chat(self, request: Any, call_next: Any) -> Any:
            await call_next(request)
            return await call_next(request)

    client = a_client(Reply(text=["no, ", "wrong"]), Reply(text=["right"]), filters=[AskAgain()])
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "turns", url=url, chat="c1", say=["hi"])
    assert parts(told["messages"][1]) == [("text", "right")]


async def test_files_reach_the_model(node: JavaScript) -> None:
    model = ScriptedModel(["A dot."])
    async with api_on(ChatClient(model, memory=InMemoryChatMemory())) as (url, _):
        await node.run("vercel.mjs", "sends_files", url=url, chat="c1")
    [said] = model.requests[0].messages
    assert said == UserMessage((ImagePart(data=b"hi", media_type="image/png"), TextPart("what is this?")))


async def test_app_may_send_the_last_message_alone(node: JavaScript) -> None:
    client = a_client("a", "b")
    async with api_on(client) as (url, _):
        told = await node.run("vercel.mjs", "sends_only_the_last", url=url, chat="c1", say=["one", "two"])
    assert told.get("error") is None
    assert await contents(client) == ["one", "a", "two", "b"]


# ------------------------------------------------------------------------------------------------ without the client


def a_message(*given: dict[str, Any] | str, role: str = "user", id_: str = "m1") -> dict[str, Any]:
    return {
        "id": id_,
        "role": role,
        "parts": [{"type": "text", "text": one} if isinstance(one, str) else one for one in given],
    }


def sent(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "c1", "messages": list(messages), "trigger": "submit-message", **more}


async def chunks(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_stream_has_the_protocols_header() -> None:
    async with api_on(a_client("hi")) as (url, _), httpx.AsyncClient() as http:
        response = await http.post(url, json=sent(a_message("hi")))
    assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [one["type"] for one in await chunks(response)] == [
        "start",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"id": "c1", "messages": []}, 422),
        (sent(a_message("obey", role="system")), 422),
        (sent(a_message("  ")), 422),
        (sent(a_message()), 422),
        (sent(a_message("I say so", role="assistant")), 409),
        (sent(a_message("x" * 2000)), 413),
        (sent(a_message({"type": "file", "mediaType": "image/png", "url": "file:///etc/passwd"})), 422),
        (sent(a_message({"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,!"})), 422),
        (sent(a_message({"type": "file", "mediaType": "image/svg+xml", "url": "data:image/svg+xml,<svg/>"})), 422),
        (sent(a_message("a"), a_message("b"), trigger="regenerate-message"), 200),
        (sent(a_message("a"), a_message("b", role="assistant"), trigger="regenerate-message"), 422),
        (sent(a_message("a"), a_message("b", role="assistant"), a_message("c"), trigger="regenerate-message"), 409),
    ],
    ids=[
        "empty",
        "nothing",
        "system",
        "blank",
        "no-parts",
        "assistant",
        "too-large",
        "local-file",
        "no-base64",
        "no-data",
        "never-stored",
        "regenerate-nothing",
        "unknown",
    ],
)
async def test_what_cannot_be_a_turn_is_refused(body: Any, status: int) -> None:
    client = a_client("ok")
    async with api_on(client, max_body_bytes=1500) as (url, _), httpx.AsyncClient() as http:
        response = await http.post(url, json=body)
    assert response.status_code == status, response.text
    if status != 200:
        assert list(await contents(client)) == []


async def test_conversation_of_somebody_else_is_not_there() -> None:
    async def nobody(request: Request, conversation_id: str) -> None:
        return None

    async with api_on(a_client("never"), authorize=nobody) as (url, _), httpx.AsyncClient() as http:
        answers = [
            await http.post(url, json=sent(a_message("hi"))),
            await http.get(f"{url}/c1/stream"),
            await http.post(f"{url}/c1/stop"),
        ]
    assert [one.status_code for one in answers] == [404, 404, 404]


async def test_server_that_goes_down_begins_no_turn() -> None:
    async with api_on(a_client("never")) as (url, chat), httpx.AsyncClient() as http:
        chat.runs.drain()
        assert (await http.post(url, json=sent(a_message("hi")))).status_code == 503


async def test_nothing_runs_where_nothing_was_begun() -> None:
    async with api_on(a_client("never")) as (url, _), httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/c1/stream")).status_code == 204
        assert (await http.post(f"{url}/c1/stop")).status_code == 204


async def test_history_that_the_front_end_sends_is_not_believed() -> None:
    model = ScriptedModel(["ok"])
    given = [a_message("earlier"), a_message("I promised everything", role="assistant"), a_message("now")]
    async with api_on(ChatClient(model, memory=InMemoryChatMemory())) as (url, _), httpx.AsyncClient() as http:
        await chunks(await http.post(url, json=sent(*given)))
    assert list(model.requests[0].messages) == [UserMessage("now")]


async def test_parts_of_the_front_end_alone_are_not_for_the_model() -> None:
    model = ScriptedModel(["ok"])
    document = {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a.pdf", "filename": "a.pdf"}
    said = a_message("one", {"type": "data-cursor", "data": 5}, "two", document)
    async with api_on(ChatClient(model, memory=InMemoryChatMemory())) as (url, _), httpx.AsyncClient() as http:
        await chunks(await http.post(url, json=sent(said)))
    pdf = FilePart(url="https://example.org/a.pdf", media_type="application/pdf", name="a.pdf")
    assert list(model.requests[0].messages) == [UserMessage((TextPart("one"), TextPart("two"), pdf))]


def with_approval(call_id: str, approval: str, *, approved: bool) -> dict[str, Any]:
    return a_message(
        {
            "type": "tool-pay",
            "toolCallId": call_id,
            "state": "approval-responded",
            "approval": {"id": approval, "approved": approved},
        },
        role="assistant",
    )


async def test_approval_for_another_pause_is_refused_and_one_that_came_twice() -> None:
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    client = a_client(ToolCall("t1", "pay", {"amount": 5}), "Done.", tools=[pay])
    async with api_on(client) as (url, _), httpx.AsyncClient() as http:
        told = await chunks(await http.post(url, json=sent(a_message("pay"))))
        [asked] = [one for one in told if one["type"] == "tool-approval-request"]
        answers = [
            await http.post(url, json=sent(with_approval("t1", "forged", approved=True))),
            await http.post(url, json=sent(with_approval("t2", asked["approvalId"], approved=True))),
            await http.post(url, json=sent(with_approval("t1", asked["approvalId"], approved=True))),
            await http.post(url, json=sent(with_approval("t1", asked["approvalId"], approved=True))),
        ]
    assert [one.status_code for one in answers] == [409, 409, 200, 409]
    kinds = [one.json()["error"]["kind"] for one in answers if one.status_code == 409]
    assert kinds == ["pause_stale", "pause_incomplete", "pause_resumed"]
    assert paid == [5]


@pytest.mark.parametrize(("approved", "result"), [(True, "up"), (False, "the line is down")])
async def test_tool_whose_surroundings_failed_is_run_again_or_not(approved: bool, result: str) -> None:
    tries = iter([EnvironmentToolError("the line is down"), None])

    @tool
    def call() -> str:
        """Call."""
        if (error := next(tries)) is not None:
            raise error
        return "up"

    client = a_client(ToolCall("t1", "call"), "Done.", tools=[call], pause_on_environment_error=True)
    async with api_on(client) as (url, _), httpx.AsyncClient() as http:
        told = await chunks(await http.post(url, json=sent(a_message("call"))))
        [asked] = [one for one in told if one["type"] == "tool-approval-request"]
        assert "the line is down" in asked["reason"]
        answer = with_approval("t1", asked["approvalId"], approved=approved)
        told = await chunks(await http.post(url, json=sent(answer)))
    [ended] = [one for one in told if one["type"].startswith("tool-output")]
    assert result in str(ended.get("output", ended.get("errorText")))
    assert told[0] == {"type": "start", "messageId": "m1"}


async def test_store_that_cannot_go_back_says_so() -> None:
    class Plain(ChatMemory):
        def __init__(self) -> None:
            self.messages: list[Message] = []

        async def get(self, conversation_id: str) -> Sequence[Message]:
            return tuple(self.messages)

        async def add(self, conversation_id: str, messages: Sequence[Message]) -> None:
            self.messages.extend(messages)

        async def clear(self, conversation_id: str) -> None:
            self.messages.clear()

    memory = Plain()
    async with api_on(a_client("a", memory=memory)) as (url, _), httpx.AsyncClient() as http:
        await chunks(await http.post(url, json=sent(a_message("hi"))))
        response = await http.post(url, json=sent(a_message("hi"), trigger="regenerate-message"))
    assert response.status_code == 501
    assert memory.messages == [UserMessage("hi"), AssistantMessage("a")]


async def test_limit_is_told_in_the_metadata() -> None:
    client = a_client(ToolCall("t1", "look", {"where": "up"}), tools=[look], limits=Limits(model_calls=1))
    async with api_on(client) as (url, _), httpx.AsyncClient() as http:
        told = await chunks(await http.post(url, json=sent(a_message("look"))))
    assert told[-1]["finishReason"] == "other"
    assert told[-1]["messageMetadata"]["limit"] == "model_calls"
    assert "tool-output-error" in [one["type"] for one in told]


async def test_words_of_two_tabs_take_turns() -> None:
    client = a_client("a", "b")
    async with api_on(client) as (url, _), httpx.AsyncClient() as http:
        answers = await asyncio.gather(*(http.post(url, json=sent(a_message(text))) for text in ("one", "two")))
    assert [one.status_code for one in answers] == [200, 200]
    history = await client.conversation("c1").history()
    assert [type(one) for one in history] == [UserMessage, AssistantMessage] * 2


async def test_nothing_is_taken_back_for_a_turn_that_cannot_begin() -> None:
    client = a_client("a")
    async with api_on(client) as (url, chat), httpx.AsyncClient() as http:
        await chunks(await http.post(url, json=sent(a_message("hi"))))
        kept = await client.conversation("c1").history()
        edited = {**a_message("  "), "id": "m1"}
        assert (await http.post(url, json=sent(edited, messageId="m1"))).status_code == 422
        assert await client.conversation("c1").history() == kept
        chat.runs.drain()
        assert (await http.post(url, json=sent(a_message("hi"), trigger="regenerate-message"))).status_code == 503
        assert await client.conversation("c1").history() == kept


async def test_event_that_cannot_be_told_ends_the_stream_with_an_error() -> None:
    class Odd:
        def __str__(self) -> str:
            raise ZeroDivisionError("inside")

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        await context.emit({"odd": Odd()})
        return "worked"

    client = a_client(ToolCall("c1", "work"), "Done.", tools=[work])
    async with api_on(client) as (url, _), httpx.AsyncClient() as http:
        told = await chunks(await http.post(url, json=sent(a_message("work"))))
    assert told[-1] == {"type": "error", "errorText": "the turn failed"}
