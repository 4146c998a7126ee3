"""SinkLayer: something between the model's stream and whoever reads it, for the length of a model call."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from agentcore.events import TurnEvent
from agentcore.messages import AssistantMessage
from agentcore.turn import EventSink, Turn


class SinkLayer:
    """Passes on what it is told. Satisfies `turn.EventSink`; override what is to be different."""

    def __init__(self, inner: EventSink) -> None:
        self.inner = inner

    def begin_reply(self) -> None:
        """A reply is asked for."""
        self.inner.begin_reply()

    def begin_attempt(self) -> None:
        """The model is called."""
        self.inner.begin_attempt()

    def given_up(self) -> AssistantMessage | None:
        """What was delivered by attempts that were given up."""
        return self.inner.given_up()

    async def send(self, events: Sequence[TurnEvent]) -> None:
        """Deliver events."""
        await self.inner.send(events)

    def partial_reply(self, *, cancelled: bool) -> AssistantMessage | None:
        """What the reader gets of the reply that broke off."""
        return self.inner.partial_reply(cancelled=cancelled)


@contextmanager
def layered(turn: Turn, layer: SinkLayer) -> Generator[None]:
    """Have the turn's events go through the layer inside the block."""
    turn.sink = layer
    try:
        yield
    finally:
        turn.sink = layer.inner
