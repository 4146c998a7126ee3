"""How many texts go into one embedding request: as many as the service takes at once."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from agentcore.errors import ConfigurationError


class EmbeddingLimits(Struct, frozen=True, kw_only=True):
    """What one request may hold.

    Attributes:
        max_texts: texts a request.
        max_tokens: tokens of all texts of a request together. They are estimated: stay a third below what the
            service says. None if it does not count them. A text that is larger alone is sent alone.

    Raises:
        ConfigurationError: one of them is below 1.
    """

    max_texts: int
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.max_texts < 1 or (self.max_tokens is not None and self.max_tokens < 1):
            raise ConfigurationError(f"{self} leaves no room for a text: both are at least 1")


OPENAI_LIMITS = EmbeddingLimits(max_texts=512, max_tokens=200_000)
"""OpenAI takes 2,048 texts and 300,000 tokens a request (API reference, "Create embeddings"). Fewer texts keep the
decoding of one reply, during which nothing else runs, near 10 ms (1,536 dimensions), and requests run side by side."""


def batches_of(texts: Sequence[str], limits: EmbeddingLimits, count_tokens: Callable[[str], int]) -> Iterator[range]:
    """The texts of each request, as ranges of their indices; together they are all texts, in order."""
    max_tokens = limits.max_tokens
    start = tokens = 0
    for index, text in enumerate(texts):
        size = 0 if max_tokens is None else count_tokens(text)
        full = index - start >= limits.max_texts or (max_tokens is not None and tokens + size > max_tokens)
        if full and index > start:
            yield range(start, index)
            start, tokens = index, 0
        tokens += size
    if start < len(texts):
        yield range(start, len(texts))
