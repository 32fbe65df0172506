"""Changes of one session's log beside its turns: late interrupts, going back, marks.

Each is checked, made durable where there is a store, done, and answered; in this order, so that
what can't be kept has not happened.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from kernel.actors.actor import Address, System
from kernel.actors.reply import Reply
from kernel.errors import TenureError
from kernel.ids import SCHEDULER, SessionId, TurnId, session_custodian
from kernel.messages import HistoryMessage, InterruptTurn, Rested, SchedulerMessage
from kernel.sessions.active_turn import ActiveTurn
from kernel.sessions.archive import SessionArchive
from kernel.sessions.history import change_history, check_history, history_after, marks_within
from kernel.sessions.identity import SessionIdentity
from kernel.sessions.interrupts import LateCut, interrupt
from kernel.sessions.kept_states import Mark
from kernel.sessions.state import SessionState
from kernel.sessions.turn_queue import TurnQueue

__all__ = ["LogChanges"]

_SCHEDULER: Final = Address[SchedulerMessage](SCHEDULER)


@final
class LogChanges:
    """Makes them for one session.

    Args:
        session_id: for errors.
        system: takes mail to the scheduler.
        state: what is changed.
        archive: ``None``: there is no store.
        identity: what the store is told beside the log.
    """

    def __init__(
        self,
        session_id: SessionId,
        system: System,
        state: SessionState,
        archive: SessionArchive | None,
        identity: SessionIdentity,
    ) -> None:
        self._session_id = session_id
        self._system = system
        self._state = state
        self._archive = archive
        self._identity = identity

    def interrupt(
        self, message: InterruptTurn, active: ActiveTurn | None, waiting: TurnQueue
    ) -> None:
        """End the turn that runs, or cut the one that ended last."""
        told = interrupt(self._session_id, message, active, waiting, self._state)
        if isinstance(told, LateCut):
            marks = marks_within(self._state.states.marks, told.length)
            cut = partial(self._cut_late, told.keep, message.reply)
            self._change(told.length, marks, cut, message.reply)
        elif told is not None:
            self._tell(told)

    def _cut_late(self, keep: int, reply: Reply[int]) -> None:
        kept, _ = self._state.cut_last_turn(keep)
        self._tell(Rested())
        reply.answer(kept)

    def change_history(self, message: HistoryMessage, open_turn: TurnId | None) -> None:
        """Go back, or change a mark."""
        try:
            check_history(self._session_id, message, self._state, open_turn)
        except TenureError as error:
            message.reply.fail(error)
            return
        change = partial(self._history_kept, message)
        self._change(*history_after(message, self._state), change, message.reply)

    def _history_kept(self, message: HistoryMessage) -> None:
        change_history(message, self._state)
        self._tell(Rested())

    def _tell(self, message: SchedulerMessage) -> None:
        self._system.post(_SCHEDULER, message, session_custodian(self._session_id))

    def _change(
        self,
        length: int,
        marks: dict[str, Mark],
        keep: Callable[[], None],
        reply: Reply[int],
    ) -> None:
        archive = self._archive
        if archive is None:
            keep()
            return
        is_new = marks != self._state.states.marks
        facts = self._identity.facts(marks) if is_new else None
        archive.propose(archive.jobs(length, facts), length, keep, reply.fail, reply)
