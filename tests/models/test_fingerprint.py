"""A model's fingerprint: what changes it, and what mustn't."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from adapters.models import fingerprint
from adapters.models.config_reader import ConfigReader
from adapters.models.directory import open_store
from adapters.models.fingerprint import ContentHash
from adapters.models.precision import Precision
from adapters.models.registry import load_model
from adapters.models.store import MemoryStore
from adapters.torch_device import open_torch
from kernel import Engine, EngineConfig
from tests.models.tiny import CONFIG, config_of, make_directory, make_weights

CPU = torch.device("cpu")
FLOAT32 = Precision(torch.float32, torch.float32, torch.float32)
GOLDEN = "401268f5f0a7665a995215f7f50416136601f46b2073ca68dfca23b4cccf8aef"


def of(
    config: dict[str, Any] = CONFIG,
    weights: dict[str, Tensor] | None = None,
    precision: Precision = FLOAT32,
) -> str:
    store = MemoryStore(make_weights(CONFIG) if weights is None else weights)
    _, asked = load_model(ConfigReader(config), store, precision, CPU, with_fingerprint=True)
    return asked.fingerprint


def test_it_is_the_same_on_every_machine() -> None:
    """Saved sessions name it; if this fails, a change has made all of them foreign."""
    counted = {
        name: torch.arange(tensor.numel(), dtype=torch.float32).view(tensor.shape)
        for name, tensor in make_weights(CONFIG).items()
    }

    assert of(weights=counted) == GOLDEN


@pytest.mark.parametrize("shards", [1, 3])
def test_it_depends_on_no_path_and_on_no_sharding(shards: int, tmp_path: Path) -> None:
    """A session that was saved on one machine is taken up on another."""
    directory = make_directory(tmp_path / "some" / "where", shards=shards)
    opened = open_torch(model=str(directory), device="cpu", dtype="auto")

    assert opened.device.model.fingerprint == of()


SAME: dict[str, dict[str, Any]] = {
    "a default written out": config_of(attention_bias=False),
    "a key that no family reads": config_of(transformers_version="9.9.9", use_cache=True),
    "an end of sequence": config_of(eos_token_id=[2, 3]),
    "the type on disk": config_of(torch_dtype="float32"),
    "nothing, written out": config_of() | {"rope_scaling": None},
}


@pytest.mark.parametrize("name", SAME)
def test_a_configuration_that_means_the_same_has_the_same(name: str) -> None:
    """Versions of transformers write files that differ in this."""
    assert of(SAME[name]) == of()


def test_a_whole_number_is_the_same_with_a_point_behind_it() -> None:
    assert of(config_of(rope_theta=9000)) == of(config_of(rope_theta=9000.0))


def one_number(weights: dict[str, Tensor]) -> None:
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] += 1e-6


def one_sign(weights: dict[str, Tensor]) -> None:
    weights["model.norm.weight"][0] *= -1


def two_swapped(weights: dict[str, Tensor]) -> None:
    names = [f"model.layers.{layer}.input_layernorm.weight" for layer in range(2)]
    weights[names[0]], weights[names[1]] = weights[names[1]], weights[names[0]]


def another_type(weights: dict[str, Tensor]) -> None:
    weights["model.norm.weight"] = weights["model.norm.weight"].double()


@pytest.mark.parametrize("change", [one_number, one_sign, two_swapped, another_type])
def test_any_change_of_the_weights_changes_it(change: Callable[[dict[str, Tensor]], None]) -> None:
    weights = make_weights(CONFIG)
    change(weights)

    assert of(weights=weights) != of()


@pytest.mark.parametrize(
    "changes",
    [
        {"rms_norm_eps": 1e-5},
        {"rope_theta": 9999.0},
        {"hidden_act": "gelu"},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ],
    ids=str,
)
def test_a_value_that_the_model_computes_with_changes_it(changes: dict[str, Any]) -> None:
    assert of(config_of(**changes)) != of()


def test_a_value_deep_in_the_configuration_changes_it() -> None:
    def scaled(factor: float) -> str:
        return of(config_of(rope_scaling={"rope_type": "linear", "factor": factor}))

    assert scaled(2.0) == scaled(2)
    assert scaled(2.0) != scaled(4.0)


def test_each_number_type_of_a_run_has_its_own() -> None:
    """A state of a bfloat16 run, or one kept in bfloat16, isn't one of a float32 run."""
    f32, f16, b16 = torch.float32, torch.float16, torch.bfloat16
    runs = [(f32, f32, f32), (b16, f32, f32), (f16, f32, f32), (f32, f32, b16), (b16, f32, b16)]

    assert len({of(precision=Precision(*types)) for types in runs}) == len(runs)


def test_threads_and_pieces_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest is of leaves of one size, whoever hashes them, in whatever order they end."""
    monkeypatch.setattr(fingerprint, "LEAF_BYTES", 64)
    tensors = {name: torch.arange(at, at + 100.0) for at, name in enumerate("abcdef")}

    def digests(threads: int, piece: int) -> dict[str, str]:
        with ContentHash(threads) as content:
            for name, tensor in tensors.items():
                for begin in range(0, len(tensor), piece):
                    content.add(name, tensor[begin : begin + piece])
            return content.digests()

    expected = digests(1, 100)
    assert len(set(expected.values())) == len(tensors)
    assert all(digests(threads, piece) == expected for threads in (1, 3) for piece in (16, 32, 48))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_open_engine_knows_it(anyio_backend: str, tmp_path: Path) -> None:
    """Where a saved session will look it up."""
    config = EngineConfig(model=str(make_directory(tmp_path)), max_num_seqs=1)
    async with Engine.open(config) as engine:
        assert engine.core.model.fingerprint == of()


def test_the_order_of_keys_and_tensors_does_not_matter(tmp_path: Path) -> None:
    turned = dict(reversed(list(make_weights(CONFIG).items())))
    directory = make_directory(tmp_path, weights=turned)
    (directory / "config.json").write_text(json.dumps(dict(reversed(list(CONFIG.items())))))
    store = open_store(directory)
    config = ConfigReader.load(directory)
    _, asked = load_model(config, store, FLOAT32, CPU, with_fingerprint=True)
    store.close()

    assert asked.fingerprint == of()
