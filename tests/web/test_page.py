"""The chat page in a real browser: everything that a person can do on it, done."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, expect

from agentcore import (
    Block,
    ChatClient,
    InMemoryChatMemory,
    InputGuard,
    Limits,
    OutputGuard,
    ProviderError,
    ToolCall,
    ToolContext,
    agent_tool,
    check_history,
    tool,
)
from agentcore.chat import ToolDefinition
from agentcore.messages import AssistantMessage, ToolMessage, UserMessage, text_of
from agentcore.testing import Reply, ScriptedModel
from agentcore.tools.errors import EnvironmentToolError
from agentcore.usage import Usage
from tests.support.page import Opened, opened_page
from tests.support.proxy import Gate

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

USAGE = Usage(input_tokens=1234, output_tokens=56, cached_input_tokens=1000, reasoning_tokens=20)
MAIL = ToolCall("c1", "send_mail", {"to": "kim@example.org", "text": "hi"})


def a_client(*script: Any, **settings: Any) -> ChatClient:
    settings.setdefault("memory", InMemoryChatMemory())
    return ChatClient(ScriptedModel(script), **settings)


def gate() -> tuple[asyncio.Semaphore, Callable[[], Awaitable[object]]]:
    semaphore = asyncio.Semaphore(0)
    return semaphore, semaphore.acquire


def call_of(opened: Opened, name: str) -> Locator:
    return opened.page.locator("details.call").filter(has_text=name)


def card(opened: Opened, name: str) -> Locator:
    return opened.page.get_by_role("group", name=re.compile(name))


def mailing() -> tuple[Any, list[tuple[str, str]]]:
    sent: list[tuple[str, str]] = []

    @tool(approval=lambda call, context: "A mail cannot be taken back.")
    def send_mail(to: str, text: str) -> str:
        """Send a mail."""
        sent.append((to, text))
        return f"sent to {to}"

    return send_mail, sent


# Streaming


async def test_answer_is_shown_as_it_comes_and_counted_at_its_end(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    reply = Reply(text=["Hello ", "**wide** ", "world."], wait_between=wait, usage=USAGE)
    async with opened_page(browser, a_client(reply), tmp_path) as opened:
        await expect(opened.page.get_by_text("Say something to begin.")).to_be_visible()
        await opened.say("Greet me")
        await expect(opened.turns).to_have_count(1)
        await expect(opened.turns).to_contain_text("Greet me")
        prose = opened.turns.locator(".prose")
        await expect(prose).to_have_text("Hello")
        await expect(opened.page.get_by_role("button", name="Stop")).to_be_visible()
        await expect(opened.page.get_by_role("button", name="Send")).to_be_hidden()
        semaphore.release()
        await expect(prose).to_have_text("Hello wide")
        await expect(prose.locator("strong")).to_have_text("wide")
        await opened.shot("streaming")
        semaphore.release()
        await expect(prose).to_have_text("Hello wide world.")
        await expect(opened.turns.get_by_text("1,234 tokens in (1,000 cached) · 56 out (20 thoughts)")).to_be_visible()
        await expect(opened.page.get_by_role("button", name="Send")).to_be_visible()
        await expect(opened.message).to_be_focused()
        await opened.shot("answered")


async def test_thoughts_are_folded_and_can_be_read(browser: Browser, tmp_path: Path) -> None:
    client = a_client(Reply(reasoning="First I count.\nThen I add.", text="Three."))
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("1 + 2?")
        await expect(opened.turns.locator(".prose")).to_have_text("Three.")
        thoughts = opened.turns.locator("details.reasoning")
        await expect(thoughts.locator(".thoughts")).to_be_hidden()
        await thoughts.get_by_text("Thoughts").click()
        await expect(thoughts.locator(".thoughts")).to_have_text("First I count. Then I add.")
        await opened.page.reload()
        await expect(opened.turns.locator(".thoughts")).to_be_hidden()
        await expect(opened.turns.locator(".prose")).to_have_text("Three.")


async def test_answer_is_read_out_by_the_sentence(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    client = a_client(Reply(text=["One. T", "wo **th", "ree**. Four"], wait_between=wait))
    async with opened_page(browser, client, tmp_path) as opened:
        await expect(opened.log).to_have_attribute("aria-live", "off")
        await opened.say("count")
        await expect(opened.spoken.locator("p")).to_have_text(["One."])
        for _ in range(2):
            semaphore.release()
        await expect(opened.spoken.locator("p")).to_have_text(
            ["One.", "Two three .", "Four", "The answer is complete."], use_inner_text=True
        )


async def test_end_stays_in_view_until_the_reader_scrolls_away(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    pieces = ["\n\n".join(f"Line {part}.{line}" for line in range(40)) + "\n\n" for part in range(3)]
    async with opened_page(browser, a_client(Reply(text=pieces, wait_between=wait)), tmp_path) as opened:
        away = "(s => s.scrollHeight - s.clientHeight - s.scrollTop)(document.getElementById('scroll'))"
        newest = opened.page.get_by_role("button", name="To the newest")
        await opened.say("talk")
        await expect(opened.turns.get_by_text("Line 0.39")).to_be_in_viewport()
        semaphore.release()
        await expect(opened.turns.get_by_text("Line 1.39")).to_be_in_viewport()
        await expect(newest).to_be_hidden()
        await opened.page.mouse.move(600, 400)
        await opened.page.mouse.wheel(0, -900)
        await expect(newest).to_be_visible()
        semaphore.release()
        await expect(opened.turns.get_by_text("Line 2.39")).to_be_attached()
        await expect(opened.turns.get_by_text("Line 2.39")).not_to_be_in_viewport()
        await opened.shot("scrolled-away")
        await newest.click()
        await expect(opened.turns.get_by_text("Line 2.39")).to_be_in_viewport()
        await expect(newest).to_be_hidden()
        assert await opened.page.evaluate(away) < 2


async def test_what_is_unfolded_stays_in_view(browser: Browser, tmp_path: Path) -> None:
    client = a_client(Reply(reasoning="First thought.\n" + "Hm.\n" * 80, text="Well."))
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("think")
        await expect(opened.turns.locator(".prose")).to_have_text("Well.")
        await opened.page.get_by_text("Thoughts").click()
        await expect(opened.page.get_by_role("button", name="To the newest")).to_be_visible()
        await expect(opened.page.get_by_text("Thoughts")).to_be_in_viewport()
        await opened.page.get_by_text("Thoughts").click()
        await expect(opened.page.get_by_role("button", name="To the newest")).to_be_hidden()


# Tools


async def test_tool_calls_show_arguments_progress_and_results(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()

    @tool
    async def search(query: str, context: ToolContext) -> str:
        """Search."""
        await context.emit("half of it")
        await wait()
        return f"found <b>{query}</b>"

    @tool
    def broken() -> str:
        """Fail."""
        raise ValueError("no such shelf")

    calls = [ToolCall("c1", "search", {"query": "cats & dogs"}), ToolCall("c2", "broken", {})]
    async with opened_page(browser, a_client(calls, "Nothing.", tools=[search, broken]), tmp_path) as opened:
        await opened.say("look it up")
        first = call_of(opened, "search")
        await expect(first.locator("summary")).to_contain_text("query: cats & dogs")
        await expect(first).to_have_attribute("data-state", "running")
        await expect(first.locator(".call-state")).to_have_text("half of it")
        await opened.shot("tool-running")
        semaphore.release()
        await expect(first.locator(".call-state")).to_have_text("done")
        await expect(call_of(opened, "broken").locator(".call-state")).to_have_text("failed")
        await expect(first.get_by_text("found")).to_be_hidden()
        for one in (first, call_of(opened, "broken")):
            await one.locator("summary").click()
        for name in ("search", "broken"):
            await expect(call_of(opened, name).locator(".call-body")).to_be_visible()
        await expect(first.locator(".call-result")).to_have_text("found <b>cats & dogs</b>")
        await expect(call_of(opened, "broken").locator(".call-result")).to_contain_text("no such shelf")
        await opened.shot("tools")
        await opened.page.reload()
        await expect(call_of(opened, "search").locator(".call-state")).to_have_text("done")
        await expect(call_of(opened, "broken").locator(".call-state")).to_have_text("failed")
        await call_of(opened, "search").locator("summary").click()
        await expect(call_of(opened, "search").locator(".call-result")).to_have_text("found <b>cats & dogs</b>")
        await expect(opened.turns.locator(".prose")).to_have_text("Nothing.")


async def test_calls_with_the_same_id_in_two_replies_are_two(browser: Browser, tmp_path: Path) -> None:
    @tool
    def look(at: str) -> str:
        """Look."""
        return f"saw {at}"

    script = [ToolCall("c1", "look", {"at": "here"}), ToolCall("c1", "look", {"at": "there"}), "Done."]
    async with opened_page(browser, a_client(*script, tools=[look]), tmp_path) as opened:
        await opened.say("look around")
        await expect(opened.turns.locator(".prose")).to_have_text("Done.")
        results = opened.turns.locator(".call-result")
        await expect(results).to_have_text(["saw here", "saw there"])
        await opened.page.reload()
        await expect(results).to_have_text(["saw here", "saw there"])


async def test_agent_inside_a_call_is_shown_there(browser: Browser, tmp_path: Path) -> None:
    expert = ChatClient(ScriptedModel([Reply(text=["It is ", "a *cat*."])]))
    ask = agent_tool(expert, name="expert", description="Knows animals.")
    client = a_client(ToolCall("c1", "expert", {"task": "what is it?"}), "A cat.", tools=[ask])
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("what is it?")
        await expect(opened.turns.get_by_text("A cat.", exact=True)).to_be_visible()
        await call_of(opened, "expert").locator("summary").click()
        await expect(call_of(opened, "expert").locator(".agent .prose")).to_have_text("It is a cat.")
        await expect(call_of(opened, "expert").locator(".agent em")).to_have_text("cat")
        await opened.shot("agent")


# Pauses


async def test_call_is_approved(browser: Browser, tmp_path: Path) -> None:
    send_mail, sent = mailing()
    client = a_client(MAIL, "It is sent.", tools=[send_mail])
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("mail kim")
        waiting = card(opened, "send_mail wants to run")
        await expect(waiting).to_contain_text("A mail cannot be taken back.")
        await expect(waiting).to_contain_text('"to": "kim@example.org"')
        await expect(call_of(opened, "send_mail").locator(".call-state")).to_have_text("waits for you")
        await expect(opened.page.get_by_role("heading", name="This waits for you")).to_be_focused()
        await expect(opened.spoken).to_contain_text("send_mail waits for your decision.")
        await opened.shot("approval")
        assert sent == []
        await opened.page.keyboard.press("Tab")
        await expect(waiting.get_by_role("button", name="Approve")).to_be_focused()
        await opened.page.keyboard.press("Enter")
        await expect(opened.turns.locator(".prose")).to_have_text("It is sent.")
        await expect(opened.turns).to_have_count(1)
        await expect(call_of(opened, "send_mail").locator(".call-state")).to_have_text("done")
        await expect(opened.page.locator("section.pause")).to_have_count(0)
        await expect(opened.message).to_be_focused()
        assert sent == [("kim@example.org", "hi")]


async def test_call_is_approved_with_other_arguments(browser: Browser, tmp_path: Path) -> None:
    send_mail, sent = mailing()
    async with opened_page(browser, a_client(MAIL, "Sent.", tools=[send_mail]), tmp_path) as opened:
        await opened.say("mail kim")
        waiting = card(opened, "send_mail")
        await waiting.get_by_role("button", name="Change arguments…").click()
        field = waiting.get_by_role("textbox", name="Arguments, as a JSON object")
        await expect(field).to_be_focused()
        await expect(field).to_have_value(re.compile(r'"to": "kim@example.org"'))
        for wrong, words in (("{", "This is not JSON"), ("[1]", "The arguments are an object")):
            await field.fill(wrong)
            await waiting.get_by_role("button", name="Approve with these").click()
            await expect(waiting.get_by_role("alert")).to_contain_text(words)
            await expect(field).to_be_focused()
        await opened.shot("arguments-refused")
        await waiting.get_by_role("button", name="Back").click()
        await expect(waiting.get_by_role("button", name="Approve")).to_be_focused()
        await waiting.get_by_role("button", name="Change arguments…").click()
        await field.fill('{"to": "lee@example.org", "text": "hello"}')
        await waiting.get_by_role("button", name="Approve with these").click()
        await expect(opened.turns.locator(".prose")).to_have_text("Sent.")
        assert sent == [("lee@example.org", "hello")]


async def test_call_is_rejected_with_a_reason(browser: Browser, tmp_path: Path) -> None:
    send_mail, sent = mailing()
    memory = InMemoryChatMemory()
    client = a_client(MAIL, "Then not.", tools=[send_mail], memory=memory)
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("mail kim")
        waiting = card(opened, "send_mail")
        await waiting.get_by_role("button", name="Reject…").click()
        await waiting.get_by_role("textbox", name="Why not?").fill("Kim is away")
        await opened.page.keyboard.press("Enter")
        await expect(opened.turns.locator(".prose")).to_have_text("Then not.")
        await call_of(opened, "send_mail").locator("summary").click()
        await expect(call_of(opened, "send_mail").locator(".call-result")).to_contain_text("Kim is away")
        assert sent == []
        messages = await memory.get(opened.conversation_id)
        assert check_history(messages) == []
        assert "Kim is away" in text_of(next(one.content for one in messages if isinstance(one, ToolMessage)))


async def test_decisions_on_several_calls_are_made_together_and_can_be_changed(
    browser: Browser, tmp_path: Path
) -> None:
    send_mail, sent = mailing()
    calls = [MAIL, ToolCall("c2", "send_mail", {"to": "lee@example.org", "text": "ho"})]
    async with opened_page(browser, a_client(calls, "Done.", tools=[send_mail]), tmp_path) as opened:
        await opened.say("mail them")
        await expect(opened.page.get_by_role("heading", name="These 2 calls wait for you")).to_be_focused()
        first, second = card(opened, "send_mail").nth(0), card(opened, "send_mail").nth(1)
        await first.get_by_role("button", name="Approve").click()
        await expect(first.locator(".made")).to_have_text("approved")
        await opened.shot("decided-one-of-two")
        await first.get_by_role("button", name="Change").click()
        await first.get_by_role("button", name="Reject…").click()
        await first.get_by_role("button", name="Reject").click()
        await expect(first.locator(".made")).to_have_text("rejected")
        await second.get_by_role("button", name="Approve").click()
        await expect(opened.turns.locator(".prose")).to_have_text("Done.")
        assert sent == [("lee@example.org", "ho")]


@pytest.mark.parametrize("fails", [False, True], ids=["answered", "failed"])
async def test_tool_that_runs_with_the_user_is_answered(browser: Browser, tmp_path: Path, fails: bool) -> None:
    memory = InMemoryChatMemory()
    where = ToolDefinition("where_are_you", "Ask the user where they are.")
    script = [ToolCall("c1", "where_are_you", {}), "Oslo, then."]
    client = a_client(*script, tools=[where], memory=memory)
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("guess")
        waiting = card(opened, "where_are_you wants an answer")
        await waiting.get_by_role("textbox", name="Answer").fill("Oslo")
        if fails:
            await waiting.get_by_role("checkbox", name="It is a failure").check()
        await opened.shot("client-tool")
        await waiting.get_by_role("button", name="Send answer").click()
        await expect(opened.turns.locator(".prose")).to_have_text("Oslo, then.")
        await expect(call_of(opened, "where_are_you").locator(".call-state")).to_have_text(
            "failed" if fails else "done"
        )
        result = next(one for one in await memory.get(opened.conversation_id) if isinstance(one, ToolMessage))
        assert (result.content, result.is_error) == ("Oslo", fails)


@pytest.mark.parametrize("choice", ["Try again", "Go on with the failure", "Answer in its place…", "Reject…"])
async def test_call_whose_surroundings_failed_is_decided_on(browser: Browser, tmp_path: Path, choice: str) -> None:
    failures = [EnvironmentToolError("the key has run out")]

    @tool
    def forecast() -> str:
        """Tell the weather."""
        if failures:
            raise failures.pop()
        return "sunny"

    memory = InMemoryChatMemory()
    client = a_client(
        ToolCall("c1", "forecast", {}), "So.", tools=[forecast], memory=memory, pause_on_environment_error=True
    )
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("weather?")
        waiting = card(opened, "forecast could not run")
        await expect(waiting).to_contain_text("the key has run out")
        await waiting.get_by_role("button", name=choice).click()
        if choice == "Answer in its place…":
            await waiting.get_by_role("button", name="Back").click()
            await waiting.get_by_role("button", name=choice).click()
            await waiting.get_by_role("textbox", name="Answer").fill("rain, I think")
            await waiting.get_by_role("button", name="Send answer").click()
        elif choice == "Reject…":
            await waiting.get_by_role("button", name="Reject").click()
        await expect(opened.turns.locator(".prose")).to_have_text("So.")
        result = next(one for one in await memory.get(opened.conversation_id) if isinstance(one, ToolMessage))
        expected = {"Try again": "sunny", "Answer in its place…": "rain, I think"}.get(choice)
        if expected is None:
            assert result.is_error
        else:
            assert result.content == expected


async def test_pause_is_there_after_a_reload_and_gone_when_decided_elsewhere(browser: Browser, tmp_path: Path) -> None:
    send_mail, sent = mailing()
    client = a_client(MAIL, "Sent.", tools=[send_mail])
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("mail kim")
        await expect(card(opened, "send_mail")).to_be_visible()
        await opened.page.reload()
        await expect(card(opened, "send_mail")).to_be_visible()
        await expect(opened.page.get_by_role("heading", name="This waits for you")).to_be_focused()
        pause = await client.open_pause(opened.conversation_id)
        assert pause is not None
        await client.resume(opened.conversation_id, pause.calls[0].approve())
        await card(opened, "send_mail").get_by_role("button", name="Approve").click()
        await expect(opened.turns.locator(".prose")).to_have_text("Sent.")
        await expect(opened.page.get_by_role("alert")).to_contain_text("was resumed already")
        await expect(card(opened, "send_mail")).to_have_count(0)
        assert len(sent) == 1
        opened.complaints.clear()  # the browser tells of the 409


async def test_new_message_gives_up_what_waits(browser: Browser, tmp_path: Path) -> None:
    send_mail, sent = mailing()
    client = a_client(MAIL, "All right.", tools=[send_mail])
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("mail kim")
        await expect(card(opened, "send_mail")).to_be_visible()
        await opened.say("never mind")
        await expect(opened.turns).to_have_count(2)
        await expect(opened.turns.nth(1).locator(".prose")).to_have_text("All right.")
        await expect(card(opened, "send_mail")).to_have_count(0)
        for _ in range(2):
            await expect(opened.turns.nth(0).locator(".call-state")).to_have_text("failed")
            await expect(opened.turns.nth(1).locator("details.call")).to_have_count(0)
            await opened.page.reload()
        assert sent == []


async def test_decided_turn_may_pause_again(browser: Browser, tmp_path: Path) -> None:
    send_mail, sent = mailing()
    again = ToolCall("c1", "send_mail", {"to": "lee@example.org", "text": "ho"})
    async with opened_page(browser, a_client(MAIL, again, "Both.", tools=[send_mail]), tmp_path) as opened:
        await opened.say("mail kim, then lee")
        await card(opened, "send_mail").get_by_role("button", name="Approve").click()
        await expect(card(opened, "send_mail")).to_contain_text("lee@example.org")
        await expect(opened.page.get_by_role("heading", name="This waits for you")).to_be_focused()
        await card(opened, "send_mail").get_by_role("button", name="Approve").click()
        await expect(opened.turns.locator(".prose")).to_have_text("Both.")
        await expect(opened.turns).to_have_count(1)
        assert [to for to, _ in sent] == ["kim@example.org", "lee@example.org"]


# Stopping, and how turns end


@pytest.mark.parametrize("how", ["button", "key"])
async def test_answer_is_stopped_and_what_came_is_kept(browser: Browser, tmp_path: Path, how: str) -> None:
    _, wait = gate()
    memory = InMemoryChatMemory()
    client = a_client(Reply(text=["Once upon ", "a time"], wait_between=wait), memory=memory)
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("a story")
        await expect(opened.turns.locator(".prose")).to_have_text("Once upon")
        if how == "button":
            await opened.page.get_by_role("button", name="Stop").click()
        else:
            await opened.page.keyboard.press("Escape")
        await expect(opened.turns.get_by_text("Stopped.")).to_be_visible()
        await expect(opened.spoken).to_contain_text("Stopped.")
        await expect(opened.message).to_be_focused()
        await opened.shot(f"stopped-by-{how}")
        messages = await memory.get(opened.conversation_id)
        assert [text_of(one.content) for one in messages] == ["a story", "Once upon "]
        await opened.page.reload()
        await expect(opened.turns.get_by_text("Interrupted here.")).to_be_visible()


async def test_turn_that_ends_at_a_limit_says_so(browser: Browser, tmp_path: Path) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "nothing"

    client = a_client(*[ToolCall("c1", "look", {})] * 2, tools=[look], limits=Limits(model_calls=1))
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("look")
        await expect(opened.turns.get_by_text("Ended at a limit of this turn (model calls).")).to_be_visible()


async def test_blocked_message_says_why(browser: Browser, tmp_path: Path) -> None:
    guard = InputGuard(lambda messages: Block("a key was pasted"))
    async with opened_page(browser, a_client(filters=[guard]), tmp_path) as opened:
        await opened.say("sk-123")
        await expect(opened.turns.get_by_text("Blocked: a key was pasted")).to_be_visible()


async def test_blocked_answer_is_shown_as_it_is_kept(browser: Browser, tmp_path: Path) -> None:
    guard = OutputGuard(lambda text: Block("it swears") if "damn" in text else None, replacement="[removed]", every=8)
    client = a_client(Reply(text=["It is a ", "damn ", "shame."]), filters=[guard])
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("comment")
        await expect(opened.turns.get_by_text("Blocked: it swears")).to_be_visible()
        shown = await client.conversation(opened.conversation_id).history()
        last = next(one for one in reversed(shown) if isinstance(one, AssistantMessage))
        await expect(opened.turns.locator(".prose").last).to_have_text((last.content or "").strip())


async def test_answer_that_was_cut_says_so(browser: Browser, tmp_path: Path) -> None:
    client = a_client(
        Reply(text="And then", finish_reason="length"), Reply(text="Well", finish_reason="content_filter")
    )
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("a story")
        await expect(opened.turns.nth(0)).to_contain_text("Cut here: the answer reached its greatest length.")
        await opened.say("another")
        await expect(opened.turns.nth(1)).to_contain_text("Cut here by a content filter.")
        await opened.page.reload()
        await expect(opened.turns.nth(0)).to_contain_text("Cut here: the answer reached its greatest length.")


async def test_cost_is_shown_where_it_is_known(browser: Browser, tmp_path: Path) -> None:
    usage = Usage(input_tokens=1_000, output_tokens=100)
    model = ScriptedModel([Reply(text="Hi.", usage=usage)], name="gpt-5-mini")
    client = ChatClient(model, memory=InMemoryChatMemory(), limits=Limits(cost=10))
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("hi")
        await expect(opened.turns.locator(".totals")).to_have_text(
            re.compile(r"^1,000 tokens in · 100 out · \$0\.00\d+$")
        )


# Errors


async def test_turn_that_failed_says_why_and_is_tried_again(browser: Browser, tmp_path: Path) -> None:
    client = a_client(ProviderError("the model is not in", kind="overloaded"), "Here I am.")
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("hello?")
        alert = opened.turns.get_by_role("alert")
        await expect(alert).to_contain_text("the model is not in")
        await opened.shot("failed")
        await alert.get_by_role("button", name="Try again").click()
        await expect(opened.turns.locator(".prose")).to_have_text("Here I am.")
        await expect(opened.turns).to_have_count(1)
        await expect(alert).to_have_count(0)
        opened.complaints.clear()  # the browser tells of the 503


async def test_stream_that_fails_keeps_what_came(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    reply = Reply(text=["Half ", "an answer"], wait_between=wait, error=ProviderError("the line broke", kind="network"))
    async with opened_page(browser, a_client(reply), tmp_path) as opened:
        await opened.say("talk")
        await expect(opened.turns.locator(".prose")).to_have_text("Half")
        semaphore.release()
        await expect(opened.turns.get_by_role("alert")).to_contain_text("the line broke")
        await expect(opened.turns.locator(".prose")).to_have_text("Half an answer")
        await expect(opened.page.get_by_role("button", name="Send")).to_be_visible()


# Reload and re-join


async def test_reload_in_the_middle_shows_the_past_and_joins_the_answer(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    script = ["First answer.", ToolCall("c1", "look", {}), Reply(text=["one ", "two ", "three"], wait_between=wait)]
    async with opened_page(browser, a_client(*script, tools=[look]), tmp_path) as opened:
        await opened.say("first")
        await expect(opened.turns.locator(".prose")).to_have_text("First answer.")
        await opened.say("second")
        await expect(opened.turns.nth(1).locator(".prose")).to_have_text("one")
        for shown in ("one", "one two"):
            await opened.page.reload()
            await expect(opened.turns).to_have_count(2)
            await expect(opened.turns.nth(0)).to_contain_text("First answer.")
            await expect(opened.turns.nth(1).locator(".said")).to_contain_text("second")
            await expect(opened.turns.nth(1).locator("details.call")).to_have_count(1)
            await expect(opened.turns.nth(1).locator(".prose")).to_have_text(shown)
            await expect(opened.page.get_by_role("button", name="Stop")).to_be_visible()
            semaphore.release()
        await expect(opened.turns.nth(1).locator(".prose")).to_have_text("one two three")
        await expect(opened.page.get_by_role("button", name="Send")).to_be_visible()
        assert len(await opened.chat.client.conversation(opened.conversation_id).history()) == 6


async def test_reload_after_a_decision_joins_the_turn_that_goes_on(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()

    @tool(approval=True)
    async def dig() -> str:
        """Dig."""
        await wait()
        return "gold"

    async with opened_page(browser, a_client(ToolCall("c1", "dig", {}), "Rich.", tools=[dig]), tmp_path) as opened:
        await opened.say("dig")
        await card(opened, "dig").get_by_role("button", name="Approve").click()
        await expect(call_of(opened, "dig").locator(".call-state")).to_have_text("running")
        await opened.page.reload()
        await expect(opened.turns).to_have_count(1)
        await expect(call_of(opened, "dig")).to_have_count(1)
        await expect(call_of(opened, "dig").locator(".call-state")).to_have_text("running")
        semaphore.release()
        await expect(opened.turns.locator(".prose")).to_have_text("Rich.")
        await expect(call_of(opened, "dig").locator(".call-result")).to_have_text("gold")


async def test_broken_connection_is_made_again_where_it_broke(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    client = a_client(Reply(text=["one ", "two ", "three ", "four"], wait_between=wait))
    async with opened_page(browser, client, tmp_path, proxied=True) as opened:
        assert opened.proxy is not None
        await opened.say("count")
        prose = opened.turns.locator(".prose")
        await expect(prose).to_have_text("one")
        opened.proxy.requests.close()  # nobody answers for a while
        opened.proxy.cut()
        await expect(opened.turns.get_by_text("The connection is lost.")).to_be_visible()
        await opened.shot("connection-lost")
        semaphore.release()
        semaphore.release()
        opened.proxy.requests.open()
        await expect(prose).to_have_text("one two three")
        await expect(opened.turns.get_by_text("The connection is lost.")).to_be_hidden()
        semaphore.release()
        await expect(prose).to_have_text("one two three four")
        opened.complaints.clear()  # the browser tells of the broken connection


async def test_answer_that_ended_meanwhile_comes_from_the_record(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    client = a_client(Reply(text=["one ", "two"], wait_between=wait))
    async with opened_page(browser, client, tmp_path, proxied=True) as opened:
        assert opened.proxy is not None
        await opened.say("count")
        await expect(opened.turns.locator(".prose")).to_have_text("one")
        run = opened.chat.runs.running(opened.conversation_id)
        assert run is not None
        opened.proxy.requests.close()
        opened.proxy.cut()
        await expect(opened.turns.get_by_text("The connection is lost.")).to_be_visible()
        semaphore.release()
        await run.finished()
        opened.chat.runs._runs.clear()  # as after a restart of the server
        opened.chat.runs._finished.clear()
        opened.proxy.requests.open()
        await expect(opened.turns.locator(".prose")).to_have_text("one two")
        await expect(opened.page.get_by_role("button", name="Send")).to_be_visible()
        opened.complaints.clear()


async def gives_up(opened: Opened, held: Gate) -> None:
    """Cut the connection as often as the browser sends the request again, until it tells the page."""
    alert = asyncio.ensure_future(opened.turns.get_by_role("alert").wait_for())
    while not alert.done():
        reached = asyncio.ensure_future(held.reached.wait())
        await asyncio.wait({alert, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        held.reached.clear()
        assert opened.proxy is not None
        opened.proxy.cut()
    await alert


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "not-heard"])
async def test_message_that_may_have_been_lost_is_not_said_twice(browser: Browser, tmp_path: Path, heard: bool) -> None:
    memory = InMemoryChatMemory()
    async with opened_page(browser, a_client("I heard you.", memory=memory), tmp_path, proxied=True) as opened:
        assert opened.proxy is not None
        held = opened.proxy.answers if heard else opened.proxy.requests
        await expect(opened.page.get_by_text("None yet.")).to_be_visible()
        held.close()
        await opened.say("do you hear me?")
        await gives_up(opened, held)
        alert = opened.turns.get_by_role("alert")
        await expect(alert).to_contain_text("It is unknown whether this was heard.")
        await opened.shot("unknown-whether-heard")
        held.open()
        await alert.get_by_role("button", name="Look again").click()
        if not heard:
            await expect(opened.turns).to_have_count(0)
            await expect(opened.message).to_have_value("do you hear me?")
            await expect(opened.message).to_be_focused()
            await opened.message.press("Enter")
        await expect(opened.turns.locator(".prose")).to_have_text("I heard you.")
        await expect(opened.turns).to_have_count(1)
        await expect(opened.message).to_have_value("")
        assert [text_of(one.content) for one in await memory.get(opened.conversation_id)] == [
            "do you hear me?",
            "I heard you.",
        ]
        opened.complaints.clear()


async def test_reader_who_comes_too_late_is_shown_the_whole_at_the_end(browser: Browser, tmp_path: Path) -> None:
    started, ending = asyncio.Event(), asyncio.Event()

    async def before_the_last() -> None:
        nonlocal left
        left -= 1
        if not left:
            started.set()
            await ending.wait()

    pieces = [f"piece {number} {'.' * 80}\n\n" for number in range(40)]
    left = len(pieces) - 1
    client = a_client(Reply(text=pieces, wait_between=before_the_last))
    async with opened_page(browser, client, tmp_path, routes={"max_kept_bytes": 1_000}) as opened:
        opened.chat.runs.start("talk", conversation_id="late")
        await started.wait()
        await opened.page.goto(f"{opened.address}#/late")
        await expect(opened.turns.get_by_text("The beginning of this answer is shown")).to_be_visible()
        await expect(opened.turns.get_by_text("piece 38")).to_be_attached()
        await expect(opened.turns.get_by_text("piece 0 ")).to_have_count(0)
        ending.set()
        for number in (0, 39):
            await expect(opened.turns.get_by_text(f"piece {number} ")).to_be_attached()
        await expect(opened.turns).to_have_count(1)
        await expect(opened.page.get_by_text("The beginning of this answer is shown")).to_have_count(0)


# Conversations


async def test_conversations_are_listed_opened_and_begun_anew(browser: Browser, tmp_path: Path) -> None:
    memory = InMemoryChatMemory()
    await memory.add("old", [UserMessage("An old   question"), AssistantMessage("An old answer.")])
    client = a_client("One.", "Two.", memory=memory)
    async with opened_page(browser, client, tmp_path) as opened:
        page = opened.page
        links = page.get_by_role("navigation", name="Conversations").get_by_role("link")
        await expect(links).to_contain_text(["An old question"])
        await opened.say("A new question")
        await expect(links).to_contain_text(["A new question", "An old question"])
        await expect(links.nth(0)).to_have_attribute("aria-current", "page")
        first = page.url
        await links.nth(1).click()
        await expect(opened.turns).to_contain_text(["An old answer."])
        await expect(page.get_by_role("heading", name="An old question")).to_be_visible()
        await expect(opened.message).to_be_focused()
        assert opened.conversation_id == "old"
        await page.go_back()
        await expect(opened.turns).to_contain_text(["One."])
        assert page.url == first
        await page.go_forward()
        await expect(opened.turns).to_contain_text(["An old answer."])
        await page.get_by_role("button", name="New conversation").click()
        await expect(opened.turns).to_have_count(0)
        await expect(opened.message).to_be_focused()
        await opened.say("Another question")
        await expect(links).to_contain_text(["Another question", "A new question", "An old question"])
        await opened.shot("conversations")
        assert len({first, page.url}) == 2


async def test_other_conversation_can_be_read_while_an_answer_runs(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    memory = InMemoryChatMemory()
    await memory.add("old", [UserMessage("Old"), AssistantMessage("An old answer.")])
    client = a_client(Reply(text=["one ", "two"], wait_between=wait), memory=memory)
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("count")
        await expect(opened.turns.locator(".prose")).to_have_text("one")
        await opened.page.get_by_role("link", name="Old").click()
        await expect(opened.turns).to_contain_text(["An old answer."])
        await expect(opened.page.get_by_role("button", name="Send")).to_be_visible()
        await opened.page.go_back()
        await expect(opened.turns.locator(".prose")).to_have_text("one")
        semaphore.release()
        await expect(opened.turns.locator(".prose")).to_have_text("one two")


async def test_conversation_is_deleted_after_a_question(browser: Browser, tmp_path: Path) -> None:
    memory = InMemoryChatMemory()
    for name in ("first", "second"):
        await memory.add(name, [UserMessage(f"The {name}"), AssistantMessage("Yes.")])
    async with opened_page(browser, a_client(memory=memory), tmp_path) as opened:
        page = opened.page
        await page.get_by_role("link", name="The second").click()
        await expect(opened.turns).to_have_count(1)
        delete = page.get_by_role("button", name="Delete “The second”")
        dialog = page.get_by_role("dialog", name="Delete this conversation?")
        await delete.click()
        await expect(dialog).to_contain_text("“The second”")
        await expect(dialog.get_by_role("button", name="Keep")).to_be_focused()
        await opened.shot("delete")
        await page.keyboard.press("Escape")
        await expect(dialog).to_be_hidden()
        await expect(delete).to_be_focused()
        await delete.click()
        await dialog.get_by_role("button", name="Keep").click()
        await expect(dialog).to_be_hidden()
        assert len(await memory.get("second")) == 2
        await delete.click()
        await dialog.get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("link", name="The second")).to_have_count(0)
        await expect(page.get_by_role("link", name="The first")).to_be_focused()
        await expect(opened.turns).to_have_count(0)
        await expect(opened.spoken).to_contain_text("Deleted.")
        assert await memory.get("second") == ()
        await page.get_by_role("button", name="Delete “The first”").click()
        await dialog.get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("None yet.")).to_be_visible()
        await expect(page.get_by_role("button", name="New conversation")).to_be_focused()


async def test_long_list_is_shown_in_pages(browser: Browser, tmp_path: Path) -> None:
    memory = InMemoryChatMemory()
    for number in range(35):
        await memory.add(f"c{number}", [UserMessage(f"Question {number}.")])
    async with opened_page(browser, a_client(memory=memory), tmp_path) as opened:
        links = opened.page.get_by_role("navigation").get_by_role("link")
        await expect(links).to_have_count(30)
        await opened.page.get_by_role("button", name="Show more").click()
        await expect(links).to_have_count(35)
        await expect(links.last).to_contain_text("Question 0.")
        await expect(opened.page.get_by_role("button", name="Show more")).to_be_hidden()


async def test_conversation_that_is_nobodys_says_so(browser: Browser, tmp_path: Path) -> None:
    async def nobody(request: Any, conversation_id: str) -> None:
        return None

    async with opened_page(browser, a_client(), tmp_path, routes={"authorize": nobody}) as opened:
        await opened.page.goto(f"{opened.address}#/secret")
        await expect(opened.page.get_by_role("alert")).to_contain_text("there is no such conversation")
        await opened.shot("not-found")
        opened.complaints.clear()  # the browser tells of the 404


# Keys


async def test_shift_enter_begins_a_line_and_enter_sends(browser: Browser, tmp_path: Path) -> None:
    memory = InMemoryChatMemory()
    async with opened_page(browser, a_client("Two lines.", memory=memory), tmp_path) as opened:
        low = (await opened.message.bounding_box() or {})["height"]
        await opened.message.press("Enter")  # nothing to send
        await opened.message.press_sequentially("one")
        await opened.message.press("Shift+Enter")
        await opened.message.press_sequentially("two")
        await expect(opened.message).to_have_value("one\ntwo")
        assert (await opened.message.bounding_box() or {})["height"] > low
        # An input method's Enter takes the offered word.
        await opened.message.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
        await expect(opened.turns).to_have_count(0)
        await opened.message.press("Enter")
        await expect(opened.turns.locator(".prose")).to_have_text("Two lines.")
        await expect(opened.message).to_have_value("")
        assert (await opened.message.bounding_box() or {})["height"] == low
        assert (await memory.get(opened.conversation_id))[0].content == "one\ntwo"


async def test_message_can_be_written_but_not_sent_while_an_answer_runs(browser: Browser, tmp_path: Path) -> None:
    semaphore, wait = gate()
    client = a_client(Reply(text=["a ", "b"], wait_between=wait), "Next.")
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("one")
        await expect(opened.turns.locator(".prose")).to_have_text("a")
        await opened.say("two")
        await expect(opened.spoken).to_contain_text("An answer is running.")
        await expect(opened.message).to_have_value("two")
        await expect(opened.turns).to_have_count(1)
        semaphore.release()
        await expect(opened.page.get_by_role("button", name="Send")).to_be_visible()
        await opened.page.get_by_role("button", name="Send").click()
        await expect(opened.turns.nth(1).locator(".prose")).to_have_text("Next.")


async def test_everything_is_reached_by_the_keyboard_in_the_order_it_is_seen(browser: Browser, tmp_path: Path) -> None:
    memory = InMemoryChatMemory()
    await memory.add("old", [UserMessage("Old"), AssistantMessage("Answer.")])
    async with opened_page(browser, a_client(memory=memory), tmp_path) as opened:
        page = opened.page
        await expect(page.get_by_role("link", name="Old")).to_be_visible()
        await expect(opened.message).to_be_focused()
        order: list[str] = []
        for _ in range(5):
            await page.keyboard.press("Shift+Tab")
            order.append(await opened.focused())
        assert [order[0], order[1], order[3], order[4]] == ["scroll", "Delete “Old”", "new", "Skip to the message"]
        assert order[2].startswith("Old")
        await opened.shot("skip-link")
        await page.keyboard.press("Enter")
        await expect(opened.message).to_be_focused()
        assert opened.conversation_id == ""


# Narrow


async def test_narrow_screen_has_the_list_in_a_drawer(browser: Browser, tmp_path: Path) -> None:
    memory = InMemoryChatMemory()
    await memory.add("old", [UserMessage("Old question"), AssistantMessage("Old answer.")])
    window = {"width": 390, "height": 740}
    async with opened_page(browser, a_client("Hello.", memory=memory), tmp_path, viewport=window) as opened:
        page = opened.page
        link = page.get_by_role("link", name="Old question")
        drawer = page.get_by_role("button", name="Conversations")
        await expect(drawer).to_have_attribute("aria-expanded", "false")
        await expect(link).to_be_hidden()
        await drawer.click()
        await expect(link).to_be_focused()
        await expect(drawer).to_have_attribute("aria-expanded", "true")
        await opened.shot("drawer")
        await page.keyboard.press("Escape")
        await expect(link).to_be_hidden()
        await expect(drawer).to_be_focused()
        await drawer.click()
        await page.mouse.click(380, 400)
        await expect(link).to_be_hidden()
        await drawer.click()
        await link.click()
        await expect(opened.turns).to_contain_text(["Old answer."])
        await expect(link).to_be_hidden()
        await opened.say("And now something that is longer than one line of a telephone")
        await expect(opened.turns.nth(1).locator(".prose")).to_have_text("Hello.")
        await opened.shot("narrow")
        assert await page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
