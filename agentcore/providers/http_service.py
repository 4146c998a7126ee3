"""HTTPService: what every model behind HTTP is: an endpoint, retries, and one way to tell what went wrong."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from agentcore.codecs.base import WireRequest
from agentcore.errors import ProviderError
from agentcore.providers.retries import RetryPolicy, retry_after, with_retries

if TYPE_CHECKING:  # httpx takes half of the time of `import agentcore`; whoever makes a model brings it
    from agentcore.providers.http import Endpoint, HTTPResponse

T = TypeVar("T")

SILENCE_SECONDS = 600.0
"""How long a service may say nothing. Reasoning models think for minutes before the first byte."""

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_REQUEST_ID_HEADERS = (
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-goog-request-id",
    "cf-ray",
)


class HTTPService(ABC):
    """A service behind HTTP. Share one between all conversations; close it with `aclose` or `async with`.

    Args:
        endpoint: where requests go.
        retries: when a failed request is sent again.
    """

    def __init__(self, endpoint: "Endpoint", retries: RetryPolicy) -> None:
        self.endpoint = endpoint
        self.retries = retries

    @property
    @abstractmethod
    def provider(self) -> str:
        """Name of the provider."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the model."""

    @abstractmethod
    def decode_error(self, status: int, body: bytes) -> ProviderError:
        """An error status and its body as an error, in the words of the wire format."""

    def __repr__(self) -> str:
        if "endpoint" not in self.__dict__:  # a debugger looks at a model that is being made
            return f"{type(self).__name__}(…)"
        return f"{type(self).__name__}({self.name!r}, {self.endpoint!r})"

    async def aclose(self) -> None:
        """Close the connections; twice is harmless, and a later call opens new ones."""
        await self.endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def fetch(self, wire: WireRequest, silence: float, decode: Callable[[bytes], T]) -> tuple[T, str | None]:
        """Send a request, and again while the policy allows it; what its body decodes to, and the service's id of it.

        Raises:
            ProviderError: of the last attempt; what `decode` raises is one of these, and completed as they are.
        """
        return await with_retries(partial(self._fetch_once, wire, silence, decode), self.retries)

    async def _fetch_once(
        self, wire: WireRequest, silence: float, decode: Callable[[bytes], T]
    ) -> tuple[T, str | None]:
        response = await self.post(wire, silence)
        try:
            return decode(await self.endpoint.read(response, silence)), request_id(response.headers)
        except ProviderError as error:
            raise self.complete_error(error, response) from error.__cause__

    async def post(self, wire: WireRequest, silence: float) -> "HTTPResponse":
        """Send a request once; the response is good, its body still to be read.

        Raises:
            ProviderError: the service cannot be reached, or refuses.
        """
        response = await self.endpoint.post(wire.path, wire.body, wire.headers, silence)
        if response.status_code < 300:
            return response
        raise await self._refusal(response)

    def complete_error(self, error: ProviderError, response: "HTTPResponse") -> ProviderError:
        """Add what only the HTTP reply knows, and take the key out of what the provider says."""
        from agentcore.providers.http import without_frames

        without_frames(error)  # decoding frames hold the body, and a body may echo the key
        error.message = self.endpoint.redacted(error.message)
        error.args = (error.message,)
        error.provider = error.provider or self.provider
        error.request_id = error.request_id or request_id(response.headers)
        if error.retry_after is None:
            error.retry_after = retry_after(response.headers, self.retries.now)
        if (
            response.headers.get("x-should-retry", "").strip().lower() == "false"
        ):  # OpenAI's and Anthropic's word for it
            error.retryable = False
        return error

    async def _refusal(self, response: "HTTPResponse") -> ProviderError:
        status = response.status_code
        body = await self.endpoint.read_beginning(response)
        if status >= 400:
            return self.complete_error(self.decode_error(status, body), response)
        from agentcore.providers.http import shown_url

        asked = shown_url(self.endpoint.base_url)
        target = response.headers.get("location")
        where = (
            f"to {shown_url(target)}" if target and "//" in target else f"to {target}" if target else "without a target"
        )
        error = ProviderError(
            f"base_url {asked!r} redirects {where}; redirects are not followed, so set base_url to the right address",
            kind="invalid_request",
            provider=self.provider,
            status=status,
        )
        return self.complete_error(error, response)


def request_id(headers: Mapping[str, str]) -> str | None:
    """The service's id of the request, under any of its names."""
    for name in _REQUEST_ID_HEADERS:
        value = headers.get(name)
        if value:
            return value
    return None
