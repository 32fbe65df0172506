"""Where an engine lives: one process, one thread, one event loop."""

import os
import threading
from typing import final

import anyio
import anyio.lowlevel

from kernel.errors import WrongContext

__all__ = ["EngineContext"]


@final
class EngineContext:
    """Remembers where it was made."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._process = os.getpid()
        self._loop = _loop_id()

    def check(self) -> None:
        """Pass if this call comes from there.

        Raises:
            WrongContext: another process, thread or event loop.
        """
        if os.getpid() != self._process:
            raise WrongContext(where="process")
        if threading.get_ident() != self._thread:
            raise WrongContext(where="thread")
        if _loop_id() != self._loop:
            raise WrongContext(where="event loop")


def _loop_id() -> int:
    """Which event loop runs here; 0 outside of any."""
    try:
        return id(anyio.lowlevel.current_token().native_token)
    except anyio.NoEventLoopError:
        return 0
