"""What a session holds at rest: its token log, and the states that cache the log.

The log is the truth. It always ends with at least one token that the state has not absorbed
(position <= length - 1); what lies between is *pending*. Log and state commit separately: a state
that lies beyond what the log keeps is rolled back, and the next turn absorbs the difference.
"""

from array import array
from collections.abc import Sequence

import attrs

from kernel.conversation import Composing, Conversation
from kernel.errors import ValidationError
from kernel.ids import TurnId
from kernel.output_buffer import TurnOutput
from ownership import (
    ZEROS,
    Base,
    BaseName,
    BatchOwned,
    Consume,
    CustodianId,
    LedgerView,
    Owns,
    SessionOwned,
    SessionPort,
)

__all__ = ["LastTurn", "SessionState"]


@attrs.frozen
class LastTurn:
    """The turn that ended last, as far as a late interrupt needs it."""

    id: TurnId
    log_before: int
    """Length of the log before the turn."""
    input_len: int
    kept: int
    output: TurnOutput
    """Tells how many tokens its caller has received, which may be after it has ended."""


class SessionState:
    """Token log, committed state and checkpoint of one session.

    Attributes:
        log: token ids.
        state: the committed claim, or ``None`` (the session is down to its log).
        checkpoint: the claim that the last turn started from, kept for a late interrupt; the
            first to go under pressure.
        inherited: the state of its parent that a fork starts from while it has none of its own;
            only a name, so the parent may give it up, replace or close it.
        absorbed: position of the last committed state, given up or not: what a turn absorbs again
            below it is recomputation.
        last: the turn that ended last, until another begins; a late interrupt may cut it.
        conversation: which part of the log is which messages; ``None`` before the first ones.
    """

    state: Owns[SessionOwned | None]
    checkpoint: Owns[SessionOwned | None]

    def __init__(self, holder: CustodianId, port: SessionPort, view: LedgerView) -> None:
        self._holder = holder
        self._port = port
        self._view = view
        self.log: array[int] = array("I")
        self.state = None
        self.checkpoint = None
        self.inherited: BaseName | None = None
        self._state_version = 0
        self._checkpoint_version = 0
        self._changes = 0
        self.absorbed = 0
        self.last: LastTurn | None = None
        self.conversation: Conversation | None = None

    @property
    def position(self) -> int:
        """Tokens that the committed state has absorbed; 0 when there is none."""
        return self._view.position(self.state) if self.state is not None else 0

    @property
    def version(self) -> int:
        """Changes of committed state: commits, fallbacks and give-ups."""
        return self._changes

    @property
    def base(self) -> Base:
        """What the next turn starts from."""
        if self.state is not None:
            return BaseName(self._holder, self._state_version)
        if self.inherited is not None and self._view.find_base(self.inherited) is not None:
            return self.inherited
        return ZEROS

    @property
    def base_position(self) -> int:
        """Tokens that the base of the next turn has absorbed."""
        if self.state is None and self.inherited is not None:
            parent = self._view.find_base(self.inherited)
            return 0 if parent is None else parent.position
        return self.position

    def inherit(self, parent: "SessionState") -> None:
        """Begin as a copy of another session's log, on top of the state that caches it."""
        base = parent.base
        self.log = parent.log[:]
        self.inherited = base if isinstance(base, BaseName) else None
        self.absorbed = parent.absorbed
        if parent.conversation is not None:
            self.conversation = parent.conversation.copy()

    def extend(self, tokens: Sequence[int]) -> None:
        """Append to the log. Its state lags behind now, which is legal."""
        self.log.extend(tokens)

    def extend_by_turn(
        self,
        turn: TurnId,
        tokens: Sequence[int],
        output: TurnOutput,
        kept: int,
        composing: Composing | None = None,
    ) -> None:
        """Append a turn's input and what is kept of its output; it can be cut back later."""
        if composing is not None:
            if self.conversation is None:
                self.conversation = Conversation()
            self.conversation.add(composing, self.log)
        elif tokens and self.conversation is not None:
            self.conversation.add_text()
        self.last = LastTurn(turn, len(self.log), len(tokens), kept, output)
        self.extend(tokens)
        self.extend(output.tokens[:kept])

    def cut_last_turn(self, keep: int | None) -> tuple[int, bool]:
        """Shorten the last turn to ``keep`` generated tokens; ``None`` leaves it as it is.

        Returns:
            How many are kept now, and whether anything was cut.

        Raises:
            ValidationError: its caller has not received so many, or there is no last turn.
        """
        last = self.last
        received = 0 if last is None else min(last.kept, last.output.delivered)
        if last is None or (keep is not None and not 0 <= keep <= received):
            raise keep_error(keep, received)
        if keep is None or keep == last.kept:
            return last.kept, False
        self.cut(last.log_before + last.input_len + keep)
        self.last = attrs.evolve(last, kept=keep)
        return keep, True

    def take(self, claim: Consume[BatchOwned], *, keep_checkpoint: bool) -> bool:
        """Commit a finished turn's claim if its position lies within the log, else roll it back.

        Returns:
            Whether the state was committed.
        """
        position = self._view.position(claim)
        if not 0 < position <= len(self.log) - 1:
            self._port.rollback(claim)
            return False
        self.drop_checkpoint()
        replaced, self.state = self.state, None
        if keep_checkpoint and replaced is not None:
            self.state = self._port.commit(claim, replaces=None)
            self.checkpoint = replaced
            self._checkpoint_version = self._state_version
        else:
            self.state = self._port.commit(claim, replaces=replaced)
        self._state_version = self._port.version
        self._changes += 1
        self.absorbed = position
        return True

    def roll_back(self, claim: Consume[BatchOwned]) -> None:
        """Give a claim back that nobody wants any more."""
        self._port.rollback(claim)

    def cut(self, length: int) -> None:
        """Shorten the log; a state beyond it gives way to the checkpoint, or to nothing."""
        del self.log[length:]
        self.absorbed = min(self.absorbed, length)
        if self.state is None or self.position <= length - 1:
            return
        state, self.state = self.state, self.checkpoint
        self.checkpoint = None
        self._state_version = self._checkpoint_version
        self._changes += 1
        self._port.close(state)
        if self.state is not None and self.position > length - 1:
            state, self.state = self.state, None
            self._port.close(state)
        self.absorbed = self.base_position

    def drop_checkpoint(self) -> bool:
        """Close the checkpoint, if there is one."""
        checkpoint, self.checkpoint = self.checkpoint, None
        if checkpoint is None:
            return False
        self._port.close(checkpoint)
        return True

    def give_up(self, base: BaseName) -> bool:
        """Close the named state; the token log stays. False when it is no longer here."""
        if self.checkpoint is not None and base.version == self._checkpoint_version:
            return self.drop_checkpoint()
        if self.state is None or base.version != self._state_version:
            return False
        # No turn starts from a checkpoint, so without the state it would only take room.
        self.drop_checkpoint()
        state, self.state = self.state, None
        self._changes += 1
        self._port.close(state)
        return True

    def close(self) -> None:
        """Close all that the session holds."""
        self.drop_checkpoint()
        state, self.state = self.state, None
        if state is not None:
            self._port.close(state)


def keep_error(keep: int | None, received: int) -> ValidationError:
    """Say how many tokens an interrupt may keep."""
    return ValidationError(
        parameter="keep",
        value=keep,
        why=f"{received} generated tokens were received; keep 0 to {received} of them, or None",
    )
