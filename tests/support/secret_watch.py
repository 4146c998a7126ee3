"""A pytest plugin: no exception, repr or log record of the whole suite shows a secret that the suite has used.

Every secret goes through `Secret`, so what is watched is whatever that class was ever given. Of each test are looked
at, when it ends: every record that any logger emitted, with its traceback; every error of the library that was made,
as text, repr and formatted traceback; and the repr of every model and endpoint that still lives.
"""

import logging
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore.errors import AgentCoreError
from agentcore.providers.secrets import Secret

SHORTEST = 8
"""Shorter texts occur by chance."""

MOST_TRACEBACKS = 200
"""Tests of generated input make thousands of errors, of the same few lines."""

_secrets: set[str] = set()
_errors: list[AgentCoreError] = []
_records: list[logging.LogRecord] = []
_models: "weakref.WeakSet[Any]" = weakref.WeakSet()


class _Watcher(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        _records.append(record)


def pytest_configure(config: pytest.Config) -> None:
    """Look over the shoulder of `Secret`, of the tree of errors and of the endpoint."""
    from agentcore.providers.http import Endpoint

    _watch(Secret, lambda one: _learn(one.reveal()))
    _watch(AgentCoreError, _errors.append)
    _watch(Endpoint, _models.add)
    from agentcore.providers.http_model import HTTPChatModel

    _watch(HTTPChatModel, _models.add)
    config.stash[_HANDLER] = _Watcher(logging.DEBUG)


_HANDLER: "pytest.StashKey[_Watcher]" = pytest.StashKey()


def _watch(type_: type[Any], seen: Any) -> None:
    original = type_.__init__

    def watched(self: Any, *args: Any, **settings: Any) -> None:
        original(self, *args, **settings)
        seen(self)

    type_.__init__ = watched


def _learn(value: str) -> None:
    value = value.removeprefix("Bearer ").strip()
    if len(value) >= SHORTEST:
        _secrets.add(value)


@pytest.fixture(autouse=True)
def _no_secret_is_shown(request: pytest.FixtureRequest) -> Iterator[None]:
    handler = request.config.stash[_HANDLER]
    root = logging.getLogger()
    root.addHandler(handler)
    yield
    root.removeHandler(handler)
    try:
        shown = [*_of_records(), *_of_errors(), *(("repr", repr(model)) for model in tuple(_models))]
    finally:
        _records.clear()
        _errors.clear()
    leaks = [f"{where}: {text}" for where, text in shown if any(secret in text for secret in _secrets)]
    assert not leaks, "a secret is shown by " + "\n".join(leaks)


def _of_records() -> Iterator[tuple[str, str]]:
    for record in _records:
        yield "a log record", record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            yield "a logged traceback", "".join(traceback.format_exception(record.exc_info[1]))


def _of_errors() -> Iterator[tuple[str, str]]:
    for number, error in enumerate(_errors):
        yield "str of an error", str(error)
        yield "repr of an error", f"{error!r} {error.args!r} {vars(error)!r}"
        if number < MOST_TRACEBACKS:
            yield "a traceback", "".join(traceback.format_exception(error))
