"""Routes for Starlette and FastAPI apps; needs the extra `web`."""

from agentcore.web.authorize import Authorizer, allow_everyone
from agentcore.web.routes import ChatRoutes, chat_routes
from agentcore.web.runs import Behind, Run, RunEvent, Runs, ShuttingDownError

__all__ = [
    "Authorizer",
    "Behind",
    "ChatRoutes",
    "Run",
    "RunEvent",
    "Runs",
    "ShuttingDownError",
    "allow_everyone",
    "chat_routes",
]
