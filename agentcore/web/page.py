"""page_routes: a chat page over the chat routes, as an ASGI app to mount or to serve alone."""

import html
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from string import Template

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcore.web.answers import Refusal
from agentcore.web.routes import ChatRoutes

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
"""The page loads nothing from elsewhere, runs no script that stands in the page, makes no markup of a text (browsers
that know trusted types refuse it), and is framed by nobody."""

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

# Said here and not by `mimetypes`, which believes the machine's registry: a browser runs no script of another type.
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class PageRoutes:
    """An ASGI app with the page at `/`, its files below `/static`, and the chat routes below `/api`."""

    def __init__(self, chat: ChatRoutes, *, title: str, conversation_prefix: str | Callable[[Request], str]) -> None:
        self.chat = chat
        self._title = title
        self._prefix = conversation_prefix
        folder = files("agentcore.web") / "static"
        self._page = Template((folder / "page.html").read_text("utf-8"))
        self._files = {
            file.name: (file.read_bytes(), _TYPES[suffix])
            for file in folder.iterdir()
            if (suffix := f".{file.name.rpartition('.')[2]}") in _TYPES
        }
        routes = [
            Route("/", self._show),
            Route("/static/{name}", chat.endpoint(self._file)),
            Mount("/api", chat),
        ]
        self._app: ASGIApp = _with_headers(Router(routes, lifespan=chat.lifespan))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI 3)."""
        await self._app(scope, receive, send)

    async def _show(self, request: Request) -> Response:
        prefix = self._prefix if isinstance(self._prefix, str) else self._prefix(request)
        page = self._page.substitute(title=html.escape(self._title), prefix=html.escape(prefix))
        return Response(page, headers={"cache-control": "no-store"}, media_type="text/html")

    async def _file(self, request: Request) -> Response:
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise Refusal(404, "not_found", "there is no such file")
        content, media_type = found
        headers = {"cache-control": "no-cache", "etag": f'"{sha256(content).hexdigest()[:32]}"'}
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)


def _with_headers(app: ASGIApp) -> ASGIApp:
    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await app(scope, receive, send_with_headers if scope["type"] == "http" else send)

    return answered


def page_routes(
    chat: ChatRoutes,
    *,
    title: str = "agentcore",
    conversation_prefix: str | Callable[[Request], str] = "",
) -> PageRoutes:
    """A chat page over chat routes: an ASGI app to mount in Starlette or FastAPI, or to serve alone.

        chat = chat_routes(client, authorize=who)
        app = Starlette(routes=[Mount("/assistant", page_routes(chat))], lifespan=chat.lifespan)

    The page is at the root, and brings the chat routes along below `api/`; the same `chat` may be mounted elsewhere
    too. It needs no other address: it loads nothing from elsewhere, and its Content-Security-Policy says so.

    Args:
        chat: the routes that the page talks to; its authoriser decides, so whoever may open the page sees only what
            is theirs.
        title: of the page.
        conversation_prefix: of the ids that the page gives to new conversations, and of those that it lists: what the
            authoriser knows a user's conversations by (`"kim:"`), or a function of the request that tells it.
    """
    return PageRoutes(chat, title=title, conversation_prefix=conversation_prefix)
