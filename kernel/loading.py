"""How far the loading of a model is, told to whoever opens an engine.

The library prints nothing: a service logs it, a notebook draws a bar, the command line draws one
on a terminal.
"""

from collections.abc import Callable

import attrs

__all__ = ["LoadProgress", "OnProgress", "no_progress"]


@attrs.frozen
class LoadProgress:
    """A moment of the loading; the last one has ``done_bytes == total_bytes``."""

    done_bytes: int
    """Of the weights as they lie on disk."""
    total_bytes: int
    tensor: str
    """The one that is being read."""

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        return self.done_bytes / self.total_bytes if self.total_bytes else 1.0


OnProgress = Callable[[LoadProgress], None]
"""Called by the thread that loads; what it raises ends the loading and comes out of the opening."""


def no_progress(_progress: LoadProgress) -> None:
    """Nobody asked."""
