"""The page's routes over HTTP: what is served, with which headers, and where it can be mounted."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from agentcore import ChatClient, InMemoryChatMemory
from agentcore.messages import UserMessage
from agentcore.testing import ScriptedModel
from agentcore.web import allow_everyone, chat_routes
from agentcore.web.page import PageRoutes, page_routes
from tests.support.web import serving

pytestmark = pytest.mark.asyncio


def a_page(*script: Any, authorize: Any = allow_everyone, **settings: Any) -> PageRoutes:
    client = ChatClient(ScriptedModel(script), memory=InMemoryChatMemory())
    return page_routes(chat_routes(client, authorize=authorize), **settings)


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[httpx.AsyncClient]:
    async with serving(app) as url, httpx.AsyncClient(base_url=url, timeout=20) as http:
        yield http


async def test_page_and_its_files_are_served_with_a_strict_policy() -> None:
    async with served(a_page()) as http:
        page = await http.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["cache-control"] == "no-store"
        found = set(re.findall(r'(?:src|href)="(static/[^"]+)"', page.text))
        assert found == {"static/page.js", "static/page.css", "static/icon.svg"}
        assert "<script>" not in page.text
        assert "style=" not in page.text
        assert not re.search(r"\son\w+=", page.text)
        for path in ("/", "/api/conversations", "/static/nothing.js", *sorted(f"/{one}" for one in found)):
            answer = await http.get(path)
            policy = dict(rule.partition(" ")[::2] for rule in answer.headers["content-security-policy"].split("; "))
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
            assert policy["img-src"] == "'self' data:"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"


async def test_all_modules_that_modules_load_are_there_as_scripts() -> None:
    async with served(a_page()) as http:
        waiting, seen = ["page.js"], set[str]()
        while waiting:
            name = waiting.pop()
            seen.add(name)
            answer = await http.get(f"/static/{name}")
            assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
            assert "innerHTML" not in answer.text
            waiting.extend(set(re.findall(r'from "\./([^"]+)"', answer.text)) - seen)
    on_disk = {one.name for one in (files("agentcore.web") / "static").iterdir() if one.name.endswith(".js")}
    assert seen == on_disk


async def test_file_that_is_known_is_not_sent_again() -> None:
    async with served(a_page()) as http:
        first = await http.get("/static/page.css")
        assert (first.headers["content-type"], first.headers["cache-control"]) == (
            "text/css; charset=utf-8",
            "no-cache",
        )
        again = await http.get("/static/page.css", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]


@pytest.mark.parametrize("name", ["page.html", "..%2fpage.py", "%2e%2e/page.py", "nothing.js"])
async def test_other_files_are_not_there(name: str) -> None:
    async with served(a_page()) as http:
        assert (await http.get(f"/static/{name}")).status_code == 404


async def test_title_and_prefix_are_no_markup() -> None:
    async with served(a_page(title="<b>&", conversation_prefix='"><script>')) as http:
        page = (await http.get("/")).text
    assert page.count("&lt;b&gt;&amp;") == 2
    assert 'data-prefix="&quot;&gt;&lt;script&gt;"' in page


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
async def test_page_is_mounted_for_users_who_see_their_own(framework: str) -> None:
    async def own(request: Request, conversation_id: str) -> Mapping[str, Any] | None:
        user = request.headers["x-user"]
        return {"user_id": user} if conversation_id.startswith(f"{user}:") else None

    page = a_page("Hello.", authorize=own, conversation_prefix=lambda request: f"{request.headers['x-user']}:")
    memory = page.chat.client.memory
    assert memory is not None
    await memory.add("lee:1", [UserMessage("hi")])
    if framework == "fastapi":
        app: Any = FastAPI(lifespan=page.chat.lifespan)
        app.mount("/assistant", page)
    else:
        app = Starlette(routes=[Mount("/assistant", page)], lifespan=page.chat.lifespan)
    async with served(app) as http:
        kim = {"x-user": "kim"}
        assert 'data-prefix="kim:"' in (await http.get("/assistant/", headers=kim)).text
        answer = await http.post("/assistant/api/conversations/kim:1/turns", json={"message": "hi"}, headers=kim)
        assert answer.json()["text"] == "Hello."
        listed = await http.get("/assistant/api/conversations", params={"titles": "1"}, headers=kim)
        assert [(one["conversation_id"], one["title"]) for one in listed.json()["conversations"]] == [("kim:1", "hi")]
        assert (await http.get("/assistant/api/conversations/lee:1", headers=kim)).status_code == 404
