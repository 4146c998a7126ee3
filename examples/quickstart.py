# A bot in thirty lines: one tool, a memory, two turns of one conversation.
import asyncio

from agentcore import ChatClient, InMemoryChatMemory, chat_model, tool


@tool
async def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"sunny and 22 °C in {city}"


async def main() -> None:
    model = chat_model("openai:gpt-5-mini")
    async with ChatClient(model, tools=[get_weather], memory=InMemoryChatMemory(), system="Be brief.") as client:
        for text in ("What is the weather in Oslo?", "And what did I ask before?"):
            result = await client.invoke(text, conversation_id="me")
            print(f"> {text}\n{result.text}")
        print(f"{result.model_calls} model call(s) in the last turn, {result.usage.output_tokens} tokens")


asyncio.run(main())
