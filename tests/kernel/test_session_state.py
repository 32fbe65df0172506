"""What a session holds at rest: the log is the truth, its states are caches of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.ids import SCHEDULER
from kernel.sessions.state import SessionState
from kernel.state_image import StateImage
from ownership import (
    ZEROS,
    Absorbed,
    BaseName,
    BatchOwned,
    Capacity,
    CustodianId,
    Ledger,
    Need,
    Refused,
)

HOLDER = CustodianId("session:a")


class Scene:
    """A session's state on a real ledger; the scheduler's part is played by hand."""

    def __init__(self) -> None:
        self.ledger = Ledger(Capacity(8, 64, 4))
        self.view = self.ledger.view
        self.port = self.ledger.batch_port(SCHEDULER)
        self.state = SessionState(HOLDER, self.ledger.session_port(HOLDER), self.view)

    def claim(self, position: int) -> BatchOwned:
        """A finished turn's claim at a position, started from the session's base."""
        base = self.state.base
        claim = self.port.reserve(Need(position), base, turn="t")
        assert not isinstance(claim, Refused)
        lease = self.port.launch([claim], step=1)
        (claim,) = self.port.land(lease, Absorbed((position - self.state.position,)))
        self.ledger.move(claim, SCHEDULER, HOLDER, "test")
        return claim

    def turn(self, tokens: int, *, keep_checkpoint: bool = True) -> bool:
        """One turn of so many tokens in and out, all of them but the last absorbed."""
        self.state.extend(range(tokens))
        return self.state.take(self.claim(len(self.state.log) - 1), keep_checkpoint=keep_checkpoint)

    @property
    def held(self) -> int:
        return len(self.view.held_by(HOLDER))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_fresh_session_starts_from_nothing(scene: Scene) -> None:
    """Zeros are a base of their own, and no position is not the position 0 of a state."""
    assert scene.state.base is ZEROS
    assert (scene.state.position, scene.state.version, len(scene.state.log)) == (0, 0, 0)


def test_a_commit_leaves_a_token_pending(scene: Scene) -> None:
    """The next turn starts from the last token; a state that had absorbed it would be too far."""
    committed = scene.turn(6)

    assert committed
    assert scene.state.position == 5
    assert scene.state.base == BaseName(HOLDER, 1)
    assert scene.state.version == 1


@pytest.mark.parametrize("position", [6, 7])
def test_a_claim_beyond_the_log_is_rolled_back(scene: Scene, position: int) -> None:
    """What was cut off is in it, and a recurrent state can't be cut."""
    scene.state.extend(range(6))
    committed = scene.state.take(scene.claim(position), keep_checkpoint=True)

    assert not committed
    assert scene.state.base is ZEROS
    assert scene.held == 0
    assert scene.ledger.audit().at_rest


def test_the_state_before_the_last_turn_stays_as_a_checkpoint(scene: Scene) -> None:
    """A late interrupt then costs one turn, not the history."""
    scene.turn(4)
    scene.turn(4)

    assert scene.held == 2
    assert scene.state.checkpoint is not None
    assert scene.view.position(scene.state.checkpoint) == 3
    assert scene.state.position == 7


def test_there_is_one_checkpoint(scene: Scene) -> None:
    """The older one is closed in the same handler."""
    for _ in range(4):
        scene.turn(4)

    assert scene.held == 2
    assert scene.state.position == 15


def test_without_a_checkpoint_the_old_state_is_replaced_in_the_commit(scene: Scene) -> None:
    """An append can't be interrupted late, and keeps nothing to fall back to."""
    scene.turn(4)
    scene.turn(4, keep_checkpoint=False)

    assert scene.held == 1
    assert scene.state.checkpoint is None


def test_a_cut_behind_the_state_falls_back_to_the_checkpoint(scene: Scene) -> None:
    """The state has absorbed what is cut off; the one before it has not."""
    scene.turn(4)
    first = scene.state.base
    scene.turn(4)
    scene.state.cut(5)

    assert scene.state.base == first
    assert (scene.state.position, len(scene.state.log)) == (3, 5)
    assert scene.state.checkpoint is None
    assert scene.held == 1
    assert scene.state.version == 3


def test_a_cut_before_the_state_keeps_it(scene: Scene) -> None:
    """Pending tokens go without touching any state."""
    scene.turn(4)
    scene.state.extend([7, 8, 9])
    scene.state.cut(5)

    assert (scene.state.position, len(scene.state.log)) == (3, 5)
    assert scene.state.version == 1


def test_a_cut_behind_the_checkpoint_too_leaves_the_log(scene: Scene) -> None:
    """Nothing that is left has not absorbed what is cut off."""
    scene.turn(4)
    scene.turn(4)
    scene.state.cut(2)

    assert scene.state.base is ZEROS
    assert scene.held == 0
    assert scene.state.log.tolist() == [0, 1]


def test_giving_up_closes_the_named_state_only(scene: Scene) -> None:
    """The scheduler asks by holder and version; the log stays, whatever goes."""
    scene.turn(4)
    old = scene.state.base
    scene.turn(4)
    new = scene.state.base
    assert isinstance(old, BaseName)
    assert isinstance(new, BaseName)

    assert scene.state.give_up(old)
    assert (scene.held, scene.state.base) == (1, new)
    assert scene.state.give_up(new)
    assert (scene.held, scene.state.base) == (0, ZEROS)
    assert not scene.state.give_up(new), "every ask is answered, also when there is nothing left"
    assert len(scene.state.log) == 8


def test_a_checkpoint_goes_with_its_state(scene: Scene) -> None:
    """No turn starts from it, and a cut would leave it beyond the log."""
    scene.turn(4)
    scene.turn(4)
    base = scene.state.base
    assert isinstance(base, BaseName)
    scene.state.give_up(base)

    assert scene.held == 0
    assert scene.ledger.audit().at_rest


def test_giving_up_a_version_of_the_past_moves_nothing(scene: Scene) -> None:
    """An ask that was overtaken by a commit must not cost the new state."""
    scene.turn(4, keep_checkpoint=False)
    old = scene.state.base
    scene.turn(4, keep_checkpoint=False)
    assert isinstance(old, BaseName)

    assert not scene.state.give_up(old)
    assert scene.state.position == 7


def test_closing_gives_everything_back_and_is_idempotent(scene: Scene) -> None:
    """State and checkpoint."""
    scene.turn(4)
    scene.turn(4)
    scene.state.close()
    scene.state.close()

    assert scene.ledger.audit().at_rest
    assert scene.view.free_slots == 8


def test_what_was_ever_absorbed_is_remembered_as_far_as_it_is_in_the_log(scene: Scene) -> None:
    """``recomputed_tokens`` counts what is absorbed again, and never what is new."""
    scene.turn(6)
    base = scene.state.base
    assert isinstance(base, BaseName)
    scene.state.give_up(base)
    after_give_up = scene.state.absorbed
    scene.state.cut(3)

    assert after_give_up == 5
    assert scene.state.absorbed == 3


@pytest.mark.parametrize(("length", "stays"), [(5, True), (4, False)])
def test_an_image_goes_with_the_log_that_it_is_of(length: int, stays: bool) -> None:
    """One that was brought in has absorbed tokens that the log does not have any more."""
    scene = Scene()
    scene.state.extend(range(9))
    scene.state.keep_image(StateImage(4, {}))
    scene.state.cut(length)

    assert (scene.state.image is not None) is stays


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.integers(1, 6)),
        st.tuples(st.just("append"), st.integers(1, 6)),
        st.tuples(st.just("log"), st.integers(1, 6)),
        st.tuples(st.just("cut"), st.integers(0, 8)),
        st.tuples(st.just("give up"), st.integers(1, 6)),
    ),
    max_size=12,
)


@given(MOVES)
def test_any_history_keeps_the_state_within_the_log(moves: list[tuple[str, int]]) -> None:
    """Position <= length - 1 for both states, at most two of them, and all of it comes back."""
    scene = Scene()
    for move, number in moves:
        if move in ("turn", "append") and len(scene.state.log) + number >= 2:
            scene.turn(number, keep_checkpoint=move == "turn")
        elif move == "log":
            scene.state.extend(range(number))
        elif move == "cut":
            scene.state.cut(max(0, len(scene.state.log) - number))
        elif move == "give up":
            scene.state.give_up(BaseName(HOLDER, number))
        length = len(scene.state.log)
        for state in (scene.state.state, scene.state.checkpoint):
            assert state is None or scene.view.position(state) <= max(0, length - 1)
        found = scene.state.base
        assert found is ZEROS or scene.view.find_base(found) is not None
        assert scene.held <= 2
    scene.state.close()

    assert scene.ledger.audit().at_rest
