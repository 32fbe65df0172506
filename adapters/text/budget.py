"""How long a template may run and how much it may write: counted at loops, calls and output."""

import time

import attrs

from adapters.text.errors import TemplateOverrun

__all__ = ["Budget", "TemplateLimits"]

_LARGE = 1 << 16
"""Characters of a value that is worth a look at the clock."""


@attrs.frozen
class TemplateLimits:
    """The bounds of one rendering."""

    steps: int = 2_000_000
    """Rounds of loops and calls."""
    chars: int = 16_000_000
    """Text written, and the longest text or list that one operation may make."""
    large_values: int = 32
    """How often ``chars`` all large values together may have: a template might keep them all."""
    seconds: float = 2.0


@attrs.define(eq=False)
class Budget:
    """What one rendering has left.

    The clock is read at every 256th step, and where a value is large: an operation that is slow by
    itself can be seen only after it.
    """

    limits: TemplateLimits
    _steps: int = attrs.field(default=0, init=False)
    _chars: int = attrs.field(default=0, init=False)
    _large: int = attrs.field(default=0, init=False)
    _deadline: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._deadline = time.monotonic() + self.limits.seconds

    def step(self) -> None:
        """Count one round of a loop, or one call.

        Raises:
            TemplateOverrun: there were too many, or the time is up.
        """
        self._steps += 1
        if self._steps > self.limits.steps:
            raise TemplateOverrun(why=f"the template made more than {self.limits.steps} steps")
        if self._steps % 256 == 0:
            self._check_clock()

    def write(self, chars: int) -> None:
        """Count text that was written.

        Raises:
            TemplateOverrun: it is too much.
        """
        self._chars += chars
        self._check_chars(self._chars)

    def check_size(self, size: int) -> None:
        """Refuse an operation whose result would be too long.

        Raises:
            TemplateOverrun: it would, or the large ones are too many, or the time is up.
        """
        self.check_extent(size)
        if size > _LARGE:
            self._large += size
            self._check_chars(self._large // self.limits.large_values)

    def check_extent(self, size: int) -> None:
        """Refuse to look at a value that is too long; no other is made of it.

        Raises:
            TemplateOverrun: it is, or the time is up.
        """
        self._check_chars(size)
        if size > _LARGE:
            self._check_clock()

    def _check_clock(self) -> None:
        if time.monotonic() > self._deadline:
            raise TemplateOverrun(why=f"the template ran longer than {self.limits.seconds:g} s")

    def _check_chars(self, size: int) -> None:
        if size > self.limits.chars:
            raise TemplateOverrun(
                why=f"the template made a text of more than {self.limits.chars} characters"
            )
