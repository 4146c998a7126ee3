"""Exact token counts of texts, by the vocabularies of the `tiktoken` package (extra `tiktoken`)."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from agentcore.errors import ConfigurationError


def knows(model: str) -> bool:
    """Whether tiktoken is installed and has a vocabulary for the model. Loads nothing."""
    if importlib.util.find_spec("tiktoken") is None:
        return False
    try:
        _tiktoken().encoding_name_for_model(model)
    except KeyError:
        return False
    return True


def text_counter(model: str | None = None, *, encoding: Any = None) -> Callable[[str], int]:
    """A function that counts a text with one of tiktoken's vocabularies; for the arguments see `tiktoken_counter`.

    Raises:
        ConfigurationError: tiktoken is not installed, does not know the model, or cannot load the vocabulary.
    """
    tiktoken = _tiktoken()
    if isinstance(encoding, tiktoken.Encoding):
        return _counter(encoding)
    if encoding is None:
        if model is None:
            raise ConfigurationError("tiktoken_counter takes a model or an encoding")
        try:
            encoding = tiktoken.encoding_name_for_model(model)
        except KeyError as error:
            raise ConfigurationError(
                f"tiktoken knows no model {model!r}: name a vocabulary, encoding='o200k_base', or use the estimate"
            ) from error
    try:
        return _counter(tiktoken.get_encoding(encoding))
    except ValueError as error:
        raise ConfigurationError(f"tiktoken has no vocabulary {encoding!r} ({error})") from error
    except OSError as error:  # whatever `requests` raises is one
        raise ConfigurationError(
            f"tiktoken could not load the vocabulary {encoding!r} ({type(error).__name__}): it comes from the network "
            "at first use; load it once where there is one, and set TIKTOKEN_CACHE_DIR to the folder that holds it"
        ) from error


def _tiktoken() -> Any:
    try:
        return importlib.import_module("tiktoken")
    except ImportError as error:
        raise ConfigurationError("counting with tiktoken needs the package: pip install tiktoken") from error


def _counter(encoding: Any) -> Callable[[str], int]:
    def count(text: str) -> int:  # ordinary: a user's "<|endoftext|>" is a text like any other
        return len(encoding.encode_ordinary(text))

    return count
