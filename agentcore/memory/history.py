"""ConversationHistory: one turn's way to the record: read healed and windowed, appended to, never kept twice."""

import logging
from collections.abc import Sequence

from agentcore.errors import InvalidInputError
from agentcore.memory.base import ChatMemory, ModelView
from agentcore.memory.finishing import finish
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import AssistantMessage, Message, ToolMessage
from agentcore.pairing import heal, interrupted_result

logger = logging.getLogger("agentcore.memory")


class ConversationHistory:
    """The history of one conversation, as one turn reads and extends it. Satisfies `turn.TurnHistory`."""

    def __init__(self, store: ChatMemory, conversation_id: str) -> None:
        self._store = store
        self._view = store if isinstance(store, ModelView) else None
        self._instant = type(store) is InMemoryChatMemory  # its append never waits, so nothing can come in between
        self._conversation_id = conversation_id
        self._added: list[Message] = []
        self._due: tuple[Message, ...] = ()

    @property
    def added(self) -> tuple[Message, ...]:
        """What this turn has stored so far, in stored order."""
        return tuple(self._added)

    async def append(self, messages: Sequence[Message]) -> None:
        """Store messages, all or none; done or not done is known even when we are cancelled meanwhile."""
        if not messages:
            return
        if self._instant:
            await self._store.add(self._conversation_id, messages)
            self._added.extend(messages)
        else:
            await finish(self._add(messages))

    async def _add(self, messages: Sequence[Message]) -> None:
        await self._store.add(self._conversation_id, messages)
        self._added.extend(messages)

    async def view(self, delta: Sequence[Message]) -> Sequence[Message]:
        """What the model should see: the history, healed and cut to the window, then `delta`.

        Tool messages at the head of `delta` are facts: those that the store does not hold yet are stored at once.
        `due` then tells what has to be stored together with the reply.

        Raises:
            InvalidInputError: `delta` cannot follow this history; nothing was stored.
        """
        if self._view is not None:
            stored = await self._view.view(self._conversation_id, delta)
        else:
            stored = await self._store.get(self._conversation_id)
        lead = _count_results(delta)
        unanswered, answered = _last_batch(stored)
        if lead:
            stored = await self._take_results(stored, delta[:lead], unanswered, answered)
            self._due = tuple(delta[lead:])
        else:
            # A turn broke off in the middle of its tools: say so to the model, and in the store with the next append.
            self._due = (*unanswered.values(), *delta)
            if unanswered:
                logger.warning(
                    "conversation %r: answered as interrupted: %s", self._conversation_id, ", ".join(unanswered)
                )
        if not stored and not self._due and not lead:
            raise InvalidInputError("there is nothing to send: no messages were given and the history is empty")
        messages = [*stored, *self._due]
        healed, repairs = heal(messages)
        for repair in repairs:
            if repair.index >= len(stored):
                raise InvalidInputError(
                    f"the messages given cannot follow the history of {self._conversation_id!r}: item "
                    f"{repair.index - len(messages) + len(delta)}: {_fault(repair.detail)}; nothing was stored"
                )
            logger.warning("conversation %r healed: %s", self._conversation_id, repair)
        return healed

    @property
    def due(self) -> tuple[Message, ...]:
        """What the last `view` took in and the store does not hold yet; to be appended with the reply."""
        return self._due

    async def _take_results(
        self,
        stored: Sequence[Message],
        results: Sequence[Message],
        unanswered: dict[str, ToolMessage],
        answered: set[str],
    ) -> Sequence[Message]:
        """Store the results that are new; in what is returned the results given stand in place of the stored ones."""
        given: dict[str, ToolMessage] = {}
        for result in results:
            assert isinstance(result, ToolMessage)
            call_id = result.tool_call_id
            if call_id in given or (call_id not in unanswered and call_id not in answered):
                raise InvalidInputError(
                    f"the tool result for {call_id!r} answers no open call of conversation {self._conversation_id!r}; "
                    f"open calls: {', '.join(unanswered) or 'none'}; nothing was stored"
                )
            given[call_id] = result
        missing = [call_id for call_id in unanswered if call_id not in given]
        if missing:
            raise InvalidInputError(
                f"no result was given for the open calls {', '.join(missing)} of conversation "
                f"{self._conversation_id!r}; give the results of a batch together; nothing was stored"
            )
        head = list(stored[: len(stored) - len(answered)])
        tail = [given.pop(m.tool_call_id, m) for m in stored[len(head) :] if isinstance(m, ToolMessage)]
        if given:
            await self.append(list(given.values()))
        return [*head, *tail, *given.values()]


def _count_results(messages: Sequence[Message]) -> int:
    count = 0
    for message in messages:
        if type(message) is not ToolMessage:
            break
        count += 1
    return count


def _last_batch(messages: Sequence[Message]) -> tuple[dict[str, ToolMessage], set[str]]:
    """Of a batch at the very end: interrupted results for its open calls, and the ids that are answered."""
    index = len(messages) - 1
    while index >= 0 and type(messages[index]) is ToolMessage:
        index -= 1
    message = messages[index] if index >= 0 else None
    if type(message) is not AssistantMessage or not message.tool_calls:
        return {}, set()
    answered = {m.tool_call_id for m in messages[index + 1 :] if isinstance(m, ToolMessage)}
    open_calls = {call.id: interrupted_result(call) for call in message.tool_calls if call.id not in answered}
    return open_calls, answered


def _fault(detail: str) -> str:
    """What a repair says about input that should not need one."""
    return detail.replace("left out a result", "a tool result").replace("answered call", "no result for call")
