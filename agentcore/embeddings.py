"""Embeddings: texts as vectors, and the protocol that every embedding model satisfies."""

from array import array
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from agentcore.usage import UNKNOWN_USAGE, Usage

Embedding: TypeAlias = "array[float]"
"""A vector of float32, in an eighth of the memory of a list. `numpy.frombuffer(embedding, numpy.float32)` takes it
without a copy, `embedding.tobytes()` is what a database keeps, `embedding.tolist()` what JSON holds."""


class EmbeddingOptions(Struct, frozen=True, kw_only=True):
    """Settings of an embedding call. `None` means: not said, so the next level (model, provider) decides.

    Attributes:
        model: model name, instead of the one the `EmbeddingModel` was made with.
        dimensions: length of the vectors, for models that can shorten them.
        timeout: seconds of silence tolerated from the service, for each request.
        extra: fields merged into the request body untouched, for whatever has no neutral name (`input_type`, `user`).
    """

    model: str | None = None
    dimensions: int | None = None
    timeout: float | None = None
    extra: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())

    def over(self, base: "EmbeddingOptions") -> "EmbeddingOptions":
        """These options where they say something, `base` where they do not; `extra` is merged key by key."""
        if self is NO_EMBEDDING_OPTIONS:
            return base
        said = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        said["extra"] = {**base.extra, **self.extra}
        return replace(base, **said)


NO_EMBEDDING_OPTIONS = EmbeddingOptions()


class EmbeddingResponse(Struct, frozen=True):
    """The vectors of some texts.

    Attributes:
        embeddings: one vector a text, in the order of the texts.
        usage: the input tokens of all requests that were made.
        model: the model that answered, as the provider names it.
        request_ids: the provider's ids of the HTTP requests, as far as it gives them.
    """

    embeddings: tuple[Embedding, ...]
    usage: Usage = UNKNOWN_USAGE
    model: str | None = None
    request_ids: tuple[str, ...] = ()

    @property
    def dimensions(self) -> int:
        """Length of the vectors; 0 if there are none."""
        return len(self.embeddings[0]) if self.embeddings else 0

    def __repr__(self) -> str:  # thousands of numbers are of no use in a log
        return (
            f"EmbeddingResponse({len(self.embeddings)} embeddings of {self.dimensions} dimensions, "
            f"model={self.model!r}, usage={self.usage!r})"
        )


class EmbeddingModel(Protocol):
    """Anything that turns texts into vectors."""

    async def embed(
        self, texts: str | Sequence[str], *, options: EmbeddingOptions = NO_EMBEDDING_OPTIONS
    ) -> EmbeddingResponse:
        """The vectors of the texts, in their order; a single text is one of one.

        Raises:
            ProviderError: a request failed, after its retries; nothing is returned of the others.
            InvalidInputError: a text is empty, which no service takes; nothing was sent.
        """
        ...
