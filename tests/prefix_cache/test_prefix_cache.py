"""The cache keeps states, finds the last that a sequence begins with, and lets the oldest go."""

import random

import pytest

from ownership import ZEROS, Absorbed, Base, BaseName, LedgerError, StepFailed, WrongOwner
from tests.prefix_cache.shelf import Shelf

LONG = tuple(range(1, 101))


def test_a_state_is_found_at_its_exact_position_and_not_beyond_the_limit() -> None:
    shelf = Shelf()
    short, long = shelf.keep(LONG[:8]), shelf.keep(LONG[:21])

    assert [shelf.match(LONG, limit).position for limit in (7, 8, 20, 21, 99)] == [0, 8, 8, 21, 21]
    assert shelf.match(LONG, 8).base == short
    assert shelf.match(LONG, 50).base == long
    assert shelf.match((*LONG[:20], 7, 7)).position == 8
    shelf.assert_conserved()


def test_a_match_pins_nothing_and_the_reserve_that_follows_does() -> None:
    shelf = Shelf()
    shelf.keep(LONG[:8])
    match = shelf.match(LONG)
    assert list(shelf.cache.evictable()) == [match.base]

    claim = shelf.reserve(12, match.base)
    assert list(shelf.cache.evictable()) == []
    shelf.batch.rollback(claim)
    assert list(shelf.cache.evictable()) == [match.base]


def test_a_pinned_state_is_not_chosen_and_drains_if_it_is_evicted_all_the_same() -> None:
    shelf = Shelf(slots=3)
    shelf.keep(LONG[:8])
    base = shelf.match(LONG).base
    claim = shelf.reserve(12, base)

    assert shelf.cache.plan(shelf.view.simulate(), 1, 0, spare=ZEROS) == []
    assert isinstance(base, BaseName)
    shelf.cache.evict(base)
    assert (shelf.view.free_slots, shelf.ledger.audit().draining) == (1, 1)
    assert shelf.match(LONG).base is ZEROS, "nobody starts from it any more"
    (claim,) = shelf.batch.land(shelf.batch.launch([claim], step=2), Absorbed((1,)))
    assert (shelf.view.free_slots, shelf.ledger.audit().draining) == (2, 0)
    shelf.batch.rollback(claim)
    shelf.assert_conserved()


def test_the_state_used_longest_ago_goes_first() -> None:
    """Using one is using all that its sequence begins with; what is shallow stays longest."""
    shelf = Shelf()
    first, second = shelf.keep(LONG[:8]), shelf.keep(LONG[:16])
    other = shelf.keep((9, 9, 9, 9))
    assert shelf.order == [first, second, other]

    shelf.match(LONG)
    assert shelf.order == [other, second, first]
    shelf.match((9, 9, 9, 9, 9))
    assert shelf.order == [second, first, other]
    assert shelf.cache.reach("", b"") == 0
    assert shelf.order == [second, first, other]


def test_a_plan_takes_as_few_as_it_needs_and_spares_what_the_turn_starts_from() -> None:
    shelf = Shelf(slots=4, pages=0)
    states = [shelf.keep((number,) * 5) for number in range(1, 5)]

    plan = shelf.cache.plan(shelf.view.simulate(), 2, 0, spare=states[0])
    assert plan == states[1:3]
    assert len(shelf.cache.plan(shelf.view.simulate(), 9, 0, spare=ZEROS)) == 4
    assert shelf.view.free_slots == 0, "a plan changes nothing"


@pytest.mark.parametrize("salt", ["", "alice"])
def test_salts_never_share(salt: str) -> None:
    shelf = Shelf()
    shelf.keep(LONG[:8], salt="bob")

    match = shelf.match(LONG, salt=salt)
    assert (match.base, match.miss, match.branch) == (ZEROS, "cold", None)
    assert shelf.match(LONG, salt="bob").position == 8


def test_what_no_step_has_written_is_refused() -> None:
    """Not before the landing, not a copy to come, not after a failure, and nothing changes."""
    shelf = Shelf()
    shelf.keep(LONG[:8])
    fresh, copy = shelf.reserve(8), shelf.reserve(12, shelf.match(LONG).base)
    (failed,) = shelf.batch.land(
        shelf.batch.launch([shelf.reserve(8)], step=3), StepFailed("planted")
    )
    for claim in (fresh, copy, failed):
        with pytest.raises(LedgerError, match="not valid"):
            shelf.cache.admit(claim, "", b"1234", ZEROS)
        shelf.batch.rollback(claim)

    assert len(shelf.order) == 1
    assert shelf.match((LONG[0], 0)).position == 0
    shelf.assert_conserved()


def test_a_cached_state_can_not_be_given_back_as_a_working_claim() -> None:
    shelf = Shelf()
    shelf.keep(LONG[:8])
    (state,) = shelf.cache.states.values()

    with pytest.raises((TypeError, WrongOwner)):
        shelf.batch.rollback(state)  # type: ignore[arg-type]
    shelf.assert_conserved()


def test_a_second_state_at_one_place_takes_over() -> None:
    shelf = Shelf()
    first, second = shelf.keep(LONG[:8]), shelf.keep(LONG[:8])

    assert shelf.order == [second] != [first]
    assert shelf.match(LONG).base == second
    assert shelf.cache.books.bytes == 120
    shelf.assert_conserved()


@pytest.mark.parametrize(
    ("tokens", "limit", "miss", "branch"),
    [
        ((7, 7, 7, 7, 7, 7), 5, "cold", None),
        ((1, 2, 3, 7, 7, 7), 5, "cold", 3),
        ((1, 2, 3, 4, 7, 7), 5, "parted", 4),
        ((1, 2, 3), 2, "short", None),
        ((1, 2, 3, 4, 5, 6), 5, "parted", None),
        ((20, 21, 22, 23, 24, 25, 26), 6, "evicted", 5),
        ((20, 21, 22, 23, 24, 7, 7), 6, "evicted", 5),
    ],
)
def test_a_miss_says_what_it_is_for(
    tokens: tuple[int, ...], limit: int, miss: str, branch: int | None
) -> None:
    """Cold, parted (and where), too short to share anything, or evicted."""
    shelf = Shelf()
    shelf.keep(LONG[:8])
    gone = shelf.keep((20, 21, 22, 23, 24))
    shelf.cache.evict(gone)

    match = shelf.match(tokens, limit)
    assert (match.base, match.miss, match.branch) == (ZEROS, miss, branch)
    assert match.missed == ((5,) if miss == "evicted" else ())


def test_evicted_states_are_forgotten_in_time() -> None:
    """A bounded number is remembered, so that a miss is told from a cold start."""
    shelf = Shelf()
    for number in range(200):
        shelf.keep((number, 1, 1, 1, 1))
        for name in list(shelf.cache.evictable()):
            shelf.cache.evict(name)

    assert shelf.match((199, 1, 1, 1, 1, 1)).miss == "evicted"
    assert shelf.match((0, 1, 1, 1, 1, 1)).miss == "cold"
    assert shelf.counters.cache_evictions == 200
    shelf.cache.clear()
    assert shelf.match((199, 1, 1, 1, 1, 1)).miss == "cold"
    assert shelf.cache.tree.is_empty


def test_a_closed_cache_takes_nothing_more() -> None:
    shelf = Shelf()
    shelf.keep(LONG[:8])
    shelf.cache.clear(forever=True)

    assert not shelf.cache.fit_budget(4, ZEROS)
    assert shelf.ledger.audit().at_rest


def test_the_budget_evicts_until_a_state_fits() -> None:
    """Slot 100, page 10: a state at 8 takes 120. Never what it shares its pages with."""
    shelf = Shelf(budget=380)
    first = shelf.keep(LONG[:8])
    second = shelf.keep((5, 5, 5, 5))
    assert shelf.cache.books.bytes == 230

    assert shelf.cache.fit_budget(16, first), "shares two pages of four: 120 more"
    assert shelf.order == [first, second]
    assert shelf.cache.fit_budget(16, ZEROS), "140 more still fit"
    assert shelf.cache.fit_budget(24, first)
    assert shelf.order == [first, second]
    assert shelf.cache.fit_budget(33, first), "170 more do not"
    assert shelf.order == [first]
    assert not shelf.cache.fit_budget(200, first)


def test_a_state_beyond_the_whole_budget_evicts_nothing() -> None:
    shelf = Shelf(budget=300)
    shelf.keep(LONG[:8])

    assert not shelf.cache.fit_budget(90, ZEROS)
    assert len(shelf.order) == 1


def test_where_all_else_is_pinned_the_budget_has_no_room() -> None:
    shelf = Shelf(budget=380)
    shelf.keep(LONG[:8])
    shelf.keep((5, 5, 5, 5))
    copies = [shelf.reserve(12, shelf.match(tokens).base) for tokens in (LONG, (5, 5, 5, 5, 5))]

    assert not shelf.cache.fit_budget(33, ZEROS)
    assert len(shelf.order) == 2
    for copy in copies:
        shelf.batch.rollback(copy)
    assert shelf.cache.fit_budget(33, ZEROS)


def test_nothing_is_evicted_where_that_would_not_be_enough() -> None:
    """What a long prompt starts from stays, and is most of the budget: the rest stays as well."""
    shelf = Shelf(budget=500)
    base = shelf.keep(range(100, 180))
    other = shelf.keep((5, 5, 5, 5))

    assert not shelf.cache.fit_budget(160, base), "300 more beside 300"
    assert shelf.order == [base, other]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_when_others_go_is_known_before(seed: int) -> None:
    rng = random.Random(seed)
    shelf = Shelf(slots=40, pages=600)
    for _ in range(12):
        bases: list[Base] = [ZEROS, *shelf.order]
        shares = rng.choice(bases)
        start = 0
        if isinstance(shares, BaseName):
            start = shelf.cache.books[shares.version].position
        shelf.keep([rng.randrange(9) for _ in range(start + rng.randint(1, 20))], shares=shares)
    stay = {name.version for name in rng.sample(shelf.order, 4)}
    expected = shelf.cache.books.bytes_left(stay)
    for name in list(shelf.cache.evictable()):
        if name.version not in stay:
            shelf.cache.evict(name)
    assert shelf.cache.books.bytes == expected


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_are_never_less_than_what_is_taken(seed: int) -> None:
    """And exactly that while each state shares with at most one other."""
    rng = random.Random(seed)
    shelf = Shelf(slots=40, pages=600)
    for _ in range(60):
        names = list(shelf.cache.evictable())
        if names and rng.random() < 0.4:
            shelf.cache.evict(rng.choice(names))
        elif shelf.view.free_slots > 1 and shelf.view.free_pages > 30:
            bases: list[Base] = [ZEROS, *names]
            shares = rng.choice(bases)
            start = 0 if shares is ZEROS else shelf.cache.books[shares.version].position
            tokens = [rng.randrange(9) for _ in range(start + rng.randint(1, 20))]
            shelf.keep(tokens, shares=shares)
        taken = 100 * (40 - shelf.view.free_slots) + 10 * (600 - shelf.view.free_pages)
        assert shelf.cache.books.bytes >= taken
        shelf.assert_conserved()
    shelf.cache.clear()
    assert shelf.cache.books.bytes == 0
    assert shelf.ledger.audit().at_rest


def test_pages_that_an_evicted_state_shared_count_for_the_one_that_has_them() -> None:
    shelf = Shelf()
    first = shelf.keep(LONG[:8])
    second = shelf.keep(LONG[:16], shares=first)
    third = shelf.keep(LONG[:24], shares=second)
    assert shelf.cache.books.bytes == 3 * 100 + 6 * 10

    for gone in (second, first):
        shelf.cache.evict(gone)
        taken = 100 * (20 - shelf.view.free_slots) + 10 * (100 - shelf.view.free_pages)
        assert shelf.cache.books.bytes == taken
    assert shelf.order == [third]
