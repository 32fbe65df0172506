"""Sessions many times the slots, all waking at once, one-shots beside them: who waits how long."""

import random
from collections.abc import Sequence
from typing import Any

import anyio.lowlevel
import pytest

from adapters.fake_device import FakeDevice
from kernel import EngineConfig, RequestOutput
from kernel.policies import Policy, make_policy
from kernel.step import OpenedDevice
from tests.pressure.slow_copies import SlowCopies
from tests.pressure.test_sliding import cold
from tests.pressure.worlds import PAGE_BYTES, SLOT_BYTES
from tests.scenarios.bound import RecordingPolicy, steps_at_most
from tests.scenarios.stage import PAGE_SIZE, Stage, open_fake, open_stage
from tests.scenarios.test_waiting_bound import ONE_SHOTS, ROUNDS, SESSIONS, Crowd

KINDS: dict[str, dict[str, Any]] = {
    "hybrid": {},
    "recurrent": {"uses_pages": False},
    "attention": {"uses_slots": False},
}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> list[RecordingPolicy]:
    """The policies of the engines that are opened."""
    made: list[RecordingPolicy] = []

    def make(config: EngineConfig) -> Policy:
        made.append(RecordingPolicy(make_policy(config)))
        return made[-1]

    monkeypatch.setattr("kernel.engine.core.make_policy", make)
    return made


class SlowCrowd(Crowd):
    """As a crowd, over a device whose copies take a while."""

    copies: SlowCopies

    async def _let_step(self) -> None:
        while True:
            self.copies.let_go(is_idle=not self.stage.device.waiting)
            if self.stage.device.waiting:
                self.stage.device.release()
            await anyio.lowlevel.checkpoint()

    def worst_of(self, *, chunk: int, beside: int, hop: int | None = None) -> float:
        return max(
            (turn.ended - turn.arrived)
            / steps_at_most(
                turn, self.served, chunk=chunk, page_size=PAGE_SIZE, beside_a_copy=beside, hop=hop
            )
            for turn in self.served.values()
        )


def draw_config(rng: random.Random, kind: str) -> dict[str, Any]:
    """One to three slots, pages for little more than one sequence, host memory for 1 to 4."""
    rows, slots, pages = rng.choice([1, 2, 4]), rng.choice([1, 2, 3]), rng.choice([8, 9, 12])
    config: dict[str, Any] = {
        "max_num_seqs": rows,
        "max_num_batched_tokens": rows + rng.choice([0, 3, 12]),
        "priority_weight_s": 30.0,
    }
    each = 0
    if kind != "attention":
        config["num_slots"] = slots
        each += SLOT_BYTES
    if kind != "recurrent":
        config["num_pages"] = pages
        each += PAGE_BYTES * pages // (slots if kind == "hybrid" else 1)
    config["host_memory_bytes"] = each * rng.choice([1, 2, 4])
    return config


async def serve_a_crowd(kind: str, policy: str, seed: int, recorder: list[RecordingPolicy]) -> int:
    """Serve everybody within the bound; returns how many transfers there were."""
    rng = random.Random(f"pressure {kind} {seed}")
    config = draw_config(rng, kind)
    inner = FakeDevice(eos_token_ids=(), **KINDS[kind])
    copies = SlowCopies(inner, steps_beside=rng.choice([0, 1, 3]))
    opened = OpenedDevice(device=copies, tokenizer=inner.tokenizer)

    def open_device() -> OpenedDevice:
        # What judges is as good without slow copies.
        nonlocal opened
        found, opened = opened, open_fake(**KINDS[kind])
        return found

    async with open_stage(
        open_device, counts_steps=True, scheduling_policy=policy, **config
    ) as stage:
        crowd = SlowCrowd(stage, recorder[-1], rng)
        crowd.copies = copies
        await crowd.live_and_let_step()
        beside = stage.engine.core.counters.steps_beside_a_copy
        assert not inner.poison_reads
    assert len(crowd.served) == ROUNDS * (SESSIONS + ONE_SHOTS)
    assert beside <= copies.steps_beside + 1, "one was under way"
    chunk = config["max_num_batched_tokens"] - config["max_num_seqs"] + 1
    assert crowd.worst_of(chunk=chunk, beside=beside) <= 1, f"seed {seed}"
    return copies.num_copies


@pytest.mark.parametrize(
    ("kind", "anyio_backend", "policy"),
    [
        ("hybrid", "asyncio", "fcfs"),
        ("hybrid", "trio", "priority"),
        ("recurrent", "trio", "fcfs"),
        ("attention", "asyncio", "priority"),
    ],
)
async def test_everybody_is_served_within_the_bound(
    kind: str, policy: str, recorder: list[RecordingPolicy]
) -> None:
    """A copy takes no step, but whom it makes room for waits for it: B in the formula."""
    assert await serve_a_crowd(kind, policy, 2, recorder) > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_crowds_are_served_within_the_bound(
    kind: str, policy: str, recorder: list[RecordingPolicy]
) -> None:
    """The same, over thirty worlds of each kind."""
    for seed in range(30):
        await serve_a_crowd(kind, policy, seed, recorder)


async def serve_sliders(
    seed: int, recorder: list[RecordingPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a crowd, of sessions that slide on pools for two windows."""
    rng = random.Random(f"sliders {seed}")
    config = draw_config(rng, "hybrid") | {"num_slots": rng.choice([2, 3])}
    device = FakeDevice(eos_token_ids=())
    copies = SlowCopies(device, steps_beside=rng.choice([0, 1, 3]))
    opened = OpenedDevice(device=copies, tokenizer=device.tokenizer)
    noted: list[tuple[list[int], RequestOutput]] = []

    def note(_stage: Stage, history: Sequence[int], result: RequestOutput) -> list[int]:
        context = [*history, *result.prompt_token_ids]
        noted.append((context, result))
        return [*context, *result.token_ids]

    monkeypatch.setattr(Stage, "note", note)
    async with open_stage(lambda: opened, counts_steps=True, on_limit="slide", **config) as stage:
        crowd = SlowCrowd(stage, recorder[-1], rng)
        crowd.copies = copies
        await crowd.live_and_let_step()
        beside = stage.engine.core.counters.steps_beside_a_copy
        window = stage.engine.core.session_limits.window
        assert window is not None
    chunk = config["max_num_batched_tokens"] - config["max_num_seqs"] + 1
    assert crowd.worst_of(chunk=chunk, beside=beside, hop=window.hop) <= 1, f"seed {seed}"
    for context, result in noted:
        if result.session_id is not None:
            tokens = cold(context, len(result.token_ids), pages=config["num_pages"])
            assert list(result.token_ids) == tokens, f"seed {seed}"


async def test_sessions_that_slide_are_served_within_their_bound(
    recorder: list[RecordingPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each half window that they pass is one more wait for room, and a chunk that ends early."""
    await serve_sliders(0, recorder, monkeypatch)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_many_sessions_that_slide_are_served_within_their_bound(
    recorder: list[RecordingPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, over thirty worlds."""
    for seed in range(30):
        await serve_sliders(seed, recorder, monkeypatch)
