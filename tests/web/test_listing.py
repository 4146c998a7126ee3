"""The list of conversations: a user's own, page by page, and nothing of anybody else's."""

from base64 import urlsafe_b64decode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from agentcore import ChatClient, InMemoryChatMemory, UserMessage
from agentcore.testing import ScriptedModel
from agentcore.web import chat_routes, listing

pytestmark = pytest.mark.asyncio


async def by_header(request: Request, conversation_id: str) -> Mapping[str, Any] | None:
    return {} if conversation_id.startswith(f"{request.headers['x-user']}:") else None


def users_prefix(request: Request) -> str:
    return f"{request.headers['x-user']}:"


@asynccontextmanager
async def a_list(ids: Sequence[str], **settings: Any) -> AsyncGenerator[httpx.AsyncClient]:
    memory = InMemoryChatMemory()
    for name in ids:
        await memory.add(name, [UserMessage("hello")])
    chat = chat_routes(ChatClient(ScriptedModel([]), memory=memory), authorize=by_header, **settings)
    transport = httpx.ASGITransport(chat)
    async with httpx.AsyncClient(transport=transport, base_url="http://chat", headers={"x-user": "kim"}) as http:
        yield http


async def pages(http: httpx.AsyncClient, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = (await http.get("/conversations", params=query)).json()
        found.append(page)
        if page["after"] is None:
            return found
        query["after"] = page["after"]


def ids_of(page: dict[str, Any]) -> list[str]:
    return [one["conversation_id"] for one in page["conversations"]]


@pytest.mark.parametrize("prefix", [None, users_prefix], ids=["by authoriser", "by prefix"])
async def test_pages_are_full_and_their_cursors_name_nobody_elses_conversations(prefix: Any) -> None:
    ids = [f"{user}:{number}" for number in range(5) for user in ("kim", "ada", "bo")]
    async with a_list(ids, conversation_prefix=prefix) as http:
        found = await pages(http, limit="2")
    assert [ids_of(page) for page in found] == [["kim:4", "kim:3"], ["kim:2", "kim:1"], ["kim:0"]]
    assert [page["complete"] for page in found] == [True] * 3
    for page in found[:-1]:
        cursor = urlsafe_b64decode(page["after"])
        assert b"kim:" in cursor
        assert b"ada" not in cursor
        assert b"bo" not in cursor


async def test_list_gives_up_after_many_conversations_of_others_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKED_THROUGH", 100)
    ids = ["kim:old", *(f"ada:{number}" for number in range(150)), "kim:new"]
    async with a_list(ids) as http:
        [first, second] = await pages(http)
    assert (ids_of(first), first["complete"]) == (["kim:new"], False)
    assert b"kim:new" in urlsafe_b64decode(first["after"])
    assert (ids_of(second), second["after"], second["complete"]) == ([], None, False)
    async with a_list(ids, conversation_prefix=users_prefix) as http:
        [only] = await pages(http)
    assert (ids_of(only), only["complete"]) == (["kim:new", "kim:old"], True)


async def test_prefix_of_the_request_narrows_and_never_widens() -> None:
    async with a_list(["kim:a1", "kim:b1", "ada:a1"], conversation_prefix=users_prefix) as http:
        assert ids_of((await http.get("/conversations?prefix=kim:a")).json()) == ["kim:a1"]
        for asked in ("ada:", "k", ""):
            answer = await http.get("/conversations", params={"prefix": asked})
            assert answer.status_code == 404


async def test_list_that_cannot_be_had_is_refused() -> None:
    async with a_list(["kim:1"]) as http:
        for query in ("limit=0", "limit=x", "after=nonsense"):
            assert (await http.get(f"/conversations?{query}")).status_code == 422


@pytest.mark.parametrize("limit", ["0", "101", "-1", "x", "", "٣", "9" * 5_000])
async def test_limit_that_is_no_number_of_ordinary_size_is_refused(limit: str) -> None:
    async with a_list(["kim:1"]) as http:
        answer = await http.get("/conversations", params={"limit": limit})
    assert (answer.status_code, answer.json()["error"]["kind"]) == (422, "invalid_input")
