"""Recordings: what was said is said again, and no secret is on them."""

from pathlib import Path

import httpx
import pytest

from agentcore import ChatClient, ChatRequest, OpenAIChatModel, ToolCall, UserMessage, tool
from agentcore.testing import CassetteError, record, replay
from tests.support.loopback import Loopback, chunk, completion, json_reply, reply, sse

pytestmark = pytest.mark.asyncio
DONE = b"data: [DONE]\n\n"
HI = ChatRequest([UserMessage("hi")])


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_recorded_turns_replay_without_a_server(tmp_path: Path) -> None:
    file = tmp_path / "turn.json"
    replies = [json_reply(completion("北京 hi sk-secret-key")), sse(chunk("Hel"), chunk("lo", finish="stop") + DONE)]

    async def turns(url: str, http_client: httpx.AsyncClient, key: str) -> list[str]:
        client = ChatClient(
            OpenAIChatModel("m", api_key=key, base_url=f"{url}/v1?key=sk-in-url", http_client=http_client)
        )
        invoked = await client.invoke("hi")
        async with client.stream("again") as turn:
            return [invoked.text, *[piece async for piece in turn.text]]

    async with Loopback(*replies) as server, record(file) as http_client:
        said = await turns(server.url, http_client, "sk-secret-key")
    written = file.read_text()
    assert "sk-secret-key" not in written
    assert "sk-in-url" not in written
    async with replay(file) as http_client:
        replayed = await turns("http://nowhere.invalid", http_client, "none")
    assert [text.replace("sk-secret-key", "[secret]") for text in said] == replayed
    assert replayed[1:] == ["Hel", "lo"]


async def test_other_request_than_the_recorded_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    async with Loopback(json_reply(completion())) as server, record(file) as http_client:
        await OpenAIChatModel("m", base_url=server.url, http_client=http_client).chat(HI)
    async with replay(file) as http_client:
        model = OpenAIChatModel("m", base_url="http://nowhere.invalid", http_client=http_client)
        with pytest.raises(CassetteError, match="request 1 is not the one on record"):
            await model.chat(ChatRequest([UserMessage("other")]))
    async with replay(file) as http_client:
        model = OpenAIChatModel("m", base_url="http://nowhere.invalid", http_client=http_client)
        await model.chat(HI)
        with pytest.raises(CassetteError, match="has 1 exchanges; this is request 2"):
            await model.chat(HI)


async def test_body_that_is_no_text_is_kept_too(tmp_path: Path) -> None:
    file = tmp_path / "binary.json"
    async with Loopback(reply(b"\xff\x00", content_type="application/octet-stream")) as server:
        async with record(file) as http_client:
            assert (await http_client.post(server.url, content=b"x")).content == b"\xff\x00"
    async with replay(file) as http_client:
        assert (await http_client.post("http://nowhere.invalid/", content=b"x")).content == b"\xff\x00"


async def test_failed_recording_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    with pytest.raises(KeyError):
        async with record(file):
            raise KeyError("mine")
    assert not file.exists()
    assert ToolCall("1", "f").id == "1"
