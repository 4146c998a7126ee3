# Text as it comes, tools as they run, and a stop that keeps what was delivered.
import asyncio

from agentcore import ChatClient, InMemoryChatMemory, TextDelta, ToolFinished, ToolStarted, chat_model, tool


@tool(timeout=5)
async def look_up(word: str) -> str:
    """Look a word up in the dictionary."""
    return f"{word}: a long, narrow inlet of the sea"


async def main() -> None:
    async with ChatClient(chat_model("openai:gpt-5-mini"), tools=[look_up], memory=InMemoryChatMemory()) as client:
        async with client.stream("What is a fjord?", conversation_id="me") as turn:
            async for event in turn:
                if isinstance(event, TextDelta):
                    print(event.text, end="", flush=True)
                elif isinstance(event, ToolStarted):
                    print(f"[{event.call.name} {event.call.args}]")
                elif isinstance(event, ToolFinished):
                    print(f"[→ {event.message.content}]")
        print(f"\n{turn.result.status}")

        async with client.stream("Tell me more.", conversation_id="me") as turn:
            async for piece in turn.text:
                print(piece)
                break  # leaving stops the turn
        print(f"{turn.result.status}: {(await client.conversation('me').history())[-1]}")


asyncio.run(main())
