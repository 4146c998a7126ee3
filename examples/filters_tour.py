# A support desk behind a whole onion of filters: guards, retrieval, repair, redaction, limits, a cache and the books.
import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from agentcore import ChatClient, ChatOptions, InMemoryChatMemory, Message, ToolContext, Usage
from agentcore.filters.cache import CacheFilter
from agentcore.filters.input_guard import InputGuard
from agentcore.filters.logging import LoggingFilter
from agentcore.filters.rate_limit import RateLimitFilter
from agentcore.filters.redacting import RedactingFilter
from agentcore.filters.retrieval import Passage, RetrievalFilter
from agentcore.filters.structured import StructuredOutputFilter
from agentcore.filters.usage import UsageFilter, UsageRecord
from agentcore.filters.verdict import Block
from agentcore.messages import text_of
from agentcore.testing import Reply, ScriptedModel


class Ticket(Struct):
    product: str
    urgent: bool = False
    summary: str = ""


class Handbook:
    """Three lines stand for a search engine."""

    lines = ("Kettles are warranted for two years.", "Write to help@example.com for spare parts.", "We close at five.")

    async def retrieve(self, query: str, context: ToolContext) -> Sequence[Passage]:
        asked = set(query.lower().split())
        fits = [(len(asked & set(line.lower().split())), line) for line in self.lines]
        return [Passage(line, "handbook", score) for score, line in sorted(fits, reverse=True) if score]


def no_cards(messages: Sequence[Message]) -> Block | None:
    digits = sum(letter.isdigit() for message in messages for letter in text_of(message.content))
    return Block("that looks like a card number") if digits > 12 else None


spent: Counter[str] = Counter()


def book(record: UsageRecord) -> None:
    spent[str(record.key)] += (record.usage.input_tokens or 0) + (record.usage.output_tokens or 0)


tokens = Usage(input_tokens=40, output_tokens=10)
model = ScriptedModel(
    [
        Reply(text=["Two years. Ask hel", "p@exam", "ple.com."], usage=tokens),
        Reply(text='{"product": "kettle", "urgent": "very"}', usage=tokens),
        Reply(text=['{"product": "kettle", "ur', 'gent": true, "summ', 'ary": "It leaks."}'], usage=tokens),
    ]
)
client = ChatClient(
    model,
    memory=InMemoryChatMemory(),
    system="You help with kettles.",
    filters=[
        LoggingFilter(),
        InputGuard(no_cards),
        RateLimitFilter(60, burst=3),
        RedactingFilter([r"[\w.]+@[\w.]+\w"], longest=32),
        # The memory comes here by itself: what follows belongs inside it.
        RetrievalFilter(Handbook()),
        CacheFilter(ttl=3600),
        StructuredOutputFilter(),
        UsageFilter(book),
    ],
)


async def main() -> None:
    logging.basicConfig(level=logging.INFO, format="[log] %(message)s", stream=sys.stdout)
    print(client.describe())
    user = {"user_id": "kim"}

    print("\n-- a stream, redacted on its way; the passages are reachable, and not stored")
    question = "For how long are kettles warranted?"
    async with client.stream(question, conversation_id="a", tool_context=user) as turn:
        print("".join([piece async for piece in turn.text]))
    print([passage.source for passage in turn.result.tool_context["retrieval"].passages])
    print(len(await client.conversation("a").history()), "messages stored")

    print("\n-- the same question in another conversation: from the cache")
    result = await client.invoke(question, conversation_id="b", tool_context=user)
    print(result.text, "|", result.usage.input_tokens, "tokens,", model.calls, "model call(s) so far")

    print("\n-- a typed answer that grows, after one repair")
    options = ChatOptions(response_format=Ticket)
    async with client.stream("It leaks! Open a ticket.", tool_context=user, options=options) as turn:
        async for ticket in turn.partial(Ticket):
            print(ticket)
    print(turn.result.parse(Ticket).urgent, turn.result.model_calls, "model calls in this turn")

    print("\n-- what may not be said, and who speaks too often")
    for text in ("My card is 4111 1111 1111 1111", question):
        result = await client.invoke(text, tool_context=user)
        print(result.status, "|", result.reason)
    print("tokens:", dict(spent))


asyncio.run(main())
