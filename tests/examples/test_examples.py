"""Every example runs, against a server that plays a model."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.support.completions import calls, says, streams_call, streams_text
from tests.support.loopback import HANG, Loopback, Reply, chunk, json_reply, sse

pytestmark = pytest.mark.asyncio

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SERVERS = {"bot", "fastapi_app", "postgres_workers", "starlette_app"}
"""Those that run until they are stopped: test_web_examples runs them."""

PLAYS: dict[str, tuple[list[Reply], list[str]]] = {
    "filters_tour": (
        [],
        [
            "MemoryFilter: turn, chat\nRetrievalFilter: chat",
            "Two years. Ask [redacted].\n['handbook', 'handbook']\n2 messages stored",
            "Two years. Ask [redacted]. | 0 tokens, 1 model call(s) so far",
            "Ticket(product='kettle', urgent=False, summary='')\n",
            "Ticket(product='kettle', urgent=True, summary='It leaks.')\n",
            "True 2 model calls in this turn",
            "blocked | that looks like a card number",
            "blocked | too many turns; the next one can begin in",
            "tokens: {'kim': 150}",
            "[log] turn completed in",
        ],
    ),
    "long_conversation": (
        [
            *[json_reply(says(f"Answer {n}. " + "Take the train and see the fjord. " * 12)) for n in range(1, 5)],
            json_reply(says("Ada has 900 euros for a week in Norway in May.")),
            json_reply(says("You are Ada.")),
        ],
        [
            "> My name is Ada",
            "(conversation 'journey': summed up to message ",
            "You are Ada.",
            "stored: 12 messages",
            "shown to the model: ",
            "Ada has 900 euros for a week in Norway in May.\n[End of the notes.",
        ],
    ),
    "many_tools": (
        [],
        [
            "the model saw ['search_tools'] and then ['search_tools', 'refund_order']",
            "paused | refund_order {'order': 'A7', 'euros': 40} | 40 euros leave the till",
            "30 euros come back to you, and they will be there [withheld]\nblocked | promises a date",
            '(A person had it run with other arguments: {"order":"A7","euros":30})',
            "booked once as c2",
        ],
    ),
    "quickstart": (
        [
            json_reply(calls("get_weather", {"city": "Oslo"})),
            json_reply(says("Sunny.")),
            json_reply(says("The weather.")),
        ],
        ["> What is the weather in Oslo?\nSunny.", "The weather.", "1 model call(s)"],
    ),
    "streaming": (
        [streams_call("look_up", {"word": "fjord"}), streams_text("An ", "inlet.")] * 2,
        ["[look_up {'word': 'fjord'}]", "An inlet.", "completed", "cancelled", "interrupted"],
    ),
    "external_loop": (
        [json_reply(calls("add", {"a": 17, "b": 25})), json_reply(says("42"))],
        ["the model wants add({'a': 17, 'b': 25})", "42", "['user', 'assistant', 'tool', 'assistant']"],
    ),
    "own_filter": (
        [json_reply(calls("word_count", {"text": "to be or not to be"})), json_reply(says("Six."))],
        ["Timing: chat, tool", "tool word_count", "model call", "Six."],
    ),
    "publishing_process": (
        [],
        [
            "flowchart TD",
            "[review 2] The length",
            "paused, 3 supersteps",
            "completed: PUBLISHED: A fjord",
            "(3 remarks)",
        ],
    ),
}


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.stem not in SERVERS], ids=lambda path: path.stem)
async def test_example_runs(example: Path) -> None:
    replies, words = PLAYS[example.stem]
    if example.stem == "streaming":
        replies = [*replies[:2], sse(chunk("More "), HANG)]
    async with Loopback(*replies) as server:
        environment = {**os.environ, "OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": f"{server.url}/v1"}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(example),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, errors.decode()
    assert errors == b""
    for word in words:
        assert word in output.decode()


async def test_every_example_begins_with_what_it_shows() -> None:
    assert {path.stem for path in EXAMPLES} == set(PLAYS) | SERVERS
    for path in EXAMPLES:
        assert path.read_text().startswith("# ")
