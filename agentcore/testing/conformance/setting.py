"""What the conformance tests share: handles that are opened and closed, powers that are asked for, things to store."""

import asyncio
import inspect
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import pytest
import pytest_asyncio

from agentcore.memory import base, leases
from agentcore.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage

Make: TypeAlias = Callable[[], Any]
"""Opens a handle on the data of one test, empty at first; a coroutine function if opening has to wait."""

Test = TypeVar("Test", bound=Callable[..., Coroutine[Any, Any, None]])

CANCELLATIONS = ["while it waits", "as it is answered"]

TURN: list[Message] = [
    UserMessage("a"),
    AssistantMessage(None, (ToolCall("c1", "f", {"x": 1}),)),
    ToolMessage("c1", "f", "1"),
    AssistantMessage("A"),
]
ANOTHER: list[Message] = [UserMessage("b"), AssistantMessage("B")]


def needs(*powers: str) -> Callable[[Test], Test]:
    """A test of a store that has these powers: protocols of `agentcore.memory.base`, and `leases.Leasing`."""

    def decorate(test: Test) -> Test:
        test.needed_powers = powers  # type: ignore[attr-defined]
        return pytest.mark.asyncio(test)

    return decorate


def has_power(store: object, name: str) -> bool:
    """Whether a store satisfies the protocol of that name."""
    protocol = leases.Leasing if name == "Leasing" else getattr(base, name)
    return isinstance(store, protocol)


def texts(messages: Iterable[Message]) -> list[Any]:
    """The contents of messages."""
    return [message.content for message in messages]


class Conformance:
    """What every part has: the subclass's factory, and the handles of a test.

    Attributes:
        powers: names of the protocols that the store has to have: their tests are never skipped.
    """

    powers: ClassVar[set[str]] = set()

    @pytest.fixture
    def make(self) -> Make:
        """To be given by the subclass: a function that opens a handle, on the same data each time."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `make`; see ChatMemoryConformance")

    @pytest_asyncio.fixture
    async def opened(self, make: Make) -> AsyncGenerator[Callable[[], Awaitable[Any]]]:
        """Opens further handles, and closes all of them at the end."""
        handles: list[Any] = []

        async def open_one() -> Any:
            handle = make()
            if inspect.isawaitable(handle):
                handle = await handle
            if not any(handle is one for one in handles):
                handles.append(handle)
            return handle

        yield open_one
        for handle in handles:
            close = getattr(handle, "aclose", None)
            if close is not None:
                await close()

    @pytest_asyncio.fixture
    async def store(self, request: pytest.FixtureRequest, opened: Callable[[], Awaitable[Any]]) -> Any:
        """The store, empty; the test is skipped if it lacks a power that the test is about."""
        store = await opened()
        for name in getattr(request.function, "needed_powers", ()):
            if not has_power(store, name):
                where = "agentcore.memory.leases" if name == "Leasing" else "agentcore.memory.base"
                lacking = f"{type(store).__name__} does not satisfy {name} ({where})"
                if name in self.powers:
                    pytest.fail(lacking)
                pytest.skip(lacking)
        return store

    @pytest_asyncio.fixture
    async def other(self, store: Any, opened: Callable[[], Awaitable[Any]]) -> Any:
        """Another handle on the same data; the same object where the store is shared by handing it around."""
        return await opened()


def lease_of(store: object, lease: base.Lease | None) -> base.Lease:
    """The lease that a lock gave; the test is skipped for a lock that gives none."""
    if lease is None:
        pytest.skip(f"{type(store).__name__}.lock_turn gives no Lease (agentcore.memory.base)")
    return lease


@types.coroutine
def _watched(work: Coroutine[Any, Any, Any], on_wait: Callable[[Any], None]) -> Generator[Any, Any, Any]:
    """Run a coroutine, and tell of each thing it waits for."""
    steps = work.__await__()
    send: Callable[[], Any] = lambda: next(steps)  # noqa: E731
    while True:
        try:
            waits_for = send()
        except StopIteration as end:
            return end.value
        on_wait(waits_for)
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - it is the coroutine's to take
            send = lambda error=error: steps.throw(error)  # noqa: E731
        else:
            send = lambda value=value: steps.send(value)  # noqa: E731


async def cancelled_at(work: Coroutine[Any, Any, Any], step: int, when: str) -> bool:
    """Run work in a task, and cancel it at the `step`-th thing it waits for; False if it never got there.

    Args:
        work: what to run.
        step: from 1.
        when: one of `CANCELLATIONS`: at once, or in the moment in which what it waits for is there.
    """
    reached = 0

    def on_wait(waits_for: Any) -> None:
        nonlocal reached
        reached += 1
        task = asyncio.current_task()
        assert task is not None
        if reached != step:
            return
        if when == "while it waits" or not isinstance(waits_for, asyncio.Future):
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            cast("asyncio.Future[object]", waits_for).add_done_callback(lambda _: task.cancel())

    async def run() -> Any:
        return await _watched(work, on_wait)

    task = asyncio.ensure_future(run())
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    return reached >= step
