"""The dispatcher: a run queue, timers and supervision, all of it synchronous.

``run`` serves ready mailboxes one message at a time and returns; :mod:`kernel.engine.shell` is
the async task that calls it and waits in between. A hop is a deque append and a method call, so
an idle actor costs no task and a message no pass of the event loop. Without a shell the same
object is driven step by step, which is what an explorer does.

Code that isn't ours (a tokenizer, say) never runs inside a handler: handlers put a job *at the
edge*, and the dispatcher runs it right after the handler returned, before the next message. A job
must contain its own failure.
"""

import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from kernel.actors.actor import Address, AnyActor, Timer
from kernel.actors.mailbox import Mailbox, Message
from kernel.actors.supervision import Child, Down, RestartIntensity
from kernel.environment import Environment
from kernel.errors import EngineFault
from kernel.probe import Probe
from ownership import DEVICE, Consume, CustodianId, Ledger

__all__ = ["Dispatcher"]

M = TypeVar("M", bound=Message)
SUPERVISOR = CustodianId("supervisor")


@final
class Dispatcher:
    """Runs all actors of one engine, on one thread.

    Args:
        environment: time, order and ids.
        ledger: where custody of carried handles moves.
        probe: where deaths and restarts are reported.
        restarts: how many restarts are too many.
    """

    def __init__(
        self,
        environment: Environment,
        ledger: Ledger,
        probe: Probe,
        restarts: RestartIntensity,
    ) -> None:
        self._environment = environment
        self._ledger = ledger
        self._probe = probe
        self._restarts = restarts
        self._thread = threading.get_ident()
        self._actors: dict[CustodianId, AnyActor] = {}
        self._children: dict[CustodianId, Child] = {}
        self._incarnations: dict[CustodianId, int] = {}
        self._ready: deque[Mailbox[Any]] = deque()
        self._ring: Callable[[Mailbox[Any]], None] = self._enqueue  # one for all mailboxes
        self._inbox: deque[tuple[Address[Any], Message]] = deque()
        self._edge: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timers_compacted_at = 1024
        self._order = itertools.count()
        self.wake: Callable[[], None] = lambda: None
        self.wake_from_thread: Callable[[], None] = lambda: None
        self.on_give_up: Callable[[BaseException], None] = _ignore
        self.deaths = 0
        self.hops = 0

    # What actors ask of it

    def post(self, target: Address[M], message: Consume[M], sender: CustodianId, /) -> M | None:
        """Post to whoever lives under the name now; return the message when nobody does.

        What it carries is the message's from here on: whoever gets it back has that to give back.
        """
        actor = self._actors.get(target.name)
        if actor is None:
            return message
        return actor.mailbox.post(message, sender)

    def post_from_thread(self, target: Address[M], message: M, /) -> None:
        """Post a message without handles in custody, from any thread. Never blocks."""
        deliver = self._environment.deliver
        if deliver is not None:
            deliver(lambda: self.post(target, message, DEVICE))
        elif threading.get_ident() == self._thread:
            self.post(target, message, DEVICE)
        else:
            self.post_later(target, message)

    def post_later(self, target: Address[M], message: M, /) -> None:
        """Like ``post_from_thread``, and never at once: safe inside a finalizer."""
        self._inbox.append((target, message))
        self.wake_from_thread()

    def now(self) -> float:
        """Seconds on the engine's clock."""
        return self._environment.clock()

    def call_at(self, at: float, fire: Callable[[], object], /) -> Timer:
        """Call ``fire`` on the dispatcher at a time; it may post, and nothing else."""
        timer = Timer(at, fire)
        if len(self._timers) > self._timers_compacted_at:
            self._compact_timers()
        heapq.heappush(self._timers, (at, next(self._order), timer))
        if self._timers[0][2] is timer:
            self.wake()
        return timer

    def at_the_edge(self, job: Callable[[], None], /) -> None:
        """Run a job of foreign code after the current handler, outside of every actor."""
        self._edge.append(job)

    def incarnation_of(self, name: CustodianId, /) -> int:
        """Which life of the actor is under way (0: it never lived)."""
        return self._incarnations.get(name, 0)

    # Births and deaths

    def spawn(self, actor: AnyActor, child: Child | None = None) -> None:
        """Give an actor its mailbox and let it run. Synchronous: no task is started."""
        incarnation = self._incarnations.get(actor.name, 0) + 1
        if child is not None:
            self._incarnations[actor.name] = incarnation
            self._children[actor.name] = child
        actor.incarnation = incarnation
        actor.mailbox = Mailbox(actor.name, self._ledger, bound=actor.mail_bound, ready=self._ring)
        self._actors[actor.name] = actor

    def retire(self, actor: AnyActor, /) -> None:
        """An actor ends in peace: its mail is delivered once more, to be declined."""
        if self._actors.get(actor.name) is actor:
            del self._actors[actor.name]
            over = EngineFault(actor=actor.name, why="it has ended")
            while len(actor.mailbox):
                actor.decline(actor.mailbox.take(), over)
            actor.mailbox.close()

    def kill(self, name: CustodianId, error: BaseException) -> bool:
        """Let an actor die between two messages. False when nobody lives under the name."""
        actor = self._actors.get(name)
        if actor is not None:
            self._bury(actor, error)
        return actor is not None

    def actor(self, name: CustodianId) -> AnyActor | None:
        """Who lives under the name."""
        return self._actors.get(name)

    def actors(self) -> list[AnyActor]:
        """All that live now."""
        return list(self._actors.values())

    # The run queue

    @property
    def is_quiet(self) -> bool:
        """No message waits for delivery (timers and the device may still bring some)."""
        return not self._ready and not self._inbox

    def next_timer_at(self) -> float | None:
        """When the next timer is due."""
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def run(self, limit: int, *, budget_s: float = math.inf) -> bool:
        """Serve up to ``limit`` messages, and begin none after the budget; True when more wait."""
        self._take_inbox()
        self._fire_timers()
        clock = self._environment.clock
        deadline = clock() + budget_s
        for _ in range(limit):
            if not self._ready and not self._take_inbox():
                return False
            self._serve(self._next_mailbox())
            if clock() >= deadline:
                break
        return not self.is_quiet

    def _serve(self, mailbox: Mailbox[Any]) -> None:
        mailbox.queued = False
        actor = self._actors.get(mailbox.owner)
        if actor is None or actor.mailbox is not mailbox or mailbox.waiting is None:
            return
        self.hops += 1
        in_hand: Message | None = None
        try:
            in_hand = mailbox.take()
            actor.handle(in_hand)
        except BaseException as error:
            self._bury(actor, error, in_hand)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
        else:
            if not mailbox.queued and len(mailbox):
                mailbox.queued = True
                self._ready.append(mailbox)
        while self._edge:
            self._edge.popleft()()

    def _next_mailbox(self) -> Mailbox[Any]:
        choose = self._environment.choose
        if choose is not None and len(self._ready) > 1:
            index = choose(len(self._ready))
            self._ready.rotate(-index)
            mailbox = self._ready.popleft()
            self._ready.rotate(index)
            return mailbox
        return self._ready.popleft()

    def _enqueue(self, mailbox: Mailbox[Any]) -> None:
        is_first = not self._ready
        self._ready.append(mailbox)
        if is_first:
            self.wake()

    def _compact_timers(self) -> None:
        """Drop cancelled timers, which would otherwise stay until they are due."""
        self._timers = [entry for entry in self._timers if not entry[2].is_cancelled]
        heapq.heapify(self._timers)
        self._timers_compacted_at = max(1024, 2 * len(self._timers))

    def _take_inbox(self) -> bool:
        inbox = self._inbox
        while inbox:
            target, message = inbox.popleft()
            self.post(target, message, DEVICE)
        return bool(self._ready)

    def _fire_timers(self) -> None:
        if not self._timers:
            return
        now = self._environment.clock()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if not timer.is_cancelled:
                timer.cancel()
                timer.fire()

    # Supervision

    def _bury(self, actor: AnyActor, error: BaseException, in_hand: Message | None = None) -> None:
        name = actor.name
        self.deaths += 1
        self._actors.pop(name, None)
        child = self._children.get(name)
        if self._probe.enabled:
            self._probe.record(
                "actor.died",
                {"actor": name, "incarnation": actor.incarnation, "error": repr(error)},
            )
        if child is not None and child.on_death is not None:
            child.on_death(actor)
        fault = EngineFault(actor=name, why=repr(error))
        fault.__cause__ = error
        actor.abandon(fault)
        unanswered = [] if in_hand is None else [in_hand]
        unanswered += actor.mailbox.close()
        self._sweep(actor, unanswered, fault)
        down = Down(name, actor.incarnation, repr(error))
        for peer in self.actors():
            if peer.has_business_with(name):
                peer.mailbox.post(down, SUPERVISOR)
        if child is not None and child.restart is not None:
            self._restart(child, error)

    def _sweep(self, actor: AnyActor, unanswered: Sequence[Message], error: BaseException) -> None:
        """Reclaim what it held, then answer what it was handling and what it never got."""
        self._ledger.reclaim(actor.mailbox.custodian)
        self._ledger.reclaim(actor.name)
        for message in unanswered:
            actor.refuse(message, error)

    def _restart(self, child: Child, error: BaseException) -> None:
        if child.restart is None:
            return
        if not self._restarts.allow(self.now()):
            self.on_give_up(error)
            return
        try:
            successor = child.restart()
        except Exception as failure:
            self.on_give_up(failure)
            return
        self.spawn(successor, child)


def _ignore(error: BaseException, /) -> None:
    """Until somebody wants to know that supervision gives up."""
