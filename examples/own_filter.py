# A filter of your own: how long each model call and each tool took, without touching either.
import asyncio
import time

from agentcore import (
    ChatClient,
    ChatRequest,
    ChatResponse,
    Filter,
    ToolMessage,
    ToolRequest,
    chat_model,
    tool,
)
from agentcore.filters.base import ChatCall, ToolRun


class Timing(Filter):
    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        start = time.perf_counter()
        response = await call_next(request)
        print(f"model call: {time.perf_counter() - start:.3f} s, {response.usage.output_tokens} tokens")
        return response

    async def around_tool(self, request: ToolRequest, call_next: ToolRun) -> ToolMessage:
        start = time.perf_counter()
        message = await call_next(request)
        print(f"tool {request.call.name}: {time.perf_counter() - start:.3f} s")
        return message


@tool
def word_count(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


async def main() -> None:
    async with ChatClient(chat_model("openai:gpt-5-mini"), tools=[word_count], filters=[Timing()]) as client:
        print(client.describe())
        print((await client.invoke("How many words are in 'to be or not to be'?")).text)


asyncio.run(main())
