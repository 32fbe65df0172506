"""The first token of a later turn, by history: on a recurrent model it costs the same."""

from statistics import median

import anyio
import torch

from adapters.cli.bench.counting import CountingDevice
from adapters.models.hybrid import HybridConfig
from adapters.models.weights import random_weights
from adapters.torch_device import TorchDevice
from kernel import Engine, EngineConfig, SamplingParams, Session

__all__ = ["first_token_s", "ttft_ms"]

HISTORIES = (100, 1_000, 10_000)
MODEL = HybridConfig(
    vocab_size=4096,
    hidden_size=384,
    layer_types=("mamba2",) * 9,
    max_model_len=16_384,
    name="random-recurrent",
)
"""About ten million parameters, none of them in attention."""

PARAMS = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, detokenize=False)


def ttft_ms(*, runs: int = 30, histories: tuple[int, ...] = HISTORIES) -> dict[str, object]:
    """Milliseconds to the first token by history, and how many tokens were computed for it.

    Each run takes the first token of a turn and leaves, which rolls the turn back: the session
    stays at its history, so that every run measures the same. Runs are interleaved.
    """
    return anyio.run(_measure, runs, histories)


async def _measure(runs: int, histories: tuple[int, ...]) -> dict[str, object]:
    weights = random_weights(MODEL, 0, torch.float32)
    device = CountingDevice(
        TorchDevice.of_weights(MODEL.to_dict(), weights, dtype="float32", device="cpu")
    )
    config = EngineConfig(max_num_seqs=4, num_slots=8, log_events=False)
    times: dict[int, list[float]] = {history: [] for history in histories}
    computed: dict[int, set[int]] = {history: set() for history in histories}
    async with Engine.open(config, device=device) as engine:
        sessions = {history: await _prepared(engine, history) for history in histories}
        for run in range(runs + 1):
            for history, session in sessions.items():
                device.begin()
                spent = await first_token_s(session)
                if run:  # the first round warms up
                    times[history].append(spent)
                    computed[history].add(device.tokens_to_draw or 0)
    device.close()
    return {
        **{str(history): round(median(times[history]) * 1e3, 3) for history in histories},
        "tokens_computed": {str(history): sorted(computed[history]) for history in histories},
    }


async def _prepared(engine: Engine, history: int) -> Session:
    """A session that has absorbed so many tokens, and rests."""
    async with engine.session(detached=True) as session:
        await session.append([1 + index % 4000 for index in range(history)])
    return session


async def first_token_s(session: Session) -> float:
    """Seconds to the first token of a short turn, which leaving at that point rolls back."""
    started = anyio.current_time()
    async with session.turn([7, 8, 9, 10], PARAMS) as turn:
        async for delta in turn:
            if delta.token_ids:
                return anyio.current_time() - started
    raise RuntimeError("the turn ended without a token")
