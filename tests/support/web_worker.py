"""A web app in a process of its own, for tests that end it: python -m tests.support.web_worker DATABASE GRACE PIECES.

The model says `PIECES` pieces, and waits before each but the first until a line comes on stdin.
"""

import asyncio
import sys
import threading

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from agentcore import ChatClient, SQLiteChatMemory
from agentcore.testing import Reply, ScriptedModel
from agentcore.web import allow_everyone, chat_routes


class Announced(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup(None)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


async def serve(database: str, grace: str, pieces: str) -> None:
    lines, loop = asyncio.Semaphore(0), asyncio.get_running_loop()

    def read() -> None:
        for _ in sys.stdin:
            loop.call_soon_threadsafe(lines.release)

    threading.Thread(target=read, daemon=True).start()
    reply = Reply(text=[f"{number} " for number in range(int(pieces))], wait_between=lines.acquire)
    client = ChatClient(ScriptedModel([reply], repeat_last=True), memory=SQLiteChatMemory(database))
    chat = chat_routes(client, authorize=allow_everyone, grace=float(grace))
    app = Starlette(routes=[Mount("/chat", chat)], lifespan=chat.lifespan)
    await Announced(uvicorn.Config(app, port=0, log_level="warning")).serve()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
