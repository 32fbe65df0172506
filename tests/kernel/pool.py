"""A ledger with sessions at rest and turns that run, put together without any actor."""

from collections.abc import Sequence

from kernel.ids import SCHEDULER, TurnId
from kernel.scheduling.roster import Roster
from kernel.turn import OpenTurn
from ownership import (
    ZEROS,
    Absorbed,
    Base,
    BaseName,
    BatchOwned,
    Capacity,
    CustodianId,
    Ledger,
    Need,
    Owns,
    Refused,
    SessionOwned,
    SessionPort,
)

__all__ = ["Pool", "holder"]


def holder(session: str) -> CustodianId:
    return CustodianId(f"session:{session}")


class Pool:
    """Pages of four tokens; by default a model without slots, whose pages can be counted alone."""

    claims: Owns[dict[TurnId, BatchOwned]]
    _fillers: Owns[list[BatchOwned]]
    states: Owns[list[SessionOwned]]

    def __init__(self, *, slots: int = 0, pages: int = 16) -> None:
        self.ledger = Ledger(Capacity(slots, pages, 4))
        self.view = self.ledger.view
        self.port = self.ledger.batch_port(SCHEDULER)
        self.roster = Roster()
        self.claims = {}
        self._fillers = []
        self.states = []
        self._ports: dict[str, SessionPort] = {}

    def reserve(self, positions: int, base: Base = ZEROS, turn: str = "turn") -> BatchOwned:
        claim = self.port.reserve(Need(positions), base, turn=turn)
        assert not isinstance(claim, Refused), claim
        return claim

    def land(self, claims: Sequence[BatchOwned], *tokens: int) -> None:
        """One step over the claims; it unpins what they were copied from."""
        self.port.land(self.port.launch(claims, step=1), Absorbed(tokens))

    def rest(self, session: str, tokens: int, base: BaseName | None = None) -> BaseName:
        """Commit a state that absorbs ``tokens``, keeping what it started from as a checkpoint."""
        found = None if base is None else self.view.find_base(base)
        start = 0 if found is None else found.position
        claim = self.reserve(start + tokens, ZEROS if base is None else base)
        self.land([claim], tokens)
        self.ledger.move(claim, SCHEDULER, holder(session), "test")
        self.open(session)
        port = self._ports[session]
        self.states.append(port.commit(claim, replaces=None))
        return BaseName(holder(session), port.version)

    def open(self, *sessions: str) -> None:
        """Give sessions their ports; the names of a session's states begin above all given ones."""
        for session in sessions:
            if session not in self._ports:
                self._ports[session] = self.ledger.session_port(holder(session))

    def run(self, turn: OpenTurn, positions: int, *, absorbs: int = 1) -> OpenTurn:
        """Let a turn run: it has a claim over ``positions`` and has landed once."""
        claim = self.reserve(positions, turn.base, turn.id)
        self.land([claim], absorbs)
        turn.position = self.view.position(claim)
        turn.covered = self.view.covered(claim)
        turn.has_landed = True
        self.claims[turn.id] = claim
        self.roster.add(turn)
        self.roster.run(turn)
        return turn

    def fill(self) -> None:
        """Take every free page, out of everybody's reach."""
        if self.view.free_pages:
            claim = self.reserve(4 * self.view.free_pages, turn="filler")
            self.ledger.move(claim, SCHEDULER, CustodianId("elsewhere"), "test")
            self._fillers.append(claim)
