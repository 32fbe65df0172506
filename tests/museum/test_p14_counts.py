"""P14: a second count disagrees with the owners, or a check that can't see two of them."""

from typing import Any

import attrs
import pytest

from kernel import EngineConfig
from ownership import Absorbed, LedgerError, StaleHandle
from tests.kernel.pool import Pool
from tests.museum.exhibit import exhibit
from tests.scenarios.inputs import on_both_models
from tests.scenarios.stage import DeviceFactory, greedy, open_stage, prompt


@exhibit("M004", pattern="P14", guard="ledger", bug="refusal-keeps-a-slot")
@on_both_models
async def test_m004_a_retry_is_counted_by_its_owners_and_changes_no_token(
    opened_device: DeviceFactory,
) -> None:
    """sgl-project/sglang#19024: the check did not know of slots that waiting turns had.

    The audit asks the owners and nobody else, at every step in which the turn is tried again; and a
    turn that was tried many times answers as one that was tried once.
    """
    async with (
        open_stage(opened_device, num_slots=3, num_pages=10) as stage,
        stage.engine.session() as session,
    ):
        history = stage.note([], await stage.run(session.turn(prompt(5), greedy(3))))
        async with stage.engine.stream(prompt(21, 1), greedy(6)) as senior:
            await stage.step()
            async with session.turn(prompt(14, 2), greedy(3)) as turn:
                retries = 0
                while not senior.has_result:
                    assert turn.request_id not in stage.running()
                    audit = stage.engine.audit()
                    assert (audit.batch, audit.session, audit.free_slots) == (1, 1, 1)
                    await stage.step()
                    retries += 1
                assert retries > 3
                history = stage.note(history, await stage.finish(turn))
            stage.note([], await senior.wait())
        stage.note(history, await stage.run(session.turn(prompt(2, 3), greedy(2))))


@exhibit("M031", pattern="P14", guard="ledger", bug="audit-is-blind-to-aliases")
def test_m031_two_owners_of_one_page_are_seen_though_the_sum_is_right() -> None:
    """sgl-project/sglang#27731: free plus held was the total, and one page had two owners.

    The audit asks of each page how often it is named. And the way there is closed: a landing beyond
    what the claim's pages cover is refused.
    """
    pool = Pool(slots=2)
    first, second = pool.reserve(6, turn="s1"), pool.reserve(6, turn="s2")
    lease = pool.port.launch([first, second], step=1)
    with pytest.raises(LedgerError, match="covers 8"):
        pool.port.land(lease, Absorbed((9, 6)))
    pool.port.land(lease, Absorbed((3, 3)))
    assert pool.ledger.audit().conserved

    # The bug can't be written with the verbs, so the table itself is spoilt here.
    book: Any = pool.ledger._book  # pyright: ignore[reportPrivateUsage]
    mine, theirs = book.claims.values()
    sum_before = len(book.free_pages) + sum(len(each.exclusive) for each in (mine, theirs))
    for table in (mine.exclusive, mine.page_table):
        table[1] = theirs.page_table[1]
    assert len(book.free_pages) + sum(len(r.exclusive) for r in (mine, theirs)) == sum_before == 16
    audit = pool.ledger.audit()
    assert not audit.conserved
    assert any("stands in 2 columns" in problem for problem in audit.problems)


@exhibit("M076", pattern="P14", guard="ledger", bug="double-rollback-is-silent")
@pytest.mark.parametrize("slots", [0, 2])
def test_m076_a_second_release_is_an_error_in_every_mode(slots: int) -> None:
    """sgl-project/sglang#40305: the check for a double free was missing in the default allocator.

    There is one ledger and no debug switch: the second use raises, is counted, and changes nothing.
    """
    words = {word for field in attrs.fields(EngineConfig) for word in field.name.split("_")}
    assert not words & {"debug", "check", "checks", "checked"}
    pool = Pool(slots=slots)
    claim = pool.reserve(6)
    pool.port.rollback(claim)
    free = (pool.view.free_slots, pool.view.free_pages)
    other = pool.reserve(6)
    with pytest.raises(StaleHandle, match="given back by rollback"):
        pool.port.rollback(claim)
    assert pool.view.counters.violations == 1
    assert pool.view.describe(other).turn == "turn"
    pool.port.rollback(other)
    assert (pool.view.free_slots, pool.view.free_pages) == free == (slots, 16)
