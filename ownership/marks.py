"""Marks that say who owns what: the type checkers see through them, the move checker reads them.

``Consume[BatchOwned]`` *is* ``BatchOwned`` for mypy, for pyright and at run time. The mark tells a
reader, and ``python -m ownership.lint``, that the call spends the argument.
"""

import enum
from typing import Annotated, TypeAlias, TypeVar

__all__ = ["Consume", "Mark", "Owns"]

T = TypeVar("T")


class Mark(enum.Enum):
    """What stands beside the type in :func:`typing.get_type_hints` with ``include_extras``."""

    CONSUME = "consume"
    OWNS = "owns"


Consume: TypeAlias = Annotated[T, Mark.CONSUME]
"""Marks a parameter that the call spends; a parameter without the mark borrows."""

Owns: TypeAlias = Annotated[T, Mark.OWNS]
"""Marks a field that owns the handles in it: store moves in, ``pop`` moves out."""
