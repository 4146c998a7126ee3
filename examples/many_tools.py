# A hundred tools of which the model sees what it looks for; one waits for a person, and the answer is watched.
import asyncio

from agentcore import ChatClient, InMemoryChatMemory, Limits, ProviderError, ToolCall, ToolContext, tool
from agentcore.filters.output_guard import OutputGuard
from agentcore.filters.re_reading import ReReadingFilter
from agentcore.filters.retry import RetryFilter
from agentcore.filters.tool_search import ToolSearchFilter
from agentcore.filters.verdict import Block
from agentcore.providers.retries import RetryPolicy
from agentcore.testing import Reply, ScriptedModel
from agentcore.tools.tool import Tool


def only_small_sums(call: ToolCall, context: ToolContext) -> bool | str:
    return f"{call.args['euros']} euros leave the till" if call.args.get("euros", 0) > 20 else False


@tool(approval=only_small_sums, timeout=10)
async def refund_order(order: str, euros: int, context: ToolContext) -> str:
    """Give a customer the money for an order back."""
    return f"{euros} euros are on their way for {order} (booked once as {context.call_key[-2:]})"


def report_of(number: int) -> Tool:
    async def report() -> str:
        return "nothing new"

    return Tool(report, name=f"report_{number}", description=f"Show the sales report of week {number}.")


def no_promises(text: str) -> Block | None:
    return Block("promises a date") if "tomorrow" in text else None


overloaded = ProviderError("all machines are busy", kind="overloaded", provider="somebody", retryable=True)
model = ScriptedModel(
    [
        overloaded,
        ToolCall("c1", "search_tools", {"query": "give money back for an order"}),
        ToolCall("c2", "refund_order", {"order": "A7", "euros": 40}),
        Reply(text=["30 euros come back to you, ", "and they will be there ", "tomorrow at noon."]),
    ]
)


async def main() -> None:
    client = ChatClient(
        model,
        tools=[refund_order, *(report_of(week) for week in range(1, 100))],
        memory=InMemoryChatMemory(),
        limits=Limits(model_calls=8, tool_calls=8, repeated_calls=3),
        filters=[
            # The memory comes here by itself: all of these belong inside it, or may stand there.
            ToolSearchFilter(),
            ReReadingFilter(),
            OutputGuard(no_promises, every=20),
            RetryFilter(RetryPolicy(initial=0.01)),
        ],
    )
    print(client.describe().splitlines()[0])
    result = await client.invoke("My kettle leaks, I want my 40 euros back.", conversation_id="kim")
    shown = [[one.name for one in request.tools] for request in model.requests]
    print("the model saw", shown[1], "and then", shown[2])
    assert result.pause is not None
    [pending] = result.pause.calls
    print(result.status, "|", pending.call.name, pending.call.args, "|", pending.reason)

    # With a store that lasts, another process may go on, days later. The person has an idea of their own.
    decision = pending.approve({"order": "A7", "euros": 30})
    async with client.resume_stream("kim", decision) as turn:
        print("".join([piece async for piece in turn.text]))
    print(turn.result.status, "|", turn.result.reason)
    for message in await client.conversation("kim").history():
        print(type(message).__name__, "|", message.content)


asyncio.run(main())
