"""Whatever the schedule, the logits are those of the reference model."""

import random

import pytest
import torch

from adapters.models.hybrid import HybridConfig
from adapters.torch_device.passes import PassBudget
from kernel.step import DeviceStep, StepRow
from tests.torch_device.bench import CONFIGS, PAGE_SIZE, Bench, Track

TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


def run_schedule(bench: Bench, tracks: list[Track], draw: random.Random) -> float:
    """Absorb all tracks in random mixtures of chunks; the worst difference at a chunk's end."""
    worst = 0.0
    while open_tracks := [track for track in tracks if track.left]:
        chosen = draw.sample(open_tracks, draw.randint(1, len(open_tracks)))
        rows: list[StepRow] = []
        for track in chosen:
            count = 1 if draw.random() < 0.5 else draw.randint(1, min(track.left, 21))
            rows.append(track.row(count))
        worst = max(worst, bench.worst(chosen, bench.logits(rows)))
    return worst


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", range(4))
def test_any_mixture_of_chunks_and_decode_rows_equals_the_reference(
    name: str, dtype: str, seed: int
) -> None:
    """The arenas start full of NaN, so nothing that wasn't written is ever read."""
    bench, draw = Bench(name, dtype), random.Random(seed)
    tracks = [bench.sequence(draw.randint(1, 50), seed=10 + number) for number in range(4)]

    assert run_schedule(bench, tracks, draw) < TOLERANCE[dtype]


@pytest.mark.parametrize("name", CONFIGS)
def test_passes_of_a_few_tokens_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large step is cut into passes; a row may go on in the next one."""

    def tight(config: HybridConfig) -> PassBudget:
        return PassBudget(tokens=7, chunks=2, mask_cells=150, chunk_size=8)

    monkeypatch.setattr(PassBudget, "of", tight)
    bench, draw = Bench(name), random.Random(5)
    tracks = [bench.sequence(draw.randint(20, 50), seed=10 + number) for number in range(4)]

    assert run_schedule(bench, tracks, draw) < 1e-9


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("position", [PAGE_SIZE * 3, PAGE_SIZE * 3 + 1, 3])
def test_two_forks_of_a_base_in_one_step_leave_it_untouched(name: str, position: int) -> None:
    """Slot and tail are copied, full pages shared; the base goes on later as if alone."""
    bench = Bench(name)
    base = bench.sequence(40, seed=1)
    bench.logits([base.row(position)])
    forks = [bench.fork(base, 9, seed=2), bench.fork(base, 11, seed=3)]

    worst = bench.worst(forks, bench.logits([forks[0].row(1), forks[1].row(7)]))
    worst = max(worst, bench.worst(forks, bench.logits([forks[0].row(8), forks[1].row(1)])))
    worst = max(worst, bench.worst([base], bench.logits([base.row(base.left)])))

    assert worst < 1e-9


def test_a_copy_is_exact_to_the_bit() -> None:
    """A moved state is identical, not merely close."""
    bench = Bench(dtype="float32")
    base = bench.sequence(7, seed=1)
    bench.logits([base.row(7)])
    fork = bench.fork(base, 3, seed=2)
    state, pages = bench.arenas.state, bench.arenas.pages
    state.copy(base.slot, fork.slot)
    assert fork.tail_copy is not None
    pages.copy(fork.tail_copy.source, fork.tail_copy.target)

    assert torch.equal(state.ssm[:, fork.slot], state.ssm[:, base.slot])
    assert torch.equal(state.conv[:, fork.slot], state.conv[:, base.slot])
    assert torch.equal(pages.keys[:, fork.pages[1]], pages.keys[:, base.pages[1]])
    assert torch.equal(pages.values[:, fork.pages[1]], pages.values[:, base.pages[1]])


@pytest.mark.parametrize("name", CONFIGS)
def test_what_was_given_back_is_poisoned_and_reused_clean(name: str) -> None:
    """The next owner of a slot and of pages sees nothing of the last one."""
    bench = Bench(name, slots=1)
    first = bench.sequence(30, seed=1)
    bench.logits([first.row(30)])
    freed = bench.give_back(first)
    second = bench.sequence(22, seed=2)

    found = bench.logits([second.row(9)], freed)
    worst = bench.worst([second], found)
    worst = max(worst, bench.worst([second], bench.logits([second.row(13)])))

    assert worst < 1e-9


def test_poison_reaches_slots_and_pages() -> None:
    """Else the test above would prove nothing."""
    bench = Bench()
    track = bench.sequence(6, seed=1)
    bench.logits([track.row(6)])

    bench.logits([bench.sequence(1, seed=2).row(1)], bench.give_back(track))

    assert bench.arenas.state.ssm[:, track.slot].isnan().all()
    assert bench.arenas.pages.keys[:, track.pages[0]].isnan().all()


def test_padding_rows_stay_zero() -> None:
    """Padded page tables point at the padding page: a NaN there would spread to every row."""
    bench = Bench()
    tracks = [bench.sequence(length, seed=length) for length in (2, 30, 11)]
    for count in (2, 1, 1):
        bench.logits([track.row(min(count, track.left)) for track in tracks if track.left])

    assert not bench.arenas.state.ssm[:, -1].any()
    assert not bench.arenas.pages.keys[:, -1].any()


def test_a_row_that_does_not_sample_yields_none() -> None:
    """Rows answer in the order of the step, whatever order they are computed in."""
    bench = Bench()
    long, short, silent = (bench.sequence(20, seed=number) for number in range(3))
    rows = [long.row(18), short.row(1), silent.row(5, sampling=None)]

    tokens = bench.runner.run(DeviceStep(step=0, rows=rows))

    alone = Bench()
    tracks = [alone.sequence(20, seed=number) for number in range(2)]
    one = alone.runner.run(DeviceStep(step=0, rows=[tracks[0].row(18)]))
    two = alone.runner.run(DeviceStep(step=0, rows=[tracks[1].row(1)]))
    assert tokens == (*one, *two, None)


def test_two_rows_of_one_slot_are_refused() -> None:
    """A race inside of a step would be silent otherwise."""
    bench = Bench()
    track = bench.sequence(9, seed=1)
    rows = [track.row(3), track.row(1)]

    with pytest.raises(RuntimeError, match="same slot"):
        bench.runner.run(DeviceStep(step=0, rows=rows))


def test_bfloat16_keeps_recurrent_state_in_float32() -> None:
    """Rounding the state at every token would add up; rounding products doesn't."""
    bench, draw = Bench(dtype="bfloat16"), random.Random(1)
    tracks = [bench.sequence(30, seed=10 + number) for number in range(3)]

    assert run_schedule(bench, tracks, draw) < 0.15
    assert bench.arenas.state.ssm.dtype == torch.float32
    assert bench.arenas.pages.keys.dtype == torch.bfloat16
