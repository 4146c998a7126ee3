"""`agentcore serve` as a program of its own: the page, turns over HTTP, who is let in, and how it ends."""

import asyncio
import gc
import json
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentcore import SQLiteChatMemory, check_history
from agentcore.cli import main as cli
from agentcore.cli import serve as serve_module
from agentcore.errors import ConfigurationError
from tests.support.completions import streams_call, streams_text
from tests.support.loopback import DONE, Loopback, chunk, sse
from tests.support.web import sent_events

SSE = {"accept": "text/event-stream"}
SECONDS = 30


class Served:
    """The running command.

    Attributes:
        address: that it printed.
        http: a client of the page.
    """

    def __init__(self, process: Process, address: str, http: httpx.AsyncClient) -> None:
        self.process = process
        self.address = address
        self.http = http

    async def ended(self) -> tuple[int, str]:
        """Its exit status and what it said on stderr."""
        async with asyncio.timeout(SECONDS):
            _, errors = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, errors.decode()


@asynccontextmanager
async def serving(*arguments: str, environment: Mapping[str, str] | None = None) -> AsyncGenerator[Served]:
    command = [sys.executable, "-m", "agentcore", "serve", "--port", "0", *arguments]
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env={**inherited, **(environment or {})}
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            address = (await process.stdout.readline()).decode().strip()
        if not address:
            raise AssertionError((await process.communicate())[1].decode())
        port = httpx.URL(address).port
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as http:
            yield Served(process, address, http)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def stopped(served: Served) -> None:
    served.process.send_signal(signal.SIGTERM)
    status, errors = await served.ended()
    assert status == 0, errors
    assert "Traceback" not in errors


@pytest.mark.asyncio
async def test_page_and_a_turn_are_served_on_this_machine_alone(kept_in: str) -> None:
    async with Loopback(streams_text("Hel", "lo")) as model:
        async with serving("--base-url", f"{model.url}/v1", "--system", "Be brief.") as served:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", served.address)
            page = await served.http.get("/")
            assert "<title>agentcore · default</title>" in page.text
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert (await served.http.get("/static/page.js")).status_code == 200
            async with served.http.stream(
                "POST", "/api/conversations/c1/turns", json={"message": "hi"}, headers=SSE
            ) as answer:
                events = [one async for one in sent_events(answer)]
            assert [one.data["text"] for one in events] == ["Hel", "lo", "Hello"]
            assert events[-1].data["usage"] == {}
            listed = (await served.http.get("/api/conversations?titles=1")).json()["conversations"]
            assert [(one["conversation_id"], one["title"]) for one in listed] == [("c1", "hi")]
            await stopped(served)
        sent = model.requests[0].json
        assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
        assert [one["function"]["name"] for one in sent["tools"]][-1] == "save_note"
    async with SQLiteChatMemory(kept_in.removeprefix("sqlite:///")) as memory:
        assert [one.content for one in await memory.get("c1")] == ["hi", "Hello"]


@pytest.mark.asyncio
async def test_note_is_written_only_when_the_user_agrees(tmp_path: Path) -> None:
    replies = [streams_call("save_note", {"text": "buy milk"}), streams_text("Noted.")]
    async with Loopback(*replies) as model:
        home = {"XDG_DATA_HOME": str(tmp_path / "home"), "LOCALAPPDATA": str(tmp_path / "home")}
        async with serving("--base-url", f"{model.url}/v1", environment=home) as served:
            notes = tmp_path / "home" / "agentcore" / "notes.txt"
            url = "/api/conversations/c1"
            paused = (await served.http.post(f"{url}/turns", json={"message": "note: buy milk"})).json()
            (waiting,) = paused["pause"]["calls"]
            assert str(notes) in waiting["reason"]
            assert not notes.exists()
            decision = {"call_id": waiting["call"]["id"], "digest": waiting["digest"], "action": "approve"}
            answer = (await served.http.post(f"{url}/resume", json={"decisions": [decision]})).json()
            assert (answer["status"], answer["text"]) == ("completed", "Noted.")
            assert notes.read_text(encoding="utf-8").endswith("  buy milk\n")


@pytest.mark.asyncio
async def test_programs_are_served_too() -> None:
    async with Loopback(streams_text("Hello.")) as model:
        async with serving("--base-url", f"{model.url}/v1", "--no-tools") as served:
            models = (await served.http.get("/v1/models")).json()["data"]
            assert [one["id"] for one in models] == ["default"]
            body = {"model": "default", "messages": [{"role": "user", "content": "hi"}]}
            completion = (await served.http.post("/v1/chat/completions", json=body)).json()
            assert completion["choices"][0]["message"]["content"] == "Hello."
            said = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
            body = {"id": "c2", "messages": [said], "trigger": "submit-message"}
            ai_sdk = await served.http.post("/api/chat", json=body)
            assert '"Hello."' in ai_sdk.text
            body = {"threadId": "c3", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "hi"}]}
            body |= {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
            ag_ui = await served.http.post("/ag-ui", json=body, headers=SSE)
            assert "RUN_FINISHED" in ag_ui.text
            assert "tools" not in model.requests[0].json
            await stopped(served)


@pytest.mark.asyncio
async def test_other_sites_and_other_names_are_refused() -> None:
    async with Loopback(streams_text("Hello.")) as model:
        async with serving("--base-url", f"{model.url}/v1") as served:
            turn: dict[str, Any] = {"url": "/api/conversations/c1/turns", "json": {"message": "hi"}}
            assert (await served.http.post(**turn, headers={"host": "evil.example"})).status_code == 421
            assert (await served.http.post(**turn, headers={"origin": "https://evil.example"})).status_code == 403
            simple = {"content-type": "text/plain"}  # what a form of another site could send without being asked
            body = json.dumps({"message": "hi"})
            assert (await served.http.post(turn["url"], content=body, headers=simple)).status_code == 415
            assert model.requests == []
            assert (await served.http.post(**turn)).json()["text"] == "Hello."


@pytest.mark.asyncio
async def test_other_machines_need_the_token_that_is_printed() -> None:
    async with Loopback(streams_text("Hello.")) as model:
        async with serving("--base-url", f"{model.url}/v1", "--host", "0.0.0.0") as served:
            token = httpx.URL(served.address).params["token"]
            assert len(token) >= 24
            assert (await served.http.get("/")).status_code == 401
            turn: dict[str, Any] = {"url": "/api/conversations/c1/turns", "json": {"message": "hi"}}
            assert (await served.http.post(**turn)).status_code == 401
            assert model.requests == []
            let_in = await served.http.get("/", params={"token": token}, follow_redirects=True)
            assert "<title>" in let_in.text
            assert "token" not in str(let_in.url)
            assert (await served.http.post(**turn)).json()["text"] == "Hello."
            served.process.send_signal(signal.SIGTERM)
            status, errors = await served.ended()
            assert status == 0
            assert "not encrypted" in errors
            assert token not in errors


@pytest.mark.parametrize("how", ["option", "environment"])
@pytest.mark.asyncio
async def test_token_may_be_asked_for_on_this_machine_too(how: str) -> None:
    token = "a-token-of-my-own"
    arguments = ["--token", token] if how == "option" else []
    environment = {"AGENTCORE_TOKEN": token} if how == "environment" else {}
    async with Loopback() as model:
        async with serving("--base-url", f"{model.url}/v1", *arguments, environment=environment) as served:
            assert served.address.endswith(f"/?token={token}")
            assert (await served.http.get("/")).status_code == 401
            bearer = {"authorization": f"Bearer {token}"}
            assert (await served.http.get("/api/conversations", headers=bearer)).status_code == 200


@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.asyncio
async def test_running_answer_gets_its_time_and_the_history_is_whole(how: signal.Signals, kept_in: str) -> None:
    rest = asyncio.Event()
    async with Loopback(sse(chunk("Once "), rest, chunk("upon a time"), chunk(finish="stop") + DONE)) as model:
        async with serving("--base-url", f"{model.url}/v1", "--grace", "20") as served:
            turn: dict[str, Any] = {"url": "/api/conversations/c1/turns", "json": {"message": "tell"}, "headers": SSE}
            async with served.http.stream("POST", **turn) as answer:
                events = sent_events(answer)
                assert (await anext(events)).data["text"] == "Once "
                served.process.send_signal(how)
                rest.set()
                assert [one async for one in events][-1].data["status"] == "completed"
            status, errors = await served.ended()
            assert status == 0, errors
            assert "Traceback" not in errors
    async with SQLiteChatMemory(kept_in.removeprefix("sqlite:///")) as memory:
        assert [one.content for one in await memory.get("c1")] == ["tell", "Once upon a time"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
@pytest.mark.asyncio
async def test_answer_that_takes_longer_is_kept_as_interrupted(kept_in: str) -> None:
    async with Loopback(sse(chunk("Once "), asyncio.Event())) as model:
        async with serving("--base-url", f"{model.url}/v1", "--grace", "0.2") as served:
            turn: dict[str, Any] = {"url": "/api/conversations/c1/turns", "json": {"message": "tell"}, "headers": SSE}
            async with served.http.stream("POST", **turn) as answer:
                events = sent_events(answer)
                await anext(events)
                served.process.send_signal(signal.SIGTERM)
                assert [one async for one in events][-1].data["status"] == "cancelled"
            status, errors = await served.ended()
            assert status == 0, errors
    async with SQLiteChatMemory(kept_in.removeprefix("sqlite:///")) as memory:
        messages = await memory.get("c1")
    assert check_history(messages) == []
    assert [(one.content, getattr(one, "finish_reason", None)) for one in messages] == [
        ("tell", None),
        ("Once ", "interrupted"),
    ]


async def failed(*arguments: str, **environment: str) -> tuple[int | None, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentcore", "serve", *arguments),
        stdout=PIPE,
        stderr=PIPE,
        env={**inherited, **environment},
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    assert output == b""
    assert b"Traceback" not in errors
    return process.returncode, errors.decode()


@pytest.mark.asyncio
async def test_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, errors = await failed("--base-url", "http://127.0.0.1:1/v1", "--port", port)
    assert status == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in errors
    assert "--port 0" in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "not a port"),
        (["--port", "x"], "not a port"),
        (["--grace", "-1"], "seconds from 0 to 3600"),
        (["--grace", "soon"], "seconds from 0 to 3600"),
        (["--base-url", "http://127.0.0.1:1/v1", "--port", "0", "--token", "short"], "at least 16"),
        (["--base-url", "http://127.0.0.1:1/v1", "--port", "0", "--memory", "nothing://"], "nothing"),
    ],
)
@pytest.mark.asyncio
async def test_what_cannot_be_is_said(arguments: list[str], words: str) -> None:
    status, errors = await failed(*arguments)
    assert status == 2
    assert words in errors
    assert "short" not in errors


@pytest.mark.parametrize("package", ["starlette", "sse_starlette", "uvicorn"])
@pytest.mark.asyncio
async def test_missing_extra_is_said(package: str, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / f"{package}.py").write_text(f"raise ModuleNotFoundError('none', name={package!r})")
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    status, errors = await failed("--base-url", "http://127.0.0.1:1/v1", PYTHONPATH=path)
    assert status == 2
    assert errors == (
        f"agentcore: `agentcore serve` needs a package that is not installed ({package}): "
        "pip install 'agentcore-async[serve]'\n"
    )


def test_no_model_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cli, "local_model_available", lambda: False)
    assert cli.main(["serve", "--port", "0"]) == 2
    assert "no model" in capsys.readouterr().err


def test_page_is_opened_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []

    def browser(address: str) -> bool:
        opened.append(address)
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    monkeypatch.setattr(serve_module.webbrowser, "open", browser)
    monkeypatch.setattr(serve_module.threading, "Thread", InPlace)
    monkeypatch.setattr(serve_module, "_spare_the_event_loop", lambda: None)  # this process has tests to run
    handler = signal.getsignal(signal.SIGTERM)
    assert (
        cli.main(["serve", "--base-url", "http://127.0.0.1:1/v1", "--port", "0", "--host", "localhost", "--open"]) == 0
    )
    assert opened == [capsys.readouterr().out.strip()]
    assert opened[0].startswith("http://localhost:")
    assert signal.getsignal(signal.SIGTERM) is handler


class InPlace:
    """A thread that runs where it is started."""

    def __init__(self, *, target: Any, args: tuple[Any, ...], daemon: bool) -> None:
        self.start = lambda: target(*args)


def test_collector_is_told_to_leave_the_streams_alone() -> None:
    before = gc.get_threshold()
    try:
        serve_module._spare_the_event_loop()
        assert gc.get_threshold() == (700, 10, 1_000)
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("0.0.0.0", socket.gethostname())],
)
def test_address_is_one_that_a_browser_can_open(host: str, shown: str) -> None:
    with serve_module.listening(host, 0) as listener:
        port = listener.getsockname()[1]
        assert serve_module._address(host, listener, None) == f"http://{shown}:{port}/"


def test_address_that_is_not_here_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 203\.0\.113\.1 port 0"):
        with serve_module.listening("203.0.113.1", 0):  # of no machine (RFC 5737)
            pass
