"""What tests of the routes share: a browser for each module, and the JavaScript clients, installed once a run."""

from collections.abc import AsyncGenerator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.support.browser import Chromium
from tests.support.javascript import JavaScript, forget, javascript
from tests.support.page import running_browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(chromium: Chromium) -> AsyncGenerator[Browser]:
    """One browser for all tests of a module: each test opens a window of its own in it."""
    async with running_browser(chromium) as running:
        yield running


@pytest.fixture(scope="session")
def node() -> Iterator[JavaScript]:
    """Programs of Node.js with the clients that front ends use; fails with what is missing."""
    programs = javascript()
    yield programs
    forget(programs)
