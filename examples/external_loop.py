# The loop in your own hands: one model call at a time, the tools when you say so, the same memory as invoke.
import asyncio

from agentcore import ChatClient, InMemoryChatMemory, chat_model, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    async with ChatClient(chat_model("openai:gpt-5-mini"), tools=[add], memory=InMemoryChatMemory()) as client:
        response = await client.invoke_chat("What is 17 + 25?", conversation_id="me")
        for _ in range(5):  # a bound of your own
            if not response.message.tool_calls:
                break
            for call in response.message.tool_calls:
                print(f"the model wants {call.name}({call.args})")
            batch = await client.run_tools(response)
            response = await client.invoke_chat(batch.messages, conversation_id="me")
        print(response.text)
        print([message.__struct_config__.tag for message in await client.conversation("me").history()])


asyncio.run(main())
