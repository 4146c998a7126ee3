"""RetryFilter: a model call that failed is made again, as long as nobody has seen anything of its reply."""

from collections.abc import Sequence

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.errors import ProviderError
from agentcore.events import TurnEvent
from agentcore.filters.base import ChatCall, Filter
from agentcore.filters.sink_layer import SinkLayer, layered
from agentcore.providers.retries import RetryPolicy, with_retries


class RetryFilter(Filter):
    """Makes a model call again after an error that may pass: overload, rate limits, timeouts, a broken connection.

        client = ChatClient(model, memory=store, filters=[RetryFilter(RetryPolicy(max_retries=5, maximum=60))])

    The providers' models retry by themselves (`max_retries`), within seconds; this is for longer outages, for models
    that do not, and for errors in the middle of a reply that nobody reads along. It waits as the models do: what the
    service asks for, or longer each time, by chance a little less. Never after a stream has delivered anything of the
    reply. Filters inside it run for each attempt; nothing is stored of the ones that failed.

    Args:
        policy: how often and how long; its `on_retry` is told of each wait.
    """

    def __init__(self, policy: RetryPolicy | None = None) -> None:
        self._policy = policy or RetryPolicy()

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Call, and call again while the policy allows it.

        Raises:
            ProviderError: of the last attempt.
        """
        turn = request.turn
        if turn is None or turn.sink is None:
            return await with_retries(lambda: call_next(request), self._policy)
        watch = _Watch(turn.sink)

        async def attempt() -> ChatResponse:
            try:
                return await call_next(request)
            except ProviderError as error:
                if watch.delivered:
                    raise _TooLateError from error
                raise

        with layered(turn, watch):
            try:
                return await with_retries(attempt, self._policy)
            except _TooLateError as late:
                cause = late.__cause__
                assert cause is not None  # it is raised from the provider's error
        raise cause


class _TooLateError(Exception):
    """Something was delivered: no policy may try again."""


class _Watch(SinkLayer):
    delivered = False

    async def send(self, events: Sequence[TurnEvent]) -> None:
        """Note that something is delivered."""
        self.delivered = self.delivered or bool(events)
        await super().send(events)
