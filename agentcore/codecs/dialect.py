"""Dialect: how an endpoint that speaks OpenAI Chat Completions differs from the original, as data."""

from typing import Literal

from msgspec import Struct


class Dialect(Struct, frozen=True, kw_only=True):
    """What an endpoint wants or cannot do. The defaults are what most compatible servers accept.

    Attributes:
        max_tokens_field: `auto` sends `max_completion_tokens` to OpenAI's reasoning models and `max_tokens` else.
        empty_content: what stands for the text of an assistant message that has only calls.
        tool_content_parts: tool results may be lists of text parts.
        stream_usage: `stream_options.include_usage` is understood.
        system_role: the role of instructions.
        replay_reasoning: field in which the endpoint wants the reasoning of a tool round back, if it does.
        replay_details: `reasoning_details` of earlier replies are sent back as they came (OpenRouter).
        effort: where the reasoning effort goes: a field of its own, inside `reasoning`, or nowhere.
        response_format: what kind of structured output the endpoint has natively.
        parallel_flag: `parallel_tool_calls` is understood.
        strict_tools: `strict` on functions is understood.
        prompt_cache: how a prompt is asked to be cached: OpenAI's key and retention, OpenRouter's `cache_control` mark,
            or not at all.
        call_id: pattern and length of call ids.
        images, audio, files: parts the endpoint can carry.
    """

    max_tokens_field: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto"
    empty_content: Literal["null", "empty", "absent"] = "null"
    tool_content_parts: bool = False
    stream_usage: bool = True
    system_role: Literal["system", "developer"] = "system"
    replay_reasoning: str | None = None
    replay_details: bool = False
    effort: Literal["reasoning_effort", "reasoning", "none"] = "reasoning_effort"
    response_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    parallel_flag: bool = True
    strict_tools: bool = True
    prompt_cache: Literal["openai", "cache_control", "none"] = "none"
    call_id: str = r"[a-zA-Z0-9_.:-]+"
    call_id_length: int = 40
    images: bool = True
    audio: bool = True
    files: bool = True


OPENAI = Dialect(prompt_cache="openai")
