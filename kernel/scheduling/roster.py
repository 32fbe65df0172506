"""The scheduler's turns, in order of rank: who waits, who runs. Values only."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from kernel.ids import TurnId
from kernel.policies import Rank
from kernel.turn import OpenTurn, TurnState
from ownership import CustodianId

__all__ = ["Roster"]


def _rank(turn: OpenTurn) -> Rank:
    return turn.rank


class Roster:
    """All open turns; ``waiting`` and ``running`` are kept sorted, the most senior first."""

    def __init__(self) -> None:
        self.waiting: list[OpenTurn] = []
        self.running: list[OpenTurn] = []
        self.committing: set[OpenTurn] = set()
        self.parking: set[OpenTurn] = set()
        self._by_id: dict[TurnId, OpenTurn] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[OpenTurn]:
        return iter(self._by_id.values())

    @property
    def num_running(self) -> int:
        """Turns that have a row, those between two phases included."""
        return len(self.running) + len(self.committing)

    @property
    def num_waiting(self) -> int:
        """Turns without a row, those on their way to host memory included."""
        return len(self.waiting) + len(self.parking)

    def get(self, turn: TurnId) -> OpenTurn | None:
        return self._by_id.get(turn)

    def of_session(self, session: CustodianId) -> list[OpenTurn]:
        return [turn for turn in self._by_id.values() if turn.session == session]

    def add(self, turn: OpenTurn) -> None:
        """A new turn; it waits."""
        self._by_id[turn.id] = turn
        self.wait(turn)

    def wait(self, turn: OpenTurn) -> None:
        """Put a turn among those that wait, wherever it was."""
        self._leave(turn)
        turn.state = TurnState.WAITING
        insort(self.waiting, turn, key=_rank)

    def run(self, turn: OpenTurn) -> None:
        """A turn was admitted."""
        self._leave(turn)
        turn.state = TurnState.RUNNING
        insort(self.running, turn, key=_rank)

    def commit(self, turn: OpenTurn) -> None:
        """A turn's claim is with its session, between two phases."""
        self._leave(turn)
        turn.state = TurnState.COMMITTING
        self.committing.add(turn)

    def park(self, turn: OpenTurn) -> None:
        """A turn was preempted, and its state is on the way to host memory."""
        self._leave(turn)
        turn.state = TurnState.PARKING
        self.parking.add(turn)

    def end(self, turn: OpenTurn) -> None:
        """Forget a turn."""
        self._leave(turn)
        turn.state = TurnState.ENDED
        self._by_id.pop(turn.id, None)

    def _leave(self, turn: OpenTurn) -> None:
        if turn.state is TurnState.WAITING:
            self._drop(self.waiting, turn)
        elif turn.state is TurnState.RUNNING:
            self._drop(self.running, turn)
        elif turn.state is TurnState.COMMITTING:
            self.committing.discard(turn)
        elif turn.state is TurnState.PARKING:
            self.parking.discard(turn)

    @staticmethod
    def _drop(turns: list[OpenTurn], turn: OpenTurn) -> None:
        index = bisect_left(turns, turn.rank, key=_rank)
        if index < len(turns) and turns[index] is turn:
            del turns[index]
