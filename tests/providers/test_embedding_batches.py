"""How texts are spread over requests."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcore.errors import ConfigurationError
from agentcore.providers.embedding_batches import EmbeddingLimits, batches_of

sizes = st.lists(st.integers(min_value=1, max_value=12), max_size=40)


@given(sizes, st.integers(1, 8), st.none() | st.integers(1, 20))
def test_batches_hold_every_text_once_in_order_within_the_limits(
    sizes: list[int], max_texts: int, max_tokens: int | None
) -> None:
    texts = ["x" * size for size in sizes]
    batches = list(batches_of(texts, EmbeddingLimits(max_texts=max_texts, max_tokens=max_tokens), len))
    assert [index for batch in batches for index in batch] == list(range(len(texts)))
    for batch in batches:
        assert 1 <= len(batch) <= max_texts
        assert len(batch) == 1 or max_tokens is None or sum(sizes[index] for index in batch) <= max_tokens


@given(sizes, st.integers(1, 8), st.integers(1, 20))
def test_batches_are_as_full_as_they_can_be(sizes: list[int], max_texts: int, max_tokens: int) -> None:
    texts = ["x" * size for size in sizes]
    batches = list(batches_of(texts, EmbeddingLimits(max_texts=max_texts, max_tokens=max_tokens), len))
    for batch, following in pairwise(batches):
        more = sum(sizes[index] for index in batch) + sizes[following.start]
        assert len(batch) == max_texts or more > max_tokens


@pytest.mark.parametrize("limits", [{"max_texts": 0}, {"max_texts": 1, "max_tokens": 0}])
def test_limits_without_room_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="at least 1"):
        EmbeddingLimits(**limits)
