"""OpenAIEmbeddingModel: OpenAI Embeddings, and every endpoint that is compatible with it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from agentcore.codecs.openai_embeddings import EncodingFormat, OpenAIEmbeddingsCodec
from agentcore.embeddings import NO_EMBEDDING_OPTIONS, EmbeddingOptions, EmbeddingResponse
from agentcore.errors import ConfigurationError, DecodeError, InvalidInputError, ProviderError
from agentcore.providers.embedding_batches import OPENAI_LIMITS, EmbeddingLimits, batches_of
from agentcore.providers.http_service import SILENCE_SECONDS, HTTPService
from agentcore.providers.openai_endpoint import openai_endpoint
from agentcore.providers.retries import MAX_RETRY_AFTER, RetryHook, RetryPolicy
from agentcore.providers.secrets import Secret, hidden_headers
from agentcore.tokens import estimate_tokens

if TYPE_CHECKING:
    import httpx

    from agentcore.providers.http import HTTPClient

MAX_EMBEDDINGS_BYTES = 256 * 1024 * 1024
"""2,048 vectors of 3,072 dimensions, written as numbers, are 80 MB."""


class OpenAIEmbeddingModel(HTTPService):
    """A model behind `POST {base_url}/embeddings`. Share one between all callers; close it with `aclose`.

    Any number of texts: they go out in requests of the size the service takes, several at once.

    Args:
        model: the provider's name of the model.
        api_key: the key; from `OPENAI_API_KEY` if not given. Endpoints other than OpenAI's own may need none.
        base_url: from `OPENAI_BASE_URL` if not given; a trailing slash changes nothing, a query stays.
        http_client: your own `httpx.AsyncClient` (or `httpx2.AsyncClient`), which you close yourself.
        dimensions: length of the vectors, for models that can shorten them.
        limits: what one request may hold.
        max_concurrency: requests of one call that are under way at once.
        max_retries: attempts after the first, for failures that may pass; of each request.
        max_retry_after: longest `Retry-After` that is waited for, in seconds.
        timeout: seconds of silence tolerated from the service.
        options: settings of every call.
        encoding_format: how the service is asked to write vectors; base64 is much the faster. Vectors are read in
            whichever form they come. `"float"` for a service that refuses base64.
        dimensions_field: the service's name of the `dimensions` setting.
        headers: further headers of every request.
        organization, project: OpenAI's headers of that name.
        key_variable: environment variable of the key.
        key_header: header that carries the key; `authorization` carries it as a bearer token.
        provider: name for errors.
        max_response_bytes: cap of a whole answer.
        on_retry: told of each wait before a retry.
        count_tokens: measures texts for `limits`; an estimate that needs no package.

    Raises:
        ConfigurationError: no key for an endpoint that needs one, or a base URL that is none.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | Secret | None = None,
        base_url: str | None = None,
        http_client: "HTTPClient | httpx.AsyncClient | None" = None,
        dimensions: int | None = None,
        limits: EmbeddingLimits = OPENAI_LIMITS,
        max_concurrency: int = 8,
        max_retries: int = 2,
        max_retry_after: float = MAX_RETRY_AFTER,
        timeout: float | None = None,
        options: EmbeddingOptions | None = None,
        encoding_format: EncodingFormat = "base64",
        dimensions_field: str = "dimensions",
        headers: Mapping[str, str] | None = None,
        organization: str | None = None,
        project: str | None = None,
        key_header: str = "authorization",
        key_variable: str | None = "OPENAI_API_KEY",
        provider: str = "openai",
        max_response_bytes: int = MAX_EMBEDDINGS_BYTES,
        on_retry: RetryHook | None = None,
        count_tokens: Callable[[str], int] = estimate_tokens,
    ) -> None:
        # First of all hidden, so that no frame of ours shows a secret should what follows raise.
        key, api_key = Secret.of(api_key), None
        sent, headers = hidden_headers(headers), None
        if max_concurrency < 1:
            raise ConfigurationError(f"max_concurrency is at least 1, not {max_concurrency}")
        endpoint = openai_endpoint(
            provider,
            key=key,
            base_url=base_url,
            headers=sent,
            organization=organization,
            project=project,
            key_header=key_header,
            key_variable=key_variable,
            http_client=http_client,
            max_response_bytes=max_response_bytes,
        )
        super().__init__(
            endpoint, RetryPolicy(max_retries=max_retries, max_retry_after=max_retry_after, on_retry=on_retry)
        )
        self.codec = OpenAIEmbeddingsCodec(provider, encoding_format=encoding_format, dimensions_field=dimensions_field)
        own = EmbeddingOptions(model=model, dimensions=dimensions, timeout=timeout)
        self.options = own.over(options or NO_EMBEDDING_OPTIONS)
        self.limits = limits
        self.max_concurrency = max_concurrency
        self._count_tokens = count_tokens

    @property
    def provider(self) -> str:
        """Name of the provider."""
        return self.codec.provider

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.options.model or ""

    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error."""
        return self.codec.decode_error(status, body)

    async def embed(
        self, texts: str | Sequence[str], *, options: EmbeddingOptions = NO_EMBEDDING_OPTIONS
    ) -> EmbeddingResponse:
        """The vectors of the texts, in their order; a single text is one of one, no text makes no request.

        Raises:
            ProviderError: a request failed, after its retries; the other requests are cancelled.
            InvalidInputError: a text is empty, which no service takes; nothing was sent.
        """
        texts = _checked(texts)
        if not texts:
            return EmbeddingResponse(())
        options = options.over(self.options)
        batches = list(batches_of(texts, self.limits, self._count_tokens))
        responses = await self._embed_all(texts, batches, options)
        if len(responses) == 1:
            return responses[0]
        lengths = sorted({response.dimensions for response in responses})
        if len(lengths) > 1:
            raise DecodeError(
                f"{self.name} gave embeddings of {lengths[0]} and of {lengths[-1]} dimensions", provider=self.provider
            )
        return EmbeddingResponse(
            tuple([vector for response in responses for vector in response.embeddings]),
            reduce(add, [response.usage for response in responses]),
            responses[0].model,
            tuple([id_ for response in responses for id_ in response.request_ids]),
        )

    async def _embed_all(
        self, texts: Sequence[str], batches: Sequence[range], options: EmbeddingOptions
    ) -> list[EmbeddingResponse]:
        """The answer to each request, in order; the first that fails ends the others."""
        if len(batches) == 1:
            return [await self._embed_batch(texts, batches[0], options)]
        places = asyncio.Semaphore(self.max_concurrency)

        async def one(batch: range) -> EmbeddingResponse:
            async with places:
                return await self._embed_batch(texts, batch, options)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(batch)) for batch in batches]
        except BaseExceptionGroup as failed:
            first = failed.exceptions[0]
            raise first from first.__cause__
        return [task.result() for task in tasks]

    async def _embed_batch(self, texts: Sequence[str], batch: range, options: EmbeddingOptions) -> EmbeddingResponse:
        part = texts[batch.start : batch.stop]
        wire = self.codec.encode(part, options)
        silence = options.timeout if options.timeout is not None else SILENCE_SECONDS
        try:
            response, id_ = await self.fetch(
                wire, silence, partial(self.codec.decode, count=len(part), dimensions=options.dimensions)
            )
        except ProviderError as error:
            if error.kind in ("context_length", "invalid_request"):  # it may have been too much at once
                error.message += self._size_of(part, batch)
                error.args = (error.message,)
            raise
        return response if id_ is None else replace(response, request_ids=(id_,))

    def _size_of(self, part: Sequence[str], batch: range) -> str:
        sizes = [self._count_tokens(text) for text in part]
        longest = max(range(len(sizes)), key=sizes.__getitem__)
        return (
            f" [the request held {len(part)} texts, {batch.start} to {batch.stop - 1}, of about {sum(sizes)} tokens; "
            f"the longest is text {longest + batch.start} with about {sizes[longest]}; limits=EmbeddingLimits(…) makes "
            "smaller requests]"
        )


def _checked(texts: str | Sequence[str]) -> Sequence[str]:
    if isinstance(texts, str):
        texts = (texts,)
    for index, text in enumerate(cast("Sequence[object]", texts)):  # as it comes from callers who check no types
        if not isinstance(text, str):
            raise InvalidInputError(f"text {index} is a {type(text).__name__}, not a str")
        if not text:
            raise InvalidInputError(f"text {index} is empty, and services refuse empty texts: leave it out")
    return texts
