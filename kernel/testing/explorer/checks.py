"""What the explorer asks of each new state, beside the invariants of any kernel.

The kernel's own accounts are in :mod:`kernel.testing.invariants`. Here they are compared with
what the device's memory holds, with the sequential reference, and with the state before.
"""

from collections.abc import Iterator
from itertools import product

import attrs

from kernel.messages import CancelTurn
from kernel.sessions.session import SessionActor
from kernel.testing.explorer.cache_checks import cache_is_sound
from kernel.testing.explorer.callers import Caller
from kernel.testing.explorer.contents import state_holds
from kernel.testing.explorer.events import Event
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.knowledge import possible_logs
from kernel.testing.explorer.reference import Reference
from kernel.testing.explorer.stage import Stage
from kernel.testing.explorer.store_checks import store_at_rest, store_is_sound
from kernel.testing.invariants import Broken, all_free, always, at_rest
from kernel.turn import OpenTurn
from ownership import BaseName, CustodianId, Place

__all__ = ["Before", "Checker"]

_MOVERS = {
    "TurnFinished": "a commit",
    "PhaseAbsorbed": "a commit",
    "GiveUp": "a give-up",
    "InterruptTurn": "a fallback",
    "CloseSession": "a close",
    "ForgetIdle": "a close",
    "LogStored": "a commit, or a fallback, that was kept",
    "StateRead": "a give-up, once a snapshot was taken",
}
"""Messages in whose handling a session's committed position may move."""


@attrs.frozen
class Before:
    """What a transition is judged by."""

    committed: dict[str, tuple[BaseName | None, int] | None]
    head: str
    """Class of the message that is about to be handled."""
    cancelled: str
    """The open turn that it cancels, if it does."""

    @classmethod
    def of(cls, stage: Stage, event: Event) -> "Before":
        head = stage.head(event.who) if event.kind in ("deliver", "crash") else None
        cancelled = ""
        if isinstance(head, CancelTurn) and event.kind == "deliver":
            actor = stage.core.dispatcher.actor(CustodianId(event.who))
            active = actor.active if isinstance(actor, SessionActor) else None
            is_its = active is not None and active.id == head.turn and active.decided is None
            cancelled = head.turn if is_its else ""
        return cls(
            {actor.name: _committed(stage, actor) for actor in stage.core.sessions.values()},
            type(head).__name__,
            cancelled,
        )


def _committed(stage: Stage, actor: SessionActor) -> tuple[BaseName | None, int] | None:
    state = actor.state.state
    if state is None:
        return None
    view = stage.core.ledger.view.describe(state)
    # By name: a state that has moved to another place is the same state.
    return view.name, view.position


@attrs.define(eq=False)
class Checker:
    """Finds what is broken."""

    reference: Reference

    def transition(self, stage: Stage, event: Event, before: Before) -> Iterator[Broken]:
        """A committed position moves by a commit, a give-up, a fallback or an end, and no other."""
        for actor in stage.core.sessions.values():
            was = before.committed.get(actor.name)
            now = _committed(stage, actor)
            if was == now or (was is None and actor.name not in before.committed):
                continue
            is_ours = event.who == actor.name and before.head in _MOVERS
            if not is_ours and event.kind != "stop":
                yield Broken(
                    "a committed position moves by a commit alone",
                    f"{actor.name} was at {was}, is at {now} after {before.head}",
                )
        if before.cancelled:
            _, asked = stage.asked(before.cancelled)
            end = asked.request.output.end
            if end is None or end.error is None:
                yield Broken("a cancel is an end", f"{before.cancelled} goes on, or ended as {end}")

    def state(self, stage: Stage) -> Iterator[Broken]:
        """What holds in each state."""
        broken = always(stage.core, deaths=stage.deaths, reclaims=stage.reclaims)
        yield from broken
        if broken:
            return
        for wrong in stage.device.memory.wrong:
            yield Broken("a row starts from its own state", wrong)
        yield from self._contents(stage)
        yield from self._memory_in_use(stage)
        yield from self._tokens(stage)
        for caller in stage.callers:
            if caller.actor is not None:
                yield from self._log(caller, caller.actor)
        yield from cache_is_sound(stage)
        yield from store_is_sound(stage)

    def rest(self, stage: Stage) -> Iterator[Broken]:
        """What holds in a quiescent state."""
        yield from at_rest(stage.core)
        yield from store_at_rest(stage)
        yield from self._answers(stage)

    def end(self, stage: Stage) -> Iterator[Broken]:
        """What holds after the engine was stopped."""
        yield from all_free(stage.core)
        yield from store_is_sound(stage)
        yield from self._answers(stage)

    def _answers(self, stage: Stage) -> Iterator[Broken]:
        for caller in stage.callers:
            for unanswered in caller.unanswered():
                yield Broken("every caller is answered", unanswered)

    def _contents(self, stage: Stage) -> Iterator[Broken]:
        for actor in stage.core.sessions.values():
            for handle in actor.state.states.kept.values():
                yield from state_holds(stage, handle, actor.state.log, actor.name)
        scheduler = stage.core.scheduler
        if scheduler is None:
            return
        for name, claim in (*scheduler.claims.items(), *scheduler.parking.parked.items()):
            turn = scheduler.roster.get(name)
            if turn is not None:
                yield from state_holds(stage, claim, turn.tokens(0, turn.known_len), name)

    def _memory_in_use(self, stage: Stage) -> Iterator[Broken]:
        """Nothing that a step may touch is free, or somebody else's."""
        book = field(stage.core.ledger, "_book")
        for held, place in product(stage.device.held, (Place.DEVICE, Place.HOST)):
            number, pool = held.step.step, book.pools[place]
            # As the ledger counts them: through all places.
            slots = {pool.first_slot + slot for slot in held.touches(place).slots}
            pages = {pool.first_page + page for page in held.touches(place).written_pages}
            own = [
                record
                for record in book.claims.values()
                if record.step is not None and record.step.number == number
            ]
            lent = [record.base for record in own if record.base is not None]
            for slot in slots & set(pool.free_slots):
                yield Broken(
                    "a step keeps what it touches", f"slot {slot} of step {number} is free"
                )
            for page in pages & set(pool.free_pages):
                yield Broken(
                    "a step keeps what it touches", f"page {page} of step {number} is free"
                )
            for record in book.claims.values():
                if record in own or record in lent:
                    continue
                if record.slot in slots or pages.intersection(record.page_table):
                    yield Broken(
                        "a step keeps what it touches",
                        f"step {number} may touch {record.place()} of {record.custodian}",
                    )

    def _tokens(self, stage: Stage) -> Iterator[Broken]:
        scheduler = stage.core.scheduler
        for turn in scheduler.roster if scheduler is not None else ():
            yield from self._drawn(turn)

    def _drawn(self, turn: OpenTurn) -> Iterator[Broken]:
        known = tuple(turn.tokens(0, turn.known_len))
        begins = turn.history_len + turn.input_len
        for place in range(begins, len(known)):
            right = self.reference.next_token(known[:place])
            if known[place] != right:
                yield Broken(
                    "tokens are those of the reference",
                    f"{turn.id} drew {known[place]} after {known[:place]}, not {right}",
                )
                return
        if turn.output.tokens != list(known[begins:]):
            yield Broken(
                "tokens are those of the reference",
                f"{turn.id} has told {turn.output.tokens}, and goes on from {known[begins:]}",
            )

    def _log(self, caller: Caller, actor: SessionActor) -> Iterator[Broken]:
        """A session's log is what its callers were told, in order."""
        if actor.active is not None or actor.is_closed or len(actor.mailbox) or actor.waiting:
            return
        if actor.archive is not None and actor.archive.change is not None:
            return
        wanted = list(possible_logs(caller, has_died=False)[0])
        if list(actor.state.log) != wanted:
            yield Broken(
                "a log is what was told",
                f"{actor.name} has {list(actor.state.log)}, its caller knows {wanted}",
            )
