"""A tiny model is made to answer once a tool has run."""

import pytest

from agentcore.cli.answer_after_tools import AnswerAfterTools
from agentcore.cli.sample_tools import roll_dice
from agentcore.client import ChatClient
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.messages import ToolCall
from agentcore.testing import ScriptedModel


@pytest.mark.asyncio
async def test_tools_are_offered_to_the_user_and_not_after_their_results() -> None:
    model = ScriptedModel([ToolCall("c1", "roll_dice", {}), "four", "bye"])
    client = ChatClient(model, tools=[roll_dice], filters=[AnswerAfterTools()], memory=InMemoryChatMemory())
    for text in ("roll", "thanks"):
        await client.invoke(text, conversation_id="c")
    assert [[tool.name for tool in request.tools] for request in model.requests] == [["roll_dice"], [], ["roll_dice"]]
