"""The door: what is counted before a message is sent, so that a full engine refuses at once."""

from kernel.errors import EngineClosed, QueueFull, TenureError
from kernel.ids import TurnId

__all__ = ["Door"]


class Door:
    """Counts turns and tokens that wait for their first admission.

    A turn is counted from submit until the scheduler admits it or lets go of it; a turn that its
    session has forgotten still counts until then, so a flood of submits and cancels is bounded
    too.
    """

    def __init__(self, *, max_reqs: int, max_tokens: int) -> None:
        self._max_reqs = max_reqs
        self._max_tokens = max_tokens
        self._tokens_by_turn: dict[TurnId, int] = {}
        self._tokens = 0
        self.closed_by: BaseException | None = None
        self.failure: TenureError | None = None
        """Why no turn can run any more, those that are inside included."""

    @property
    def queued_reqs(self) -> int:
        return len(self._tokens_by_turn)

    @property
    def queued_tokens(self) -> int:
        return self._tokens

    def check_open(self) -> None:
        """Raise when the engine takes no more work.

        Raises:
            TenureError: why the engine is closed.
        """
        if self.closed_by is not None:
            # One error for everybody: without this each raise would add to its traceback.
            raise self.closed_by.with_traceback(None)

    def check_working(self) -> None:
        """Raise when no turn can run any more, which a closed door alone doesn't mean.

        Raises:
            TenureError: why the engine has failed.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def enter(self, turn: TurnId, tokens: int) -> None:
        """Count a turn.

        Raises:
            QueueFull: a bound would be exceeded; nothing was counted.
            EngineClosed: the engine takes no more work.
        """
        self.check_open()
        if len(self._tokens_by_turn) >= self._max_reqs:
            raise QueueFull(what="requests", queued=len(self._tokens_by_turn), limit=self._max_reqs)
        if self._tokens and self._tokens + tokens > self._max_tokens:
            raise QueueFull(what="tokens", queued=self._tokens, limit=self._max_tokens)
        self._tokens_by_turn[turn] = tokens
        self._tokens += tokens

    def counts(self, turn: TurnId) -> bool:
        """Whether a turn is counted."""
        return turn in self._tokens_by_turn

    def leave(self, turn: TurnId) -> None:
        """Stop counting a turn. Idempotent."""
        self._tokens -= self._tokens_by_turn.pop(turn, 0)

    def fail(self, error: TenureError) -> None:
        """Refuse everything from now on, and turn away what is inside and has not begun."""
        self.failure = error
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Refuse everything from now on; the first reason stands."""
        if self.closed_by is None:
            self.closed_by = error if error is not None else EngineClosed()
