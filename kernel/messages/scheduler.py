"""What the scheduler is told: by sessions, the GPU pool, and itself; no handle travels in it."""

from typing import ClassVar

import attrs

from kernel.ids import TurnId
from kernel.messages.session import EndReason
from kernel.step import StepReport, TransferReport
from kernel.turn import OpenTurn
from ownership import Base, BaseName, CustodianId, Lease

__all__ = [
    "Cancel",
    "ClearCache",
    "Continue",
    "GaveUp",
    "Interrupt",
    "ReadOutState",
    "Rested",
    "StepLanded",
    "Submit",
    "Tick",
]


@attrs.frozen
class Submit:
    """A turn to run. It holds no handle and pins nothing; it names its base."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: OpenTurn


@attrs.frozen
class Continue:
    """The first phase of a turn was committed; go on from there."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    base: Base


@attrs.frozen
class Cancel:
    """Forget a turn: its session already has."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId


@attrs.frozen
class Interrupt:
    """End a turn at its landing, keeping at most ``keep`` generated tokens."""

    carries: ClassVar[tuple[str, ...]] = ()
    turn: TurnId
    keep: int | None
    reason: EndReason


@attrs.frozen
class GaveUp:
    """The answer to :class:`GiveUp`: ``moved`` is False when there was nothing to give."""

    carries: ClassVar[tuple[str, ...]] = ()
    base: BaseName
    moved: bool


@attrs.frozen
class ReadOutState:
    """Read a state out into an image; it stays where it is. Answered exactly once.

    Its session asks, so that whatever it does with the image is its own decision.
    """

    carries: ClassVar[tuple[str, ...]] = ()
    session: CustodianId
    base: BaseName


@attrs.frozen
class Rested:
    """A session came to rest, closed, or handled a death: what it holds has changed."""

    carries: ClassVar[tuple[str, ...]] = ()


@attrs.frozen
class StepLanded:
    """The device is done with a lease: a step, or a transfer."""

    carries: ClassVar[tuple[str, ...]] = ()
    lease: Lease
    report: StepReport | TransferReport


@attrs.frozen
class ClearCache:
    """Evict all states of the prefix cache."""

    carries: ClassVar[tuple[str, ...]] = ()
    forever: bool
    """And take no more: the engine closes."""


@attrs.frozen
class Tick:
    """The scheduler's message to itself: all mail that came before has been seen."""

    carries: ClassVar[tuple[str, ...]] = ()
