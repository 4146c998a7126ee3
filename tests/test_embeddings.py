"""What an embedding call takes and gives."""

from array import array
from collections.abc import Sequence

import pytest

from agentcore.embeddings import (
    NO_EMBEDDING_OPTIONS,
    EmbeddingModel,
    EmbeddingOptions,
    EmbeddingResponse,
)
from agentcore.usage import Usage


class Lengths:
    """A model of one's own: nothing to inherit from."""

    async def embed(
        self, texts: str | Sequence[str], *, options: EmbeddingOptions = NO_EMBEDDING_OPTIONS
    ) -> EmbeddingResponse:
        return EmbeddingResponse(tuple([array("f", [len(text)]) for text in texts]))


@pytest.mark.asyncio
async def test_model_is_whatever_embeds() -> None:
    model: EmbeddingModel = Lengths()
    assert (await model.embed(["a", "bcd"])).embeddings == (array("f", [1]), array("f", [3]))


def test_options_say_or_leave_it_to_the_next_level() -> None:
    base = EmbeddingOptions(model="m", dimensions=256, timeout=5, extra={"user": "u", "input_type": "document"})
    call = EmbeddingOptions(dimensions=64, extra={"input_type": "query"})
    assert call.over(base) == EmbeddingOptions(
        model="m", dimensions=64, timeout=5, extra={"user": "u", "input_type": "query"}
    )
    assert NO_EMBEDDING_OPTIONS.over(base) is base


def test_repr_of_a_response_shows_no_numbers() -> None:
    response = EmbeddingResponse((array("f", [0.123456] * 1536),), Usage(input_tokens=3), "m")
    assert "1 embeddings of 1536 dimensions" in repr(response)
    assert "0.12" not in repr(response)


def test_response_without_vectors_has_no_dimensions() -> None:
    assert EmbeddingResponse(()).dimensions == 0
