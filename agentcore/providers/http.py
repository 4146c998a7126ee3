"""The one seam to HTTP: how a request is sent and read, and how what goes wrong is told.

Of a client only `build_request`, `send(stream=True)` and `aclose` are used, of a response `status_code`, `headers`,
`aiter_bytes` and `aclose`: an `httpx.AsyncClient`, one over an aiohttp transport and an `httpx2.AsyncClient` all fit.
"""

import asyncio
import functools
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.request import getproxies, proxy_bypass

import anyio
import httpx

from agentcore.errors import ConfigurationError, DecodeError, ErrorKind, ProviderError
from agentcore.providers.pool import PooledTransport
from agentcore.providers.secrets import Secret, check_headers, redact

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
ERROR_BODY_SECONDS = 10.0
MAX_ERROR_BYTES = 64 * 1024
_HTTPX_ERRORS: tuple[type[Exception], ...] = (
    httpx.TransportError,
    httpx.InvalidURL,
    httpx.StreamError,
    httpx.DecodingError,
)


class HTTPResponse(Protocol):
    """What is used of a response."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    def aiter_bytes(self) -> AsyncIterator[bytes]: ...
    async def aclose(self) -> None: ...


class HTTPClient(Protocol):
    """What is used of a client."""

    def build_request(self, method: str, url: Any, *, headers: Any, content: Any, timeout: Any) -> Any: ...
    async def send(self, request: Any, *, stream: bool, follow_redirects: bool) -> Any: ...
    async def aclose(self) -> None: ...


class Endpoint:
    """Where a provider's requests go, and with what.

    Args:
        provider: name for errors.
        base_url: as the user gave it; see `request_url`.
        headers: sent with every request.
        secrets: taken out of whatever the provider says.
        http_client: the caller's own client, never closed here; None for one of our own, made at the first request.
        max_response_bytes: a body or a stream may not be larger.

    Raises:
        ConfigurationError: `base_url` is not one, or a header cannot be sent.
    """

    def __init__(
        self,
        provider: str,
        base_url: str,
        *,
        headers: Mapping[str, Secret],
        max_response_bytes: int,
        secrets: Sequence[Secret] = (),
        http_client: HTTPClient | httpx.AsyncClient | None = None,
    ) -> None:
        self.provider = provider
        self.base_url = base_url
        request_url(base_url, "")
        check_headers(headers)
        self.max_response_bytes = max_response_bytes
        self._headers = _maker_of_headers(headers, own=http_client is None)
        self._secrets = tuple(secrets)
        self._urls: dict[str, httpx.URL] = {}
        self._given = cast("HTTPClient | None", http_client)
        self._own: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._errors = _HTTPX_ERRORS if http_client is None else _transport_errors(http_client)

    def __repr__(self) -> str:
        return f"Endpoint({self.provider}, {shown_url(self.base_url)})"

    async def post(self, path: str, body: bytes, headers: Mapping[str, str], silence: float) -> HTTPResponse:
        """Send a request; returns when the status and headers are there, whatever the status is.

        Args:
            path: behind the base URL.
            body: JSON.
            headers: of this request alone.
            silence: seconds to wait for a connection's bytes.

        Raises:
            ProviderError: kind `network` or `timeout`.
            ConfigurationError: our own client is at work in another event loop, or the caller's is closed.
        """
        client = self._client()
        try:
            request = self._request(client, path, body, headers, silence)
            return cast("HTTPResponse", await client.send(request, stream=True, follow_redirects=False))
        except self._errors as error:
            raise self._failure(error, silence) from without_frames(error)
        except asyncio.CancelledError as error:
            without_frames(error)
            raise
        except RuntimeError as error:
            if not getattr(client, "is_closed", False):
                raise
            raise ConfigurationError(
                f"the http_client given to this {self.provider} model is closed; keep it open while the model is used"
            ) from without_frames(error)

    async def read(self, response: HTTPResponse, silence: float) -> bytes:
        """The whole body; the response is closed afterwards.

        Raises:
            ProviderError: the connection broke or fell silent, or the body is larger than the cap.
        """
        parts: list[bytes] = []
        try:
            async for part in self.chunks(response, silence):
                parts.append(part)  # noqa: PERF401 - an asynchronous comprehension costs more
        finally:
            await self.close(response)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read_beginning(self, response: HTTPResponse) -> bytes:
        """The beginning of an error's body: what comes of it, within limits of size and time; never fails."""
        body = bytearray()
        try:
            with anyio.move_on_after(ERROR_BODY_SECONDS):
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) >= MAX_ERROR_BYTES:
                        break
        except self._errors:
            pass  # the status is known, and says more than a connection that breaks afterwards
        finally:
            await self.close(response)
        return bytes(body[:MAX_ERROR_BYTES])

    async def chunks(self, response: HTTPResponse, silence: float) -> AsyncGenerator[bytes, None]:
        """The body, one network read after the other.

        Raises:
            ProviderError: the connection broke, fell silent, or sent more than the cap.
        """
        size = 0
        try:
            async for part in response.aiter_bytes():
                size += len(part)
                if size > self.max_response_bytes:
                    raise self._too_large()
                yield part
        except self._errors as error:
            raise self._failure(error, silence) from without_frames(error)
        except asyncio.CancelledError as error:
            without_frames(error)
            raise

    async def close(self, response: HTTPResponse) -> None:
        """Close a response, also while being cancelled; its connection is kept if the body was read whole."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await response.aclose()

    def redacted(self, text: str) -> str:
        """A text of the provider's without our key in it."""
        return redact(text, self._secrets)

    async def aclose(self) -> None:
        """Close our own client and its connections; twice is harmless, the caller's client stays open.

        Raises:
            ConfigurationError: the connections belong to another event loop, which is still open.
        """
        if self._own is None:
            return
        if self._loop is not asyncio.get_running_loop() and self._loop is not None and not self._loop.is_closed():
            raise ConfigurationError(
                f"this {self.provider} model has connections in another event loop; call aclose() in that loop"
            )
        client, loop, self._own, self._loop = self._own, self._loop, None, None
        if loop is asyncio.get_running_loop():  # else they ended with their loop
            await client.aclose()

    def _client(self) -> HTTPClient:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if self._own is None:
            self._own, self._loop = own_client(httpx.URL(self.base_url.strip()).host), loop
        elif self._loop is not loop:
            raise ConfigurationError(
                f"this {self.provider} model has connections in another event loop; call aclose() before you use it "
                "in a second loop, or make one model for each loop"
            )
        return cast("HTTPClient", self._own)

    # Apart, and without a local for the headers, so that no frame of a traceback holds the key.
    def _request(self, client: HTTPClient, path: str, body: bytes, headers: Mapping[str, str], silence: float) -> Any:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = request_url(self.base_url, path)
        if client is not self._own:
            timeout = _client_module(client).Timeout(silence, connect=min(CONNECT_SECONDS, silence))
            return client.build_request(
                "POST", str(url), headers=dict(self._headers(headers)), content=body, timeout=timeout
            )
        timeout = {"connect": min(CONNECT_SECONDS, silence), "read": silence, "write": silence, "pool": silence}
        # Not `client.build_request`, which would merge URLs, headers, cookies and parameters that our client has not.
        return httpx.Request("POST", url, headers=self._headers(headers), content=body, extensions={"timeout": timeout})

    def _failure(self, error: BaseException, silence: float) -> ProviderError:
        names = {class_.__name__ for class_ in type(_origin(error)).__mro__}
        host = _host(self.base_url)
        kind: ErrorKind
        if "PoolTimeout" in names:
            kind, text = "timeout", f"no free connection to {host} in the pool for {silence:g} s; {self._larger_pool()}"
        elif "ConnectTimeout" in names:
            kind, text = "timeout", f"no connection to {host} within {min(CONNECT_SECONDS, silence):g} s"
        elif "WriteTimeout" in names:
            kind, text = "timeout", f"{host} took no bytes for {silence:g} s"
        elif "TimeoutException" in names:
            kind, text = "timeout", f"{host} sent nothing for {silence:g} s"
        elif "ConnectError" in names or "ClientConnectorError" in names:
            kind, text = "network", f"cannot connect to {host}: {_words(error)}"
        elif "UnsupportedProtocol" in names or "InvalidURL" in names:
            kind, text = "invalid_request", f"{shown_url(self.base_url)!r} is not a URL that requests can go to"
        elif "DecodingError" in names:
            kind, text = "network", f"{host} sent a body that its content-encoding does not fit: {_words(error)}"
        else:
            kind, text = "network", f"the connection to {host} broke: {_words(error)}"
        return ProviderError(
            self.redacted(text), kind=kind, provider=self.provider, retryable=kind != "invalid_request"
        )

    def _larger_pool(self) -> str:
        if self._given is not None:
            return "give http_client a larger max_connections"
        return "give http_client=httpx.AsyncClient(transport=PooledTransport(max_connections=…)) a larger one"

    def _too_large(self) -> DecodeError:
        return DecodeError(
            f"the answer is larger than {self.max_response_bytes} bytes; raise max_response_bytes if that is meant",
            provider=self.provider,
        )


def request_url(base_url: str, path: str) -> httpx.URL:
    """Where a path goes: behind the base URL, whose query stays behind it.

    A trailing slash changes nothing. A base URL that already ends with the path, as it does when it was copied from a
    full address, or with the version step that the path begins with (`…/v1` before `/v1/messages`), is not doubled.

    Raises:
        ConfigurationError: no http(s) scheme, or no host.
    """
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"base_url {base_url!r} is not a URL ({error})") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(
            f"base_url {base_url!r} needs a scheme and a host, for example 'https://api.example.com/v1'"
        )
    raw, _, query = url.raw_path.decode("ascii").partition("?")
    path, _, own_query = path.partition("?")
    query = "&".join([part for part in (own_query, query) if part])
    base = raw.rstrip("/")
    version = "/" + path.split("/")[1] if path.startswith("/v1/") else ""
    base = base.removesuffix(path) if path and base.endswith(path) else base.removesuffix(version)
    return url.copy_with(raw_path=f"{base + path or '/'}{'?' if query else ''}{query}".encode("ascii"))


def shown_url(base_url: str) -> str:
    """A URL as messages may show it: without user, password, query and fragment, any of which may be secret."""
    try:
        url = httpx.URL(base_url.strip())
    except httpx.InvalidURL:
        return "(not a URL)"
    return str(url.copy_with(username="", password="", query=None, fragment=None)).replace("//@", "//", 1)


def is_host_of(base_url: str, domain: str) -> bool:
    """Whether a URL leads to a service's own hosts, regional ones included."""
    host = request_url(base_url, "").host
    return host == domain or host.endswith("." + domain)


def own_client(host: str) -> httpx.AsyncClient:
    """Our own client: pooled for a thousand conversations.

    Where the environment sets a proxy for the host (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY), it is httpx's own
    pool, which knows proxies, and which is slow beyond some hundred requests at once.
    """
    proxies = getproxies()
    if any(proxies.get(scheme) for scheme in ("http", "https", "all")) and not proxy_bypass(host):
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
        return httpx.AsyncClient(limits=limits, timeout=None)  # noqa: S113 - every request brings its own
    return httpx.AsyncClient(transport=PooledTransport(), timeout=None)  # noqa: S113


def without_frames(error: BaseException) -> BaseException:
    """The error and all its causes without their frames, which hold our headers and with them the key."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        current = left.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        left += (current.__cause__, current.__context__)
        if isinstance(current, BaseExceptionGroup):
            left += cast("BaseExceptionGroup[BaseException]", current).exceptions
    return error


def _maker_of_headers(headers: Mapping[str, Secret], *, own: bool) -> Callable[[Mapping[str, str]], httpx.Headers]:
    """A closure over ready-made headers, so that no attribute of ours shows them."""
    made = httpx.Headers({"content-type": "application/json", "accept": "application/json, text/event-stream"})
    if own:  # a caller's client brings its own
        made["accept-encoding"] = _accept_encoding()
        made["user-agent"] = "agentcore"
    for name, value in headers.items():
        made[name] = value.reveal()

    def with_own(further: Mapping[str, str]) -> httpx.Headers:
        if not further:
            return made
        copy = made.copy()
        copy.update(further)
        return copy

    return with_own


@functools.cache
def _accept_encoding() -> str:
    """What httpx can decode: that depends on the packages installed beside it."""
    return httpx.AsyncClient(transport=httpx.AsyncBaseTransport()).headers["accept-encoding"]


def _client_module(client: object) -> Any:
    """The library a client comes from: the first class on its way up whose top module has transport errors."""
    for class_ in type(client).__mro__:
        module = sys.modules.get(class_.__module__.partition(".")[0])
        if hasattr(module, "TransportError") and hasattr(module, "Timeout"):
            return module
    return httpx


def _transport_errors(client: object) -> tuple[type[Exception], ...]:
    module = _client_module(client)
    names = ("TransportError", "InvalidURL", "StreamError", "DecodingError")
    errors = [getattr(module, name) for name in names if hasattr(module, name)]
    aiohttp = sys.modules.get("aiohttp")
    if aiohttp is not None:  # its transport lets some of its own errors through
        errors.append(aiohttp.ClientError)
    return tuple(errors)


def _host(base_url: str) -> str:
    url = httpx.URL(base_url.strip())
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{host}:{url.port or (443 if url.scheme == 'https' else 80)}"


def _origin(error: BaseException) -> BaseException:
    """The error that names the failure: aiohttp's own, where its transport calls a refusal or a reset a timeout."""
    for cause in _chain(error):
        if type(cause).__module__.startswith("aiohttp.") and not isinstance(cause, TimeoutError):
            return cause
    return error


def _words(error: BaseException) -> str:
    """What the operating system said, if it said something: the libraries above it say less."""
    texts = [cause.strerror for cause in _chain(error) if isinstance(cause, OSError) and cause.strerror]
    return texts[-1] if texts else str(error) or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
