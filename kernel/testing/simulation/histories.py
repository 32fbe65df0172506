"""What each session's history must be, by what callers were told alone; and every turn that was.

A session's history is the input and the kept tokens of its turns that ended without an error, in
the order in which they ended, less what late interrupts cut off. The kernel's own log is compared
with that at every end, and what a turn starts from at every submit.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import attrs

from kernel.actors.reply import Reply
from kernel.engine.core import Core
from kernel.errors import SessionLost
from kernel.ids import session_custodian
from kernel.messages import HistoryMessage, InterruptTurn
from kernel.requests.output_buffer import TurnEnd
from kernel.sessions.session import SessionActor
from kernel.testing.simulation.speech import mark_of
from kernel.testing.simulation.told import Told
from kernel.turn import OpenTurn, TurnRequest
from ownership import CustodianId

__all__ = ["Histories", "TurnRecord"]

_outcome: Callable[[Reply[int]], tuple[int] | BaseException | None] = attrgetter("_outcome")


@attrs.define(eq=False)
class TurnRecord:
    """One turn that reached the scheduler."""

    session: CustodianId
    turn: OpenTurn
    context: tuple[int, ...]
    """The history that it started from, and its input."""
    arrived: int
    """Steps that had been launched when it was submitted."""
    ended: int | None = None
    """Steps that had been launched when its caller was told its end."""
    tokens: tuple[int, ...] = ()
    """All that was drawn for it, kept or not."""


class Histories:
    """The model of every session of one engine."""

    def __init__(self, core: Core, fail: Callable[[str, str], None]) -> None:
        self._core = core
        self._fail = fail
        self._told: dict[CustodianId, Told] = {}
        self._asked: dict[CustodianId, list[InterruptTurn | HistoryMessage]] = {}
        """What may change a history once it is answered, in the order in which it was asked."""
        self._lost: dict[CustodianId, TurnRequest] = {}
        """The turn with which a session died; the disk may have it."""
        self._open: dict[str, TurnRecord] = {}
        self._spoken: set[str] = set()
        """Turns of messages that have not been submitted."""
        self.turns: list[TurnRecord] = []

    @property
    def open_turns(self) -> Sequence[TurnRecord]:
        """Turns at the scheduler whose callers have not been told an end."""
        return list(self._open.values())

    def session_born(self, actor: SessionActor) -> None:
        """A new session has no history; a fork takes its parent's of that moment."""
        name = actor.name
        asked = self._asked.pop(name, [])
        told = self._told.get(name)
        if told is not None and actor.archive is not None:
            self._woken(actor, told, asked)
        else:
            self._told[name] = Told()
        inherit = actor.inherit

        def inherit_both(parent: SessionActor) -> None:
            inherit(parent)
            self._told[name] = self._told[parent.name].fork()
            self._compare(actor, "a fork")

        _replace(actor, "inherit", inherit_both)

    def _woken(
        self, actor: SessionActor, told: Told, asked: Sequence[InterruptTurn | HistoryMessage]
    ) -> None:
        """A session comes from the disk; if it died, what it was about to do may be done."""
        lost = self._lost.pop(actor.name, None)
        told.last = None
        log, marks = actor.state.log.tolist(), actor.state.states.marks
        found = told.after_a_death(log, lost, asked)
        if found is None:
            self._fail("history", f"{actor.name} was woken as {log}, not as {told.tokens}")
            return
        self._told[actor.name] = found
        odd = {name for name, mark in marks.items() if not found.has_mark(name, mark.length)}
        if odd or (found is told and lost is None and not asked and len(marks) < len(told.marks)):
            self._fail("history", f"{actor.name} was woken with marks {marks}, not {told.marks}")
        found.keep_marks(marks)

    def started(self, session: CustodianId, request: TurnRequest) -> None:
        """A caller asks for a turn; its end will be heard of."""
        if request.composing is not None:
            self._spoken.add(request.id)
        finish = request.output.finish

        def finish_and_note(end: TurnEnd) -> None:
            is_first = request.output.end is None
            finish(end)
            if is_first:
                self._ended(session, request, end)

        _replace(request.output, "finish", finish_and_note)

    def submitted(self, turn: OpenTurn) -> None:
        """A turn goes to the scheduler, with all that it starts from."""
        self._take_answers(turn.session)
        told = self._told.get(turn.session, Told())
        told.last = None
        context = tuple(turn.tokens(0, turn.known_len))
        expected = (*told.tokens, *turn.new[: turn.input_len])
        if context != expected:
            self._fail("history", f"{turn.id} starts from {context}, not from {expected}")
        self._check_spoken(turn)
        record = TurnRecord(turn.session, turn, context, self._core.counters.steps)
        self._open[turn.id] = record
        self.turns.append(record)

    def _check_spoken(self, turn: OpenTurn) -> None:
        """The messages of a turn must have been composed for the history that it starts from."""
        if turn.id in self._spoken:
            self._spoken.discard(turn.id)
            told = self._told.get(turn.session, Told())
            mark = turn.new[0] if turn.input_len else None
            if mark != mark_of(told.tokens):
                self._fail(
                    "messages", f"{turn.id} begins with {mark}, composed for another history"
                )

    def asked(self, session: CustodianId, message: InterruptTurn | HistoryMessage) -> None:
        """A caller asks for what may change a history that has ended."""
        self._asked.setdefault(session, []).append(message)

    def handled(self, actor: SessionActor) -> None:
        """A session has handled a message, which may have answered what was asked."""
        if self._take_answers(actor.name):
            self._compare(actor, "a change of its history")

    def _take_answers(self, session: CustodianId) -> bool:
        """Whether there were any."""
        waiting = self._asked.get(session)
        if not waiting:
            return False
        answered = [message for message in waiting if message.reply.is_settled]
        for message in answered:
            waiting.remove(message)
            outcome = _outcome(message.reply)
            if isinstance(outcome, tuple):
                self._take(self._told[session], message, outcome[0])
        return bool(answered)

    def _take(self, told: Told, message: InterruptTurn | HistoryMessage, answer: int) -> None:
        if isinstance(message, InterruptTurn):
            told.interrupted(message, answer)
        elif wrong := told.changed(message, answer):
            self._fail("history", wrong)

    def _ended(self, session: CustodianId, request: TurnRequest, end: TurnEnd) -> None:
        record = self._open.pop(request.id, None)
        if record is not None:
            record.ended = self._core.counters.steps
            record.tokens = tuple(request.output.tokens)
        told = self._told.get(session)
        if told is None:
            return
        self._take_answers(session)
        if end.error is None:
            told.ended(request, end)
        if isinstance(end.error, SessionLost):
            if record is not None:
                self._lost[session] = request
            return
        for actor in self._core.sessions.values():
            if actor.name == session:
                self._compare(actor, request.id)

    def _compare(self, actor: SessionActor, after: str) -> None:
        told = self._told[actor.name].tokens
        if actor.state.log.tolist() != told:
            log = actor.state.log.tolist()
            self._fail("history", f"after {after} the log of {actor.name} is {log}, not {told}")

    def of(self, session_id: Any) -> list[int]:
        """The history that a session must have."""
        return self._told[session_custodian(session_id)].tokens


def _replace(whose: object, name: str, method: Callable[..., Any]) -> None:
    """Listen in on one object's method; its class is left alone."""
    setattr(whose, name, method)
