"""What a session holds at rest: its token log, and the states that cache the log.

The log is the truth. It always ends with at least one token that the state has not absorbed
(position <= length - 1); what lies between is *pending*. Log and state commit separately: a state
that lies beyond what the log keeps is rolled back, and the next turn absorbs the difference.
"""

from array import array
from collections.abc import Sequence

import attrs

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
        absorbed: position of the last committed state, given up or not: what a turn absorbs again
            below it is recomputation.
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
        self._state_version = 0
        self._checkpoint_version = 0
        self._changes = 0
        self.absorbed = 0

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
        return BaseName(self._holder, self._state_version) if self.state is not None else ZEROS

    def extend(self, tokens: Sequence[int]) -> None:
        """Append to the log. Its state lags behind now, which is legal."""
        self.log.extend(tokens)

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
        self.absorbed = self.position

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
