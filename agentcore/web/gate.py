"""Gate: who may talk to a server on somebody's own machine, where every web page in their browser can reach it."""

from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})


class Gate:
    """ASGI middleware: refuses what comes from other sites, under other names, or without the token.

    * A name in `Host` that is not expected is refused: a page of another site whose name was made to point at this
      machine (DNS rebinding) would else count as ours.
    * What another site's page sends is refused, by `Origin` and `Sec-Fetch-Site`. Following a link to here is not.
    * With a token every request has to bring it: as `Authorization: Bearer`, or as the cookie that `/?token=…` sets.

    Args:
        app: what is behind the gate.
        names: host names that are expected; None expects any, which is safe only with a token (the browser sends
            the cookie to the name it was set for).
        token: what lets people in; None lets everybody in.
    """

    def __init__(self, app: ASGIApp, *, names: frozenset[str] | None = LOCAL_NAMES, token: str | None = None) -> None:
        if names is None and token is None:
            raise ValueError("a gate that expects any host name needs a token")
        self._app = app
        self._names = names
        self._token = token
        if token is not None:
            # Cookies do not know ports: another server on this host, with another token, must not lose its own.
            mark = sha256(f"agentcore cookie {token}".encode()).hexdigest()
            self._cookie, self._cookie_value = f"agentcore-{mark[:12]}", mark[12:]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI 3)."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            raise ValueError(f"nothing here speaks {scope['type']}")
        request = Request(scope, receive)
        refused = self._refused(request)
        return await (self._app if refused is None else refused)(scope, receive, send)

    def _refused(self, request: Request) -> Response | None:
        host = _split(request.headers.get("host", ""))
        if host is None or (self._names is not None and host[0] not in self._names):
            return _said(421, "this server is not known by that name; open the address that it printed")
        if not _is_from_here(request, host):
            return _said(403, "another site's page may not ask this server")
        if self._token is None:
            return None
        return self._without_token(request, self._token)

    def _without_token(self, request: Request, token: str) -> Response | None:
        given = request.query_params.get("token")
        if given is not None and request.url.path == "/" and request.method == "GET" and _same(given, token):
            # Out of the address at once: it is shown, kept in the history, and copied.
            response = RedirectResponse("/", 303, {"referrer-policy": "no-referrer", "cache-control": "no-store"})
            response.set_cookie(
                self._cookie,
                self._cookie_value,
                max_age=30 * 24 * 3600,
                httponly=True,
                samesite="lax",
                secure=request.url.scheme == "https",
            )
            return response
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), token):
            return None
        if _same(request.cookies.get(self._cookie, ""), self._cookie_value):
            return None
        return _said(401, "open the address with the token that the server printed", {"www-authenticate": "Bearer"})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_from_here(request: Request, host: tuple[str, int | None]) -> bool:
    origin = request.headers.get("origin")
    if origin is not None:
        scheme, _, rest = origin.partition("://")
        if scheme not in ("http", "https") or _split(rest) != host:  # "null" is a page without an origin
            return False
    site = request.headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none"):
        return True
    # A link that somebody followed shows a page, and does nothing.
    return request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"


def _split(authority: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(f"//{authority}")
        if parts.hostname is None or parts.netloc != authority or parts.username is not None:
            return None
        return parts.hostname, parts.port
    except ValueError:
        return None


def _same(given: str, expected: str) -> bool:
    return compare_digest(given.encode(), expected.encode())


def _said(status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(words + "\n", status, {"cache-control": "no-store", **(headers or {})})
