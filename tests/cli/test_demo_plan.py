"""What the demo's clients do is a pure function of the seed."""

from adapters.cli.demo.plan import DemoSize, Fate, make_plan

SIZE = DemoSize(sessions=40, turns=4, one_shots=30, max_tokens=24)


def test_the_same_seed_gives_the_same_plan() -> None:
    """A run that shows something wrong can be had again."""
    assert make_plan(SIZE, 7) == make_plan(SIZE, 7)
    assert make_plan(SIZE, 7) != make_plan(SIZE, 8)


def test_a_client_does_the_same_whatever_runs_beside_it() -> None:
    """Fewer sessions are a shorter list of the same clients, so that a run can be cut down."""
    few = DemoSize(sessions=3, turns=4, one_shots=1, max_tokens=24)

    assert make_plan(few, 7).sessions == make_plan(SIZE, 7).sessions[:3]


def test_every_way_of_ending_a_turn_occurs() -> None:
    """A demo that only finishes turns would prove nothing."""
    plan = make_plan(SIZE, 1)

    assert {turn.fate for session in plan.sessions for turn in session.turns} == set(Fate)
    assert {one_shot.turn.fate for one_shot in plan.one_shots} == {
        Fate.FINISH,
        Fate.CANCEL,
        Fate.DISCONNECT,
    }


def test_turns_stay_within_the_size_that_was_asked_for() -> None:
    """The time that a demo takes follows from its options."""
    plan = make_plan(SIZE, 1)
    turns = [turn for session in plan.sessions for turn in session.turns]

    assert len(turns) == 160
    assert all(12 <= turn.max_tokens <= 24 for turn in turns)
    assert all(1 <= turn.after_tokens <= 8 for turn in turns)
