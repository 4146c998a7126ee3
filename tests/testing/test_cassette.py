"""Recordings: what was said is said again, and no secret is on them."""

import asyncio
import json
from base64 import b64encode
from pathlib import Path

import httpx
import pytest

from agentcore import ChatClient, ChatRequest, OpenAIChatModel, ToolCall, UserMessage, tool
from agentcore.testing import CassetteError, record, replay
from tests.support.loopback import Loopback, Reply, chunk, completion, json_reply, reply, sse

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
        with pytest.raises(CassetteError, match="request 1 is not on record"):
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


async def test_requests_made_at_once_replay_whoever_is_first(tmp_path: Path) -> None:
    file = tmp_path / "both.json"
    gate = asyncio.Event()
    slow: Reply = [gate, *json_reply(completion("slow"))]
    requests = [ChatRequest([UserMessage(text)]) for text in ("one", "two")]
    async with Loopback(slow, json_reply(completion("quick"))) as server, record(file) as http_client:
        model = OpenAIChatModel("m", base_url=server.url, http_client=http_client)
        first = asyncio.ensure_future(model.chat(requests[0]))
        await server.arrived.wait()
        assert (await model.chat(requests[1])).text == "quick"
        gate.set()
        assert (await first).text == "slow"
    for order in ((0, 1), (1, 0)):
        async with replay(file) as http_client:
            model = OpenAIChatModel("m", base_url="http://nowhere.invalid", http_client=http_client)
            said = {index: (await model.chat(requests[index])).text for index in order}
        assert said == {0: "slow", 1: "quick"}


async def test_key_is_hidden_wherever_it_stands_and_a_short_one_tears_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = "sk-long-secret"
    body = json.dumps(completion(f"quick {key}")).encode()
    border = body.index(key.encode()) + 4
    cut: Reply = [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        b"%x\r\n%s\r\n" % (border, body[:border]),
        b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - border, body[border:]),
    ]
    binary = reply(b"\xff" + key.encode(), content_type="application/octet-stream")
    headers = {"authorization": f"Bearer {key}"}
    asked = ChatRequest([UserMessage(f"my key is {key}")])
    async with Loopback(cut, binary, json_reply(completion("quick k"))) as server, record(file) as http_client:
        await OpenAIChatModel("m", api_key=key, base_url=server.url, http_client=http_client).chat(asked)
        await http_client.post(server.url, content=b"x", headers=headers)
        await OpenAIChatModel("m", api_key="k", base_url=server.url, http_client=http_client).chat(HI)
    written = file.read_text()
    assert key not in written
    assert b64encode(key.encode()).decode()[:8] not in written
    assert "quick k" in written
    async with replay(file) as http_client:
        model = OpenAIChatModel("m", api_key=key, base_url="http://nowhere.invalid", http_client=http_client)
        assert (await model.chat(asked)).text == "quick [secret]"


async def test_failed_recording_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    with pytest.raises(KeyError):
        async with record(file):
            raise KeyError("mine")
    assert not file.exists()
    assert ToolCall("1", "f").id == "1"
