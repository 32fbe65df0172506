"""Room: which moves make it, in which order, and all of them or none."""

import pytest

from kernel.scheduling.room import Moves, Room
from kernel.turn import OpenTurn
from ownership import BaseName, Need, Refused
from tests.kernel.pool import Pool, holder
from tests.kernel.turns import make_turn


def pages(count: int) -> Need:
    return Need(4 * count)


def room(pool: Pool, max_rows: int = 8) -> Room:
    return Room(pool.view, pool.roster, max_rows=max_rows)


def waiting(pool: Pool, name: str, arrival: int, base: BaseName | None = None) -> OpenTurn:
    """A turn that waits, of the session that its base belongs to."""
    turn = make_turn(name, arrival=arrival)
    if base is not None:
        turn.base, turn.session = base, base.holder
    pool.roster.add(turn)
    return turn


def names(moves: Moves | None) -> list[str]:
    assert moves is not None
    asks = [f"{base.holder.removeprefix('session:')}@{base.version}" for base in moves.asks]
    return asks + [turn.id for turn in moves.victims]


def a_full_house() -> tuple[Pool, OpenTurn]:
    """Something of everything that a turn may take, and a senior turn that needs room."""
    pool = Pool(pages=32)
    pool.open("own", "waits", "runs", "idle", "chats")
    own = pool.rest("own", 5)
    waits = pool.rest("waits", 5)
    runs = pool.rest("runs", 5)
    pool.rest("idle", 5)
    first = pool.rest("chats", 5)
    pool.rest("chats", 2, first)
    running = make_turn("senior", arrival=-1, base=runs, session=runs.holder)
    pool.run(running, 8)
    for arrival in (8, 7):
        pool.run(make_turn(f"junior {arrival}", arrival=arrival), 8)
    waiting(pool, "other", 9, waits)
    turn = waiting(pool, "needs room", 0, own)
    pool.fill()
    return pool, turn


ORDER = ["chats@1", "idle@1", "chats@2", "runs@1", "waits@1", "junior 8", "junior 7"]


def test_moves_are_made_in_order_of_what_they_cost() -> None:
    """A checkpoint, idle states, a running turn's base, a waiting one's, juniors, the own base."""
    pool, turn = a_full_house()
    found = [room(pool).moves_for(turn, pages(count), pool.claims) for count in range(1, 40)]
    possible = [names(moves) for moves in found if moves is not None]

    assert [] not in possible[1:]
    longest = [moves for moves in possible if "own@1" not in moves]
    assert longest[-1] == ORDER
    for moves in longest:
        asks = [name for name in moves if "@" in name]
        assert asks == ORDER[: len(asks)]
        victims = moves[len(asks) :]
        assert victims == ORDER[5 : 5 + len(victims)]


def test_what_a_forks_turn_waits_to_start_from_goes_after_idle_states() -> None:
    """The parent is at rest, but its state is somebody's base."""
    pool = Pool(pages=32)
    pool.open("parent", "idle")
    parent = pool.rest("parent", 5)
    pool.rest("idle", 5)
    fork = make_turn("fork", arrival=9, base=parent, session=holder("fork"))
    pool.roster.add(fork)
    turn = waiting(pool, "needs room", 0)
    pool.fill()

    assert names(room(pool).moves_for(turn, pages(2), pool.claims)) == ["idle@1"]
    assert names(room(pool).moves_for(turn, pages(4), pool.claims)) == ["idle@1", "parent@1"]


def test_a_checkpoint_that_a_forks_turn_waits_to_start_from_is_none_for_it() -> None:
    """The parent has gone on; the fork would compute its whole log again."""
    pool = Pool(pages=32)
    parent = pool.rest("parent", 5)
    pool.rest("parent", 2, parent)
    pool.rest("idle", 5)
    pool.roster.add(make_turn("fork", arrival=9, base=parent, session=holder("fork")))
    turn = waiting(pool, "needs room", 0)
    pool.fill()

    first, *_ = names(room(pool).moves_for(turn, pages(2), pool.claims))
    assert first == "parent@2"


def a_forks_turn_begins(pool: Pool, arrival: int, base: BaseName) -> OpenTurn:
    """It has pinned its base, and its first step is yet to come."""
    turn = make_turn(f"fork {arrival}", arrival=arrival, base=base, session=f"fork {arrival}")
    turn.position, turn.covered = 8, 12
    pool.claims[turn.id] = pool.reserve(12, base, turn.id)
    pool.roster.add(turn)
    pool.roster.run(turn)
    return turn


def test_a_state_that_several_victims_have_pinned_goes_after_the_last_of_them() -> None:
    """Forks of one session copy one state; it is nobody's but theirs."""
    pool = Pool(pages=8)
    base = pool.rest("parent", 8)
    for arrival in (5, 6, 7):
        a_forks_turn_begins(pool, arrival, base)
    turn = waiting(pool, "needs all", 0)
    victims = ["fork 7", "fork 6", "fork 5"]

    assert names(room(pool).moves_for(turn, pages(6), pool.claims)) == victims
    assert names(room(pool).moves_for(turn, pages(8), pool.claims)) == ["parent@1", *victims]


def test_a_state_that_a_senior_has_pinned_too_is_not_asked_for() -> None:
    """It would only drain until the senior has copied it."""
    pool = Pool(pages=8)
    base = pool.rest("parent", 8)
    a_forks_turn_begins(pool, -1, base)
    a_forks_turn_begins(pool, 5, base)
    turn = waiting(pool, "needs room", 0)

    assert names(room(pool).moves_for(turn, pages(5), pool.claims)) == ["fork 5"]
    assert room(pool).moves_for(turn, pages(6), pool.claims) is None


@pytest.mark.parametrize(("needed", "found"), [(5, ["fork 5"]), (6, None)])
def test_without_its_base_a_turn_needs_more(needed: int, found: list[str] | None) -> None:
    """A fork's base may be pinned by a junior: given up, it is shared no longer."""
    pool = Pool(pages=8)
    base = pool.rest("parent", 8)
    pool.run(make_turn("senior", arrival=-1), 12)
    a_forks_turn_begins(pool, 5, base)
    turn = waiting(pool, "fork", 0, base)

    moves = room(pool).moves_for(turn, pages(needed), pool.claims)
    assert (None if moves is None else names(moves)) == found


def test_a_base_that_was_asked_for_is_not_counted_on() -> None:
    """Its session gives it up before the turn can be admitted."""
    pool = Pool(pages=8)
    base = pool.rest("parent", 8)
    pool.run(make_turn("senior", arrival=-1), 12)
    pool.run(make_turn("junior", arrival=5), 4)
    turn = waiting(pool, "fork", 0, base)
    pool.fill()
    finder = room(pool)
    finder.asked.add(base)

    assert finder.moves_for(turn, pages(5), pool.claims) is None


def test_the_own_base_is_the_last_to_go() -> None:
    """It costs a recomputation of the whole log; then the turn starts from nothing."""
    pool, turn = a_full_house()
    found = [room(pool).moves_for(turn, pages(count), pool.claims) for count in range(1, 40)]
    with_own = [names(moves) for moves in found if moves is not None and "own@1" in names(moves)]

    assert with_own
    for moves in with_own:
        assert set(moves) == {*ORDER, "own@1"}
        assert [name for name in moves if "@" in name][-1] == "own@1"


def test_nothing_moves_unless_all_moves_together_make_the_room() -> None:
    """A preemption that doesn't help would throw work away and help nobody."""
    pool, turn = a_full_house()
    needs_all = max(
        count for count in range(1, 40) if room(pool).moves_for(turn, pages(count), pool.claims)
    )

    assert needs_all < 32
    assert room(pool).moves_for(turn, pages(needs_all + 1), pool.claims) is None


def test_no_more_is_asked_than_is_short() -> None:
    """One page short and one page free: the cheapest single move."""
    pool, turn = a_full_house()

    # The own base covers one full page already, so two more pages are one over its tail.
    assert names(room(pool).moves_for(turn, pages(2), pool.claims)) == ["chats@1"]


def test_looking_for_moves_changes_nothing() -> None:
    """They are the scheduler's to make."""
    pool, turn = a_full_house()
    before = pool.view.audit(), pool.roster.running[:], pool.roster.waiting[:]
    room(pool).moves_for(turn, pages(9), pool.claims)

    assert (pool.view.audit(), pool.roster.running, pool.roster.waiting) == before


def test_a_pinned_state_is_not_asked_for() -> None:
    """It would only drain: its session loses it, and no room comes of it now."""
    pool = Pool(pages=8)
    pool.open("pinned", "idle")
    base = pool.rest("pinned", 6)
    pool.rest("idle", 4)
    copying = pool.reserve(6, base, "copying")
    turn = waiting(pool, "t", 0)
    pool.fill()
    while_pinned = names(room(pool).moves_for(turn, pages(1), pool.claims))
    pool.land([copying], 1)

    assert while_pinned == ["idle@1"]
    assert names(room(pool).moves_for(turn, pages(1), pool.claims)) == ["pinned@1"]


def test_the_least_recently_committed_idle_state_goes_first() -> None:
    """It is the least likely to be needed next."""
    pool = Pool(pages=8)
    pool.open("x", "y", "z")
    for session in ("x", "y", "z"):
        pool.rest(session, 4)
    turn = waiting(pool, "t", 0)
    pool.fill()

    assert names(room(pool).moves_for(turn, pages(2), pool.claims)) == ["x@1", "y@1"]


def test_what_is_returning_is_waited_for() -> None:
    """Every ask is answered; asking somebody else as well would take more than is short."""
    pool = Pool(pages=8)
    pool.open("x", "y")
    x, _ = pool.rest("x", 4), pool.rest("y", 4)
    turn = waiting(pool, "t", 0)
    pool.fill()
    finder = room(pool)
    finder.asked.add(x)

    assert finder.moves_for(turn, pages(1), pool.claims) is None
    assert names(finder.moves_for(turn, pages(2), pool.claims)) == ["y@1"]


def test_a_turn_takes_from_its_juniors_only() -> None:
    """The senior always finishes, and by induction everybody does."""
    pool = Pool(pages=8)
    pool.run(make_turn("senior", arrival=1), 16)
    pool.run(make_turn("junior", arrival=3), 8)
    turn = waiting(pool, "t", 2)
    pool.fill()

    assert names(room(pool).moves_for(turn, pages(2), pool.claims)) == ["junior"]
    assert room(pool).moves_for(turn, pages(3), pool.claims) is None


def test_a_junior_in_flight_is_not_preempted() -> None:
    """Its claim is with the device; nobody has a handle to roll back."""
    pool = Pool(pages=8)
    junior = pool.run(make_turn("junior", arrival=3), 8)
    turn = waiting(pool, "t", 2)
    pool.fill()
    lease = pool.port.launch([pool.claims.pop(junior.id)], step=2)

    assert room(pool).moves_for(turn, pages(1), pool.claims) is None
    assert pool.view.leases() == (lease,)


def test_a_row_can_be_short_while_memory_is_not() -> None:
    """``max_num_seqs`` bounds a step; the most junior turn makes place."""
    pool = Pool(pages=16)
    pool.run(make_turn("a", arrival=5), 4)
    pool.run(make_turn("b", arrival=6), 4)
    turn = waiting(pool, "t", 1)

    assert names(room(pool, max_rows=2).moves_for(turn, pages(1), pool.claims)) == ["b"]
    assert names(room(pool, max_rows=3).moves_for(turn, pages(1), pool.claims)) == []


def test_a_running_turn_that_grows_needs_no_row_and_no_slot() -> None:
    """It has both; a page is what it lacks."""
    pool = Pool(slots=2, pages=2)
    pool.rest("idle", 4)
    turn = pool.run(make_turn("t", arrival=1), 4, absorbs=4)

    assert pool.view.free_slots == pool.view.free_pages == 0
    moves = room(pool, max_rows=1).moves_for(turn, Need(5), pool.claims)
    assert names(moves) == ["idle@1"]


def test_one_slot_serves_any_number_of_idle_sessions() -> None:
    """The state that rests in it is asked for, and comes back from its log later."""
    pool = Pool(slots=1, pages=8)
    pool.rest("idle", 4)
    turn = waiting(pool, "t", 0)

    assert names(room(pool).moves_for(turn, pages(1), pool.claims)) == ["idle@1"]


def test_the_only_slot_may_be_the_turns_own_base() -> None:
    """Then it gives up its own state, and starts from its log."""
    pool = Pool(slots=1, pages=8)
    turn = waiting(pool, "t", 0, pool.rest("own", 6))

    assert names(room(pool).moves_for(turn, pages(2), pool.claims)) == ["own@1"]


@pytest.mark.parametrize(("needed", "fits"), [(8, True), (9, False)])
def test_a_need_beyond_the_whole_pool_never_fits(needed: int, fits: bool) -> None:
    """Whatever else is in the engine now."""
    pool = Pool(slots=1, pages=8)
    pool.rest("idle", 20)

    assert room(pool).can_ever_fit(pages(needed)) is fits


def test_quarantine_shrinks_what_can_ever_fit() -> None:
    """A turn that waits for memory which a hanging step may never give back would hang, too."""
    pool = Pool(slots=2, pages=8)
    hanging = [pool.reserve(20), pool.reserve(1)]
    lease = pool.port.launch(hanging[:1], step=1)
    pool.ledger.quarantine(lease)

    assert room(pool).can_ever_fit(pages(3))
    assert not room(pool).can_ever_fit(pages(4))
    pool.ledger.quarantine(pool.port.launch(hanging[1:], step=2))
    assert not room(pool).can_ever_fit(pages(1)), "no slot is left"


def test_a_session_that_is_gone_is_not_asked() -> None:
    """The ledger says who rests with what; a state that was closed is in no list."""
    pool = Pool(slots=1, pages=8)
    pool.rest("idle", 4)
    turn = waiting(pool, "t", 0)
    pool.ledger.session_port(holder("idle")).close(pool.states.pop())

    assert names(room(pool).moves_for(turn, pages(1), pool.claims)) == []


def test_a_junior_that_slides_gives_both_of_its_claims() -> None:
    """The new one has yet to copy out of the old one, and pins it until then."""
    pool = Pool(pages=9)
    junior = pool.run(make_turn("junior", arrival=3), 16, absorbs=16)
    parked = {junior.id: pool.claims.pop(junior.id)}
    sliding = pool.port.reserve(Need(20, first_page=1), parked[junior.id], turn=junior.id)
    assert not isinstance(sliding, Refused)
    pool.claims[junior.id] = sliding
    junior.is_sliding = True
    turn = waiting(pool, "t", 0)
    finder = room(pool)

    assert pool.view.free_pages == 1
    assert names(finder.moves_for(turn, pages(9), pool.claims, parked=parked)) == ["junior"]
    junior.is_sliding = False
    assert finder.moves_for(turn, pages(9), pool.claims, parked=parked) is None
