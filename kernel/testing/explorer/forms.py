"""Canonical forms of claims, turns and messages, with every identity renamed."""

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import attrs

from kernel.engine.core import Core
from kernel.ids import TurnId
from kernel.messages import Down, ForgetIdle
from kernel.session_store import StoreReport
from kernel.step import StepDone, TransferDone
from kernel.testing.explorer.job_form import job_form, report_form
from kernel.turn import OpenTurn
from ownership import Base, BaseName, Lease

__all__ = ["FIELDS_WITH_A_FORM", "Names", "field", "message_form", "turn_form"]


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

    def place(self, session: str) -> str:
        """A session by the place of its conversation."""
        return self._places.get(session, session)

    def number(self, kind: str, thing: object) -> int:
        return self._things.setdefault((kind, thing), len(self._things))

    def asked(self, number: int) -> int:
        """What a session has asked of the store, by the number that its answer will have."""
        return self.number("asked", number)

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
            self._origin(record),
            record.pool.place.value,
            record.first_page,
            record.custodian in ("scheduler", "gpu-pool", "device"),
        )

    def _origin(self, record: Any) -> Any:
        """The state that a claim started from, if it is still there under that name."""
        name = record.origin
        if name is None:
            return "nothing"
        origin = self._book.names.get((name.holder, name.version))
        return "gone" if origin is None else self._claims.get(origin.number, "not met")

    def run(self, run: Any) -> object:
        """A run of frozen pages: by number, and all of it the first time that it is met."""
        if run is None:
            return None
        is_new = ("run", run.number) not in self._things
        name = self.number("run", run.number)
        if not is_new:
            return name
        pages: Any = tuple([self.number("page", page) for page in run.pages])
        twin = None if run.twin is None else self.run(run.twin)
        return (name, pages, run.count, self.run(run.parent), twin)

    def base(self, base: Base) -> Any:
        """A base by the claim that it names, or as one that is gone."""
        if not isinstance(base, BaseName):
            return "zeros"
        record = self._book.names.get((base.holder, base.version))
        if record is None:
            return ("gone", self.actor(base.holder), self.number("base", base))
        return ("state", self.claim(record))

    def reply(self, reply: Any) -> object:
        """What a caller was answered, or the class of the error that it was given."""
        outcome: object = field(reply, "_outcome")
        return type(outcome).__name__ if isinstance(outcome, BaseException) else outcome

    def rest_of_ledger(self) -> Any:
        """What no actor has led to, and the order in which states were committed."""
        book = self._book
        others = tuple(
            self.claim(record)
            for record in book.claims.values()
            if record.number not in self._claims
        )
        order = tuple(self._claims.get(record.number, "not met") for record in book.names.values())
        free = tuple((len(p.free_slots), len(p.free_pages)) for p in book.pools.values())
        return (others, order, free, len(book.leases))


def turn_form(
    names: Names, turn: OpenTurn, claim: object, parked: object = None
) -> tuple[Any, ...]:
    """A turn at the scheduler, or on its way there."""
    return (
        names.turn(turn.id),
        turn.state.value,
        names.handle(claim),
        names.handle(parked),
        names.base(turn.base),
        tuple(names.base(base) for base in turn.fallbacks),
        turn.is_behind,
        turn.absorb_first,
        tuple(turn.new),
        turn.input_len,
        turn.history_len,
        turn.position,
        turn.covered if turn.covered < 1 << 40 else "without limit",
        turn.has_landed,
        turn.in_flight,
        turn.cancelled,
        turn.interrupt_keep,
        turn.interrupt_reason,
        turn.was_admitted,
        turn.first_page,
        turn.image is not None,
        turn.is_loading,
        turn.is_sliding,
    )


def message_form(names: Names, actor: Any, message: Any) -> tuple[Any, ...]:
    """A message under way to an actor: its class, and each of its fields renamed.

    Raises:
        TypeError: a field that nobody has said how to read.
    """
    kind = type(message).__name__
    match message:
        case Down():
            now = names.core.dispatcher.incarnation_of(message.name)
            return (kind, names.actor(message.name), now - message.incarnation)
        case ForgetIdle():
            is_due = actor is not None and field(actor, "_deadlines").is_this_rest(message.rest)
            return (kind, is_due)
        case _:
            pass
    form: list[Any] = [kind]
    for name in _fields_of(message.__class__):
        make = _FORMS.get(name)
        if make is None:
            raise TypeError(f"{kind}.{name} has no canonical form: say how to read it, in forms.py")
        form.append(make(names, getattr(message, name)))
    return tuple(form)


@cache
def _fields_of(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in attrs.fields(kind)) if attrs.has(kind) else ("",)


def _turn(names: Names, turn: Any) -> Any:
    return turn_form(names, turn, None) if isinstance(turn, OpenTurn) else names.turn(turn)


def _rows(_names: Names, rows: Any) -> Any:
    return tuple((tuple(row.tokens), row.sampling is not None) for row in rows)


def _report(names: Names, report: Any) -> Any:
    if isinstance(report, StoreReport):
        return report_form(names, report)
    if isinstance(report, StepDone):
        return ("done", report.tokens)
    if isinstance(report, TransferDone):
        return ("copied", tuple(image is not None for image in report.images))
    return ("failed", report.device_lost)


def _job(names: Names, job: Any) -> Any:
    """A job of the store, or the number that its actor knows it by."""
    return names.number("job", job) if isinstance(job, int) else job_form(names, job)


def _plain(_names: Names, value: Any) -> Any:
    return value


_FORMS: dict[str, Callable[[Names, Any], Any]] = {
    "turn": _turn,
    "request": lambda names, request: names.turn(request.id),
    "claim": Names.handle,
    "lease": Names.lease,
    "base": Names.base,
    "step": Names.step,
    "steps": lambda names, steps: tuple(map(names.step, steps)),
    "rows": _rows,
    "report": _report,
    "error": lambda _names, error: type(error).__name__,
    "reply": lambda _names, _reply: None,
    "reason": _plain,
    "stop_token": _plain,
    "kept": _plain,
    "keep": _plain,
    "kind": _plain,
    "moved": _plain,
    "forever": _plain,
    "session": Names.actor,
    "image": lambda _names, image: image is not None,
    "why": lambda _names, _why: None,
    "is_leaving": _plain,
    "stays_kept": _plain,
    "change": Names.asked,
    "number": Names.asked,
    "fault": lambda _names, fault: None if fault is None else fault.reason,
    "position": _plain,
    "begin": lambda _names, begin: None if begin is None else begin.tobytes(),
    "found": report_form,
    "asker": Names.actor,
    "session_id": Names.place,
    "jobs": lambda names, jobs: tuple(job_form(names, job) for job in jobs),
    "job": _job,
    "nbytes": _plain,
    "to": _plain,
    "name": _plain,
}

FIELDS_WITH_A_FORM = frozenset(_FORMS)
