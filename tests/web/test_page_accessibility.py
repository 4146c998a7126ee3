"""The chat page for everybody: checked by axe, in light and dark, wide and narrow; and without motion."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from agentcore import ChatClient, InMemoryChatMemory, ProviderError, ToolCall, tool
from agentcore.chat import ToolDefinition
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.testing import Reply, ScriptedModel
from agentcore.usage import Usage
from tests.support.page import Opened, opened_page

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

PROSE = """\
## Three ways to count

Numbers are **easy**, *mostly*; `sum(range(4))` is 6. See [the docs](https://example.org/docs) or https://example.org.

1. by hand
2. by machine
   - fast
   - right

> Counting is what is left when everything else is forgotten.

```python
def count(things: list[str]) -> int:
    return len(things)  # a line that is so long that it does not fit into the box and has to be scrolled sideways
```

| way | speed | right |
| :-- | --: | :-: |
| hand | 1 | often |
| machine | 1,000,000 | always |
"""

LIGHT = {"color_scheme": "light"}
DARK = {"color_scheme": "dark"}
NARROW = {"viewport": {"width": 390, "height": 740}}


async def is_for_everybody(opened: Opened) -> None:
    found = await Axe().run(
        opened.page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]}
    )
    assert found.violations_count == 0, found.generate_report()


@tool(approval=lambda call, context: "It writes to your disk.")
def save(text: str) -> str:
    """Save."""
    return "saved"


@tool
def look(at: str) -> str:
    """Look."""
    return f"there is {at}"


async def empty(opened: Opened) -> None:
    await expect(opened.page.get_by_role("link", name="Old")).to_be_visible()


async def a_long_answer(opened: Opened) -> None:
    await opened.say("How can I count?")
    await expect(opened.turns.locator(".totals")).to_be_visible()
    for summary in await opened.page.locator("summary").all():
        await summary.click()


async def an_approval(opened: Opened) -> None:
    await opened.say("save it")
    await opened.page.get_by_role("button", name="Change arguments…").click()
    await opened.page.get_by_role("textbox", name="Arguments").fill("{")
    await opened.page.get_by_role("button", name="Approve with these").click()


async def a_question(opened: Opened) -> None:
    await opened.say("guess")
    await expect(opened.page.get_by_role("textbox", name="Answer")).to_be_visible()


async def an_error(opened: Opened) -> None:
    await opened.say("hello")
    await expect(opened.turns.get_by_role("alert")).to_be_visible()
    opened.complaints.clear()


async def a_dialog(opened: Opened) -> None:
    await opened.page.get_by_role("button", name="Delete “Old”").click()
    await expect(opened.page.get_by_role("dialog")).to_be_visible()


STATES: dict[str, tuple[Callable[[Opened], Awaitable[None]], list[Any]]] = {
    "empty": (empty, []),
    "answer": (
        a_long_answer,
        [
            Reply(reasoning="Hands, then machines.", tool_calls=[ToolCall("c1", "look", {"at": "an abacus"})]),
            Reply(text=PROSE, usage=Usage(input_tokens=900, output_tokens=120)),
        ],
    ),
    "approval": (an_approval, [ToolCall("c1", "save", {"text": "three"})]),
    "question": (a_question, [ToolCall("c1", "where", {})]),
    "error": (an_error, [ProviderError("nobody is in", kind="overloaded")]),
    "dialog": (a_dialog, []),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("look_of_it", [LIGHT, DARK, DARK | NARROW], ids=["light", "dark", "narrow"])
async def test_page_is_for_everybody(browser: Browser, tmp_path: Path, state: str, look_of_it: dict[str, Any]) -> None:
    reach, script = STATES[state]
    memory = InMemoryChatMemory()
    await memory.add("old", [UserMessage("Old"), AssistantMessage("Answer.")])
    tools = [save, look, ToolDefinition("where", "Ask.")]
    client = ChatClient(ScriptedModel(script), memory=memory, tools=tools)
    async with opened_page(browser, client, tmp_path, reduced_motion="reduce", **look_of_it) as opened:
        narrow = "viewport" in look_of_it
        if narrow and state in ("empty", "dialog"):
            await opened.page.get_by_role("button", name="Conversations").click()
        await reach(opened)
        await opened.shot(f"axe-{state}-{'narrow' if narrow else look_of_it['color_scheme']}")
        await is_for_everybody(opened)
        assert await opened.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


async def test_nothing_moves_for_those_who_ask_for_that(browser: Browser, tmp_path: Path) -> None:
    client = ChatClient(ScriptedModel([]), memory=InMemoryChatMemory())
    async with opened_page(browser, client, tmp_path, reduced_motion="reduce") as opened:
        moving = """() => [...document.querySelectorAll('*')].flatMap((one) => [null, '::before', '::after'].map(
            (part) => getComputedStyle(one, part))).filter((style) => style.animationName !== 'none'
            || style.transitionDuration.split(', ').some((time) => time !== '0s')).length"""
        await opened.page.evaluate(
            "document.querySelector('#log').innerText = ''; document.querySelector('#log').className = 'turn'"
        )
        assert await opened.page.evaluate(moving) == 0


async def test_landmarks_have_names(browser: Browser, tmp_path: Path) -> None:
    client = ChatClient(ScriptedModel(["Hi."]), memory=InMemoryChatMemory())
    async with opened_page(browser, client, tmp_path) as opened:
        await opened.say("Hello")
        await expect(opened.turns.locator(".prose")).to_have_text("Hi.")
        for role in ("banner", "main"):
            await expect(opened.page.get_by_role(role)).to_have_count(1)
        for role, name in (("navigation", "Conversations"), ("log", "Hello"), ("article", "Turn: Hello")):
            await expect(opened.page.get_by_role(role, name=name)).to_have_count(1)
        await expect(opened.page.get_by_role("heading", level=1)).to_have_text("agentcore · scripted")
        assert await opened.page.title() == "agentcore · scripted"
