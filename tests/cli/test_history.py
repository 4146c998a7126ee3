"""Conversations that the commands keep: gone on with later, listed, shown, exported, forgotten."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from agentcore import AssistantMessage, InMemoryChatMemory, Message, ToolCall, ToolMessage, UserMessage
from agentcore.cli import main as cli
from agentcore.cli.chat import new_conversation_id
from agentcore.cli.store import default_url
from agentcore.errors import ConfigurationError
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.urls import chat_memory
from tests.support.loopback import Loopback, chunk, sse

TALK: list[Message] = [
    UserMessage("Weather in Oslo?"),
    AssistantMessage("Let me see.", (ToolCall("c1", "weather", {"city": "Oslo"}),)),
    ToolMessage("c1", "weather", "rain"),
    ToolMessage("c2", "weather", "no", is_error=True),
    AssistantMessage("Rain."),
]


@pytest.fixture
def kept(kept_in: str) -> str:
    path = Path(kept_in.removeprefix("sqlite:///"))
    path.parent.mkdir()

    async def fill() -> None:
        async with SQLiteChatMemory(path) as store:
            await store.add("a1", TALK)
            await store.add("b1", [UserMessage("hi")])

    asyncio.run(fill())
    return kept_in


def test_list_names_the_conversations_newest_first(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", "list"]) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[2]) for line in lines] == [("b1", "1"), ("a1", "5")]
    assert cli.main(["history", "list", "--prefix", "a", "--limit", "1"]) == 0
    assert capsys.readouterr().out.startswith("a1\t")
    assert cli.main(["history", "list", "--limit", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_show_is_for_people(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", "show", "a1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "user: Weather in Oslo?",
        "assistant: Let me see.",
        "assistant calls weather(city='Oslo')",
        "weather returned: rain",
        "weather failed: no",
        "assistant: Rain.",
    ]


def test_export_reads_back_equal(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", "export", "a1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line, type=Message) for line in lines] == TALK
    assert json.loads(lines[0]) == {"role": "user", "content": "Weather in Oslo?"}


def test_deleted_conversation_is_gone(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["history", "delete", "a1"]) == 0
    assert capsys.readouterr().out == "forgot a1\n"
    for action in ("show", "export", "delete"):
        assert cli.main(["history", action, "a1"]) == 1
        assert "no conversation 'a1'" in capsys.readouterr().err


def test_chat_keeps_the_conversation_and_goes_on_with_it(
    kept_in: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def talk() -> list[str]:
        reply = sse(chunk("hello"), chunk(finish="stop") + b"data: [DONE]\n\n")
        async with Loopback(reply) as server:
            for words in ("one", "two"):
                arguments = ["chat", "--base-url", server.url, "--conversation", "c1", "--no-tools", "--once", words]
                assert await asyncio.to_thread(cli.main, arguments) == 0
            return [m["content"] for m in server.requests[1].json["messages"]]

    assert asyncio.run(talk()) == ["one", "hello", "two"]
    assert cli.main(["history", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("c1\t")


def test_new_conversations_have_ids_of_their_own() -> None:
    assert new_conversation_id() != new_conversation_id()


def test_store_is_the_users_own_file_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AGENTCORE_MEMORY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert default_url() == f"sqlite:///{tmp_path}/agentcore/conversations.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_url() == f"sqlite:///{tmp_path}/.local/share/agentcore/conversations.db"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert default_url() == f"sqlite:///{tmp_path}/local/agentcore/conversations.db"


def test_store_that_cannot_list_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        pass

    monkeypatch.setattr("agentcore.cli.store.chat_memory", lambda url: Plain())
    assert cli.main(["history", "--memory", "memory:", "list"]) == 2
    assert "Plain cannot list" in capsys.readouterr().err


def test_urls_name_their_store(tmp_path: Path) -> None:
    assert isinstance(chat_memory("memory:"), InMemoryChatMemory)
    assert isinstance(chat_memory(f"sqlite:///{tmp_path}/a%20b.db"), SQLiteChatMemory)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://host/db", "'mysql' is no kind of store"),
        ("", "is no kind of store"),
        ("sqlite:chats.db", "three slashes"),
        ("sqlite://host/x.db", "three slashes"),
        ("sqlite:///", "three slashes"),
    ],
)
def test_url_that_names_none_says_what_to_write(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        chat_memory(url)


@pytest.mark.parametrize(("scheme", "extra"), [("postgresql", "postgres"), ("rediss", "redis")])
def test_store_without_its_package_names_the_extra(scheme: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name=name)

    monkeypatch.setattr("agentcore.memory.urls.import_module", missing)
    with pytest.raises(ConfigurationError, match=rf"pip install 'agentcore-async\[{extra}\]'"):
        chat_memory(f"{scheme}://host/db")
