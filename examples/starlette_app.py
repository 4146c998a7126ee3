# A web app with Starlette: visitors without an account, each with a conversation of their own; orders wait for a yes.
"""Start it, and be a visitor:

    OPENAI_API_KEY=… uvicorn --app-dir examples starlette_app:app
    curl localhost:8000/ -c cookies                       # tells where your conversation is
    curl localhost:8000/chat/conversations/…/turns -b cookies --json '{"message": "A kettle, please"}'
    curl localhost:8000/chat/conversations/…/resume -b cookies --json '{"decisions": [{
        "call_id": "…", "digest": "…", "action": "approve"}]}'     # of pause.calls in the answer before

With `-H 'accept: text/event-stream' --no-buffer` the turn is read as it goes.
"""

from collections.abc import Mapping
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from agentcore import ChatClient, InMemoryChatMemory, Limits, ToolContext, tool
from agentcore.web import chat_routes


@tool(approval=True)
async def order(what: str, context: ToolContext) -> str:
    """Order something from the shop."""
    number = sha256(context.call_key.encode()).hexdigest()[:8]  # the same at every attempt: nothing is ordered twice
    return f"{what}: ordered, number {number}"


def visitor_of(secret: str) -> str:
    """The name of a visitor, which may be seen, of the cookie, which may not."""
    return sha256(secret.encode()).hexdigest()[:32]


async def own_conversation(request: Request, conversation_id: str) -> Mapping[str, Any] | None:
    secret = request.cookies.get("visitor")
    if secret is None:
        raise HTTPException(401, "fetch / first: it gives you a cookie")
    visitor = visitor_of(secret)
    return {"visitor": visitor} if conversation_id == visitor else None


async def welcome(request: Request) -> Response:
    secret = request.cookies.get("visitor") or token_urlsafe()
    response = JSONResponse({"conversation": f"/chat/conversations/{visitor_of(secret)}"})
    response.set_cookie("visitor", secret, httponly=True, samesite="lax", secure=request.url.scheme == "https")
    return response


client = ChatClient(
    "openai:gpt-5-mini",
    tools=[order],
    memory=InMemoryChatMemory(),
    system="You sell kettles.",
    limits=Limits(model_calls=8, seconds=60),
)
chat = chat_routes(client, authorize=own_conversation, on_disconnect="cancel")
app = Starlette(routes=[Route("/", welcome), Mount("/chat", chat)], lifespan=chat.lifespan)
