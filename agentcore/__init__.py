"""agentcore: an async-first library for LLM agents in real services."""

from agentcore.chat import (
    ChatModel,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    ChatStream,
    ReasoningEffort,
    ToolDefinition,
    ToolSchema,
)
from agentcore.client import ChatClient, Conversation
from agentcore.context import ToolContext
from agentcore.errors import (
    AgentCoreError,
    ConfigurationError,
    ConversationBusyError,
    DecodeError,
    InvalidInputError,
    ProviderError,
    UnsupportedContentError,
)
from agentcore.events import (
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
)
from agentcore.exchange import InvokeResult, Limits, TurnRequest
from agentcore.filters.base import Filter
from agentcore.filters.memory import MemoryFilter
from agentcore.memory.base import ChatMemory
from agentcore.memory.in_memory import InMemoryChatMemory
from agentcore.memory.windowed import WindowedChatMemory
from agentcore.messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    FinishReason,
    HistoryProblem,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_history,
)
from agentcore.pairing import Repair, heal
from agentcore.providers.anthropic import AnthropicChatModel
from agentcore.providers.fallback import FallbackModel
from agentcore.providers.openai import OpenAIChatModel
from agentcore.providers.presets import chat_model
from agentcore.stream import TurnStream
from agentcore.tools.batch import BatchResult
from agentcore.tools.errors import ToolError, TransientToolError
from agentcore.tools.request import ToolRequest
from agentcore.tools.results import ToolResult
from agentcore.tools.tool import Tool, tool
from agentcore.usage import Usage

__version__ = "0.1.0"

__all__ = [
    "AgentCoreError",
    "AnthropicChatModel",
    "AssistantMessage",
    "AudioPart",
    "BatchResult",
    "ChatClient",
    "ChatMemory",
    "ChatModel",
    "ChatOptions",
    "ChatRequest",
    "ChatResponse",
    "ChatStream",
    "ConfigurationError",
    "Conversation",
    "ConversationBusyError",
    "DecodeError",
    "FallbackModel",
    "FilePart",
    "Filter",
    "FinishReason",
    "HistoryProblem",
    "ImagePart",
    "InMemoryChatMemory",
    "InvalidInputError",
    "InvokeResult",
    "Limits",
    "MemoryFilter",
    "Message",
    "OpenAIChatModel",
    "Part",
    "ProviderError",
    "ReasoningDelta",
    "ReasoningEffort",
    "Repair",
    "StreamEvent",
    "SystemMessage",
    "TextDelta",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolFinished",
    "ToolMessage",
    "ToolRequest",
    "ToolResult",
    "ToolSchema",
    "ToolStarted",
    "TransientToolError",
    "TurnEvent",
    "TurnRequest",
    "TurnStream",
    "UnsupportedContentError",
    "Usage",
    "UserMessage",
    "WindowedChatMemory",
    "chat_model",
    "check_history",
    "heal",
    "tool",
]
