"""A process with a real model inside: reviews at once, tokens in the stream, a pause, another process that goes on."""

from pathlib import Path

import pytest

from agentcore import ChatClient, ChatOptions, OpenAIChatModel, TextDelta
from agentcore.memory.sqlite import SQLiteChatMemory
from agentcore.process import Process, ProcessBuilder, StepContext, StepEvent, StepResult, each

pytestmark = [pytest.mark.real, pytest.mark.asyncio, pytest.mark.timeout(400)]

REVIEWERS = ["style", "facts", "length"]


def publishing(client: ChatClient) -> Process:
    flow = ProcessBuilder(
        "publishing",
        inputs={"topic": str, "reviewers": list[str]},
        slots={"reviewed": list[str]},
        reducers={"reviewed": lambda old, new: (old or []) + new},
    )
    flow.outside("approved", bool)

    @flow.step
    async def draft(topic: str, context: StepContext) -> str:
        return (await context.forward(client.stream(f"Write about {topic}."))).text

    @flow.step(inputs={"reviewer": each("reviewers")})
    async def review(draft: str, reviewer: str) -> StepResult[str]:
        text = (await client.invoke(f"Review the {reviewer} of: {draft}")).text
        return StepResult(text, writes={"reviewed": [reviewer]})

    @flow.step
    async def publish(draft: str, review: list[str], approved: bool) -> tuple[str, list[str]]:
        return draft, review

    return flow.build(publish)


async def test_process_with_a_real_model_pauses_and_goes_on_over_a_durable_store(server: str, tmp_path: Path) -> None:
    model = OpenAIChatModel("smollm2-135m", base_url=f"{server}/v1", api_key=None)
    async with ChatClient(model, options=ChatOptions(max_tokens=16)) as client:
        async with SQLiteChatMemory(tmp_path / "runs.db") as store:
            async with publishing(client).stream(
                {"topic": "a fjord", "reviewers": REVIEWERS}, store=store, run_id="r1"
            ) as run:
                pieces = [
                    event.event.text
                    async for event in run
                    if isinstance(event, StepEvent) and isinstance(event.event, TextDelta)
                ]
        assert run.result.status == "paused"
        assert run.result.context["reviewed"] == REVIEWERS
        async with SQLiteChatMemory(tmp_path / "runs.db") as again:
            done = await publishing(client).resume("r1", {"approved": True}, store=again)
    text, reviews = done.value
    assert len(pieces) > 1
    assert "".join(pieces) == text
    assert len(reviews) == len(REVIEWERS)
    assert all(reviews)
