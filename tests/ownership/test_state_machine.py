"""Every order of verbs that hypothesis can think of, with bundles that are consumed like handles.

``machine.py`` is the long run: hundreds of verbs a seed, and three witnesses that see the memory
itself (the audit, a replay of the events, a device that remembers what was written where). This is
the short story: what a verb consumes is drawn from its bundle and is gone, as the handle is; the
model beside it is a page long and says of every claim who holds it, how far it is and what it
costs, refusals included; and a failure shrinks to the fewest verbs, printed as a program.
"""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from ownership import LedgerError, admission, endings, stepping
from ownership.book import Book
from ownership.claims import ClaimRecord
from ownership.runs import Run
from tests.ownership.state_machine import LedgerMachine

# Alike in every run: a failure that only some runs see is no use to whoever changes the ledger.
STEADY = settings(
    derandomize=True,
    database=None,
    max_examples=200,
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(120)
def test_the_ledger_does_what_a_few_lines_say() -> None:
    """All verbs in all orders: the audit finds nothing, and every claim is as the model says."""
    run_state_machine_as_test(LedgerMachine, settings=STEADY)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_ledger_does_what_a_few_lines_say_for_minutes() -> None:
    """The same with chance, by hand."""
    run_state_machine_as_test(
        LedgerMachine, settings=settings(STEADY, derandomize=False, max_examples=20_000)
    )


def _never_unpins(_book: Book, _base: ClaimRecord) -> None:
    return None


def _keeps_its_surplus(_book: Book, _record: ClaimRecord) -> list[int]:
    return []


def _accepts_the_unfinished(_book: Book, _record: ClaimRecord, _verb: str) -> None:
    return None


def _freezes_nothing(book: Book, record: ClaimRecord, _length: int) -> object:
    return book.runs.freeze(record.tip, ())


def _finds_no_twin(_source: ClaimRecord, _first_page: int) -> None:
    return None


def _takes_all_for_moved(_record: ClaimRecord, _replaced: ClaimRecord) -> bool:
    return True


def _takes_nothing_for_moved(_record: ClaimRecord, _replaced: ClaimRecord) -> bool:
    return False


def _freezes_no_copies(_book: Book, _record: ClaimRecord, _base: ClaimRecord) -> list[Run]:
    return []


def _shares_the_last_page(source: ClaimRecord, _first_page: int) -> Run | None:
    """As if what was dropped made no difference."""
    runs = [] if source.tip is None else list(source.tip.chain())
    return next((run.twin for run in runs if run.twin is not None), None)


def _drops_anything(_book: Book, _need: object, _source: ClaimRecord | None) -> None:
    return None


@pytest.mark.parametrize(
    ("module", "name", "fault"),
    [
        (admission, "_twin", _finds_no_twin),
        (admission, "_twin", _shares_the_last_page),
        (admission, "_check_need", _drops_anything),
        (endings, "_is_unchanged", _takes_all_for_moved),
        (endings, "_is_unchanged", _takes_nothing_for_moved),
        (stepping, "_freeze_copied", _freezes_no_copies),
        (stepping, "unpin", _never_unpins),
        (endings, "unpin", _never_unpins),
        (endings, "_trim", _keeps_its_surplus),
        (endings, "_check_complete", _accepts_the_unfinished),
        (stepping, "_freeze", _freezes_nothing),
    ],
)
def test_a_fault_in_the_ledger_is_found(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, fault: object
) -> None:
    """The test of the test: what can't fail shows nothing."""
    monkeypatch.setattr(module, name, fault)
    unshrunk = settings(STEADY, phases=[Phase.generate], report_multiple_bugs=False)

    with pytest.raises((AssertionError, LedgerError, pytest.fail.Exception)):
        run_state_machine_as_test(LedgerMachine, settings=unshrunk)
