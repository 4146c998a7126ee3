# A process: a draft, as many reviews at once as there are reviewers, a merge, a person's approval, publication.
# python examples/publishing_process.py [--model openai:gpt-5-mini] [--topic fjords] [--reviewers style] [--reject]
import argparse
import asyncio

from agentcore import ChatClient, ChatModel, ChatRequest, InMemoryChatMemory, TextDelta, chat_model
from agentcore.process import Process, ProcessBuilder, StepContext, StepEvent, StepFinished, each
from agentcore.testing import ScriptedModel


def publishing(client: ChatClient) -> Process:
    flow = ProcessBuilder("publishing", inputs={"topic": str, "reviewers": list[str]})
    flow.outside("approved", bool)  # comes from a person: the process pauses until it is there

    @flow.step
    async def draft(topic: str, context: StepContext) -> str:
        turn = client.stream(f"Write two sentences about {topic}.")
        return (await context.forward(turn)).text  # its tokens go to whoever reads the process's stream

    @flow.step(inputs={"reviewer": each("reviewers")})  # one instance for each reviewer, all at once
    async def review(draft: str, reviewer: str) -> str:
        return (await client.invoke(f"Review this for its {reviewer}, in one sentence: {draft}")).text

    @flow.step
    async def merge(draft: str, review: list[str]) -> str:  # all reviews, in the order of the reviewers
        remarks = "\n".join(f"- {one}" for one in review)
        return (await client.invoke(f"Rewrite the text.\nText: {draft}\nRemarks:\n{remarks}")).text

    @flow.step
    def publish(merge: str, approved: bool) -> str:
        return f"PUBLISHED: {merge}" if approved else "dropped"

    return flow.build(result=publish)


def scripted() -> ChatModel:
    """A model that needs no service: it answers by what it is asked for."""

    def answer(request: ChatRequest) -> str:
        asked = str(request.messages[-1].content)
        if asked.startswith("Write"):
            return "A fjord is a long, narrow inlet. Glaciers carved it."
        if asked.startswith("Review"):
            what = asked.removeprefix("Review this for its ").partition(",")[0]
            return f"The {what} could be better."
        return f"A fjord is an inlet that glaciers carved ({asked.count('- ')} remarks)."

    return ScriptedModel([answer], repeat_last=True)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="a model string, such as openai:gpt-5-mini; a scripted one without it")
    parser.add_argument("--topic", default="fjords")
    parser.add_argument("--reviewers", nargs="*", default=["style", "facts", "length"])
    parser.add_argument("--reject", action="store_true")
    arguments = parser.parse_args()

    store = InMemoryChatMemory()  # any store: with a durable one the approval may come next week, in another process
    async with ChatClient(chat_model(arguments.model) if arguments.model else scripted()) as client:
        process = publishing(client)
        print(process.mermaid())
        inputs = {"topic": arguments.topic, "reviewers": arguments.reviewers}
        async with process.stream(inputs, store=store, run_id="fjords-1") as run:
            async for event in run:
                if isinstance(event, StepEvent) and isinstance(event.event, TextDelta):
                    print(event.event.text, end="", flush=True)
                elif isinstance(event, StepFinished):
                    print(f"\n[{event.step} {event.index}] {event.value}")
        print(f"{run.result.status}, {run.result.supersteps} supersteps")

        (waiting,) = run.result.waiting
        print(f"May this be published? {waiting.inputs['merge']}")
        done = await publishing(client).resume("fjords-1", {"approved": not arguments.reject}, store=store)
        print(f"{done.status}: {done.value}")


asyncio.run(main())
