"""The live picture: who owns which slot, from events alone."""

from adapters.cli.demo.board import FREE, Board, Cell
from tests.cli.log_writer import LogWriter


def watched(log: LogWriter) -> Board:
    board = Board()
    for event, fields in log.events():
        board.watch(event, fields)
    return board


def test_a_slot_goes_from_batch_to_session_to_free() -> None:
    """The life of a turn that finishes, and of its session that closes."""
    log = LogWriter()
    log.reserve(0, 1, [10])

    assert watched(log).cells[1] == Cell("batch", "turn-0")

    log.launch(0, 0)

    assert watched(log).cells[1] == Cell("batch", "turn-0", in_flight=True)

    log.land(0, 0, 3)
    log.commit(0, 1, 3)

    assert watched(log).cells[1] == Cell("session", "session-1")

    log.close(0, 1, [10])

    assert watched(log).cells[1] == FREE


def test_a_rollback_is_counted_and_frees_the_slot() -> None:
    """The number beside the picture comes from the same events as the picture."""
    log = LogWriter()
    log.reserve(0, 1)
    log.release("rolled_back", 0, 1)
    board = watched(log)

    assert board.rollbacks == 1
    assert board.cells[1] == FREE
    assert sum(board.owned.values()) == 0


def test_draining_and_quarantine_are_shown() -> None:
    """Slots without an owner that can't be used either are the ones an operator looks for."""
    log = LogWriter()
    log.reserve(0, 1)
    log.step(0, 0, 3)
    log.commit(0, 1, 3)
    log.reserve(1, 2, base=0, position=3)
    log.launch(1, 1)
    log.write("claim.drained", claim=0, slot=1, generation=50, owner="session", pins=1)
    log.write("lease.quarantined", lease=1, step=1, claims=[1])
    board = watched(log)

    assert board.cells[1].owner == "draining"
    assert board.cells[2].owner == "quarantined"
    assert board.owned["quarantined"] == 1


def test_claims_without_a_slot_and_foreign_events_change_nothing() -> None:
    """Attention-only models have no slots, and a log holds more than the ledger's events."""
    log = LogWriter()
    log.reserve(0, None, [10])
    log.launch(0, 0)
    log.write("turn.finished", turn="turn-0")
    log.release("rolled_back", 0, None, [10])

    assert watched(log).cells == {}
