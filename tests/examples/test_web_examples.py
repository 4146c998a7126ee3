"""The examples that serve: each as the process that its docstring starts, with a model and a platform on this machine."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentcore import PostgresChatMemory, SQLiteChatMemory, check_history
from tests.support.completions import calls, says, streams_text
from tests.support.loopback import HANG, Loopback, Reply, chunk, json_reply, sse
from tests.support.web import Sent, sent_events, serving

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
EVENTS = {"accept": "text/event-stream"}
KIM = {"authorization": "Bearer kim-secret"}
ADA = {"authorization": "Bearer ada-secret"}


class Served:
    """A running example: its process, its address, a client, and the model that it asks."""

    def __init__(self, process: Process, url: str, http: httpx.AsyncClient, model: Loopback) -> None:
        self.process = process
        self.url = url
        self.http = http
        self.model = model

    def said_to_model(self, call: int) -> list[str]:
        """The contents of the messages of a model call."""
        return [message["content"] for message in self.model.requests[call].json["messages"]]


@asynccontextmanager
async def example(
    command: list[str], *replies: Reply, workers: int = 1, environment: dict[str, str] | None = None
) -> AsyncGenerator[Served]:
    """Run an example server for the length of the block; it has to end well when it is told to."""
    async with Loopback(*replies) as model:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *command),
            stderr=PIPE,
            cwd=ROOT,
            start_new_session=True,
            env={
                **os.environ,
                "OPENAI_API_KEY": "sk-none",
                "OPENAI_BASE_URL": f"{model.url}/v1",
                "PYTHONWARNINGS": "error::ResourceWarning,error::RuntimeWarning",
                **(environment or {}),
            },
        )
        try:
            async with asyncio.timeout(60):
                url, log = await started(process, workers)
            async with httpx.AsyncClient(base_url=url, timeout=30) as http:
                yield Served(process, url, http, model)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                log += (await process.communicate())[1].decode()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whoever is left of it: workers outlive their parent
            await process.communicate()
        assert process.returncode in (0, -signal.SIGTERM), log
        assert log.count("Application shutdown complete") == workers, log
        assert "Traceback" not in log


async def started(process: Process, workers: int) -> tuple[str, str]:
    """Wait until the server says where it listens, and that all workers are ready."""
    assert process.stderr is not None
    log, url = "", None
    while url is None or log.count("Application startup complete") < workers:
        line = (await process.stderr.readline()).decode()
        assert line, f"the server ended: {log}"
        log += line
        found = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
        url = found[1] if found else url
    return url, log


def uvicorn(app: str) -> list[str]:
    return ["-m", "uvicorn", "--app-dir", "examples", f"{app}:app", "--port", "0"]


async def test_fastapi_app_answers_each_user_out_of_their_own_conversation(tmp_path: Path) -> None:
    replies = [json_reply(calls("list_notes", {})), json_reply(says("Bread and Oslo.")), json_reply(says("Hello Ada."))]
    streamed = streams_text("Bread ", "first.")
    async with example(
        uvicorn("fastapi_app"), *replies, streamed, environment={"DATABASE": str(tmp_path / "chats.db")}
    ) as app:
        assert (await app.http.post("/ask", json={"text": "hi"})).status_code == 401
        answer = await app.http.post("/ask", json={"text": "What is on my list?"}, headers=KIM)
        assert answer.json() == {"text": "Bread and Oslo.", "status": "completed"}
        assert "buy bread" in app.said_to_model(1)[-1]
        await app.http.post("/ask", json={"text": "hi"}, headers=ADA)
        assert app.said_to_model(2) == ["You keep the user's notes.", "hi"]

        said = await app.http.post("/say", json={"text": "Which first?"}, headers=KIM)
        assert (said.text, said.headers["content-type"]) == ("Bread first.", "text/plain; charset=utf-8")
        assert app.said_to_model(3)[-2:] == ["Bread and Oslo.", "Which first?"]

        shown = await app.http.get("/chat/conversations/kim:main", headers=KIM)
        assert [one["content"] for one in shown.json()["messages"]][-1] == "Bread first."
        assert (await app.http.get("/chat/conversations/kim:main", headers=ADA)).status_code == 404
        assert (await app.http.get("/chat/conversations/kim:main")).status_code == 401
        listed = (await app.http.get("/chat/conversations", headers=ADA)).json()["conversations"]
        assert [one["conversation_id"] for one in listed] == ["ada:main"]


async def test_fastapi_app_tells_of_a_failing_model_in_words_for_strangers(tmp_path: Path) -> None:
    failure = json_reply({"error": {"message": "secret detail"}}, status=400)
    async with example(uvicorn("fastapi_app"), failure, environment={"DATABASE": str(tmp_path / "chats.db")}) as app:
        answer = await app.http.post("/ask", json={"text": "hi"}, headers=KIM)
    assert answer.status_code == 502
    assert answer.json()["error"]["message"] == "the model could not answer"


async def test_reader_who_leaves_the_fastapi_app_stops_the_turn_and_keeps_what_was_delivered(tmp_path: Path) -> None:
    async with example(
        uvicorn("fastapi_app"),
        sse(chunk("Bread "), HANG),
        json_reply(says("Oslo.")),
        environment={"DATABASE": str(tmp_path / "chats.db")},
    ) as app:
        async with app.http.stream("POST", "/say", json={"text": "Which first?"}, headers=KIM) as response:
            assert await anext(response.aiter_text()) == "Bread "
        answer = await app.http.post("/ask", json={"text": "And then?"}, headers=KIM)  # waits for its turn
        assert answer.json()["text"] == "Oslo."
        assert app.said_to_model(1) == ["You keep the user's notes.", "Which first?", "Bread ", "And then?"]
    async with SQLiteChatMemory(tmp_path / "chats.db") as memory:
        assert check_history(await memory.get("kim:main")) == []


async def test_starlette_app_takes_an_order_after_the_visitors_yes() -> None:
    async with example(
        uvicorn("starlette_app"),
        json_reply(calls("order", {"what": "a kettle"})),
        streams_text("It is ", "on its way."),
    ) as app:
        own = (await app.http.get("/")).json()["conversation"]
        assert (await app.http.get("/")).json()["conversation"] == own  # by the cookie
        async with httpx.AsyncClient(base_url=app.url) as stranger:
            assert (await stranger.get(own)).status_code == 401
            other = (await stranger.get("/")).json()["conversation"]
            assert other != own
            assert (await stranger.get(own)).status_code == 404

        paused = (await app.http.post(f"{own}/turns", json={"message": "A kettle, please"})).json()
        [pending] = paused["pause"]["calls"]
        assert (paused["status"], pending["call"]["name"]) == ("paused", "order")
        decision = {"call_id": pending["call"]["id"], "digest": pending["digest"], "action": "approve"}
        async with app.http.stream("POST", f"{own}/resume", json={"decisions": [decision]}, headers=EVENTS) as response:
            events = [event async for event in sent_events(response)]
        assert [event.data["text"] for event in events if event.event == "text"] == ["It is ", "on its way."]
        assert (events[-1].event, events[-1].data["text"]) == ("result", "It is on its way.")
        assert "ordered" in app.said_to_model(1)[-1]
        again = await app.http.post(f"{own}/resume", json={"decisions": [decision]})
        assert (again.status_code, again.json()["error"]["kind"]) == (409, "pause_resumed")


async def test_starlette_app_stops_the_turn_of_a_visitor_who_leaves() -> None:
    async with example(uvicorn("starlette_app"), sse(chunk("Well, "), HANG), json_reply(says("Yes."))) as app:
        own = (await app.http.get("/")).json()["conversation"]
        async with app.http.stream("POST", f"{own}/turns", json={"message": "hi"}, headers=EVENTS) as response:
            await anext(sent_events(response))
        await app.http.post(f"{own}/turns", json={"message": "Still there?"})
        assert app.said_to_model(1) == ["You sell kettles.", "hi", "Well, ", "Still there?"]


class Telegram:
    """The two methods of the Bot API that a bot needs, for a bot that asks on this machine.

    Attributes:
        sent: what the bot sent, by chat.
        troubles: what the next requests are answered with instead.
    """

    def __init__(self) -> None:
        self.sent: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self.troubles: list[Response] = []
        self.app = Starlette(routes=[Route("/bot123:abc/{method}", self._answer, methods=["POST"])])
        self._updates_of: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self._confirmed = 0

    def say(self, user: int, text: str | None) -> None:
        message = {"chat": {"id": user}, "from": {"id": user}, **({} if text is None else {"text": text})}
        self._updates_of.append({"update_id": len(self._updates_of) + 1, "message": message})
        self._news.set()

    def confirm(self) -> None:
        """What was said is not sent again, also to a bot that begins anew."""
        self._confirmed = len(self._updates_of)

    async def _answer(self, request: Request) -> Response:
        if self.troubles:
            return self.troubles.pop(0)
        arguments = await request.json()
        if request.path_params["method"] == "getUpdates":
            return JSONResponse({"ok": True, "result": await self._updates(request, arguments["offset"])})
        self.sent.put_nowait((arguments["chat_id"], arguments["text"]))
        return JSONResponse({"ok": True, "result": {}})

    async def _updates(self, request: Request, offset: int) -> list[dict[str, Any]]:
        """Those from an offset on, as soon as there are any, or the bot has gone."""
        offset = max(offset, self._confirmed + 1)
        gone = asyncio.ensure_future(_disconnected(request))
        while not (news := [one for one in self._updates_of if one["update_id"] >= offset]) and not gone.done():
            self._news.clear()
            waiting = asyncio.ensure_future(self._news.wait())
            await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
        gone.cancel()
        return news


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Bot:
    """A running bot: its process, and, when it has ended, what it printed."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.printed = ""


@asynccontextmanager
async def bot(database: Path, telegram: str, model: Loopback) -> AsyncGenerator[Bot]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "examples/bot.py"),
        stdout=PIPE,
        stderr=PIPE,
        cwd=ROOT,
        env={
            **os.environ,
            "TELEGRAM_API": telegram,
            "TELEGRAM_TOKEN": "123:abc",
            "OPENAI_API_KEY": "sk-none",
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "DATABASE": str(database),
        },
    )
    run = Bot(process)
    try:
        yield run
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(20):
            output, errors = await process.communicate()
    run.printed = output.decode()
    assert errors == b""


async def answer_of(telegram: Telegram, run: Bot) -> tuple[int, str]:
    answer = asyncio.ensure_future(telegram.sent.get())
    ended = asyncio.ensure_future(run.process.wait())
    async with asyncio.timeout(30):
        await asyncio.wait({answer, ended}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    assert answer.done(), "the bot ended"
    return answer.result()


async def test_bot_keeps_one_conversation_for_each_user_and_lets_nobody_wait_for_another(tmp_path: Path) -> None:
    telegram, gate = Telegram(), asyncio.Event()
    slow = [gate, *json_reply(says("Hello Kim."))]
    quick = [json_reply(says(text)) for text in ("Hello Ada.", "You are Kim.")]
    async with (
        Loopback(slow, *quick) as model,
        serving(telegram.app) as url,
    ):
        async with bot(tmp_path / "bot.db", url, model) as run:
            telegram.say(1, "I am Kim.")
            async with asyncio.timeout(30):
                await model.arrived.wait()
            telegram.say(2, "I am Ada.")
            telegram.say(2, None)  # a picture
            assert await answer_of(telegram, run) == (2, "Hello Ada.")
            gate.set()
            assert await answer_of(telegram, run) == (1, "Hello Kim.")
        telegram.confirm()
        async with bot(tmp_path / "bot.db", url, model) as run:
            telegram.say(1, "Who am I?")
            assert await answer_of(telegram, run) == (1, "You are Kim.")
    said = [[one["content"] for one in request.json["messages"][1:]] for request in model.requests]
    assert said == [["I am Kim."], ["I am Ada."], ["I am Kim.", "Hello Kim.", "Who am I?"]]


async def test_bot_outlives_a_model_and_a_platform_that_fail(tmp_path: Path) -> None:
    telegram = Telegram()
    telegram.troubles += [Response("<html>", 502), JSONResponse({"ok": False, "description": "Too Many Requests"})]
    failure = json_reply({"error": {"message": "no"}}, status=400)
    async with Loopback(failure, json_reply(says("Hello."))) as model, serving(telegram.app) as url:
        async with bot(tmp_path / "bot.db", url, model) as run:
            telegram.say(1, "hi")
            assert "ask me again" in (await answer_of(telegram, run))[1]
            telegram.say(1, "hi?")
            assert await answer_of(telegram, run) == (1, "Hello.")
    assert [one["content"] for one in model.requests[1].json["messages"][1:]] == ["hi?"]
    assert run.printed.startswith("getUpdates: JSONDecodeError\ngetUpdates: KeyError\ntelegram:1:1: ")
    assert "123:abc" not in run.printed


@asynccontextmanager
async def other_worker(app: Served, worker: int) -> AsyncGenerator[httpx.AsyncClient]:
    """A client with a connection to another worker than this one.

    The workers share a socket, and the one that is held meanwhile takes no connection from it.
    """
    async with httpx.AsyncClient(base_url=app.url, timeout=30) as http:
        os.kill(worker, signal.SIGSTOP)
        try:
            other = (await http.get("/health")).json()["worker"]
        finally:
            os.kill(worker, signal.SIGCONT)
        assert other != worker
        yield http


async def test_workers_share_their_conversations(postgres_dsn: str) -> None:
    async with example(
        ["examples/postgres_workers.py"],
        streams_text("Tea is ", "a leaf."),
        json_reply(calls("brew", {"tea": "Assam"})),
        json_reply(says("Here it is.")),
        sse(chunk("Once "), HANG),
        json_reply(says("Sorry.")),
        workers=2,
        environment={"DATABASE_URL": postgres_dsn, "PORT": "0"},
    ) as app:
        worker = (await app.http.get("/health")).json()["worker"]
        async with other_worker(app, worker) as other:
            tea = "/chat/conversations/tea"
            # A conversation goes on at the other worker.
            async with app.http.stream("POST", f"{tea}/turns", json={"message": "Tea?"}, headers=EVENTS) as response:
                assert [event async for event in sent_events(response)][-1].data["text"] == "Tea is a leaf."
            paused = (await other.post(f"{tea}/turns", json={"message": "A pot, please"})).json()
            assert app.said_to_model(1) == ["Tea?", "Tea is a leaf.", "A pot, please"]
            # What waits at one worker is decided at the other.
            [pending] = (await app.http.get(tea)).json()["pause"]["calls"]
            assert pending == paused["pause"]["calls"][0]
            decision = {"call_id": pending["call"]["id"], "digest": pending["digest"], "action": "approve"}
            resumed = await app.http.post(f"{tea}/resume", json={"decisions": [decision]})
            assert resumed.json()["text"] == "Here it is."
            assert app.said_to_model(2)[-1] == f"a pot of Assam, brewed by process {worker}"
            # A turn that runs at one worker is stopped at the other, and the conversation goes on there.
            async with app.http.stream("POST", f"{tea}/turns", json={"message": "A tale"}, headers=EVENTS) as response:
                events = sent_events(response)
                assert (await anext(events)).data["text"] == "Once "
                assert (await other.post(f"{tea}/cancel")).status_code == 204
                last: Sent = [event async for event in events][-1]
            assert (last.event, last.data["status"]) == ("result", "cancelled")
            assert (await other.post(f"{tea}/turns", json={"message": "Well?"})).json()["text"] == "Sorry."
            assert app.said_to_model(4)[-3:] == ["A tale", "Once ", "Well?"]
    async with PostgresChatMemory(postgres_dsn) as memory:
        assert check_history(await memory.get("tea")) == []
