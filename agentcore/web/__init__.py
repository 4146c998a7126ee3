"""Routes for Starlette and FastAPI apps; needs the extra `web`."""

from agentcore.web.authorize import Authorizer, allow_everyone
from agentcore.web.openai_endpoint import openai_routes
from agentcore.web.page import PageRoutes, page_routes
from agentcore.web.routes import ChatRoutes, chat_routes
from agentcore.web.runs import Behind, Run, RunEvent, Runs, ShuttingDownError
from agentcore.web.vercel import vercel_routes

__all__ = [
    "Authorizer",
    "Behind",
    "ChatRoutes",
    "PageRoutes",
    "Run",
    "RunEvent",
    "Runs",
    "ShuttingDownError",
    "allow_everyone",
    "chat_routes",
    "openai_routes",
    "page_routes",
    "vercel_routes",
]
