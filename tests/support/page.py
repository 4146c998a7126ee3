"""The chat page in a real browser, over a real server and a scripted model."""

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Locator, Page, async_playwright, expect

from agentcore import ChatClient
from agentcore.web import ChatRoutes, allow_everyone, chat_routes
from agentcore.web.page import page_routes
from tests.support.browser import ARGUMENTS, Chromium
from tests.support.proxy import Proxy
from tests.support.web import running_server

WAIT_SECONDS = 15.0


@asynccontextmanager
async def running_browser(chromium: Chromium) -> AsyncGenerator[Browser]:
    """A browser for the length of the block."""
    expect.set_options(timeout=WAIT_SECONDS * 1000)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium.path, args=ARGUMENTS, env=dict(chromium.environment)
        )
        yield browser
        await browser.close()


class Opened:
    """The page as a person has it before them.

    Attributes:
        page: the browser's.
        chat: the routes behind it.
        address: of the page.
        proxy: between the two, if the test asked for one.
        complaints: what the browser's console said; a test that expects something there clears it.
    """

    def __init__(self, page: Page, chat: ChatRoutes, address: str, shots: Path, proxy: Proxy | None) -> None:
        self.page = page
        self.chat = chat
        self.address = address
        self.proxy = proxy
        self.complaints: list[str] = []
        self._shots = shots
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    @property
    def message(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    @property
    def turns(self) -> Locator:
        return self.page.get_by_role("article")

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log")

    @property
    def spoken(self) -> Locator:
        """What is read out to those who listen."""
        return self.page.locator("[aria-live=polite]")

    @property
    def conversation_id(self) -> str:
        return self.page.url.partition("#/")[2]

    async def say(self, text: str) -> None:
        await self.message.fill(text)
        await self.message.press("Enter")

    async def shot(self, name: str) -> None:
        """A picture of the page, kept where `AGENTCORE_SCREENSHOTS` says."""
        await self.page.screenshot(path=self._shots / f"{name}.png", animations="disabled")

    async def focused(self) -> str:
        """The name of what has the focus."""
        return await self.page.evaluate(
            "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.id)"
            " || document.activeElement.textContent"
        )


@asynccontextmanager
async def opened_page(
    browser: Browser,
    client: ChatClient,
    tmp_path: Path,
    *,
    routes: dict[str, Any] | None = None,
    proxied: bool = False,
    **window: Any,
) -> AsyncGenerator[Opened]:
    """The page of a client in a window of its own; nothing may go wrong in it that the test does not expect.

    Args:
        browser: where.
        client: whose conversations.
        tmp_path: for pictures.
        routes: settings of the chat routes.
        proxied: go through a proxy that the test can close.
        window: settings of the browser's window.
    """
    shots = Path(os.environ.get("AGENTCORE_SCREENSHOTS") or tmp_path / "screenshots")
    shots.mkdir(parents=True, exist_ok=True)
    window.setdefault("viewport", {"width": 1100, "height": 760})
    chat = chat_routes(client, **{"authorize": allow_everyone, "grace": 0.0, "show_details": True, **(routes or {})})
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running_server(page_routes(chat, title="agentcore · scripted")))
        address = f"http://127.0.0.1:{server.port}/"
        proxy = await stack.enter_async_context(Proxy(address)) if proxied else None
        if proxy is not None:
            address = proxy.url
        own = await browser.new_context(**window)
        stack.push_async_callback(own.close)
        own.set_default_timeout(WAIT_SECONDS * 1000)
        opened = Opened(await own.new_page(), chat, address, shots, proxy)
        await opened.page.goto(address)
        yield opened
        assert opened.complaints == []
