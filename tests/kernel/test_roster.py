"""The roster: who waits and who runs, each list sorted by rank."""

from hypothesis import given
from hypothesis import strategies as st

from kernel.ids import TurnId
from kernel.scheduling.roster import Roster
from kernel.turn import OpenTurn, TurnState
from ownership import CustodianId
from tests.kernel.turns import make_turn

MOVES = ("wait", "run", "commit", "end")


def names(turns: list[OpenTurn]) -> list[str]:
    return [turn.id for turn in turns]


def test_a_new_turn_waits_in_its_place() -> None:
    """A senior one may come after its juniors."""
    roster = Roster()
    for arrival in (5, 1, 3):
        roster.add(make_turn(str(arrival), arrival=arrival))

    assert names(roster.waiting) == ["1", "3", "5"]
    assert len(roster) == 3


def test_a_preempted_turn_waits_in_its_old_place() -> None:
    """Its rank is fixed at submit, so it goes before all that came later."""
    roster = Roster()
    turns = [make_turn(str(arrival), arrival=arrival) for arrival in range(3)]
    for turn in turns:
        roster.add(turn)
    roster.run(turns[0])
    roster.run(turns[1])
    roster.wait(turns[1])

    assert names(roster.running) == ["0"]
    assert names(roster.waiting) == ["1", "2"]
    assert turns[1].state is TurnState.WAITING


def test_a_turn_between_its_phases_neither_waits_nor_runs() -> None:
    """Its claim is with its session; it is open all the same."""
    roster = Roster()
    turn = make_turn("a")
    roster.add(turn)
    roster.run(turn)
    roster.commit(turn)

    assert (roster.waiting, roster.running) == ([], [])
    assert roster.get(TurnId("a")) is turn


def test_an_ended_turn_is_forgotten_and_ends_once() -> None:
    """A later message that names it finds nothing."""
    roster = Roster()
    turn = make_turn("a")
    roster.add(turn)
    roster.end(turn)
    roster.end(turn)

    assert roster.get(TurnId("a")) is None
    assert list(roster) == []
    assert turn.state is TurnState.ENDED


def test_the_turns_of_a_session_are_found() -> None:
    """All of them end with it, a forgotten one included."""
    roster = Roster()
    for name, session in (("a", "x"), ("b", "y"), ("c", "x")):
        roster.add(make_turn(name, session=session))

    assert [turn.id for turn in roster.of_session(CustodianId("x"))] == ["a", "c"]


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(MOVES)), max_size=60))
def test_any_moves_keep_both_lists_sorted_and_complete(moves: list[tuple[int, str]]) -> None:
    """The whole order of admission, growth and victims rests on it."""
    roster = Roster()
    turns = [make_turn(str(number), arrival=7 * number % 10) for number in range(10)]
    states = dict.fromkeys(range(10), "wait")
    for turn in turns:
        roster.add(turn)
    for number, move in moves:
        if states[number] != "end":
            getattr(roster, move)(turns[number])
            states[number] = move

    for state, found in (("wait", roster.waiting), ("run", roster.running)):
        expected = [turns[number] for number, at in states.items() if at == state]
        assert found == sorted(expected, key=lambda turn: turn.rank)
    assert len(roster) == sum(state != "end" for state in states.values())
