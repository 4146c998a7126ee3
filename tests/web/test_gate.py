"""Who may talk to a server on somebody's machine: not other sites, not under other names, not without the token."""

from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from agentcore.web.gate import Gate, is_loopback

TOKEN = "a-token-that-is-long-enough"


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


APP = Starlette(routes=[Route("/", hello, methods=["GET", "POST"]), Route("/api", hello, methods=["GET", "POST"])])


def client_of(gate: Gate, host: str = "127.0.0.1:8000") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url=f"http://{host}")


@pytest_asyncio.fixture
async def local() -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(Gate(APP)) as http:
        yield http


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST", "[::1]:8000"])
@pytest.mark.asyncio
async def test_server_is_known_by_the_names_of_this_machine(local: httpx.AsyncClient, host: str) -> None:
    assert (await local.get("/", headers={"host": host})).text == "hello"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "a@localhost",
        "localhost:x",
        "localhost/../",
        "[::1",
        "0.0.0.0:8000",
        "127.0.0.2",
    ],
)
@pytest.mark.asyncio
async def test_other_names_are_refused(local: httpx.AsyncClient, host: str) -> None:
    answer = await local.get("/", headers={"host": host})
    assert (answer.status_code, "hello" in answer.text) == (421, False)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9000"},
        {"origin": "http://localhost:8000"},
        {"origin": "http://127.0.0.1"},
        {"origin": "chrome-extension://127.0.0.1:8000"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "cross-site"},
    ],
)
@pytest.mark.asyncio
async def test_what_another_sites_page_sends_is_refused(local: httpx.AsyncClient, headers: dict[str, str]) -> None:
    answer = await local.post("/api", headers=headers)
    assert (answer.status_code, "hello" in answer.text) == (403, False)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
    ],
    ids=["no-browser", "own-page", "address-bar"],
)
@pytest.mark.asyncio
async def test_what_the_own_page_and_programs_send_passes(local: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await local.post("/api", headers=headers)).text == "hello"


@pytest.mark.asyncio
async def test_link_from_elsewhere_may_be_followed_but_nothing_is_loaded(local: httpx.AsyncClient) -> None:
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await local.get("/", headers=followed)).text == "hello"
    assert (await local.get("/api", headers=followed | {"sec-fetch-mode": "no-cors"})).status_code == 403


@pytest.mark.asyncio
async def test_token_opens_by_header_and_by_cookie() -> None:
    async with client_of(Gate(APP, names=None, token=TOKEN), "box.lan:8000") as http:
        answer = await http.get("/")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert TOKEN not in answer.text
        assert (await http.get("/api", headers={"authorization": f"Bearer {TOKEN}"})).text == "hello"
        assert (await http.get("/api", headers={"authorization": f"Bearer {TOKEN}x"})).status_code == 401
        assert (await http.get("/api", headers={"authorization": f"Basic {TOKEN}"})).status_code == 401
        assert (await http.get("/", params={"token": "wrong"})).status_code == 401
        assert (await http.get("/api", params={"token": TOKEN})).status_code == 401
        let_in = await http.get("/", params={"token": TOKEN})
        assert (let_in.status_code, let_in.headers["location"]) == (303, "/")
        cookie = let_in.headers["set-cookie"]
        assert TOKEN not in cookie
        assert "HttpOnly" in cookie
        assert "samesite=lax" in cookie.lower()
        assert (await http.get("/")).text == "hello"


@pytest.mark.asyncio
async def test_other_sites_are_refused_with_the_cookie_too() -> None:
    async with client_of(Gate(APP, names=None, token=TOKEN), "box.lan:8000") as http:
        await http.get("/", params={"token": TOKEN})
        assert (await http.post("/api", headers={"origin": "http://evil.example"})).status_code == 403
        assert (await http.post("/api", headers={"origin": "http://box.lan:8000"})).text == "hello"


@pytest.mark.asyncio
async def test_two_servers_of_one_host_keep_their_cookies_apart() -> None:
    other = f"{TOKEN}-of-another"
    async with client_of(Gate(APP, token=TOKEN)) as http:
        first = (await http.get("/", params={"token": TOKEN})).headers["set-cookie"]
    async with client_of(Gate(APP, token=other)) as http:
        second = (await http.get("/", params={"token": other})).headers["set-cookie"]
        http.cookies.clear()
        assert (await http.get("/", headers={"cookie": first.partition(";")[0]})).status_code == 401
    assert first.partition("=")[0] != second.partition("=")[0]


def test_gate_that_expects_any_name_needs_a_token() -> None:
    with pytest.raises(ValueError, match="needs a token"):
        Gate(APP, names=None)


@pytest.mark.asyncio
async def test_nothing_but_http_passes() -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match="websocket"):
        await Gate(never)({"type": "websocket"}, never, never)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("box.lan", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_which_hosts_only_this_machine_can_reach(host: str, local: bool) -> None:
    assert is_loopback(host) is local
