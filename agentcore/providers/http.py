"""The one seam to HTTP: how a request is sent and read, and how what goes wrong is told.

Of a client only `build_request`, `send(stream=True)` and `aclose` are used, of a response `status_code`, `headers`,
`aiter_bytes` and `aclose`: an `httpx.AsyncClient`, one over an aiohttp transport and an `httpx2.AsyncClient` all fit.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, cast
from urllib.request import getproxies

import httpx

from agentcore.errors import ConfigurationError, DecodeError, ProviderError
from agentcore.providers.pool import PooledTransport
from agentcore.providers.secrets import Secret, redact

CONNECT_SECONDS = 10.0
MAX_ERROR_BYTES = 64 * 1024
MAX_RESPONSE_BYTES = 64 * 1024 * 1024


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
    async def send(self, request: Any, *, stream: bool) -> Any: ...
    async def aclose(self) -> None: ...


class Endpoint:
    """Where a provider's requests go, and with what.

    Args:
        provider: name for errors.
        base_url: as the user gave it; see `request_url`.
        headers: sent with every request; values may be secret.
        secrets: taken out of whatever the provider says.
        http_client: the caller's own client, never closed here; None for one of our own, made at the first request.
        max_response_bytes: a body or a stream may not be larger.
    """

    def __init__(
        self,
        provider: str,
        base_url: str,
        *,
        headers: Mapping[str, str | Secret],
        secrets: Sequence[Secret] = (),
        http_client: HTTPClient | httpx.AsyncClient | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self.provider = provider
        self.base_url = base_url
        self.max_response_bytes = max_response_bytes
        self._headers = dict(headers)
        self._secrets = tuple(secrets)
        self._urls: dict[str, httpx.URL] = {}
        self._given = cast("HTTPClient | None", http_client)
        self._own: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._errors = _transport_errors(http_client) if http_client is not None else _HTTPX_ERRORS

    def __repr__(self) -> str:
        return f"Endpoint({self.provider}, {self.base_url})"

    async def post(self, path: str, body: bytes, headers: Mapping[str, str], silence: float) -> HTTPResponse:
        """Send a request; returns when the status and headers are there, whatever the status is.

        Args:
            path: behind the base URL.
            body: JSON.
            headers: of this request alone.
            silence: seconds to wait for a connection's bytes.

        Raises:
            ProviderError: kind `network` or `timeout`.
        """
        client = self._client()
        request = self._request(client, path, body, headers, silence)
        try:
            return cast("HTTPResponse", await client.send(request, stream=True))
        except self._errors as error:
            raise self._failure(error, silence) from _without_frames(error)

    async def read(self, response: HTTPResponse, limit: int | None = None) -> bytes:
        """The whole body; the response is closed afterwards.

        Args:
            response: an open response.
            limit: bytes after which reading stops quietly; None for the cap, beyond which is an error.

        Raises:
            ProviderError: the connection broke, or the body is larger than the cap.
        """
        parts: list[bytes] = []
        size = 0
        try:
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > (limit or self.max_response_bytes):
                    if limit is not None:
                        break
                    raise self._too_large()
        except self._errors as error:
            raise self._failure(error, None) from _without_frames(error)
        finally:
            await response.aclose()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self, response: HTTPResponse, silence: float) -> AsyncIterator[bytes]:
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
            raise self._failure(error, silence) from _without_frames(error)

    def redacted(self, text: str) -> str:
        """A text of the provider's without our key in it."""
        return redact(text, self._secrets)

    async def aclose(self) -> None:
        """Close our own client and its connections; twice is harmless, the caller's client stays open."""
        client, self._own, self._loop = self._own, None, None
        if client is not None:
            await client.aclose()

    def _client(self) -> HTTPClient:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if self._own is None:
            self._own, self._loop = own_client(), loop
        elif self._loop is not loop:
            raise ConfigurationError(
                f"this {self.provider} model has connections in another event loop; call aclose() there before you use "
                "it here, or make one model for each loop"
            )
        return cast("HTTPClient", self._own)

    # Apart, so that no frame of a traceback holds headers with the key in them.
    def _request(self, client: HTTPClient, path: str, body: bytes, headers: Mapping[str, str], silence: float) -> Any:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = request_url(self.base_url, path)
        sent = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        for name, value in self._headers.items():
            sent[name] = value.reveal() if isinstance(value, Secret) else value
        sent.update(headers)
        if client is not self._own:
            timeout = _timeout_for(client, silence)
            return client.build_request("POST", str(url), headers=sent, content=body, timeout=timeout)
        sent["accept-encoding"] = _ACCEPT_ENCODING
        sent["user-agent"] = _USER_AGENT
        timeout = {"connect": min(CONNECT_SECONDS, silence), "read": silence, "write": silence, "pool": silence}
        return httpx.Request("POST", url, headers=sent, content=body, extensions={"timeout": timeout})

    def _failure(self, error: BaseException, silence: float | None) -> ProviderError:
        name = type(error).__name__
        host = self._host()
        if "Pool" in name and "Timeout" in name:
            kind, text = "timeout", "no free connection in the pool; give http_client a larger one"
        elif "ConnectTimeout" in name:
            kind, text = "timeout", f"no connection to {host} in time"
        elif "Timeout" in name:
            waited = f" for {silence:g} s" if silence is not None else ""
            kind, text = "timeout", f"{host} sent nothing{waited}"
        elif name == "ConnectError":
            kind, text = "network", f"cannot connect to {host}: {_words(error)}"
        elif name in ("UnsupportedProtocol", "InvalidURL"):
            kind, text = "invalid_request", f"{self.base_url!r} is not a URL requests can go to"
        else:
            kind, text = "network", f"the connection to {host} broke: {_words(error)}"
        return ProviderError(
            self.redacted(text),
            kind=cast("Any", kind),
            provider=self.provider,
            retryable=kind != "invalid_request",
        )

    def _too_large(self) -> DecodeError:
        return DecodeError(
            f"the answer is larger than {self.max_response_bytes} bytes; raise max_response_bytes if that is meant",
            provider=self.provider,
        )

    def _host(self) -> str:
        url = httpx.URL(self.base_url)
        return f"{url.host}:{url.port}" if url.port is not None else url.host


def request_url(base_url: str, path: str) -> httpx.URL:
    """Where a path goes: behind the base URL, whose query stays behind it.

    A trailing slash changes nothing, and a base URL that already ends with the path, or the beginning of it, as it does
    when it was copied from a full address, is not doubled.

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
    base = url.path.rstrip("/")
    steps = path.split("/")
    for count in range(len(steps), 1, -1):
        beginning = "/".join(steps[:count])
        if base.endswith(beginning):
            base = base.removesuffix(beginning)
            break
    return url.copy_with(path=base + path)


def own_client() -> httpx.AsyncClient:
    """Our own client: pooled for a thousand conversations, or, where a proxy is set in the environment, httpx's own."""
    proxies = getproxies()
    if any(proxies.get(scheme) for scheme in ("http", "https", "all")):
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
        return httpx.AsyncClient(limits=limits, timeout=None)  # noqa: S113 - every request brings its own
    verify: Any = True
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        verify = httpx.create_ssl_context()
    return httpx.AsyncClient(transport=PooledTransport(verify=verify), timeout=None)  # noqa: S113


_HTTPX_ERRORS: tuple[type[Exception], ...] = (httpx.TransportError, httpx.InvalidURL, httpx.StreamError, httpx.DecodingError)
_ACCEPT_ENCODING = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200))).headers[
    "accept-encoding"
]
_USER_AGENT = "agentcore"


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
    return tuple(getattr(module, name) for name in names if hasattr(module, name))


def _timeout_for(client: object, silence: float) -> Any:
    return _client_module(client).Timeout(silence, connect=min(CONNECT_SECONDS, silence))


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _without_frames(error: BaseException) -> BaseException:
    """The error and its causes without their frames, which hold our headers and with them the key."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = None
        current = current.__cause__ or current.__context__
    return error
