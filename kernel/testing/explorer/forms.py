"""Canonical forms of claims, turns and messages, with every identity renamed."""

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from kernel.core import Core
from kernel.ids import TurnId
from kernel.messages import (
    Cancel,
    CancelTurn,
    CloseSession,
    Continue,
    Down,
    ForgetIdle,
    GaveUp,
    GiveUp,
    Interrupt,
    InterruptTurn,
    LaunchStep,
    PhaseAbsorbed,
    Rested,
    StartTurn,
    StepCompleted,
    StepLanded,
    StepOverdue,
    StopFound,
    Submit,
    Tick,
    TurnAlarm,
    TurnEnded,
    TurnFailed,
    TurnFinished,
    WorkerEnded,
)
from kernel.turn import OpenTurn
from ownership import ZEROS, Base, BaseName, Lease

__all__ = ["MESSAGES_WITH_A_FORM", "Names", "field", "message_form", "turn_form"]


@cache
def _getter(name: str) -> Callable[[object], Any]:
    return attrgetter(name)


def field(owner: object, name: str) -> Any:
    """A field of the kernel that is nobody else's business; the explorer reads all of a state."""
    return _getter(name)(owner)


class Names:
    """Gives out numbers in the order in which things are met.

    Args:
        core: whose state is walked.
        conversations: names of the conversations; the walk calls them by their place in here.
    """

    def __init__(self, core: Core, conversations: Sequence[str]) -> None:
        self.core = core
        self._book = field(core.ledger, "_book")
        self._places = {name: str(place) for place, name in enumerate(conversations)}
        self._claims: dict[int, int] = {}
        self._things: dict[tuple[str, object], int] = {}

    def turn(self, turn: TurnId | str | None) -> str:
        """A turn by the place of its conversation and its number in there."""
        if turn is None:
            return ""
        return self._places.get(turn[:-1], turn[:-1]) + "." + turn[-1]

    def actor(self, name: str) -> str:
        kind, _, conversation = name.partition(":")
        return f"{kind}:{self._places.get(conversation, conversation)}"

    def number(self, kind: str, thing: object) -> int:
        return self._things.setdefault((kind, thing), len(self._things))

    def step(self, step: int) -> int:
        return self.number("step", step)

    def lease(self, lease: Lease) -> Any:
        """A lease by its step, and all its claims the first time that it is met."""
        entry = self._book.live_leases.get(id(lease))
        if entry is None:
            return "landed"
        number = entry.step.number
        is_new = ("step", number) not in self._things
        name = self.step(number)
        if not is_new:
            return name
        return (name, entry.step.quarantined, tuple(map(self.claim, entry.claims)))

    def handle(self, handle: object) -> Any:
        """The claim of a handle."""
        if handle is None:
            return None
        record = self._book.live.get(id(handle))
        return "spent" if record is None else self.claim(record)

    def claim(self, record: Any) -> Any:
        """A claim: by number, and all of it the first time that it is met."""
        known = self._claims.get(record.number)
        if known is not None:
            return known
        number = self._claims[record.number] = len(self._claims)
        return (
            number,
            record.kind.value,
            record.position,
            record.content.value,
            self.number("slot", record.slot),
            tuple([self.number("page", page) for page in record.exclusive]),
            self.run(record.tip),
            record.pins,
            None if record.base is None else self.claim(record.base),
            record.origin if record.origin is None else self._claims.get(record.origin, -1),
            record.custodian in ("scheduler", "gpu-pool", "device"),
        )

    def run(self, run: Any) -> Any:
        if run is None:
            return None
        is_new = ("run", run.number) not in self._things
        name = self.number("run", run.number)
        if not is_new:
            return name
        pages = tuple([self.number("page", page) for page in run.pages])
        return (name, pages, run.count, self.run(run.parent))

    def base(self, base: Base) -> Any:
        """A base by the claim that it names, or as one that is gone."""
        if not isinstance(base, BaseName):
            return "zeros" if base is ZEROS else repr(base)
        record = self._book.names.get((base.holder, base.version))
        if record is None:
            return ("gone", self.actor(base.holder), self.number("base", base))
        return ("state", self.claim(record))

    def reply(self, reply: Any) -> Any:
        outcome = field(reply, "_outcome")
        if outcome is None or isinstance(outcome, tuple):
            return outcome
        return type(outcome).__name__

    def rest_of_ledger(self) -> Any:
        """What no actor has led to, and the order in which states were committed."""
        book = self._book
        others = tuple(
            self.claim(record)
            for record in book.claims.values()
            if record.number not in self._claims
        )
        order = tuple(self._claims.get(record.number, -1) for record in book.names.values())
        return (others, order, len(book.free_slots), len(book.free_pages), len(book.leases))


def turn_form(names: Names, turn: OpenTurn, claim: object) -> tuple[Any, ...]:
    """A turn at the scheduler, or on its way there."""
    return (
        names.turn(turn.id),
        turn.state.value,
        names.handle(claim),
        names.base(turn.base),
        turn.absorb_first,
        tuple(turn.new),
        turn.input_len,
        turn.history_len,
        turn.position,
        turn.covered if turn.covered < 1 << 40 else -1,
        turn.has_landed,
        turn.in_flight,
        turn.cancelled,
        turn.interrupt_keep,
        turn.interrupt_reason,
        turn.was_admitted,
    )


def message_form(names: Names, actor: Any, message: Any) -> tuple[Any, ...]:
    """A message under way to an actor."""
    kind = type(message).__name__
    make = _FORMS.get(type(message))
    if make is None:
        raise TypeError(f"{kind} has no canonical form: tell kernel.testing.explorer.forms of it")
    return (kind, *make(names, actor, message))


def _error(error: object) -> str:
    return type(error).__name__


_FORMS: dict[type, Callable[[Names, Any, Any], tuple[Any, ...]]] = {
    StartTurn: lambda n, _a, m: (n.turn(m.request.id),),
    CancelTurn: lambda n, _a, m: (n.turn(m.turn), m.reason),
    InterruptTurn: lambda n, _a, m: (n.turn(m.turn), m.keep, m.is_leaving),
    StopFound: lambda n, _a, m: (n.turn(m.turn), _error(m.error)),
    TurnAlarm: lambda n, _a, m: (n.turn(m.turn), m.kind),
    ForgetIdle: lambda n, a, m: (a is not None and field(a, "_deadlines").is_this_rest(m.rest),),
    CloseSession: lambda n, _a, m: (_error(m.error),),
    TurnFinished: lambda n, _a, m: (
        n.turn(m.turn),
        m.reason,
        m.stop_token,
        m.kept,
        n.handle(m.claim),
    ),
    TurnEnded: lambda n, _a, m: (n.turn(m.turn), m.kept),
    TurnFailed: lambda n, _a, m: (n.turn(m.turn), _error(m.error)),
    PhaseAbsorbed: lambda n, _a, m: (n.turn(m.turn), n.handle(m.claim)),
    GiveUp: lambda n, _a, m: (n.base(m.base),),
    Submit: lambda n, _a, m: turn_form(n, m.turn, None),
    Continue: lambda n, _a, m: (n.turn(m.turn), n.base(m.base)),
    Cancel: lambda n, _a, m: (n.turn(m.turn),),
    Interrupt: lambda n, _a, m: (n.turn(m.turn), m.keep, m.reason),
    GaveUp: lambda n, _a, m: (n.base(m.base), m.moved),
    Rested: lambda n, _a, m: (),
    StepLanded: lambda n, _a, m: (n.lease(m.lease), *_report(m.report)),
    Tick: lambda n, _a, m: (),
    Down: lambda n, _a, m: (
        n.actor(m.name),
        n.core.dispatcher.incarnation_of(m.name) - m.incarnation,
    ),
    LaunchStep: lambda n, _a, m: (
        n.lease(m.lease),
        tuple((tuple(row.tokens), row.sampling is not None) for row in m.rows),
    ),
    StepCompleted: lambda n, _a, m: (n.step(m.step), *_report(m.report)),
    StepOverdue: lambda n, _a, m: (n.step(m.step),),
    WorkerEnded: lambda n, _a, m: (tuple(map(n.step, m.steps)),),
}


MESSAGES_WITH_A_FORM = tuple(_FORMS)


def _report(report: Any) -> tuple[Any, ...]:
    if hasattr(report, "tokens"):
        return ("done", report.tokens)
    return ("failed", report.device_lost)
