"""The OpenAI routes: what the official client and an unrelated one make of them, and the odd cases."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request

from agentcore import (
    AssistantMessage,
    ChatClient,
    Filter,
    InMemoryChatMemory,
    Limits,
    ProviderError,
    RateLimitFilter,
    SystemMessage,
    ToolCall,
    ToolContext,
    ToolMessage,
    Usage,
    UserMessage,
    agent_tool,
    tool,
)
from agentcore.messages import FilePart, ImagePart, TextPart
from agentcore.testing import Reply, ScriptedModel
from agentcore.web import ChatRoutes, allow_everyone, chat_routes
from agentcore.web.openai_endpoint import openai_routes
from tests.support.javascript import JavaScript
from tests.support.web import running_server, serving

pytestmark = pytest.mark.asyncio

HI: Any = [{"role": "user", "content": "hi"}]
WHERE: Any = {
    "type": "function",
    "function": {
        "name": "where",
        "description": "Where the user is.",
        "parameters": {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": ["exact"]},
    },
}
USAGE = Usage(input_tokens=7, output_tokens=2, cached_input_tokens=3, reasoning_tokens=1)
SAID = [TextPart("what is this?"), ImagePart(data=b"hi", media_type="image/png", detail="low")]


@tool
async def look(where: str) -> str:
    """Look somewhere."""
    return f"seen {where}"


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def a_client(*script: Any, **settings: Any) -> ChatClient:
    settings.setdefault("memory", InMemoryChatMemory())
    return ChatClient(ScriptedModel(script), **settings)


def app_of(client: ChatClient, **settings: Any) -> tuple[Starlette, ChatRoutes]:
    settings.setdefault("authorize", allow_everyone)
    chat = chat_routes(client, **settings)
    return Starlette(routes=openai_routes(chat, model_name="helpdesk").routes, lifespan=chat.lifespan), chat


@asynccontextmanager
async def api_on(client: ChatClient, **settings: Any) -> AsyncGenerator[AsyncOpenAI]:
    app, _ = app_of(client, **settings)
    async with serving(app) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-any", max_retries=0) as api:
        yield api


@asynccontextmanager
async def url_of(client: ChatClient, **settings: Any) -> AsyncGenerator[str]:
    app, _ = app_of(client, **settings)
    async with serving(app) as url:
        yield f"{url}/v1"


async def ask(api: AsyncOpenAI, messages: Any = HI, **given: Any) -> ChatCompletion:
    return await api.chat.completions.create(model="helpdesk", messages=messages, **given)


async def streamed(api: AsyncOpenAI, messages: Any = HI, **given: Any) -> list[ChatCompletionChunk]:
    stream = await api.chat.completions.create(model="helpdesk", messages=messages, stream=True, **given)
    async with stream:
        return [chunk async for chunk in stream]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join([one.choices[0].delta.content or "" for one in chunks if one.choices])


# ------------------------------------------------------------------------------------------------ the official client


async def test_completion_is_all_that_the_clients_types_want() -> None:
    async with api_on(a_client(Reply(text="Hello", reasoning="greet", usage=USAGE))) as api:
        completion = await ask(api)
    ChatCompletion.model_validate_json(completion.model_dump_json(), strict=True)
    [choice] = completion.choices
    assert (completion.object, completion.model, choice.finish_reason) == ("chat.completion", "helpdesk", "stop")
    assert (choice.message.role, choice.message.content, choice.message.tool_calls) == ("assistant", "Hello", None)
    assert choice.message.model_extra == {"reasoning_content": "greet"}
    assert completion.id.startswith("chatcmpl-")
    usage = completion.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 2, 9)
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens_details is not None
    assert (usage.prompt_tokens_details.cached_tokens, usage.completion_tokens_details.reasoning_tokens) == (3, 1)


async def test_stream_is_chunks_as_they_come() -> None:
    gate = asyncio.Event()
    reply = Reply(text=["Hel", "lo"], reasoning="greet", wait_between=gate.wait, usage=USAGE)
    async with api_on(a_client(reply)) as api:
        stream = await api.chat.completions.create(
            model="helpdesk", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks: list[ChatCompletionChunk] = []
        async for chunk in stream:
            chunks.append(chunk)
            if chunk.choices and chunk.choices[0].delta.content == "Hel":
                gate.set()  # the rest was not written yet
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(chunk.model_dump_json(), strict=True)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [one.choices[0].delta.content for one in chunks if one.choices][2:4] == ["Hel", "lo"]
    assert (chunks[1].choices[0].delta.model_extra or {}) == {"reasoning_content": "greet"}
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert len({one.id for one in chunks}) == 1
    assert (chunks[-1].choices, chunks[-1].usage and chunks[-1].usage.total_tokens) == ([], 9)


async def test_usage_is_left_out_where_nobody_asked_or_knows() -> None:
    async with api_on(a_client(Reply(text="a", usage=USAGE), "b", "c")) as api:
        assert all(chunk.choices and chunk.usage is None for chunk in await streamed(api))
        unknown = await streamed(api, stream_options={"include_usage": True})
        assert all(chunk.choices for chunk in unknown)
        assert (await ask(api)).usage is None


async def test_sync_client_works_as_well() -> None:
    def talk(url: str) -> list[str]:
        with OpenAI(base_url=url, api_key="sk-any", max_retries=0) as api:
            said = [api.chat.completions.create(model="helpdesk", messages=HI).choices[0].message.content or ""]
            for chunk in api.chat.completions.create(model="helpdesk", messages=HI, stream=True):
                said.extend([chunk.choices[0].delta.content or ""])
            said.extend(model.id for model in api.models.list())
            return said

    async with url_of(a_client("whole", Reply(text=["in ", "pieces"]))) as url:
        said = await asyncio.to_thread(talk, url)
    assert said == ["whole", "", "in ", "pieces", "", "helpdesk"]


async def test_settings_reach_the_model_and_the_history_too() -> None:
    model = ScriptedModel(["ok"])
    history: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "where am I?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "where", "arguments": '{"exact":true}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "Oslo"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "what is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
            ],
        },
    ]
    async with api_on(ChatClient(model, memory=InMemoryChatMemory(), tools=[look])) as api:
        await ask(
            api,
            history,
            tools=[WHERE],
            tool_choice={"type": "function", "function": {"name": "where"}},
            temperature=0,
            top_p=0.5,
            max_completion_tokens=50,
            seed=7,
            stop="END",
            parallel_tool_calls=False,
            reasoning_effort="low",
            frequency_penalty=0.5,
            metadata={"a": "b"},
            user="kim",
        )
    [request] = model.requests
    assert list(request.messages) == [
        SystemMessage("Be brief."),
        UserMessage("where am I?"),
        AssistantMessage(None, (ToolCall("c1", "where", {"exact": True}),)),
        ToolMessage("c1", "where", "Oslo"),
        UserMessage(tuple(SAID)),
    ]
    options = request.options
    assert (options.temperature, options.top_p, options.max_tokens, options.seed) == (0.0, 0.5, 50, 7)
    assert (options.stop, options.tool_choice, options.parallel_tool_calls) == (("END",), "where", False)
    assert (options.reasoning_effort, options.extra, options.metadata) == ("low", {}, None)
    assert [one.name for one in request.tools] == ["look", "where"]
    assert request.tools[1].parameters == WHERE["function"]["parameters"]


async def test_history_with_calls_that_nobody_answered_is_made_whole() -> None:
    model = ScriptedModel(["ok"])
    call = {"id": "c1", "type": "function", "function": {"name": "where", "arguments": "{}"}}
    history: Any = [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}, *HI]
    async with api_on(ChatClient(model, memory=InMemoryChatMemory())) as api:
        await ask(api, history)
    assert [type(one) for one in model.requests[0].messages] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        UserMessage,
    ]


async def test_nothing_is_remembered() -> None:
    client = a_client("a", "b")
    async with api_on(client) as api:
        await ask(api, user="kim")
        await ask(api, user="kim")
    memory: Any = client.memory
    assert list((await memory.list_conversations()).conversations) == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_servers_own_tools_run_inside_and_are_not_shown(stream: bool) -> None:
    client = a_client(
        Reply(text="Let me see.", tool_calls=[ToolCall("c1", "look", {"where": "up"})], usage=USAGE),
        Reply(text="Nothing ", usage=USAGE),
        tools=[look],
    )
    async with api_on(client) as api:
        if stream:
            chunks = await streamed(api, stream_options={"include_usage": True})
            text, calls = text_of(chunks), [one for one in chunks if one.choices and one.choices[0].delta.tool_calls]
            usage = chunks[-1].usage
        else:
            completion = await ask(api)
            text, calls = completion.choices[0].message.content or "", completion.choices[0].message.tool_calls or []
            usage = completion.usage
    assert (text, list(calls)) == ("Let me see.\n\nNothing ", [])
    assert usage is not None
    assert usage.prompt_tokens == 14


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_callers_tools_come_back_as_calls_and_the_next_request_brings_their_results(stream: bool) -> None:
    calls = [
        ToolCall("c1", "where", {"exact": True}),
        ToolCall("c2", "look", {"where": "up"}),
        ToolCall("c3", "where", {"exact": False}),
    ]
    model = ScriptedModel([ToolCall("c0", "look", {"where": "in"}), Reply(text="Hm.", tool_calls=calls), "In Oslo."])
    async with api_on(ChatClient(model, memory=InMemoryChatMemory(), tools=[look])) as api:
        if stream:
            async with api.chat.completions.stream(model="helpdesk", messages=HI, tools=[WHERE]) as running:
                completion: Any = await running.get_final_completion()
        else:
            completion = await ask(api, tools=[WHERE])
        [choice] = completion.choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Hm.")
        asked = choice.message.tool_calls
        assert [(one.id, one.function.name, json.loads(one.function.arguments)) for one in asked] == [
            ("c1", "where", {"exact": True}),
            ("c3", "where", {"exact": False}),
        ]
        results = [{"role": "tool", "tool_call_id": one.id, "content": f"Oslo for {one.id}"} for one in asked]
        history = [*HI, choice.message.model_dump(exclude_none=True), *results]
        after = await ask(api, history, tools=[WHERE])
    assert (after.choices[0].message.content, after.choices[0].finish_reason) == ("In Oslo.", "stop")
    assert list(model.requests[2].messages) == [
        UserMessage("hi"),
        AssistantMessage("Hm.", (calls[0], calls[2])),
        ToolMessage("c1", "where", "Oslo for c1"),
        ToolMessage("c3", "where", "Oslo for c3"),
    ]


class City(BaseModel):
    name: str
    size: Literal["small", "large"]


async def test_answers_of_a_form_are_whole_whatever_was_said_before() -> None:
    script = [
        Reply(text="I look.", tool_calls=[ToolCall("c1", "look", {"where": "up"})]),
        Reply(text=['{"name":', '"Oslo","size":"large"}']),
    ]
    model = ScriptedModel([*script, *script])
    async with api_on(ChatClient(model, memory=InMemoryChatMemory(), tools=[look])) as api:
        parsed = await api.chat.completions.parse(model="helpdesk", messages=HI, response_format=City)
        assert parsed.choices[0].message.parsed == City(name="Oslo", size="large")
        async with api.chat.completions.stream(model="helpdesk", messages=HI, response_format=City) as running:
            final = await running.get_final_completion()
        assert final.choices[0].message.parsed == City(name="Oslo", size="large")
    wanted = model.requests[0].options.response_format
    assert wanted["properties"]["name"] == {"title": "Name", "type": "string"}


@pytest.mark.parametrize(
    ("given", "wanted"), [({"type": "text"}, None), ({"type": "json_object"}, "json")], ids=["text", "json"]
)
async def test_other_forms_are_passed_on(given: Any, wanted: Any) -> None:
    model = ScriptedModel(["{}"])
    async with api_on(ChatClient(model, memory=InMemoryChatMemory())) as api:
        await ask(api, response_format=given)
    assert model.requests[0].options.response_format == wanted


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_reply_that_was_given_up_does_not_spoil_an_answer_of_a_form(stream: bool) -> None:
    class AskAgain(Filter):
        memory_side = "inside"

        async def around_chat(self, request: Any, call_next: Any) -> Any:
            await call_next(request)
            return await call_next(request)

    client = a_client('{"bad', '{"good":1}', filters=[AskAgain()])
    async with api_on(client) as api:
        given: Any = {"response_format": {"type": "json_object"}}
        if stream:
            text = text_of(await streamed(api, **given))
        else:
            text = (await ask(api, **given)).choices[0].message.content or ""
    assert text == '{"good":1}'


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("script", "settings", "text", "finish"),
    [
        ([Reply(text="cut", finish_reason="length")], {}, "cut", "length"),
        ([Reply(text="no", finish_reason="content_filter")], {}, "no", "content_filter"),
        ([ToolCall("c1", "look", {"where": "up"})], {"limits": Limits(model_calls=1)}, "", "length"),
        ([ToolCall("c1", "pay", {"amount": 5}), "Nobody can agree to it."], {}, "Nobody can agree to it.", "stop"),
        ([ToolCall("c1", "tell")], {}, "told", "stop"),
        ([ToolCall("c1", "where", {}), "No such tool."], {}, "No such tool.", "stop"),
        ([""], {}, "", "stop"),
    ],
    ids=["length", "filtered", "limit", "approval", "direct", "unknown-tool", "nothing"],
)
async def test_end_of_an_answer_is_told_in_the_formats_words(
    stream: bool, script: list[Any], settings: dict[str, Any], text: str, finish: str
) -> None:
    @tool(return_direct=True)
    async def tell() -> str:
        """Tell."""
        return "told"

    async with api_on(a_client(*script, tools=[look, pay, tell], **settings)) as api:
        if stream:
            chunks = await streamed(api)
            told = (text_of(chunks), chunks[-1].choices[0].finish_reason)
        else:
            [choice] = (await ask(api)).choices
            told = (choice.message.content, choice.finish_reason)
    assert told == (text, finish)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_turn_that_a_filter_blocks_is_a_refusal(stream: bool) -> None:
    limited = RateLimitFilter(turns=1, per=3600.0, max_wait=0)
    async with api_on(a_client("first", "never", filters=[limited])) as api:
        await ask(api)
        if stream:
            chunks = await streamed(api)
            refusal = "".join([one.choices[0].delta.refusal or "" for one in chunks])
            finish = chunks[-1].choices[0].finish_reason
        else:
            [choice] = (await ask(api)).choices
            refusal, finish = choice.message.refusal, choice.finish_reason
    assert finish == "content_filter"
    assert refusal


async def test_agents_and_progress_of_tools_are_not_shown() -> None:
    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        await context.emit({"percent": 50})
        return "worked"

    inner = ChatClient(ScriptedModel([ToolCall("t1", "work"), "found it"]), tools=[work])
    agent = agent_tool(inner, name="researcher", description="Finds.")
    client = a_client(
        [ToolCall("t1", "researcher", {"task": "find"}), ToolCall("t2", "work")], "There.", tools=[agent, work]
    )
    async with api_on(client) as api:
        assert text_of(await streamed(api)) == "There."


async def test_models_are_listed() -> None:
    async with api_on(a_client()) as api:
        assert [one.id async for one in api.models.list()] == ["helpdesk"]
        assert (await api.models.retrieve("helpdesk")).owned_by == "agentcore"
        with pytest.raises(openai.NotFoundError):
            await api.models.retrieve("org/other")


@pytest.mark.parametrize(
    ("given", "status", "code", "param"),
    [
        ({"model": "other"}, 404, "model_not_found", "model"),
        ({"messages": []}, 400, "invalid_input", "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, 400, "invalid_input", "messages"),
        ({"messages": "hi"}, 400, "invalid_input", "messages"),
        ({"messages": [{"role": "user", "content": "  "}]}, 400, "invalid_input", None),
        ({"n": 2}, 400, "unsupported_value", "n"),
        ({"logprobs": True}, 400, "unsupported_value", "logprobs"),
        ({"functions": [{"name": "f"}]}, 400, "unsupported_value", "functions"),
        ({"modalities": ["text", "audio"]}, 400, "unsupported_value", "modalities"),
        ({"temperature": "hot"}, 400, "invalid_input", "temperature"),
        ({"response_format": {"type": "grammar"}}, 400, "invalid_input", "response_format"),
        ({"response_format": {"type": "json_schema"}}, 400, "invalid_input", "response_format"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, 400, "unsupported_value", "tools"),
        ({"tools": [{"type": "function", "function": {"name": "look"}}]}, 400, "invalid_input", "tools"),
        ({"tools": [WHERE, WHERE]}, 400, "invalid_input", "tools"),
        ({"tool_choice": "required"}, 400, "invalid_input", "tool_choice"),
        ({"tools": [WHERE], "tool_choice": "sometimes"}, 400, "invalid_input", "tool_choice"),
        (
            {"tools": [WHERE], "tool_choice": {"type": "function", "function": {"name": "look"}}},
            400,
            "invalid_input",
            "tool_choice",
        ),
        ({"tools": [WHERE], "tool_choice": {"type": "allowed_tools"}}, 400, "invalid_input", "tool_choice"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}
                ]
            },
            400,
            "invalid_input",
            "messages",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://a/b"}}]}]},
            400,
            "invalid_input",
            "messages",
        ),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, 413, "too_large", None),
        ({"user": "x" * 3000}, 403, "permission_denied", None),
    ],
    ids=[
        "model",
        "no-messages",
        "role",
        "messages",
        "blank",
        "n",
        "logprobs",
        "functions",
        "sound",
        "type",
        "form",
        "no-schema",
        "custom-tool",
        "servers-tool",
        "twice",
        "no-tools",
        "choice",
        "servers-choice",
        "allowed-tools",
        "local-file",
        "video",
        "too-large",
        "long-user",
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_what_cannot_be_done_is_refused_in_the_formats_words(
    stream: bool, given: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    async with api_on(a_client("never", tools=[look]), max_body_bytes=4000) as api:
        with pytest.raises(openai.APIStatusError) as caught:
            await api.chat.completions.create(**{"model": "helpdesk", "messages": HI, "stream": stream, **given})
    error = caught.value
    assert (error.status_code, error.code, error.param) == (status, code, param)
    assert error.type == ("permission_error" if status == 403 else "invalid_request_error")
    assert error.body is not None


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("overloaded", 503, "overloaded"),
        ("timeout", 504, "timeout"),
        ("auth", 502, "auth"),
        ("context_length", 400, "context_length_exceeded"),
        ("invalid_request", 400, "invalid_request"),
        ("content_filter", 400, "content_filter"),
    ],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_failure_of_the_provider_is_a_status_without_its_words(
    stream: bool, kind: Any, status: int, code: str
) -> None:
    broken = ProviderError("https://internal said no", kind=kind, provider="x", retry_after=9)
    async with api_on(a_client(broken)) as api:
        with pytest.raises(openai.APIStatusError) as caught:
            await api.chat.completions.create(model="helpdesk", messages=HI, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert "internal" not in caught.value.response.text
    assert (caught.value.response.headers.get("retry-after") == "9") == (status > 500)


async def test_error_in_mid_stream_ends_the_stream_with_it() -> None:
    broken = ProviderError("https://internal said no", kind="network", provider="x")
    async with api_on(a_client(Reply(text=["Hel", "lo"], error=broken))) as api:
        pieces: list[str] = []
        stream = await api.chat.completions.create(model="helpdesk", messages=HI, stream=True)
        with pytest.raises(openai.APIError, match="the model could not answer"):
            async for chunk in stream:
                pieces.append(chunk.choices[0].delta.content or "")
    assert "".join(pieces) == "Hello"


async def test_words_of_the_provider_are_shown_to_those_who_want_them() -> None:
    broken = ProviderError("no such deployment", kind="invalid_request", provider="x")
    async with api_on(a_client(broken), show_details=True) as api:
        with pytest.raises(openai.APIStatusError, match="no such deployment"):
            await ask(api)


async def test_app_says_who_may_ask() -> None:
    asked: list[str] = []

    async def by_token(request: Request, conversation_id: str) -> Mapping[str, Any] | None:
        if request.headers.get("authorization") != "Bearer sk-good":
            raise HTTPException(401, "this key is not known", {"www-authenticate": "Bearer"})
        asked.append(conversation_id)
        return None if conversation_id == "mallory" else {"user_id": "kim"}

    seen: list[str] = []

    @tool
    async def whoami(context: ToolContext) -> str:
        """Tell who asks."""
        seen.append(context["user_id"])
        return "kim"

    app, _ = app_of(a_client(ToolCall("c1", "whoami"), "You are kim.", "again", tools=[whoami]), authorize=by_token)
    async with serving(app) as url:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-bad", max_retries=0) as stranger:
            with pytest.raises(openai.AuthenticationError, match="this key is not known") as caught:
                await ask(stranger)
            assert (caught.value.code, caught.value.type) == ("invalid_api_key", "authentication_error")
            assert caught.value.response.headers["www-authenticate"] == "Bearer"
            with pytest.raises(openai.AuthenticationError):
                await stranger.models.list()
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-good", max_retries=0) as api:
            assert (await ask(api, user="kim")).choices[0].message.content == "You are kim."
            second = await ask(api)
            with pytest.raises(openai.PermissionDeniedError):
                await ask(api, user="mallory")
    assert seen == ["kim"]
    assert asked == ["kim", second.id, "mallory"]


async def test_server_that_goes_down_begins_nothing_and_says_what_it_stopped() -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await gate.wait()

    app, chat = app_of(a_client(Reply(text=["a", "b"], wait_between=wait), Reply(text="c", wait_for=wait)))
    async with serving(app) as url, AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as api:
        stream = await api.chat.completions.create(model="helpdesk", messages=HI, stream=True)
        await begun.wait()
        begun.clear()
        async with asyncio.TaskGroup() as tasks:
            whole = tasks.create_task(failing(ask(api)))
            await begun.wait()
            chat.runs.drain()
            refused = await failing(ask(api))
            for run in list(chat.runs._runs.values()):
                run.cancel()
            with pytest.raises(openai.APIError, match="stopped before its end"):
                async for _ in stream:
                    pass
    assert (refused.status_code, refused.code, refused.response.headers["retry-after"]) == (503, "shutting_down", "5")
    assert (whole.result().status_code, whole.result().code) == (503, "shutting_down")


async def failing(request: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        await request
    return caught.value


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("when", ["before", "between"])
async def test_turn_ends_with_the_client_that_hangs_up(stream: bool, when: str) -> None:
    begun, stopped, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    reply = Reply(text=["a", "b"], **{"wait_for" if when == "before" else "wait_between": wait})
    app, chat = app_of(a_client(reply))
    async with running_server(app) as server:
        url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
        body = {"model": "helpdesk", "messages": HI, "stream": stream}
        async with httpx.AsyncClient() as http, asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(http.post(url, json=body))
            await begun.wait()
            asking.cancel()
        async with asyncio.timeout(20):
            await stopped.wait()
        [run] = chat.runs._runs.values()
        assert (await run.finished()).status == "cancelled"


async def test_body_that_is_nested_too_deeply_is_refused() -> None:
    deep = "[" * 50_000 + "]" * 50_000
    body = f'{{"model":"helpdesk","messages":[{{"role":"user","content":{deep}}}]}}'
    async with url_of(a_client("never")) as url, httpx.AsyncClient() as http:
        answer = await http.post(f"{url}/chat/completions", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")


async def test_form_of_another_site_is_refused() -> None:
    async with url_of(a_client("never")) as url, httpx.AsyncClient() as http:
        answer = await http.post(f"{url}/chat/completions", content="{}", headers={"content-type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "media_type")


async def test_many_at_once_do_not_wait_for_each_other() -> None:
    gate, waiting = asyncio.Event(), 0
    all_there = asyncio.Event()

    async def wait() -> None:
        nonlocal waiting
        waiting += 1
        if waiting == 20:
            all_there.set()
        await gate.wait()

    client = ChatClient(ScriptedModel([Reply(text="ok", wait_for=wait)], repeat_last=True), memory=InMemoryChatMemory())
    async with api_on(client) as api, asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(ask(api, user="kim")) for _ in range(20)]
        await all_there.wait()
        gate.set()
    assert {one.result().choices[0].message.content for one in asking} == {"ok"}


async def test_document_is_taken() -> None:
    model = ScriptedModel(["ok"])
    file = {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}
    async with api_on(ChatClient(model, memory=InMemoryChatMemory())) as api:
        await ask(api, [{"role": "user", "content": [{"type": "file", "file": file}]}])
    [said] = model.requests[0].messages
    assert said == UserMessage((FilePart(data=b"hi", media_type="application/pdf", name="a.pdf"),))


# ------------------------------------------------------------------------------------------------ an unrelated client


async def test_unrelated_client_generates_and_streams(node: JavaScript) -> None:
    async with url_of(a_client(Reply(text="Hello", reasoning="greet", usage=USAGE))) as url:
        told = await node.run("openai_compatible.mjs", "generates", url=url, prompt="hi")
    assert told == {
        "text": "Hello",
        "reasoning": "greet",
        "finish": "stop",
        "usage": {"inputTokens": 7, "outputTokens": 2},
    }
    async with url_of(a_client(Reply(text=["Hel", "lo"], reasoning="greet", usage=USAGE))) as url:
        told = await node.run("openai_compatible.mjs", "streams", url=url, prompt="hi")
    assert told == {
        "pieces": ["Hel", "lo"],
        "reasoning": "greet",
        "finish": "stop",
        "usage": {"inputTokens": 7, "outputTokens": 2},
    }


async def test_unrelated_client_runs_its_own_tools_beside_the_servers(node: JavaScript) -> None:
    script = [
        ToolCall("c0", "look", {"where": "up"}),
        [ToolCall("c1", "where", {"exact": True}), ToolCall("c2", "where", {"exact": False})],
        "In Oslo.",
    ]
    model = ScriptedModel([*script, *script])
    async with url_of(ChatClient(model, memory=InMemoryChatMemory(), tools=[look])) as url:
        async with node.running("openai_compatible.mjs", "calls_tools", url=url, prompt="where am I?") as program:
            both = [told async for told in program]
    assert both == [{"text": "In Oslo.", "steps": [["Oslo 59.9", "Oslo"], []]}] * 2
    assert [type(one) for one in model.requests[2].messages][-2:] == [ToolMessage, ToolMessage]


async def test_unrelated_client_is_given_objects(node: JavaScript) -> None:
    async with url_of(a_client(Reply(text=['{"name":', '"Oslo"}']))) as url:
        told = await node.run("openai_compatible.mjs", "makes_objects", url=url, prompt="a city")
    assert told == {"object": {"name": "Oslo"}}


async def test_unrelated_client_understands_the_errors(node: JavaScript) -> None:
    broken = ProviderError("https://internal said no", kind="overloaded", provider="x")
    async with url_of(a_client(broken)) as url:
        told = await node.run("openai_compatible.mjs", "fails", url=url, prompt="hi")
        assert told == {"status": 503, "message": "the model could not answer", "retryable": True}
        told = await node.run("openai_compatible.mjs", "fails", url=url, prompt="hi", model="other")
        assert (told["status"], told["retryable"]) == (404, False)
    async with url_of(a_client(Reply(text=["Hel", "lo"], error=broken))) as url:
        told = await node.run("openai_compatible.mjs", "streams", url=url, prompt="hi")
    assert told == {"pieces": ["Hel", "lo"], "errors": ["the model could not answer"]}
