"""Looks over the kernel's shoulder: every post and every handler of one engine.

It puts itself before the dispatcher's ``post`` and ``spawn`` and before the handlers of the actors
that live, of this engine alone. There it lets time pass, plants crashes, asks what must always
hold, and counts what has been seen.
"""

from collections.abc import Callable
from typing import Any, Protocol, cast

from kernel.actors.actor import Address, AnyActor
from kernel.actors.supervision import Child
from kernel.engine.core import Core
from kernel.ids import GPU_POOL, STORE
from kernel.messages import (
    Cancel,
    CloseSession,
    Down,
    DropMark,
    GaveUp,
    Hibernate,
    Interrupt,
    InterruptTurn,
    Parked,
    PhaseAbsorbed,
    ReadOutState,
    RestoreMark,
    Rewind,
    SetMark,
    StartTurn,
    StepOverdue,
    Submit,
    Tick,
)
from kernel.messages.store import StoreOverdue
from kernel.scheduling.scheduler import Scheduler
from kernel.sessions.session import SessionActor
from kernel.testing import invariants
from kernel.testing.simulation.decisions import Track
from kernel.testing.simulation.histories import Histories
from kernel.testing.simulation.tiers import watch_parking, what_becomes_of, where_parked
from kernel.testing.simulation.timeline import Timeline
from ownership import CustodianId

__all__ = ["Crash", "Observer"]

_HOPS_S = (0.0, 8e-4, 2.1e-3, 2.1e-3)
"""What handling a message may cost. With the last ones the dispatcher is out of its budget after
each message, so that callers come in between any two."""
_CHANGES = (InterruptTurn, Rewind, SetMark, RestoreMark, DropMark)
_CHECKED_EACH = 24
"""Messages from one look at everything to the next."""


class Crash(Exception):
    """Planted: an error of the handler's own."""


class Struck(BaseException):
    """Planted right after a post, where only an interrupt can strike; no guard may catch it."""


class _World(Protocol):
    timeline: Timeline
    log: list[tuple[object, ...]] | None

    @property
    def seen(self) -> dict[str, int]: ...

    def fail(self, kind: str, message: str) -> None: ...

    def track(self, name: str) -> Track: ...


class Observer:
    """Watches one engine.

    Attributes:
        histories: every session's history and every turn.
        deaths: how many actors were made to die, and by what they may die of in peace.
        crashes: planted crashes that have struck, those that a handler survived included.
    """

    def __init__(self, world: _World, core: Core) -> None:
        self._world = world
        self._core = core
        self.histories = Histories(core, world.fail)
        self.deaths = 0
        self.crashes = 0
        self._hop_s = world.track("speed").pick(_HOPS_S)
        self._moments = 0
        self._planted = ""
        self._inside: CustodianId | None = None
        self._checked_in = _CHECKED_EACH
        self._refused: set[str] = set()
        dispatcher = core.dispatcher
        self._post_for_real: Callable[..., Any] = dispatcher.post
        self._spawn_for_real = dispatcher.spawn
        self._watchers: dict[type[object], Callable[[CustodianId, Any], None]] = {
            **dict.fromkeys(_CHANGES, self.histories.asked),
            StartTurn: self._saw_start,
            Submit: self._saw_submit,
            Cancel: self._saw_cancel,
            Interrupt: self._saw_interrupt,
            GaveUp: self._saw_answer,
            PhaseAbsorbed: self._saw_phase,
            ReadOutState: self._saw_read_out,
            Hibernate: self._saw_hibernate,
        }
        for actor in dispatcher.actors():
            self._watch(actor)
        # Of this dispatcher alone; its class stays as it is.
        for name, method in (("post", self._post), ("spawn", self._spawn)):
            setattr(dispatcher, name, method)

    def arm(self, what: str, moment: int) -> None:
        """Let an actor of that kind crash at its n-th moment from now.

        A moment: a message is begun, a post is about to be made, was made, a message is done.
        """
        self._planted, self._moments = what, moment

    def disarm(self) -> None:
        """Plant nothing any more."""
        self._planted = ""

    def expect_death(self, name: CustodianId) -> None:
        """An actor is about to die on purpose."""
        self.deaths += 1
        self._saw(f"death of a {_kind(name)}")

    # In front of the dispatcher

    def _spawn(self, actor: AnyActor, child: Child | None = None) -> None:
        self._spawn_for_real(actor, child)
        self._watch(actor)
        if actor.incarnation > 1:
            self._saw(f"restart of the {actor.name}")

    def _post(self, target: Address[Any], message: Any, sender: CustodianId, /) -> Any:
        is_own = self._planted and sender == self._inside
        if is_own:
            self._pass_moment(sender)
        kind = cast("type[object]", type(message))
        watcher = self._watchers.get(kind)
        if watcher is not None:
            watcher(target.name, message)
        left = self._post_for_real(target, message, sender)
        if is_own and self._planted:
            self._pass_moment(sender, Struck)
        return left

    def _watch(self, actor: AnyActor) -> None:
        if isinstance(actor, SessionActor):
            self.histories.session_born(actor)
        elif isinstance(actor, Scheduler):
            watch_parking(actor.parking, self._saw)
        handle = actor.handle

        def watched(message: Any) -> None:
            self._handle(actor, message, handle)

        setattr(actor, "handle", watched)  # noqa: B010  of this one actor, not of its class

    def _handle(self, actor: AnyActor, message: Any, handle: Callable[[Any], None]) -> None:
        self._world.timeline.advance(self._hop_s)
        self._inside = name = actor.name
        self._look_at(actor, message)
        try:
            if self._planted:
                self._pass_moment(name)
            handle(message)
            if self._planted:
                self._pass_moment(name)
        except (Crash, Struck):
            self.expect_death(name)
            raise
        except BaseException as error:
            if name == GPU_POOL and isinstance(message, StepOverdue):
                self.expect_death(name)
                self._saw("quarantine")
            elif name == STORE and isinstance(message, StoreOverdue):
                self.expect_death(name)
            else:
                what = f"{name} raised {error!r} at {type(message).__name__}"
                self._world.fail("handler", what)
            raise
        finally:
            self._inside = None
        if isinstance(actor, SessionActor):
            self.histories.handled(actor)
        elif isinstance(message, Tick):
            self._look_at_waiting()
        self._checked_in -= 1
        if not self._checked_in:
            self._checked_in = _CHECKED_EACH
            self.check_always()

    def check_always(self) -> None:
        """Look at everything, and compare."""
        reclaims = self.deaths > 0
        for broken in invariants.always(self._core, deaths=self.deaths, reclaims=reclaims):
            self._world.fail(broken.property, broken.message)

    def _pass_moment(self, name: CustodianId, what: type[BaseException] = Crash) -> None:
        if _kind(name) == self._planted:
            self._moments -= 1
            if self._moments < 0:
                self._planted = ""
                self.crashes += 1
                self._saw(f"crash of a {_kind(name)}")
                raise what(f"planted into {name}")

    # What has been seen

    def _saw(self, what: str) -> None:
        self._world.seen[what] += 1

    def _look_at(self, actor: AnyActor, message: Any) -> None:
        if isinstance(message, CloseSession) and isinstance(actor, SessionActor):
            if actor.active is not None and self._is_in_flight(actor.active.id):
                self._saw("close in flight")
        elif isinstance(message, Parked) and isinstance(actor, SessionActor):
            self._saw(what_becomes_of(message, actor))
        elif isinstance(message, Down):
            self._saw("told of a death")

    def _saw_start(self, name: CustodianId, message: StartTurn) -> None:
        self.histories.started(name, message.request)

    def _saw_submit(self, _: CustodianId, message: Submit) -> None:
        self.histories.submitted(message.turn)

    def _saw_answer(self, _: CustodianId, message: GaveUp) -> None:
        self._saw("give-up" if message.moved else "give-up refused")

    def _saw_phase(self, *_: object) -> None:
        self._saw("absorbed in a phase of its own")

    def _saw_read_out(self, *_: object) -> None:
        self._saw("a state is read out")

    def _saw_hibernate(self, *_: object) -> None:
        stored = self._core.stored
        if stored is not None and stored.waking.is_crowded:
            self._saw("asked to go for one that waits")

    def _look_at_waiting(self) -> None:
        """Whoever waits after a tick was refused, for want of room or of a row."""
        scheduler = self._core.scheduler
        for turn in scheduler.roster.waiting if scheduler is not None else ():
            if turn.id not in self._refused:
                self._refused.add(turn.id)
                self._saw("refused: a later turn" if turn.history_len else "refused: a first turn")

    def _saw_cancel(self, _: CustodianId, message: Cancel) -> None:
        scheduler = self._core.scheduler
        turn = None if scheduler is None else scheduler.roster.get(message.turn)
        if scheduler is None or turn is None:
            return
        if where := where_parked(scheduler, turn):
            self._saw(f"cancelled {where}")
        if turn.in_flight:
            self._saw("cancel in flight")
        elif turn.output.preemptions and turn.position == 0:
            self._saw("preempted, then cancelled")
        else:
            self._saw("cancel while queued or between two steps")

    def _saw_interrupt(self, _: CustodianId, message: Interrupt) -> None:
        in_flight = self._is_in_flight(message.turn)
        self._saw("interrupt in flight" if in_flight else "interrupt while nothing runs")
        scheduler = self._core.scheduler
        turn = None if scheduler is None else scheduler.roster.get(message.turn)
        if scheduler is not None and turn is not None and (where := where_parked(scheduler, turn)):
            self._saw(f"interrupted {where}")

    def _is_in_flight(self, turn: Any) -> bool:
        scheduler = self._core.scheduler
        found = None if scheduler is None else scheduler.roster.get(turn)
        return found is not None and found.in_flight


def _kind(name: CustodianId) -> str:
    return name.partition(":")[0]
