"""A daemon thread that is asked to end when the interpreter does, and tells what goes wrong in it.

A thread that isn't a daemon keeps the process for as long as a disk or a device hangs. One that is
and nothing more is cut off in the middle of what it does. This one is a daemon that a hook asks to
end at exit, and that gets a few seconds for it.
"""

import atexit
import sys
import threading
from collections.abc import Callable

__all__ = ["EXIT_S", "PoliteThread", "tell_fault"]

EXIT_S = 5.0
"""Most seconds that the end of the interpreter waits for one thread."""


class PoliteThread:
    """Runs a function that ends soon after it is asked to.

    Args:
        work: runs in the thread, from now on: all that it needs must be there already.
        name: of the thread.
        stop: asks ``work`` to end and returns at once; called at exit, also after an earlier stop.

    Raises:
        RuntimeError: the system gives no more threads; there is nothing to end then.
    """

    def __init__(self, work: Callable[[], None], *, name: str, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended; False when it still runs at the deadline."""
        self._thread.join(timeout_s)
        has_ended = not self._thread.is_alive()
        if has_ended:
            atexit.unregister(self._leave)  # which would keep all that the work holds
        return has_ended

    def _leave(self) -> None:
        # A process that was forked has the hook and not the thread; the thread may have held a
        # lock that ``stop`` would wait for.
        if self._thread.is_alive():
            self._stop()
            self._thread.join(EXIT_S)


def tell_fault() -> None:
    """Hand the exception that is being handled to ``threading.excepthook``; never raises.

    For the mistake of a callback, which must not cost the thread that calls it.
    """
    kind, error, trace = sys.exc_info()
    if kind is None:
        return
    fault = threading.ExceptHookArgs((kind, error, trace, threading.current_thread()))
    try:
        threading.excepthook(fault)
    except BaseException as worse:  # the application's hook is no reason to end either
        sys.__excepthook__(type(worse), worse, worse.__traceback__)
