"""tiktoken's vocabularies: with one made here, since the real ones come from the network."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentcore.errors import ConfigurationError
from agentcore.messages import UserMessage
from agentcore.token_vocabulary import knows, text_counter
from agentcore.tokens import MESSAGE_TOKENS, tiktoken_counter


def test_missing_package_is_told_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ConfigurationError, match="pip install tiktoken"):
        tiktoken_counter("gpt-5-mini")
    assert not knows("gpt-5-mini")


@pytest.fixture
def tiktoken() -> Any:
    return pytest.importorskip("tiktoken", reason="the extra `tiktoken` is not installed")


@pytest.fixture
def encoding(tiktoken: Any) -> Any:
    """Bytes, and four merges: enough to tell counting tokens from counting characters."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    for merged in (b"to", b"ke", b"toke", b"token"):
        ranks[merged] = len(ranks)
    return tiktoken.Encoding(
        "made-here", pat_str=r"\w+|\W+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": len(ranks)}
    )


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("token", 1), ("tokens", 2), ("to token", 3), ("é", 2), ("<|endoftext|>", 13), ("\ud800", 3)],
)
def test_texts_are_counted_by_the_vocabulary(encoding: Any, text: str, tokens: int) -> None:
    assert text_counter(encoding=encoding)(text) == tokens


def test_messages_are_counted_by_the_vocabulary(encoding: Any) -> None:
    assert tiktoken_counter(encoding=encoding).count_message(UserMessage("tokens")) == MESSAGE_TOKENS + 2


@pytest.mark.usefixtures("tiktoken")
def test_models_that_have_a_vocabulary_are_known_without_loading_it() -> None:
    assert knows("gpt-4o-mini")
    assert not knows("claude-sonnet-4-5")


@pytest.mark.usefixtures("tiktoken")
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "claude-sonnet-4-5"}, "knows no model 'claude-sonnet-4-5'"),
        ({"encoding": "o999k_base"}, "no vocabulary 'o999k_base'"),
        ({}, "a model or an encoding"),
    ],
)
def test_vocabulary_that_does_not_exist_is_told(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        tiktoken_counter(**settings)


def test_vocabulary_without_a_network_is_told_with_the_cure(
    tiktoken: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requests = pytest.importorskip("requests")

    def unreachable(*_: Any, **__: Any) -> Any:
        raise requests.exceptions.ConnectionError("no route to host")

    monkeypatch.setattr(requests, "get", unreachable)
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})  # what this process has loaded already
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match="TIKTOKEN_CACHE_DIR") as caught:
        tiktoken_counter("gpt-4o")
    assert isinstance(caught.value.__cause__, OSError)
