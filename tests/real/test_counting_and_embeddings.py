"""Embeddings and token counts of a real server with a real model."""

from collections.abc import Iterator
from math import isclose, sqrt

import pytest

from agentcore import AnthropicChatModel, ChatOptions, ChatRequest, ProviderError, ToolDefinition, UserMessage
from agentcore.embeddings import Embedding
from agentcore.errors import DecodeError
from agentcore.providers.embedding_batches import EmbeddingLimits
from agentcore.providers.embedding_presets import embedding_model
from agentcore.tokens import count_tokens
from tests.real.conftest import running

pytestmark = [pytest.mark.real, pytest.mark.asyncio, pytest.mark.timeout(400)]

NAME = "smollm2-135m"
TEXTS = [
    "The cat sat on the mat.",
    "A kitten rests on a rug.",
    "Interest rates rose again in March.",
    "天气很好。",
    "x",
]
TOOL = ToolDefinition(
    "get_weather", "Tell the weather in a city.", {"type": "object", "properties": {"city": {"type": "string"}}}
)


@pytest.fixture(scope="module")
def embedder() -> Iterator[str]:
    with running(["--embeddings"]) as url:
        yield f"{url}/v1"


def cosine(a: Embedding, b: Embedding) -> float:
    return sum(map(float.__mul__, a, b)) / sqrt(sum(x * x for x in a) * sum(x * x for x in b))


async def test_both_forms_bring_the_same_vectors(embedder: str) -> None:
    async with (
        embedding_model(f"llamacpp:{NAME}", base_url=embedder) as fast,
        embedding_model(f"llamacpp:{NAME}", base_url=embedder, encoding_format="float") as plain,
    ):
        packed, numbers = await fast.embed(TEXTS), await plain.embed(TEXTS)
    assert len(packed.embeddings) == len(TEXTS)
    assert packed.dimensions == 576
    assert packed.model == NAME
    assert (packed.usage.input_tokens or 0) > len(TEXTS)
    for one, other in zip(packed.embeddings, numbers.embeddings, strict=True):
        assert cosine(one, other) > 0.9999


async def test_many_requests_bring_what_one_brings(embedder: str) -> None:
    async with (
        embedding_model(f"llamacpp:{NAME}", base_url=embedder) as at_once,
        embedding_model(f"llamacpp:{NAME}", base_url=embedder, limits=EmbeddingLimits(max_texts=2)) as parted,
    ):
        whole, parts = await at_once.embed(TEXTS), await parted.embed(TEXTS)
    assert parts.usage == whole.usage
    # llama.cpp rounds a little differently in batches of another size, by how much depends on the processor: no vector
    # is the same twice, but each is far nearer to its own text's than to any other's.
    for number, one in enumerate(parts.embeddings):
        likeness = [cosine(one, other) for other in whole.embeddings]
        assert likeness.index(max(likeness)) == number
    nearest = cosine(whole.embeddings[0], whole.embeddings[1])
    assert nearest > cosine(whole.embeddings[0], whole.embeddings[2])
    assert isclose(cosine(whole.embeddings[0], whole.embeddings[0]), 1, rel_tol=1e-5)


async def test_dimensions_that_the_model_cannot_have_are_told(embedder: str) -> None:
    async with embedding_model(f"llamacpp:{NAME}", base_url=embedder, dimensions=64) as model:
        with pytest.raises(DecodeError, match="64 dimensions were asked for, and the embeddings have 576"):
            await model.embed("hello")


async def test_text_too_long_for_the_server_is_its_error(embedder: str) -> None:
    async with embedding_model(f"llamacpp:{NAME}", base_url=embedder) as model:
        with pytest.raises(ProviderError, match="the longest is text 1") as caught:
            await model.embed(["fine", "word " * 3000])
    assert caught.value.kind == "context_length"


async def test_server_without_embeddings_says_so(server: str) -> None:
    async with embedding_model(f"llamacpp:{NAME}", base_url=f"{server}/v1", max_retries=0) as model:
        with pytest.raises(ProviderError, match="embeddings"):
            await model.embed("hello")


async def test_count_is_what_a_call_is_charged(server: str) -> None:
    async with AnthropicChatModel(NAME, base_url=server) as model:
        short = ChatRequest([UserMessage("What is the capital of France?")], options=ChatOptions(max_tokens=1))
        with_tool = ChatRequest(short.messages, [TOOL], options=ChatOptions(max_tokens=1, tool_choice="none"))
        for request in (short, with_tool):
            assert await model.count_tokens(request) == (await model.chat(request)).usage.input_tokens


async def test_estimate_is_near_the_count_of_a_real_model(server: str) -> None:
    text = "The committee met for the third time on Thursday evening, and nobody expected an agreement. " * 8
    messages = [UserMessage(text)]
    async with AnthropicChatModel(NAME, base_url=server) as model:
        counted = await model.count_tokens(ChatRequest(messages))
    assert abs(count_tokens(messages) / counted - 1) < 0.25  # its own template stands around the text
