"""Usage: how many tokens a model call took, as far as the provider says."""

from msgspec import Struct


class Usage(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Tokens of one or more model calls; `None` is unknown, never zero.

    Attributes:
        input_tokens: the whole prompt, cached part included, on every provider.
        output_tokens: the whole reply, reasoning included.
        cached_input_tokens: the part of the prompt that was read from the provider's cache.
        cache_write_tokens: the part of the prompt that was written to the provider's cache.
        reasoning_tokens: the part of the reply that was reasoning.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=_plus(self.input_tokens, other.input_tokens),
            output_tokens=_plus(self.output_tokens, other.output_tokens),
            cached_input_tokens=_plus(self.cached_input_tokens, other.cached_input_tokens),
            cache_write_tokens=_plus(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=_plus(self.reasoning_tokens, other.reasoning_tokens),
        )


def _plus(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else a + b


UNKNOWN_USAGE = Usage()
