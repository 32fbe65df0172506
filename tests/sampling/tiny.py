"""A tiny random model in float64 behind an engine, and what its reference says of a sequence."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import torch
from torch import Tensor

from adapters.fake_device.tokenizer import FakeTokenizer
from adapters.models.reference import reference_logits
from kernel import Engine, EngineConfig, TokenLogprobs
from kernel.step import OpenedDevice
from tests.oracle.tiny_model import TinyModel
from tests.scenarios.stage import Stage, open_stage

__all__ = ["VOCABULARY", "assert_told", "open_small", "open_tiny_stage", "right_logprobs"]

_MODEL = TinyModel(5)
VOCABULARY = _MODEL.config.vocab_size
SMALL: dict[str, Any] = {"num_slots": 8, "num_pages": 60, "page_size": 4, "log_events": False}


def open_tiny() -> OpenedDevice:
    device = _MODEL.device("float64")
    return OpenedDevice(device=device, tokenizer=FakeTokenizer(VOCABULARY))


@asynccontextmanager
async def open_small(**config: Any) -> AsyncGenerator[Engine]:
    """An engine over the tiny model; at the end nobody holds anything."""
    async with Engine.open(EngineConfig(**{**SMALL, **config}), device=open_tiny()) as engine:
        yield engine
        await engine.settle()
        assert engine.audit().at_rest, engine.audit()
        assert engine.stats().reclaimed == 0


def open_tiny_stage(**config: Any) -> Any:
    """A stage whose steps the test lets go, over the tiny model."""
    stage: Any = open_stage(open_tiny, **{**SMALL, **config})
    return stage


def right_logprobs(tokens: Sequence[int]) -> Tensor:
    """The reference's log-probabilities after each token: [tokens, vocabulary]."""
    ids = torch.tensor([list(tokens)])
    return reference_logits(_MODEL.config, _MODEL.weights, ids)[0].log_softmax(-1)


def assert_told(
    told: Sequence[TokenLogprobs | None] | None, sequence: Sequence[int], start: int, count: int
) -> None:
    """What was told of the tokens of a sequence from ``start`` on is what the reference says.

    The first token of a sequence has nothing before it, and is told nothing.
    """
    assert told is not None
    right = right_logprobs(sequence)
    for place, entry in enumerate(told, start):
        if place == 0:
            assert entry is None
            continue
        assert entry is not None, place
        assert sequence[place] in entry
        assert count <= len(entry) <= count + 1
        for id_, one in entry.items():
            assert abs(one.logprob - float(right[place - 1, id_])) < 1e-9, (place, id_)
            assert one.rank == 1 + int((right[place - 1] > right[place - 1, id_]).sum())


def used(stage: Stage) -> int:
    """Steps so far."""
    return len(stage.device.steps)
