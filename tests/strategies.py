"""Histories of every sort: whole and broken, with all kinds of messages, ids, names and texts."""

import hypothesis.strategies as st

from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)

texts = st.sampled_from(["", " ", "x", "two words", "晴 22°C", "a\u0000b", 'say "hi"\\\n', "half \ud83d", "🌤"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "ü", "\ud83d"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b c", "é"]), inner, max_size=2),
    max_leaves=4,
)
call_ids = st.sampled_from(["", "c1", "c2", "call.3", "toolu_01", "x" * 64, "ä b"])
tool_names = st.sampled_from(["add", "math.add", "math_add", "n" * 70, "wetter_ü", ""])
calls = st.builds(
    ToolCall,
    call_ids,
    tool_names.filter(bool),
    st.dictionaries(st.sampled_from(["a", "b"]), json_values, max_size=2),
    st.sampled_from([None, None, None, "{broken"]),
)
replays = st.sampled_from(
    [
        None,
        None,
        {"format": "openai-chat", "reasoning_details": [{"type": "reasoning.text", "text": "r"}]},
        {"format": "anthropic", "blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
        {
            "format": "openai-responses",
            "origin": "openai",
            "items": [
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
                {"type": "function_call", "call_id": "c1"},
                {"type": "message", "text": "x", "phase": "commentary"},
            ],
        },
        {"format": "something-else"},
    ]
)
text_parts: st.SearchStrategy[Part] = st.builds(TextPart, texts)
media_parts: st.SearchStrategy[Part] = st.sampled_from(
    [
        ImagePart(url="https://example.com/a.png"),
        ImagePart(data=b"\x89PNG", media_type="image/png", detail="low"),
        AudioPart(data=b"RIFF", media_type="audio/wav"),
        FilePart(data=b"%PDF-1.7", media_type="application/pdf", name="a.pdf"),
    ]
)
contents = texts | st.lists(text_parts, max_size=2)
finish_reasons = st.sampled_from([None, None, "length", "content_filter", "interrupted", "other"])

systems = st.builds(SystemMessage, texts)
users = st.builds(UserMessage, texts | st.lists(text_parts | media_parts, max_size=3))
answers = st.builds(AssistantMessage, st.none() | texts, st.just(()), st.none() | texts, finish_reasons, replays)
batches = st.builds(
    AssistantMessage, st.none() | texts, st.lists(calls, min_size=1, max_size=3), st.none() | texts, st.none(), replays
)
results = st.builds(ToolMessage, call_ids, tool_names, contents, st.booleans())

messages: st.SearchStrategy[Message] = st.one_of(systems, users, answers, batches, results)

histories: st.SearchStrategy[list[Message]] = st.lists(messages, max_size=8)
"""Any messages in any order: orphans, unanswered calls, empty replies."""


@st.composite
def whole_histories(draw: st.DrawFn, max_turns: int = 4) -> list[Message]:
    """Histories that keep the pairing rule: every call answered right after its message, in call order."""
    history: list[Message] = [draw(systems)] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, max_turns))):
        history.append(draw(users))
        for _ in range(draw(st.integers(0, 2))):
            made = draw(
                st.lists(calls.filter(lambda call: bool(call.id)), min_size=1, max_size=3, unique_by=lambda c: c.id)
            )
            history.append(AssistantMessage(draw(st.none() | texts), tuple(made), replay=draw(replays)))
            history.extend([ToolMessage(call.id, call.name, draw(contents)) for call in made])
        history.append(draw(answers))
    return history
