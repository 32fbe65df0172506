"""Code that isn't ours, run between two handlers: what it raises is told, and never thrown.

A template, a tokenizer or a grammar may be written in another language, whose failures are no
``Exception`` (a panic in Rust is a ``BaseException``). Thrown from there, one would end the
dispatcher, and with it the turns of everybody.
"""

from collections.abc import Callable

from kernel.errors import EngineFault

__all__ = ["failure_of"]


def failure_of(call: Callable[[], object], whose: str) -> Exception | None:
    """Call it, and return what it raised as an error for the one caller whom it concerns.

    Args:
        call: a plain call.
        whose: as the error names it, where what was raised is no error itself.

    Raises:
        KeyboardInterrupt: meant for the process; ``SystemExit`` is, too.
    """
    try:
        call()
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        return error
    except BaseException as panic:
        fault = EngineFault(actor=whose, why=repr(panic))
        fault.__cause__ = panic
        return fault
    return None
