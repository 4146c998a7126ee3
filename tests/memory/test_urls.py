"""Stores by URL, and what is shown of an address."""

import sys
from pathlib import Path

import pytest

from agentcore.errors import ConfigurationError
from agentcore.memory.addresses import shown_address
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.postgres import PostgresChatMemory
from agentcore.memory.redis import RedisChatMemory
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.memory.urls import chat_memory


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", InMemoryChatMemory),
        ("sqlite:///{}/a.db", SQLiteChatMemory),
        ("SQLite:///{}/a.db", SQLiteChatMemory),
        ("postgresql://u:p@host:5/db", PostgresChatMemory),
        ("postgres://host", PostgresChatMemory),
        ("redis://host", RedisChatMemory),
        ("rediss://:p@host/0", RedisChatMemory),
    ],
)
def test_url_names_its_store(url: str, kind: type, tmp_path: Path) -> None:
    assert type(chat_memory(url.format(tmp_path))) is kind


@pytest.mark.parametrize("url", ["mysql://kim:s3cret@host", "postgresql+asyncpg://kim:s3cret@host/db", "file:///a"])
def test_unknown_kind_is_refused_with_the_known_ones(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"sqlite:///path, postgresql://…, redis://… or memory:") as caught:
        chat_memory(url)
    assert url.partition(":")[0] in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["host=h password=s3cret", "s3cret", "", "://s3cret", "1s3cret:x"])
def test_what_is_no_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="what is no URL") as caught:
        chat_memory(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://a.db", "sqlite:a.db", "sqlite:///", "sqlite://host/a.db"])
def test_sqlite_without_a_path_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="three slashes"):
        chat_memory(url)


@pytest.mark.parametrize(
    ("url", "module", "package", "extra"),
    [
        ("postgresql://host/db", "agentcore.memory.postgres", "asyncpg", "postgres"),
        ("redis://host", "agentcore.memory.redis", "redis", "redis"),
    ],
)
def test_package_that_is_missing_is_named_with_the_command(
    url: str, module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith((f"{package}.", module))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"pip install 'agentcore-async\[{extra}\]' \({package}"):
        chat_memory(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://kim:s3cret@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://host", "postgresql://host"),
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://kim@one:1,two:2/db?target_session_attrs=any", "postgresql://one:1,two:2/db"),
        ("postgresql://kim:s3cret@[::1]:5/db", "postgresql://[::1]:5/db"),
        ("postgresql:///db?user=kim@corp&password=s3cret", "postgresql:///db"),
        ("PostgreSQL://kim:s3%2Fcret@host/db", "postgresql://host/db"),
    ],
)
def test_address_is_shown_without_user_password_and_options(url: str, shown: str) -> None:
    assert shown_address(url, ("postgresql",), "…") == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://kim:s3cret/x@host/db",
        "postgresql://kim:s3cret#x@host/db",
        "postgresql://kim:s3cret?x@host/db",
        "postgresql://kim:123?s3cret@host/db",
        "postgresql://kim:x@s3cret:y@host/db",
        "postgresql://kim:pw@host:s3cret/db",
        "postgresql://kim:s3cret",
        "postgresql://kim:pw@[::s3cret/db",
        "postgresql:/kim:s3cret@host/db",
        "mysql://kim:s3cret@host/db",
    ],
)
def test_mistyped_address_is_refused_and_nothing_of_it_is_shown(url: str) -> None:
    for make in (lambda: shown_address(url, ("postgresql",), "postgresql://user:password@host/database"),):
        with pytest.raises(ConfigurationError, match="postgresql://user:password@host/database") as caught:
            make()
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
