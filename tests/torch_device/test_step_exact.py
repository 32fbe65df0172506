"""Whatever the schedule, the logits are those of the reference model."""

import random

import pytest
import torch

from adapters.ragged.passes import PassBudget
from adapters.ragged.spec import ModelShape
from kernel.step import DeviceStep, StepRow
from tests.torch_device.support import CONFIGS, PAGE_SIZE, Rig, Track

TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


def run_schedule(rig: Rig, tracks: list[Track], draw: random.Random) -> float:
    """Absorb all tracks in random mixtures of chunks; the worst difference at a chunk's end."""
    worst = 0.0
    while open_tracks := [track for track in tracks if track.left]:
        chosen = draw.sample(open_tracks, draw.randint(1, len(open_tracks)))
        rows: list[StepRow] = []
        for track in chosen:
            count = 1 if draw.random() < 0.5 else draw.randint(1, min(track.left, 21))
            rows.append(track.row(count))
        worst = max(worst, rig.worst(chosen, rig.logits(rows)))
    return worst


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(4))
def test_any_mixture_of_chunks_and_decode_rows_equals_the_reference(
    name: str, dtype: str, seed: int
) -> None:
    """The arenas start full of NaN, so nothing that wasn't written is ever read."""
    rig, draw = Rig(name, dtype), random.Random(seed)
    tracks = [rig.sequence(draw.randint(1, 50), seed=10 + number) for number in range(4)]

    assert run_schedule(rig, tracks, draw) < TOLERANCE[dtype]


@pytest.mark.parametrize("name", CONFIGS)
def test_passes_of_a_few_tokens_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large step is cut into passes; a row may go on in the next one."""

    def tight(shape: ModelShape) -> PassBudget:
        return PassBudget(tokens=7, chunks=2, mask_cells=150, chunk_size=8)

    monkeypatch.setattr(PassBudget, "of", tight)
    rig, draw = Rig(name), random.Random(5)
    tracks = [rig.sequence(draw.randint(20, 50), seed=10 + number) for number in range(4)]

    assert run_schedule(rig, tracks, draw) < 1e-9


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("position", [PAGE_SIZE * 3, PAGE_SIZE * 3 + 1, 3])
def test_two_forks_of_a_base_in_one_step_leave_it_untouched(name: str, position: int) -> None:
    """Slot and tail are copied, full pages shared; the base goes on later as if alone."""
    rig = Rig(name)
    base = rig.sequence(40, seed=1)
    rig.logits([base.row(position)])
    forks = [rig.fork(base, 9, seed=2), rig.fork(base, 11, seed=3)]

    worst = rig.worst(forks, rig.logits([forks[0].row(1), forks[1].row(7)]))
    worst = max(worst, rig.worst(forks, rig.logits([forks[0].row(8), forks[1].row(1)])))
    worst = max(worst, rig.worst([base], rig.logits([base.row(base.left)])))

    assert worst < 1e-9


def test_a_copy_is_exact_to_the_bit() -> None:
    """A moved state is identical, not merely close."""
    rig = Rig(dtype="float32")
    base = rig.sequence(7, seed=1)
    rig.logits([base.row(7)])
    fork = rig.fork(base, 3, seed=2)
    state, pages = rig.arenas.states, rig.arenas.pages
    state.copy(base.slot, fork.slot)
    assert fork.tail_copy is not None
    pages.copy(fork.tail_copy.source, fork.tail_copy.target)

    assert torch.equal(state["ssm"][:, fork.slot], state["ssm"][:, base.slot])
    assert torch.equal(state["conv"][:, fork.slot], state["conv"][:, base.slot])
    assert torch.equal(pages.keys[:, fork.pages[1]], pages.keys[:, base.pages[1]])
    assert torch.equal(pages.values[:, fork.pages[1]], pages.values[:, base.pages[1]])


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_given_back_is_poisoned_and_reused_clean(name: str) -> None:
    """The next owner of a slot and of pages sees nothing of the last one."""
    rig = Rig(name, slots=1)
    first = rig.sequence(30, seed=1)
    rig.logits([first.row(30)])
    freed = rig.give_back(first)
    second = rig.sequence(22, seed=2)

    found = rig.logits([second.row(9)], freed)
    worst = rig.worst([second], found)
    worst = max(worst, rig.worst([second], rig.logits([second.row(13)])))

    assert worst < 1e-9


def test_poison_reaches_slots_and_pages() -> None:
    """Else the test above would prove nothing."""
    rig = Rig()
    track = rig.sequence(6, seed=1)
    rig.logits([track.row(6)])

    rig.logits([rig.sequence(1, seed=2).row(1)], rig.give_back(track))

    assert rig.arenas.states["ssm"][:, track.slot].isnan().all()
    assert rig.arenas.pages.keys[:, track.pages[0]].isnan().all()


def test_padding_rows_stay_zero() -> None:
    """Padded page tables point at the padding page: a NaN there would spread to every row."""
    rig = Rig()
    tracks = [rig.sequence(length, seed=length) for length in (2, 30, 11)]
    for count in (2, 1, 1):
        rig.logits([track.row(min(count, track.left)) for track in tracks if track.left])

    assert not rig.arenas.states["ssm"][:, -1].any()
    assert not rig.arenas.pages.keys[:, -1].any()


def test_a_row_that_does_not_sample_yields_none() -> None:
    """Rows answer in the order of the step, whatever order they are computed in."""
    rig = Rig()
    long, short, silent = (rig.sequence(20, seed=number) for number in range(3))
    rows = [long.row(18), short.row(1), silent.row(5, sampling=None)]

    tokens = rig.runner.run(DeviceStep(step=0, rows=rows))

    alone = Rig()
    tracks = [alone.sequence(20, seed=number) for number in range(2)]
    one = alone.runner.run(DeviceStep(step=0, rows=[tracks[0].row(18)]))
    two = alone.runner.run(DeviceStep(step=0, rows=[tracks[1].row(1)]))
    assert tokens == (*one, *two, None)


def test_two_rows_of_one_slot_are_refused() -> None:
    """A race inside of a step would be silent otherwise."""
    rig = Rig()
    track = rig.sequence(9, seed=1)
    rows = [track.row(3), track.row(1)]

    with pytest.raises(RuntimeError, match="same slot"):
        rig.runner.run(DeviceStep(step=0, rows=rows))


def test_bfloat16_keeps_recurrent_state_in_float32() -> None:
    """Rounding the state at every token would add up; rounding products doesn't."""
    rig, draw = Rig(dtype="bfloat16"), random.Random(1)
    tracks = [rig.sequence(30, seed=10 + number) for number in range(3)]

    assert run_schedule(rig, tracks, draw) < 0.15
    assert rig.arenas.states["ssm"].dtype == torch.float32
    assert rig.arenas.pages.keys.dtype == torch.bfloat16
