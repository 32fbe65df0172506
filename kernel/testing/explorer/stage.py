"""One explored engine: the real core, its callers and its device, moved by one event at a time."""

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import attrs

from kernel.actors.actor import AnyActor, Timer
from kernel.actors.mailbox import Mailbox
from kernel.engine.core import Core
from kernel.environment import Environment
from kernel.messages import Rested, Tick
from kernel.messages.store import StoreOverdue
from kernel.probe import NullProbe
from kernel.testing.explorer.callers import Asked, Caller
from kernel.testing.explorer.events import Event
from kernel.testing.explorer.held_device import Ending, HeldDevice, HeldStep, borrow, give_back
from kernel.testing.explorer.held_store import HeldStore
from kernel.testing.explorer.plant import Planted, Planter
from kernel.testing.explorer.timers import message_of
from kernel.testing.explorer.world import World
from ownership import CustodianId

__all__ = ["Stage"]

_ready: Callable[[object], deque[Mailbox[Any]]] = attrgetter("_ready")
_timers: Callable[[object], list[tuple[float, int, Timer]]] = attrgetter("_timers")


@attrs.define(eq=False)
class _Clock:
    at: float = 0.0

    def __call__(self) -> float:
        return self.at


class Stage:
    """A world at one moment.

    Attributes:
        moves_made, faults_made: what was spent of the world's budgets.
        deaths: actors that were made to die.
        moments: at how many moments the last handler's actor could have died.
        told: what the last event was, in words, if the stage ``narrates``.
        watches: note at which moments the actor of a handler could die.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock = _Clock()
        self.device = HeldDevice(borrow(world.model))
        self._choice = 0
        environment = Environment(
            clock=self.clock, choose=lambda _count: self._choice, random=bytes
        )
        self.store = None if world.config.session_store is None else HeldStore()
        self.core = Core(world.config, self.device, environment, NullProbe(), store=self.store)
        self.planter = Planter()
        if "crash" in world.faults:
            self.planter.install(self.core)
        self.core.start()
        self.callers = [Caller(plan, self.core) for plan in world.conversations]
        for caller in self.callers:
            if not caller.plan.is_one_shot and caller.plan.fork_of is None:
                caller.open()
        self.moves_made = 0
        self.faults_made = 0
        self.deaths = 0
        self.reclaims = False
        self.told = ""
        self.narrates = False
        self.watches = False

    def close(self) -> None:
        """The stage is not used any more; its device may be."""
        give_back(self.world.model, self.device)

    # Looking in

    def caller(self, name: str) -> Caller:
        return next(caller for caller in self.callers if caller.plan.name == name)

    def asked(self, turn: str) -> tuple[Caller, Asked]:
        """A turn that was asked for, by its id."""
        for caller in self.callers:
            for asked in caller.asked:
                if asked.request.id == turn:
                    return caller, asked
        raise KeyError(turn)

    def salt_of(self, turn: str) -> str:
        """Under which a turn shares prefixes, as its caller has said."""
        for caller in self.callers:
            salt = ""
            for asked, plan in zip(caller.asked, caller.plan.turns, strict=False):
                salt = salt if plan.salt is None else plan.salt
                if asked.request.id == turn:
                    return salt
        raise KeyError(turn)

    def head(self, name: str) -> object:
        """The message that an actor would handle next."""
        actor = self.core.dispatcher.actor(CustodianId(name))
        return None if actor is None else next(iter(actor.mailbox), None)

    def is_wanted(self, held: HeldStep) -> bool:
        """Whether somebody waits for a step: its pool lives and has not given it up."""
        pool = self.core.recovery.pool
        return pool is not None and pool.worker is held.worker and held.step.step in pool.leases

    def deadline_of(self, held: HeldStep) -> Timer | None:
        """The timer of a step's deadline, unless it has fired."""
        number = held.step.step
        timers = (one for one in self.timers if getattr(message_of(one), "step", None) == number)
        return next(timers, None)

    @property
    def store_timer(self) -> Timer | None:
        """The timer of the store's deadline, unless it has fired."""
        return next((one for one in self.timers if isinstance(message_of(one), StoreOverdue)), None)

    @property
    def holds_states(self) -> bool:
        """Whether the prefix cache holds any."""
        scheduler = self.core.scheduler
        return (
            scheduler is not None and scheduler.cache is not None and bool(scheduler.cache.states)
        )

    @property
    def timers(self) -> list[Timer]:
        """All timers that may fire, the next one first."""
        entries = sorted(_timers(self.core.dispatcher), key=lambda entry: entry[:2])
        return [timer for _, _, timer in entries if not timer.is_cancelled]

    # Moving

    def perform(self, event: Event) -> None:
        """Let one event happen. Raises what the kernel raises, which it never should."""
        if self.narrates:
            self.told = str(event)
        self.moves_made += event.is_move
        self.faults_made += event.is_fault
        _ACTS[event.kind](self, event)
        self._drop_stale_mail()
        self._drop_idle_rests()

    def serve(self, actor: AnyActor) -> None:
        """Let one actor take its next message."""
        ready = _ready(self.core.dispatcher)
        self._choice = next(
            index for index, mailbox in enumerate(ready) if mailbox is actor.mailbox
        )
        self.core.dispatcher.run(1)

    def _drop_stale_mail(self) -> None:
        """Mailboxes of the dead leave the run queue when they are served; nothing else happens."""
        ready = _ready(self.core.dispatcher)
        while True:
            for index, mailbox in enumerate(ready):
                actor = self.core.dispatcher.actor(mailbox.owner)
                if actor is None or actor.mailbox is not mailbox or not len(mailbox):
                    self._choice = index
                    self.core.dispatcher.run(1)
                    break
            else:
                return

    def _drop_idle_rests(self) -> None:
        """Let the scheduler take each ``Rested`` that says nothing new: it has a tick to come."""
        scheduler = self.core.scheduler
        if scheduler is None:
            return
        mail = scheduler.mailbox
        while isinstance(next(iter(mail), None), Rested) and any(
            isinstance(message, Tick) for message in mail
        ):
            self.serve(scheduler)

    def deliver(self, event: Event) -> None:
        actor = self.core.dispatcher.actor(CustodianId(event.who))
        if actor is None:
            raise KeyError(event.who)
        strikes = event.kind == "crash"
        if self.narrates:
            self.told = f"{event.who} handles {next(iter(actor.mailbox))}"
        if not strikes and not self.watches:
            self.serve(actor)
            return
        self.planter.watch(actor, lambda: self.serve(actor), event.number if strikes else None)
        if strikes:
            self.deaths += self.planter.has_struck
            self.reclaims = True
            if self.narrates:
                self.told += f" and dies, {self.planter.moments[-1]}"

    def complete(self, event: Event) -> None:
        held = self.device.held[event.number]
        report = self.device.end(held, _ending(event.detail))
        if self.narrates:
            self.told = f"the device ends step {held.step.step}: {report}"

    def start(self, event: Event) -> None:
        caller = self.caller(event.who)
        if caller.is_asleep or caller.waking is not None:
            caller.wake()
            if caller.is_over or caller.is_asleep:
                if self.narrates:
                    self.told = f"the caller: wakes {event.who}"
                return
        if caller.actor is None:
            parent = caller.plan.fork_of
            if parent is not None:
                actor = self.caller(parent).actor
                if actor is None or actor.is_closed:
                    caller.is_over = True
                    return
                caller.open(actor)
            else:
                caller.open()
        caller.start()

    def poll(self, _event: Event) -> None:
        for timer in self.timers:
            if message_of(timer) is None:
                self._pass_time_until(timer)
                return

    def cancel(self, event: Event) -> None:
        caller, asked = self.asked(event.who)
        caller.cancel(asked)

    def interrupt(self, event: Event) -> None:
        caller, asked = self.asked(event.who)
        how = self.world.interrupts[event.number]
        if self.narrates:
            self.told += f", keeping {'all' if how.keep is None else how.keep}"
        caller.interrupt(asked, how)

    def close_session(self, event: Event) -> None:
        self.caller(event.who).close()

    def reset(self, _event: Event) -> None:
        self.core.clear_cache()

    def store_job(self, event: Event) -> None:
        if self.store is None:
            raise KeyError(event)
        job, report = self.store.end(event.detail == "done")
        if self.narrates:
            self.told = f"the store ends {job}: {report}"

    def shutdown(self, _event: Event) -> None:
        self.core.close_sessions()

    def alarm(self, event: Event) -> None:
        timer = self.timers[event.number]
        if self.narrates:
            self.told = f"time passes: {message_of(timer)}"
        self._pass_time_until(timer)

    def kill(self, event: Event) -> None:
        self.deaths += 1
        self.reclaims = True
        self.core.dispatcher.kill(CustodianId(event.who), Planted("killed between two messages"))

    def overdue(self, event: Event) -> None:
        if event.who:
            self._store_overdue()
            return
        held = self.device.held[event.number]
        timer = self.deadline_of(held)
        if timer is None:
            raise KeyError(event)
        if event.detail == "it completes just before":
            self.device.end(held, "done")
        self._pass_time_until(timer)
        if event.detail == "it completes just after":
            self.device.end(held, "done")
        self.deaths += event.detail != "it completes just before"
        self.reclaims = True

    def _store_overdue(self) -> None:
        timer = self.store_timer
        if timer is None:
            raise KeyError("nothing is overdue")
        self._pass_time_until(timer)
        self.deaths += 1
        self.reclaims = True

    def stop(self, _event: Event) -> None:
        self.core.stop(join_timeout_s=0.0)

    def _pass_time_until(self, timer: Timer) -> None:
        self.clock.at = max(self.clock.at, timer.at)
        self.core.dispatcher.run(0)


def _ending(detail: str) -> Ending:
    match detail:
        case "failed":
            return "failed"
        case "lost":
            return "lost"
        case _:
            return "done"


_ACTS: dict[str, Callable[[Stage, Event], None]] = {
    "deliver": Stage.deliver,
    "complete": Stage.complete,
    "start": Stage.start,
    "poll": Stage.poll,
    "cancel": Stage.cancel,
    "interrupt": Stage.interrupt,
    "close": Stage.close_session,
    "shutdown": Stage.shutdown,
    "alarm": Stage.alarm,
    "crash": Stage.deliver,
    "kill": Stage.kill,
    "overdue": Stage.overdue,
    "stop": Stage.stop,
    "reset": Stage.reset,
    "store": Stage.store_job,
}
