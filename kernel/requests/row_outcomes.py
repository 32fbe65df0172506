"""What a row of a step is asked beyond its token, and what it comes to."""

from collections.abc import Sequence

import attrs

from kernel.outputs import TokenLogprobs

__all__ = ["PromptScoring", "RowFault", "RowOutcome", "RowScores"]


@attrs.frozen
class PromptScoring:
    """Report how likely known tokens were: the i-th target follows the row's token ``start + i``.

    The last target may lie beyond the row's own tokens.
    """

    start: int
    targets: Sequence[int]
    count: int
    """So many of the likeliest are reported beside each target; -1: all."""


@attrs.frozen
class RowScores:
    """What a row comes to, where that is more than a token."""

    token: int | None
    """``None`` where ``sampling`` was ``None``."""
    drawn: TokenLogprobs | None = None
    """Of the position drawn for; has ``token``."""
    prompt: tuple[TokenLogprobs, ...] = ()
    """One for each target of ``scoring``."""
    is_last: bool = False
    """The turn's constraint lets nothing follow ``token``: the turn ends with it."""


@attrs.frozen
class RowFault:
    """No token could be drawn for the row; its own turn fails, and no other."""

    why: str
    error: BaseException | None = attrs.field(default=None, eq=False)
    is_undefined: bool = False
    """False: the row was computed; its slot and pages are as good as those of the other rows.
    True: the image that it was to start from isn't one of this model's. Nothing was computed, and
    its slot and exclusive pages are undefined, as after a failed step."""


RowOutcome = int | RowScores | RowFault | None
"""Of one row: the drawn token (with what else was asked for), why there is none, or ``None`` where
``sampling`` was ``None`` and nothing was asked for."""
