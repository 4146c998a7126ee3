"""The one tree of errors. Every error of the library is an `AgentCoreError` with a `kind`."""

from typing import Literal, TypeAlias

ErrorKind: TypeAlias = Literal[
    "auth",
    "permission",
    "not_found",
    "invalid_request",
    "context_length",
    "content_filter",
    "rate_limit",
    "quota",
    "overloaded",
    "server",
    "timeout",
    "network",
    "decode",
    "conflict",
    "storage",
]


class AgentCoreError(Exception):
    """Base of all errors of the library."""

    kind: ErrorKind = "invalid_request"
    retryable: bool = False


class ConfigurationError(AgentCoreError, ValueError):
    """Something was set up wrongly: a missing key, two tools of one name, a URL without a scheme."""


class InvalidInputError(AgentCoreError, ValueError):
    """The messages given to a call cannot be a turn: none at all, or in an order no provider accepts."""


class UnsupportedContentError(AgentCoreError):
    """A codec cannot carry a part; content is never dropped in silence."""


class OutputError(AgentCoreError, ValueError):
    """A model's answer is not of the type that was asked for.

    Attributes:
        text: the answer.
    """

    kind = "decode"

    def __init__(self, message: str, *, text: str) -> None:
        super().__init__(message)
        self.text = text


class ConversationBusyError(AgentCoreError):
    """Another turn of the same conversation is running and the caller chose not to wait (any longer)."""

    kind = "conflict"
    retryable = True


class StoreError(AgentCoreError):
    """A store of conversations failed or could not be reached: a full disk, a server that is gone, a newer schema.

    Attributes:
        retryable: whether the same call may succeed later.
    """

    kind = "storage"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class VersionConflictError(AgentCoreError):
    """Another writer appended since the history was read; nothing was stored. Read again, then decide.

    Attributes:
        version: the version that the conversation has now.
    """

    kind = "conflict"
    retryable = True

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


class LeaseLostError(AgentCoreError):
    """This turn no longer holds its conversation: another took it over, or it was cleared; nothing was stored."""

    kind = "conflict"
    retryable = True


class PauseError(AgentCoreError):
    """A pause cannot be resumed so.

    Attributes:
        reason: `nothing` waits there; it was `resumed` already; it has `expired`; a decision is `stale` (for another
            pause), `forged` (not on what was shown) or `incomplete` (a call is left out).
    """

    kind = "conflict"

    def __init__(
        self, message: str, *, reason: Literal["nothing", "resumed", "expired", "stale", "forged", "incomplete"]
    ) -> None:
        super().__init__(message)
        self.reason = reason


class ProviderError(AgentCoreError):
    """A provider refused, failed or could not be reached.

    Attributes:
        kind: what went wrong, in neutral words.
        provider: name of the provider.
        status: HTTP status, if there was one.
        retryable: whether the same request may succeed later.
        retry_after: seconds the provider asked to wait.
        request_id: the provider's id of the request, for its support.
        partial_text: text that had reached the caller before a stream broke.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind,
        provider: str = "",
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        request_id: str | None = None,
        partial_text: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind: ErrorKind = kind
        self.provider = provider
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.request_id = request_id
        self.partial_text = partial_text

    def __str__(self) -> str:
        where = [self.provider or "provider", self.kind]
        if self.status is not None:
            where.append(str(self.status))
        tail = f" (request {self.request_id})" if self.request_id else ""
        return f"{' '.join(where)}: {self.message}{tail}"


class DecodeError(ProviderError):
    """A provider's answer could not be read; the message shows a short excerpt."""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        retryable: bool = False,
        request_id: str | None = None,
        partial_text: str = "",
    ) -> None:
        super().__init__(
            message,
            kind="decode",
            provider=provider,
            status=status,
            retryable=retryable,
            request_id=request_id,
            partial_text=partial_text,
        )
