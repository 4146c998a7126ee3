"""ReReadingFilter: the model is given the question twice, which makes some models answer better."""

from typing import ClassVar

from msgspec.structs import replace

from agentcore.chat import ChatRequest, ChatResponse
from agentcore.filters.base import ChatCall, Filter, MemorySide
from agentcore.messages import TextPart, UserMessage, text_of

TEMPLATE = "{question}\nRead the question again: {question}"
"""The words of the study: Xu et al., "Re-Reading Improves Reasoning in Large Language Models" (2023), section 2."""


class ReReadingFilter(Filter):
    """Repeats the last question in what the model sees; the history holds it once.

        client = ChatClient(model, memory=store, filters=[ReReadingFilter()])

    The repetition stands in the same place in all model calls of a turn. Pictures and files are not repeated.

    Args:
        template: what is asked; `{question}` stands for the question.
    """

    memory_side: ClassVar[MemorySide | None] = "inside"
    inside_of: ClassVar[tuple[str, ...]] = ("RetrievalFilter",)  # it would look for the question twice over

    def __init__(self, *, template: str = TEMPLATE) -> None:
        self._template = template

    async def around_chat(self, request: ChatRequest, call_next: ChatCall) -> ChatResponse:
        """Ask twice in one breath."""
        messages = list(request.messages)
        for place in range(len(messages) - 1, -1, -1):
            message = messages[place]
            if isinstance(message, UserMessage):
                question = text_of(message.content)
                if question.strip():
                    asked = self._template.replace("{question}", question)
                    content = message.content
                    if not isinstance(content, str):
                        content = (*(part for part in content if not isinstance(part, TextPart)), TextPart(asked))
                    messages[place] = replace(message, content=content if content is not message.content else asked)
                    request = replace(request, messages=messages)
                break
        return await call_next(request)
