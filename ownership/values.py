"""What goes into the verbs and comes out of them: frozen values that hold and pin nothing."""

import enum
from typing import Final, Literal, final

import attrs

from ownership.ids import CustodianId

__all__ = [
    "ZEROS",
    "Absorbed",
    "Base",
    "BaseName",
    "Capacity",
    "GrowResult",
    "Grown",
    "LandOutcome",
    "Need",
    "Reclaimed",
    "Refused",
    "StepFailed",
    "Zeros",
]


@attrs.frozen
class Capacity:
    """How much there is to own."""

    slots: int = attrs.field(validator=attrs.validators.ge(0))
    """0: the model keeps no recurrent state, and claims take no slot."""
    pages: int = attrs.field(validator=attrs.validators.ge(0))
    """0: the model keeps no key/value cache, and claims take no page."""
    page_size: int = attrs.field(validator=attrs.validators.ge(1))
    """Token positions per page."""

    def __attrs_post_init__(self) -> None:
        if not self.slots and not self.pages:
            msg = "a ledger of no slots and no pages has nothing to own"
            raise ValueError(msg)


@attrs.frozen
class Need:
    """What a claim must be able to hold."""

    positions: int
    """Token positions, counted from 0, that the claim's pages must cover."""
    first_page: int = 0
    """Pages before this one are not kept: a claim that starts from a base with more of them copies
    the rest, and shares nothing with it."""


@final
@attrs.frozen
class BaseName:
    """Names a session's or the cache's state by holder and version; a value, pins nothing."""

    holder: CustodianId
    version: int


class Zeros(enum.Enum):
    """The type of :data:`ZEROS`."""

    ZEROS = "zeros"


ZEROS: Final = Zeros.ZEROS
"""The base of a turn that starts from nothing."""

Base = BaseName | Zeros


@attrs.frozen
class Refused:
    """There was no room, or no such base; nothing was changed. A value, not an error."""

    reason: Literal["room", "base"]
    """``"base"``: the state named was given up or replaced since."""
    slots_short: int
    pages_short: int


@attrs.frozen
class Grown:
    """The claim covers what was needed."""

    pages: int
    """Pages that this call added; 0 when the claim covered the need already."""


GrowResult = Grown | Refused


@attrs.frozen
class Absorbed:
    """The step ran."""

    tokens: tuple[int, ...]
    """Tokens that each row absorbed, in the order of the launch."""


@attrs.frozen
class StepFailed:
    """The step failed: every row's slot and exclusive pages are undefined now."""

    why: str


LandOutcome = Absorbed | StepFailed


@attrs.frozen
class Reclaimed:
    """What a dead custodian left behind, by the type of the handle."""

    batch: int
    session: int
    cache: int
