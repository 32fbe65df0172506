"""The callers of an explored engine: what they ask for, as the desk would, and what they were told.

They hold requests and replies and never a handle, like the real ones.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from operator import attrgetter
from typing import Any

import attrs

from kernel.actors.actor import Address
from kernel.actors.reply import Reply
from kernel.engine.core import Core
from kernel.errors import TenureError
from kernel.ids import SessionId, TurnId
from kernel.messages import CancelTurn, CloseSession, InterruptTurn, SessionMessage, StartTurn
from kernel.params import SamplingParams
from kernel.requests.output_buffer import TurnOutput
from kernel.sessions.session import SessionActor
from kernel.testing.explorer.knowledge import kept_of, possible_logs
from kernel.testing.explorer.world import Conversation, Interrupt, Turn
from kernel.turn import TurnRequest
from ownership import CustodianId

__all__ = ["Asked", "Caller"]

_outcome: Callable[[Reply[Any]], tuple[Any] | BaseException | None] = attrgetter("_outcome")
_CALLER = CustodianId("caller")


@attrs.define(eq=False)
class Asked:
    """One turn that was asked for, and the interrupts of it."""

    request: TurnRequest
    actor: SessionActor
    interrupts: list[Reply[int]] = attrs.field(factory=list[Reply[int]])
    is_refused: bool = False
    """Refused at the door, so that nobody owes an answer."""

    @property
    def is_open(self) -> bool:
        return not self.is_refused and self.request.output.end is None

    @property
    def kept(self) -> int | None:
        """How many generated tokens stand in the log, as the caller was told.

        ``None``: the turn has left nothing there, not even its input.
        """
        return kept_of(self)


@attrs.define(eq=False)
class Caller:
    """One conversation under way."""

    plan: Conversation
    core: Core
    actor: SessionActor | None = None
    asked: list[Asked] = attrs.field(factory=list[Asked])
    is_over: bool = False
    """Its session is gone, or could not be opened: there is nothing more to ask."""
    before: tuple[int, ...] = ()
    """What the log of its session began with, when it was forked or woken."""
    since: int = 0
    """The first of its turns after that."""
    waking: Reply[SessionActor] | None = None
    removal: Reply[None] | None = None
    """Answered when its session, which it has closed, is off the disk."""
    is_closing: bool = False
    wrong: list[str] = attrs.field(factory=list[str])
    """What a session that came back has and can't have."""
    _wanted: AbstractContextManager[None] | None = None

    @property
    def has_more(self) -> bool:
        return not self.is_over and len(self.asked) < len(self.plan.turns)

    def open(self, parent: SessionActor | None = None) -> None:
        """Open the session, or be refused."""
        plan = self.plan
        try:
            self.actor = self.core.open_session(
                SessionId(plan.name),
                is_one_shot=plan.is_one_shot,
                idle_timeout_s=plan.idle_timeout_s,
                parent=parent,
            )
        except TenureError:
            self.is_over = True
        else:
            self.before = tuple(self.actor.state.log)

    @property
    def is_asleep(self) -> bool:
        """Whether its session has no actor, and the store has it."""
        actor, core = self.actor, self.core
        is_gone = actor is not None and (actor.seat.actor is None or actor.is_closed)
        is_here = SessionId(self.plan.name) in core.sessions
        return is_gone and not self.is_closing and (is_here or core.holds(self._name))

    @property
    def _name(self) -> SessionId:
        return SessionId(self.plan.name)

    def wake(self) -> None:
        """Ask for the session, or look at what was answered, as a caller's block does."""
        core, waking = self.core, self.waking
        if waking is not None:
            self._stop_waking()
            if isinstance(_outcome(waking), BaseException):
                self.is_over = True
                return
        actor = core.sessions.get(self._name)
        if actor is not None:
            self.adopt(actor)
        elif core.stored is None or core.door.closed_by is not None:
            self.is_over = True
        else:
            self._wanted = core.stored.wanted(self._name)
            self._wanted.__enter__()
            self.waking = core.stored.wake(self._name)

    def _stop_waking(self) -> None:
        wanted, self._wanted, self.waking = self._wanted, None, None
        if wanted is not None:
            wanted.__exit__(None, None, None)

    def adopt(self, actor: SessionActor) -> None:
        """Go on with a session that was woken: it says what its caller was told."""
        has_died = self.actor is not None and self.actor.seat.actor is self.actor
        log, possible = tuple(actor.state.log), possible_logs(self, has_died=has_died)
        if log not in possible:
            self.wrong.append(f"{actor.name} came back as {log}, its caller knows {possible[0]}")
        self.before, self.since, self.actor = log, len(self.asked), actor

    def may_start(self) -> bool:
        """Whether the next turn may be asked for now."""
        if self.waking is not None:
            return self.waking.is_settled
        if self.is_asleep:
            return self.has_more and not any(asked.is_open for asked in self.asked)
        if not self.has_more or (self.actor is not None and self.actor.is_closed):
            return False
        if not self.asked or not self.asked[-1].is_open:
            return True
        return self.plan.turns[len(self.asked)].overlaps

    def start(self) -> None:
        """Ask for the next turn, as entering its block does."""
        plan, actor = self.plan, self.actor
        number = len(self.asked)
        if actor is None:
            return
        name = f"{plan.name}{number + 1}"
        asked = Asked(_request(name, plan.turns[number], self.core), actor)
        self.asked.append(asked)
        try:
            if actor.is_closed:
                raise TenureError("the session is closed")
            self.core.door.enter(asked.request.id, len(asked.request.tokens))
        except TenureError:
            asked.is_refused = True
            self.is_over = True
            return
        message = StartTurn(asked.request)
        if self.core.dispatcher.post(_address(actor), message, _CALLER) is not None:
            raise RuntimeError(f"{actor.name} is open, and takes no mail")

    def cancel(self, asked: Asked) -> None:
        """Leave the block of an open turn."""
        asked.request.is_cancel_posted = True
        cancel = CancelTurn(asked.request.id, "abort")
        self.core.dispatcher.post(_address(asked.actor), cancel, _CALLER)

    def interrupt(self, asked: Asked, how: Interrupt) -> None:
        """Read all that there is, and barge in."""
        output = asked.request.output
        output.delivered = len(output.tokens)
        reply: Reply[int] = Reply()
        message = InterruptTurn(asked.request.id, how.keep, reply)
        left = self.core.dispatcher.post(_address(asked.actor), message, _CALLER)
        if left is None:
            asked.interrupts.append(reply)

    def may_close(self) -> bool:
        actor = self.actor
        if self.is_asleep:
            is_here = self._name in self.core.sessions
            return not is_here and self.core.door.closed_by is None
        return actor is not None and not actor.is_closed and not actor.is_close_posted

    def close(self) -> None:
        """Close the session, as leaving its block does."""
        actor, stored = self.actor, self.core.stored
        is_asleep, self.is_closing = self.is_asleep, True
        if is_asleep and stored is not None:
            self.removal = stored.forget(self._name)
            self._stop_waking()
        elif actor is not None:
            actor.is_close_posted = True
            if actor.archive is not None:
                actor.removed = self.removal = Reply()
            actor.mailbox.post(CloseSession(), _CALLER)

    def unanswered(self) -> Iterator[str]:
        """What this caller still waits for."""
        for asked in self.asked:
            request = asked.request
            if asked.is_refused:
                continue
            if not request.accepted.is_settled:
                yield f"{request.id} was neither accepted nor refused"
            if request.output.end is None:
                yield f"{request.id} has no end"
            for reply in asked.interrupts:
                if not reply.is_settled:
                    yield f"an interrupt of {request.id} has no answer"
        if self.waking is not None and not self.waking.is_settled:
            yield f"{self.plan.name} was to be woken"
        if self.removal is not None and not self.removal.is_settled:
            yield f"{self.plan.name} was to be removed"


def _request(name: str, turn: Turn, core: Core) -> TurnRequest:
    return TurnRequest(
        id=TurnId(name),
        kind=turn.kind,
        tokens=list(turn.tokens),
        params=_params(turn.max_tokens),
        output=TurnOutput(None, decode_early=False, clock=core.environment.clock, on_end=_nothing),
        accepted=Reply(),
        wait=turn.overlaps,
        priority=turn.priority,
        timeout_s=turn.timeout_s,
        queue_timeout_s=turn.queue_timeout_s,
        cache_salt=turn.salt,
    )


@cache
def _params(max_tokens: int) -> SamplingParams:
    """Greedy, so that a token is a function of its history alone."""
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def _address(actor: SessionActor) -> Address[SessionMessage]:
    return Address(actor.name)


def _nothing() -> None:
    """There is no desk that would forget the request."""
