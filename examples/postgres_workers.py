# One app, several worker processes, one PostgreSQL: whichever worker a request comes to knows every conversation.
"""Start it with two workers on one port:

    DATABASE_URL=postgresql://user:password@host/database OPENAI_API_KEY=… python examples/postgres_workers.py
    curl localhost:8000/chat/conversations/tea/turns --json '{"message": "Tell me about tea"}' \
        -H 'accept: text/event-stream' --no-buffer
    curl localhost:8000/chat/conversations/tea/cancel -X POST          # from another terminal, while it talks
    curl localhost:8000/health                                         # says which worker answers
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from agentcore import ChatClient, PostgresChatMemory, tool
from agentcore.web import allow_everyone, chat_routes


@tool(approval=True)
async def brew(tea: str) -> str:
    """Brew a pot of tea."""
    return f"a pot of {tea}, brewed by process {os.getpid()}"


# A turn that a worker took with it when it died keeps its conversation for lease_seconds.
memory = PostgresChatMemory(os.environ["DATABASE_URL"], pool_size=5, lease_seconds=10)
client = ChatClient("openai:gpt-5-mini", tools=[brew], memory=memory)
chat = chat_routes(client, authorize=allow_everyone, grace=20)  # behind a login of your own; see fastapi_app.py


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncGenerator[None]:
    async with memory, chat.lifespan(app):
        yield


async def health(request: Request) -> Response:
    return JSONResponse({"worker": os.getpid()})


app = Starlette(routes=[Route("/health", health), Mount("/chat", chat)], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run("postgres_workers:app", port=int(os.environ.get("PORT", "8000")), workers=2)
