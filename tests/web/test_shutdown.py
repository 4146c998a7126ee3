"""A server that is told to end: new turns are refused, running ones get their time, histories are whole."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from agentcore import SQLiteChatMemory, check_history
from tests.support.web import Sent, sent_events

pytestmark = pytest.mark.asyncio

SSE = {"accept": "text/event-stream"}


@asynccontextmanager
async def worker(database: Path, grace: float) -> AsyncGenerator[tuple[Process, httpx.AsyncClient]]:
    command = [sys.executable, "-m", "tests.support.web_worker", str(database), str(grace), "3"]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/chat", timeout=20) as http:
            yield process, http
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def go_on(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")


async def ended(process: Process) -> int:
    async with asyncio.timeout(20):
        return await process.wait()


async def test_running_turn_may_finish_and_no_other_begins(tmp_path: Path) -> None:
    async with worker(tmp_path / "chats.db", grace=30) as (process, http):
        # Two connections that are open already: the server takes no new ones once it is told to end.
        body = {"message": "count"}
        async with (
            http.stream("POST", "/conversations/a/turns", json=body, headers=SSE) as one,
            http.stream("POST", "/conversations/b/turns", json=body, headers=SSE) as two,
        ):
            first, second = sent_events(one), sent_events(two)
            assert (await anext(first)).data["text"] == (await anext(second)).data["text"] == "0 "
            process.send_signal(signal.SIGTERM)
            for _ in range(4):
                go_on(process)
            for events in (first, second):
                last = [event async for event in events][-1]
                assert (last.event, last.data["status"], last.data["text"]) == ("result", "completed", "0 1 2 ")
        assert await ended(process) in (0, -signal.SIGTERM)


async def test_turn_that_takes_longer_ends_as_interrupted(tmp_path: Path) -> None:
    database = tmp_path / "chats.db"
    async with worker(database, grace=0.2) as (process, http):
        async with http.stream("POST", "/conversations/a/turns", json={"message": "count"}, headers=SSE) as response:
            events = sent_events(response)
            await anext(events)
            process.send_signal(signal.SIGTERM)
            rest: list[Sent] = [event async for event in events]
        assert (rest[-1].event, rest[-1].data["status"]) == ("result", "cancelled")
        assert await ended(process) in (0, -signal.SIGTERM)
    async with SQLiteChatMemory(database) as memory:
        messages = await memory.get("a")
    assert check_history(messages) == []
    assert [(one.content, getattr(one, "finish_reason", None)) for one in messages] == [
        ("count", None),
        ("0 ", "interrupted"),
    ]


async def test_turn_that_comes_on_an_open_connection_is_refused(tmp_path: Path) -> None:
    async with worker(tmp_path / "chats.db", grace=30) as (process, http):
        async with http.stream("POST", "/conversations/a/turns", json={"message": "count"}, headers=SSE) as response:
            events = sent_events(response)
            await anext(events)
            reader, writer = await asyncio.open_connection("127.0.0.1", http.base_url.port)
            head = b"POST /chat/conversations/b/turns HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            writer.write(head + b"content-length: 17\r\nexpect: 100-continue\r\n\r\n")
            assert b" 100 " in await reader.readline()  # the request has begun when the server is told to end
            await reader.readline()
            process.send_signal(signal.SIGTERM)
            await server_heard_the_signal(http)
            writer.write(b'{"message": "hi"}')
            assert b" 503 " in await reader.readline()
            writer.close()
            go_on(process)
            go_on(process)
            assert [event async for event in events][-1].data["status"] == "completed"
        assert await ended(process) in (0, -signal.SIGTERM)


async def server_heard_the_signal(http: httpx.AsyncClient) -> None:
    """Wait until the server takes no new connections, which it says when it has heard the signal."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", http.base_url.port)
        except ConnectionError:
            return
        writer.close()
