# A conversation longer than the model may see: what was said first is kept in mind by a summary that a model writes.
import asyncio
import logging
import sys

from agentcore import ChatClient, InMemoryChatMemory, SummarizingChatMemory, chat_model, count_tokens

QUESTIONS = (
    "My name is Ada and I have 900 euros for a week in Norway in May. Where should I go?",
    "What does the train from Oslo to Bergen cost, and how long does it take?",
    "I want to see a glacier as well. Which one is easy to reach from there?",
    "Where can I sleep near it for less than 80 euros?",
    "Is there still snow in May? What should I pack?",
    "Who am I, and how much money do I have?",
)


async def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="   (%(message)s)", stream=sys.stdout)
    logging.getLogger("agentcore.memory").setLevel(logging.INFO)  # says when a summary was made
    model = chat_model("openai:gpt-5-mini")
    # A smaller model may write the summaries. The store keeps every message whole; SQLiteChatMemory("chats.db") keeps
    # all of it over a restart.
    memory = SummarizingChatMemory(InMemoryChatMemory(), model, max_tokens=500)
    async with ChatClient(model, memory=memory, system="You plan journeys. Answer in a short paragraph.") as client:
        journey = client.conversation("journey")
        for question in QUESTIONS:
            print(f"> {question}\n{(await journey.send(question)).text}")
        stored, shown = await journey.history(), await memory.get("journey")
        print(f"stored: {len(stored)} messages, {count_tokens(stored)} tokens")
        print(f"shown to the model: {len(shown)} messages, {count_tokens(shown)} tokens; the first of them:")
        print(shown[0].content)


asyncio.run(main())
