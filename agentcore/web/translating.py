"""Runs told in the words of another protocol: who translates, and the stream that it becomes."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from agentcore.events import TurnEvent
from agentcore.exchange import InvokeResult
from agentcore.web.answers import Batches, Refusal, as_refusal
from agentcore.web.runs import Behind, Run


class Translator(Protocol):
    """Says in server-sent events of its protocol what happens in one run."""

    def begin(self) -> bytes:
        """Before the first event."""
        ...

    def event(self, event: TurnEvent | Behind) -> bytes:
        """An event; empty if the protocol has no words for it."""
        ...

    def finished(self, result: InvokeResult) -> bytes:
        """The end."""
        ...

    def failed(self, refusal: Refusal) -> bytes:
        """The other end: an error."""
        ...


def telling(run: Run, translator: Translator, *, details: bool) -> Callable[[Batches], AsyncIterator[bytes]]:
    """A teller of a run, from its beginning to its end, batch by batch. What cannot be told ends it as an error does.

    Args:
        run: what is told.
        translator: tells it; made for this reader alone.
        details: say in an error what a provider or a store said.
    """

    async def told(batches: Batches) -> AsyncIterator[bytes]:
        try:
            beginning = translator.begin()
            if beginning:
                yield beginning
            async for batch in batches:
                piece = b"".join([translator.event(one.event) for one in batch])
                if piece:
                    yield piece
            yield translator.finished(run.result)
        except Exception as error:  # noqa: BLE001 - told to the reader and logged
            yield translator.failed(as_refusal(error, details=details))

    return told
