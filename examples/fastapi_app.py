# A web app with FastAPI: client and user by Depends, and conversations that belong to their user.
"""Start it, and talk to it:

OPENAI_API_KEY=… uvicorn --app-dir examples fastapi_app:app
curl localhost:8000/ask -H 'authorization: Bearer kim-secret' --json '{"text": "What is on my list?"}'
curl localhost:8000/say -H 'authorization: Bearer kim-secret' --json '{"text": "Which first?"}' --no-buffer
curl localhost:8000/chat/conversations/kim:main -H 'authorization: Bearer kim-secret'
"""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse

from agentcore import AgentCoreError, ChatClient, SQLiteChatMemory, ToolContext, tool
from agentcore.web import chat_routes
from agentcore.web.answers import as_refusal, refusal_response

TOKENS = {"kim-secret": "kim", "ada-secret": "ada"}  # your sessions, or the subject of a signed token
NOTES = {"kim": ["buy bread", "call Oslo"], "ada": ["water the roses"]}


@tool
async def list_notes(context: ToolContext) -> list[str]:
    """List the user's notes."""
    return NOTES[context["user_id"]]


memory = SQLiteChatMemory(os.environ.get("DATABASE", "chats.db"))
client = ChatClient("openai:gpt-5-mini", tools=[list_notes], memory=memory, system="You keep the user's notes.")


def current_user(request: Request) -> str:
    user = TOKENS.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    if user is None:
        raise HTTPException(401, "no such token", {"www-authenticate": "Bearer"})
    return user


async def own_conversations(request: Request, conversation_id: str) -> Mapping[str, Any] | None:
    user = current_user(request)
    return {"user_id": user} if conversation_id.startswith(f"{user}:") else None  # no user has a colon in the name


chat = chat_routes(client, authorize=own_conversations)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with memory, chat.lifespan(app):  # the memory is closed last: turns that end still write to it
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/chat", chat)
Text = Annotated[str, Body(embed=True)]
User = Annotated[str, Depends(current_user)]
Client = Annotated[ChatClient, Depends(lambda: client)]


@app.post("/ask")
async def ask(text: Text, user: User, client: Client) -> dict[str, str]:
    result = await client.invoke(text, conversation_id=f"{user}:main", tool_context={"user_id": user})
    return {"text": result.text, "status": result.status}


@app.post("/say")
async def say(text: Text, user: User, client: Client) -> StreamingResponse:
    async def pieces() -> AsyncIterator[str]:
        async with client.stream(text, conversation_id=f"{user}:main", tool_context={"user_id": user}) as turn:
            async for piece in turn.text:
                yield piece

    # Who leaves stops the turn. An error cuts the text off: the events of /chat would tell of it.
    return StreamingResponse(pieces(), media_type="text/plain")


@app.exception_handler(AgentCoreError)
async def failed(request: Request, error: AgentCoreError) -> Response:
    return refusal_response(as_refusal(error, details=False))
