"""FaultyTransport: an httpx transport that fails on purpose, in the ways networks and services do."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import httpx
import msgspec

Fault: TypeAlias = Callable[[httpx.Request, httpx.AsyncBaseTransport], Awaitable[httpx.Response]]
"""What happens to one request, given the transport it would have gone to."""


class FaultyTransport(httpx.AsyncBaseTransport):
    """Lets each request meet the next fault of a list; after the last one they pass.

        transport = FaultyTransport([refused(), status(429, retry_after="1"), passed()], httpx.AsyncHTTPTransport())
        model = OpenAIChatModel("gpt-5-mini", http_client=httpx.AsyncClient(transport=transport))

    Args:
        faults: one for each request, in order.
        inner: where requests that pass go.
    """

    def __init__(self, faults: Sequence[Fault], inner: httpx.AsyncBaseTransport | None = None) -> None:
        self.faults = list(faults)
        self.requests: list[httpx.Request] = []
        self._inner = inner or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Meet the next fault."""
        self.requests.append(request)
        index = len(self.requests) - 1
        fault = self.faults[index] if index < len(self.faults) else passed()
        return await fault(request, self._inner)

    async def aclose(self) -> None:
        """Close the transport inside."""
        await self._inner.aclose()


def passed() -> Fault:
    """No fault."""

    async def fault(request: httpx.Request, inner: httpx.AsyncBaseTransport) -> httpx.Response:
        return await inner.handle_async_request(request)

    return fault


def refused() -> Fault:
    """Nobody listens."""
    return _raising(lambda request: httpx.ConnectError("connection refused", request=request))


def unreachable() -> Fault:
    """No connection in time."""
    return _raising(lambda request: httpx.ConnectTimeout("timed out", request=request))


def silent() -> Fault:
    """The request was sent, and no byte came back in time."""
    return _raising(lambda request: httpx.ReadTimeout("timed out", request=request))


def reset(after: int | None = None) -> Fault:
    """The connection breaks: before the first byte, or after so many bytes of the reply's body."""
    if after is None:
        return _raising(lambda request: httpx.ReadError("connection reset by peer", request=request))
    return _cut(after, lambda: httpx.ReadError("connection reset by peer"))


def stalled(after: int) -> Fault:
    """The reply falls silent after so many bytes of its body, longer than the client waits."""
    return _cut(after, lambda: httpx.ReadTimeout("timed out"))


def closed(after: int) -> Fault:
    """The reply ends, as if it were whole, after so many bytes of its body."""
    return _cut(after, None)


def status(
    code: int, body: object = None, *, retry_after: str | None = None, content_type: str = "application/json"
) -> Fault:
    """An error status, with a body (text, or anything that becomes JSON) and a `Retry-After`."""
    headers = {"content-type": content_type}
    if retry_after is not None:
        headers["retry-after"] = retry_after
    shown: Any = {"error": {"message": f"status {code} on purpose"}} if body is None else body
    content = shown.encode() if isinstance(shown, str) else msgspec.json.encode(shown)

    async def fault(request: httpx.Request, inner: httpx.AsyncBaseTransport) -> httpx.Response:
        return httpx.Response(code, headers=headers, content=content, request=request)

    return fault


def _raising(error: Callable[[httpx.Request], httpx.TransportError]) -> Fault:
    async def fault(request: httpx.Request, inner: httpx.AsyncBaseTransport) -> httpx.Response:
        raise error(request)

    return fault


def _cut(after: int, error: Callable[[], httpx.TransportError] | None) -> Fault:
    async def fault(request: httpx.Request, inner: httpx.AsyncBaseTransport) -> httpx.Response:
        response = await inner.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        headers = [(name, value) for name, value in response.headers.items() if name != "content-length"]
        stream = _CutStream(response.stream, after, error)
        return httpx.Response(response.status_code, headers=headers, stream=stream, request=request)

    return fault


class _CutStream(httpx.AsyncByteStream):
    def __init__(
        self, inner: httpx.AsyncByteStream, after: int, error: Callable[[], httpx.TransportError] | None
    ) -> None:
        self._inner, self._left, self._error = inner, after, error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            if len(chunk) >= self._left:
                if self._left:
                    yield chunk[: self._left]
                break
            self._left -= len(chunk)
            yield chunk
        if self._error is not None:
            raise self._error()

    async def aclose(self) -> None:
        await self._inner.aclose()
