"""The part of ``llguidance`` that is used, as types; the library itself is loaded when needed."""

import importlib
from typing import Any, Protocol

from kernel.errors import ValidationError

__all__ = ["Matcher", "Vocabulary", "load_library"]


class Vocabulary(Protocol):
    """What the library knows of a tokenizer: the bytes of every token, in a trie."""

    @property
    def vocab_size(self) -> int: ...

    def is_special_token(self, token: int, /) -> bool: ...


class Matcher(Protocol):
    """A grammar and a position in it; one thread at a time.

    Copies share what was worked out of the grammar (behind a lock of the library's own), so they
    are cheap, and each makes the others faster.
    """

    def deep_copy(self) -> "Matcher": ...

    def is_error(self) -> bool: ...

    def get_error(self) -> str: ...

    def is_accepting(self) -> bool: ...

    def is_stopped(self) -> bool: ...

    def stop_reason(self) -> str: ...

    def rollback(self, num_tokens: int, /) -> bool: ...

    def try_consume_tokens(self, tokens: list[int], /) -> int: ...

    def compute_bitmask(self) -> bytes: ...


def load_library() -> Any:
    """The library.

    Raises:
        ValidationError: it isn't installed; names the extra.
    """
    try:
        return importlib.import_module("llguidance")
    except ImportError as error:
        raise ValidationError(
            parameter="structured_outputs",
            value="this form",
            why="it needs the package llguidance; install it with pip install 'tenure[structured]'",
        ) from error
