"""Keys: found, checked, never shown, and taken out of what providers say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore import ConfigurationError
from agentcore.providers.secrets import Secret, check_headers, find_key, hidden_headers, redact

KEY = "sk-live-0123456789abcdefXYZ"


def test_secret_shows_itself_nowhere_but_in_reveal() -> None:
    secret = Secret(KEY)
    assert KEY not in f"{secret!r} {secret} {[secret]}"
    assert not hasattr(secret, "__dict__")
    assert secret.reveal() == KEY


@pytest.mark.parametrize("value", [f" {KEY} ", f"{KEY}\n", f"\t{KEY}\r\n"], ids=["spaces", "newline", "tab-crlf"])
def test_white_space_around_a_key_does_not_count(value: str) -> None:
    key = find_key(Secret(value), None, needed=True, what="openai")
    assert key is not None
    assert key.reveal() == KEY


def test_key_comes_from_the_environment_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", f"{KEY}\n")
    key = find_key(None, "SOME_KEY", needed=True, what="some")
    assert key is not None
    assert key.reveal() == KEY


def test_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="SOME_KEY"):
        find_key(None, "SOME_KEY", needed=True, what="some")


def test_missing_key_is_fine_where_none_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)
    assert find_key(None, "SOME_KEY", needed=False, what="some") is None


@pytest.mark.parametrize("value", ["", "  \n"], ids=["empty", "blank"])
def test_empty_key_is_refused_and_names_the_variable_even_where_none_is_needed(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"empty.*SOME_KEY"):
        find_key(Secret(value), "SOME_KEY", needed=False, what="some")


@pytest.mark.parametrize(
    "value",
    ["sk-a b-secret", "sk-\x00-secret", "sk-ключ-secret", "sk-\n-secret"],
    ids=["space", "nul", "cyrillic", "newline"],
)
def test_key_that_no_header_can_carry_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_key(Secret(value), "SOME_KEY", needed=True, what="some")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}.",
        f"header 'Bearer {KEY}' is wrong",
        f"key={KEY}&x=1",
        f"starts with {KEY[:12]}…",
        f"ends with …{KEY[-10:]}",
        f"a message that was cut in its middle {KEY[:-3]}",
        f"{KEY}{KEY}",
    ],
    ids=["whole", "bearer", "query", "beginning", "end", "cut", "twice"],
)
def test_echoed_key_is_taken_out_of_a_message(text: str) -> None:
    cleaned = redact(text, [Secret(KEY)])
    assert not any(KEY[i : i + 8] in cleaned for i in range(len(KEY) - 7))
    assert "[secret]" in cleaned


def test_url_encoded_echo_is_taken_out() -> None:
    assert redact("at ?key=ab%2Fcd%2B12345%3D", [Secret("ab/cd+12345=")]) == "at ?key=[secret]"


def test_rest_of_the_message_stays() -> None:
    assert redact(f"bad key {KEY}: see the docs", [Secret(KEY)]) == "bad key [secret]: see the docs"
    assert (
        redact("you have no such model", [Secret("you")]) == "you have no such model"
    )  # too short to protect anything


@given(st.text(alphabet="abc-19", max_size=60), st.text(alphabet="abc-19", min_size=8, max_size=30))
def test_no_eight_characters_of_a_key_survive(text: str, key: str) -> None:
    cleaned = redact(text + key + text, [Secret(key)])
    assert not any(key[i : i + 8] in cleaned for i in range(len(key) - 7))


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-a", "v\r\nx-evil: 1"), ("x-a", "wört"), ("x a", "v"), ("", "v"), ("x-a:", "v"), ("x-ä", "v")],
    ids=["newline-value", "not-ascii", "space-in-name", "no-name", "colon", "name-not-ascii"],
)
def test_header_that_cannot_be_sent_is_refused_without_its_value(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_headers(hidden_headers({name: value}))
    assert "evil" not in str(caught.value)


def test_header_names_are_lower_case_so_that_none_is_sent_twice() -> None:
    assert list(hidden_headers({"X-Api-Key": "1"})) == ["x-api-key"]
