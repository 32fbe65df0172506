"""Recurrent state in 16 bits: half the slot, computed in float32 all the same.

Each step rounds the state once, where it is written back. With tiny random models whose states
forget slowly, logits move by as much as the type has digits, and not by more with each token.
"""

import importlib
import json
import random
from typing import Any

import pytest
import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.precision import Precision
from adapters.models.registry import load_model, outline_model
from adapters.models.store import MemoryStore
from adapters.torch_device import TorchDevice
from adapters.torch_device.precision import choose_precision
from kernel import EngineConfig, ValidationError
from tests.parity.cases import CASES, VOCABULARY, Case
from tests.parity.ours import Desk
from tests.parity.weights import randomise

CPU = torch.device("cpu")
FLOAT32 = choose_precision("float32", CPU)
BOUNDS = {"bfloat16": 0.06, "float16": 0.012}
"""Largest difference of a logit after a prompt and ten tokens, relative to the largest logit."""


def first_of_each_family() -> list[Case]:
    found: dict[str, Case] = {}
    for case in CASES:
        if case.family not in found or (chooses(found[case.family]) and not chooses(case)):
            found[case.family] = case
    return [case for case in found.values() if case.family not in ("llama", "qwen3")]


def chooses(case: Case) -> bool:
    """Whether it has experts: a rounded state may choose another one, which is no small change."""
    return any("experts" in name for name in case.settings)


def reader(case: Case) -> ConfigReader:
    """With every key that a file has which transformers wrote."""
    transformers: Any = importlib.import_module("transformers")
    config = transformers.AutoConfig.for_model(case.family, **case.settings)
    return ConfigReader(json.loads(config.to_json_string()))


def logits(case: Case, precision: Precision) -> tuple[TorchDevice, torch.Tensor]:
    """After a prompt in two chunks and then each of ten tokens."""
    shapes = outline_model(reader(case), FLOAT32)[1].shapes
    weights = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    for name, tensor in weights.items():
        tensor.fill_(float(tensor.ndim == 1 and "norm" in name))
    randomise(weights, 3, case.gain)
    config = reader(case)
    model, asked = load_model(config, MemoryStore(weights), precision, CPU)
    device = TorchDevice(
        model, precision, num_parameters=asked.num_parameters, device=CPU, num_threads=1
    )
    desk = Desk(device)
    draw = random.Random(1)
    tokens = [draw.randrange(VOCABULARY) for _ in range(33)]
    sequence, found = desk.begin(tokens), list[torch.Tensor]()
    for count in (9, 14, *[1] * 10):
        found += desk.run([(sequence, count)])
    return device, torch.stack(found[1:])


@pytest.mark.parametrize("state_dtype", BOUNDS)
@pytest.mark.parametrize("case", first_of_each_family(), ids=lambda case: case.family)
def test_a_state_in_16_bits_is_as_exact_as_its_type(case: Case, state_dtype: str) -> None:
    """Prefill in two chunks, then decode, on the arenas of every family that has some."""
    exact, expected = logits(case, FLOAT32)
    device, found = logits(case, choose_precision("float32", CPU, state_dtype=state_dtype))
    error = float((found - expected).abs().max() / expected.abs().max())

    kinds = {tensor.dtype for tensor in device.arenas.states.tensors.values()}
    assert kinds == {getattr(torch, state_dtype)}
    assert device.model.slot_bytes * 2 == exact.model.slot_bytes
    assert 0 < error < BOUNDS[state_dtype] * (4 if chooses(case) else 1)


@pytest.mark.parametrize(
    ("dtype", "state_dtype", "expected"),
    [
        ("float32", "auto", torch.float32),
        ("bfloat16", "auto", torch.float32),
        ("float16", "auto", torch.float32),
        ("float64", "auto", torch.float64),
        ("bfloat16", "bfloat16", torch.bfloat16),
        ("float64", "float32", torch.float32),
        ("float32", "float64", torch.float64),
    ],
)
def test_the_state_is_float32_unless_asked_otherwise(
    dtype: str, state_dtype: str, expected: torch.dtype
) -> None:
    """A rounded state is rounded again at every token, for as long as the session lives."""
    assert choose_precision(dtype, CPU, state_dtype=state_dtype).state == expected


@pytest.mark.parametrize(
    ("stored", "device", "expected"),
    [
        ("float16", "cuda", torch.float16),
        ("bfloat16", "cuda", torch.bfloat16),
        ("float32", "cuda", torch.float32),
        (None, "cuda", torch.bfloat16),
        ("float8_e4m3fn", "cuda", torch.bfloat16),
        ("bfloat16", "cpu", torch.float32),
    ],
)
def test_auto_is_what_is_stored_and_float32_on_a_processor(
    stored: str | None, device: str, expected: torch.dtype
) -> None:
    assert choose_precision("auto", torch.device(device), stored=stored).weights == expected


def test_an_unknown_type_of_the_state_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="state_dtype='int8' is refused: use auto, float32"):
        EngineConfig.from_dict({"state_dtype": "int8"})
    with pytest.raises(ValidationError, match="use one of auto, float32"):
        choose_precision("auto", CPU, state_dtype="int8")
