# A Telegram bot in thirty lines: many users at once, one conversation for each, kept over a restart.
"""Get a token from @BotFather, and start it: TELEGRAM_TOKEN=… OPENAI_API_KEY=… python examples/bot.py"""

import asyncio
import os
from typing import Any

import httpx

from agentcore import AgentCoreError, ChatClient, SQLiteChatMemory

API = f"{os.environ.get('TELEGRAM_API', 'https://api.telegram.org')}/bot{os.environ['TELEGRAM_TOKEN']}/"


async def ask(http: httpx.AsyncClient, method: str, **arguments: Any) -> Any:
    """What a method of the Bot API answers, or None; told of without the address, which has the token in it."""
    try:
        return (await http.post(method, json=arguments)).json()["result"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        print(f"{method}: {type(error).__name__}")


async def reply(client: ChatClient, http: httpx.AsyncClient, chat: int, user: int, text: str) -> None:
    conversation = client.conversation(f"telegram:{chat}:{user}")
    try:
        answer = (await conversation.send(text)).text
    except AgentCoreError as error:  # of the model or the store: the others' conversations go on
        print(f"{conversation.id}: {error}")
        answer = "I cannot think just now. Please ask me again in a minute."
    await ask(http, "sendMessage", chat_id=chat, text=answer[:4096] or "…")


async def main() -> None:
    memory = SQLiteChatMemory(os.environ.get("DATABASE", "bot.db"))
    client = ChatClient("openai:gpt-5-mini", memory=memory, system="You are a friendly bot. Answer in plain text.")
    async with memory, client, httpx.AsyncClient(base_url=API, timeout=60) as http, asyncio.TaskGroup() as replies:
        offset = 0
        while True:
            updates = await ask(http, "getUpdates", offset=offset, timeout=50)
            await asyncio.sleep(1 if updates is None else 0)
            for update in updates or ():
                offset = update["update_id"] + 1  # what is before it will not come again
                said = update.get("message", {})
                if "text" in said:
                    replies.create_task(reply(client, http, said["chat"]["id"], said["from"]["id"], said["text"]))


asyncio.run(main())
