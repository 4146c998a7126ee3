"""The example of a process, with a model behind HTTP and with a person who says no."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback import Loopback, Reply, chunk, json_reply, sse

pytestmark = pytest.mark.asyncio

EXAMPLE = Path(__file__).parents[2] / "examples" / "publishing_process.py"


def says(text: str) -> Reply:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    return json_reply(
        {"id": "r1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    )


async def run_example(*arguments: str, base_url: str = "") -> str:
    environment = {**os.environ, "OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": base_url}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLE),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, errors.decode()) == (0, "")
    return output.decode()


async def test_any_model_string_can_be_given() -> None:
    replies = [
        sse(chunk("A "), chunk("draft.", finish="stop") + b"data: [DONE]\n\n"),
        says("A remark."),
        says("A better text."),
    ]
    async with Loopback(*replies) as server:
        output = await run_example("--model", "openai:m", "--reviewers", "style", base_url=f"{server.url}/v1")
        asked = [json.loads(request.body)["messages"][-1]["content"] for request in server.requests]
    assert "A draft." in output
    assert "completed: PUBLISHED: A better text." in output
    assert asked == [
        "Write two sentences about fjords.",
        "Review this for its style, in one sentence: A draft.",
        "Rewrite the text.\nText: A draft.\nRemarks:\n- A remark.",
    ]


async def test_person_may_say_no() -> None:
    assert "completed: dropped" in await run_example("--reject")


async def test_there_may_be_no_reviewers() -> None:
    assert "(0 remarks)" in await run_example("--reviewers")
