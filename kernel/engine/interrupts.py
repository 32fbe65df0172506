"""Ctrl-C and the kernel: it strikes the caller's own code, and never between two moves of ours.

On trio an interrupt is raised wherever the main thread happens to be, unless that code is
protected; then it is raised in the main task, at its next checkpoint. Protected here are the task
that runs the actors, with its stop; what callers change synchronously on the way in and out; and
the waits of callers: one that is struck at the wrong moment leaves a dead task in an event's list,
and setting that event breaks trio's own loop.

On asyncio the first interrupt is a cancellation of the main task, which strikes at an ``await``. A
second one counts as the crash of whatever handler it strikes. No signal handler is installed.
"""

import sys
from collections.abc import Callable
from typing import Any

from kernel.actors.dispatcher import Dispatcher
from kernel.actors.mailbox import Mailbox
from kernel.actors.reply import Reply
from kernel.engine.request import RunningTurn
from kernel.engine.shell import Shell
from kernel.engine.streaming_session import Session
from kernel.requests.output_buffer import TurnOutput

__all__ = ["protect_from_keyboard_interrupt"]

_PROTECTED: tuple[Callable[..., object], ...] = (
    Shell.run,
    Shell.until,
    Mailbox[Any].post,
    Dispatcher.post_later,
    Reply[Any].wait,
    TurnOutput.wait_ended,
    TurnOutput.next_delta,
    RunningTurn.__aenter__,
    RunningTurn.__aexit__,
    RunningTurn.interrupt,
    Session.__aenter__,
    Session.__aexit__,
    Session.interrupt,
    Session.close,
)


def protect_from_keyboard_interrupt() -> None:
    """Mark the kernel's own functions for trio, if trio is in use; idempotent."""
    trio = sys.modules.get("trio")
    if trio is not None:
        for function in _PROTECTED:
            trio.lowlevel.enable_ki_protection(function)
