"""agentcore: an async-first library for LLM agents in real services."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentcore.chat import (
    ChatModel,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    ChatStream,
    PromptCache,
    ReasoningEffort,
    ToolDefinition,
    ToolSchema,
)
from agentcore.client import ChatClient, Conversation
from agentcore.context import ToolContext
from agentcore.embeddings import EmbeddingModel, EmbeddingOptions, EmbeddingResponse
from agentcore.errors import (
    AgentCoreError,
    ConfigurationError,
    ConversationBusyError,
    DecodeError,
    InvalidInputError,
    LeaseLostError,
    OutputError,
    PauseError,
    ProviderError,
    StoreError,
    UnsupportedContentError,
    VersionConflictError,
)
from agentcore.events import (
    AgentEvent,
    ReasoningDelta,
    ReplyRestarted,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
)
from agentcore.exchange import InvokeResult, TurnRequest
from agentcore.filters.base import Filter
from agentcore.filters.memory import MemoryFilter
from agentcore.limits import Limits
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
from agentcore.pause import Decision, Pause, PendingCall
from agentcore.providers.anthropic import AnthropicChatModel
from agentcore.providers.fallback import FallbackModel
from agentcore.providers.openai import OpenAIChatModel
from agentcore.providers.presets import chat_model
from agentcore.stream import TurnStream
from agentcore.tokens import MessageTokenCounter, TokenCounter, count_tokens, tiktoken_counter, token_counter
from agentcore.tools.batch import BatchResult
from agentcore.tools.errors import EnvironmentToolError, ToolError, TransientToolError
from agentcore.tools.request import ToolRequest
from agentcore.tools.results import ToolResult
from agentcore.tools.tool import Tool, tool
from agentcore.tools.toolset import FunctionToolset, Toolset
from agentcore.usage import Usage

if TYPE_CHECKING:  # imported when they are first asked for: they, or what they need, take their time
    from agentcore.agents.handoff import HandoffFilter, Persona
    from agentcore.agents.subagent import agent_tool
    from agentcore.codecs.openai_chat_history import messages_from_openai
    from agentcore.filters.cache import CacheFilter, InMemoryReplyStore, ReplyStore
    from agentcore.filters.input_guard import InputGuard
    from agentcore.filters.logging import LoggingFilter
    from agentcore.filters.output_guard import OutputGuard
    from agentcore.filters.rate_limit import RateLimitFilter
    from agentcore.filters.rate_limiter import InMemoryRateLimiter, RateLimit, RateLimiter
    from agentcore.filters.rate_limiter_postgres import PostgresRateLimiter
    from agentcore.filters.rate_limiter_redis import RedisRateLimiter
    from agentcore.filters.re_reading import ReReadingFilter
    from agentcore.filters.redacting import RedactingFilter
    from agentcore.filters.retrieval import Passage, Retrieval, RetrievalFilter, Retriever
    from agentcore.filters.retry import RetryFilter
    from agentcore.filters.structured import StructuredOutputFilter
    from agentcore.filters.tool_index import KeywordToolIndex, ToolIndex
    from agentcore.filters.tool_search import ToolSearchFilter
    from agentcore.filters.usage import UsageFilter, UsageRecord
    from agentcore.filters.verdict import Block
    from agentcore.memory.postgres import PostgresChatMemory
    from agentcore.memory.redis import RedisChatMemory
    from agentcore.memory.sqlite import SQLiteChatMemory
    from agentcore.memory.summarizing import SummarizingChatMemory
    from agentcore.memory.urls import chat_memory
    from agentcore.providers.embedding_batches import EmbeddingLimits
    from agentcore.providers.embedding_presets import embedding_model
    from agentcore.providers.gemini import GeminiChatModel
    from agentcore.providers.openai_embeddings import OpenAIEmbeddingModel
    from agentcore.providers.openai_responses import OpenAIResponsesModel

__version__ = "0.1.0"

__all__ = [
    "AgentCoreError",
    "AgentEvent",
    "AnthropicChatModel",
    "AssistantMessage",
    "AudioPart",
    "BatchResult",
    "Block",
    "CacheFilter",
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
    "Decision",
    "DecodeError",
    "EmbeddingLimits",
    "EmbeddingModel",
    "EmbeddingOptions",
    "EmbeddingResponse",
    "EnvironmentToolError",
    "FallbackModel",
    "FilePart",
    "Filter",
    "FinishReason",
    "FunctionToolset",
    "GeminiChatModel",
    "HandoffFilter",
    "HistoryProblem",
    "ImagePart",
    "InMemoryChatMemory",
    "InMemoryRateLimiter",
    "InMemoryReplyStore",
    "InputGuard",
    "InvalidInputError",
    "InvokeResult",
    "KeywordToolIndex",
    "LeaseLostError",
    "Limits",
    "LoggingFilter",
    "MemoryFilter",
    "Message",
    "MessageTokenCounter",
    "OpenAIChatModel",
    "OpenAIEmbeddingModel",
    "OpenAIResponsesModel",
    "OutputError",
    "OutputGuard",
    "Part",
    "Passage",
    "Pause",
    "PauseError",
    "PendingCall",
    "Persona",
    "PostgresChatMemory",
    "PostgresRateLimiter",
    "PromptCache",
    "ProviderError",
    "RateLimit",
    "RateLimitFilter",
    "RateLimiter",
    "ReReadingFilter",
    "ReasoningDelta",
    "ReasoningEffort",
    "RedactingFilter",
    "RedisChatMemory",
    "RedisRateLimiter",
    "Repair",
    "ReplyRestarted",
    "ReplyStore",
    "Retrieval",
    "RetrievalFilter",
    "Retriever",
    "RetryFilter",
    "SQLiteChatMemory",
    "StoreError",
    "StreamEvent",
    "StructuredOutputFilter",
    "SummarizingChatMemory",
    "SystemMessage",
    "TextDelta",
    "TextPart",
    "TokenCounter",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolFinished",
    "ToolIndex",
    "ToolMessage",
    "ToolProgress",
    "ToolRequest",
    "ToolResult",
    "ToolSchema",
    "ToolSearchFilter",
    "ToolStarted",
    "Toolset",
    "TransientToolError",
    "TurnEvent",
    "TurnRequest",
    "TurnStream",
    "UnsupportedContentError",
    "Usage",
    "UsageFilter",
    "UsageRecord",
    "UserMessage",
    "VersionConflictError",
    "WindowedChatMemory",
    "agent_tool",
    "chat_memory",
    "chat_model",
    "check_history",
    "count_tokens",
    "embedding_model",
    "heal",
    "messages_from_openai",
    "tiktoken_counter",
    "token_counter",
    "tool",
]

_ON_USE = {
    "Block": "agentcore.filters.verdict",
    "CacheFilter": "agentcore.filters.cache",
    "EmbeddingLimits": "agentcore.providers.embedding_batches",
    "GeminiChatModel": "agentcore.providers.gemini",
    "HandoffFilter": "agentcore.agents.handoff",
    "InMemoryRateLimiter": "agentcore.filters.rate_limiter",
    "InMemoryReplyStore": "agentcore.filters.cache",
    "InputGuard": "agentcore.filters.input_guard",
    "KeywordToolIndex": "agentcore.filters.tool_index",
    "LoggingFilter": "agentcore.filters.logging",
    "OpenAIEmbeddingModel": "agentcore.providers.openai_embeddings",
    "OpenAIResponsesModel": "agentcore.providers.openai_responses",
    "OutputGuard": "agentcore.filters.output_guard",
    "Passage": "agentcore.filters.retrieval",
    "Persona": "agentcore.agents.handoff",
    "PostgresChatMemory": "agentcore.memory.postgres",
    "PostgresRateLimiter": "agentcore.filters.rate_limiter_postgres",
    "RateLimit": "agentcore.filters.rate_limiter",
    "RateLimitFilter": "agentcore.filters.rate_limit",
    "RateLimiter": "agentcore.filters.rate_limiter",
    "ReReadingFilter": "agentcore.filters.re_reading",
    "RedactingFilter": "agentcore.filters.redacting",
    "RedisChatMemory": "agentcore.memory.redis",
    "RedisRateLimiter": "agentcore.filters.rate_limiter_redis",
    "ReplyStore": "agentcore.filters.cache",
    "Retrieval": "agentcore.filters.retrieval",
    "RetrievalFilter": "agentcore.filters.retrieval",
    "Retriever": "agentcore.filters.retrieval",
    "RetryFilter": "agentcore.filters.retry",
    "SQLiteChatMemory": "agentcore.memory.sqlite",
    "StructuredOutputFilter": "agentcore.filters.structured",
    "SummarizingChatMemory": "agentcore.memory.summarizing",
    "ToolIndex": "agentcore.filters.tool_index",
    "ToolSearchFilter": "agentcore.filters.tool_search",
    "UsageFilter": "agentcore.filters.usage",
    "UsageRecord": "agentcore.filters.usage",
    "agent_tool": "agentcore.agents.subagent",
    "chat_memory": "agentcore.memory.urls",
    "embedding_model": "agentcore.providers.embedding_presets",
    "messages_from_openai": "agentcore.codecs.openai_chat_history",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_ON_USE[name]), name)
    return value
