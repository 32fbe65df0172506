"""Weights on disk: what is damaged is named."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from adapters.models.errors import (
    DamagedWeights,
    MisshapenTensor,
    MissingTensor,
    ModelFileMissing,
    WeightsError,
)
from adapters.models.hybrid import HybridConfig, parameter_shapes
from adapters.models.weights import load_weights, random_weights, save_model
from kernel.errors import ModelError
from tests.models.sizes import EVERYTHING, PLAIN

FILE = "model.safetensors"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_model(tmp_path, PLAIN, random_weights(PLAIN, 0, torch.float32))
    return tmp_path


@pytest.mark.parametrize("config", [PLAIN, EVERYTHING], ids=lambda config: config.name)
def test_saved_weights_come_back_bit_for_bit(config: HybridConfig, tmp_path: Path) -> None:
    """A checkpoint that changes on its way to the disk would break every golden output."""
    weights = random_weights(config, 3, torch.float32)
    save_model(tmp_path, config, weights)

    loaded_config, loaded = load_weights(tmp_path)

    assert config == loaded_config
    assert list(parameter_shapes(config)) == list(loaded)
    assert all(torch.equal(weights[name], loaded[name]) for name in weights)


def test_weights_load_in_the_type_asked_for(saved: Path) -> None:
    """The oracle runs in float64 whatever the file holds."""
    _, loaded = load_weights(saved, dtype=torch.float64)

    assert {torch.float64} == {tensor.dtype for tensor in loaded.values()}


def test_random_weights_are_a_function_of_the_seed() -> None:
    """Tests and training start from the same weights in every process."""
    first = random_weights(PLAIN, 1, torch.float64)
    again = random_weights(PLAIN, 1, torch.float64)
    other = random_weights(PLAIN, 2, torch.float64)

    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embed.weight"], other["embed.weight"])


def test_random_weights_leave_the_global_generator_alone() -> None:
    """A library that draws from the caller's generator changes the caller's results."""
    before = torch.get_rng_state()
    random_weights(PLAIN, 1, torch.float32)

    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", sorted(parameter_shapes(PLAIN)))
def test_each_missing_tensor_is_named(name: str, saved: Path) -> None:
    """One tensor short is not a model with zeros in that place."""
    weights = random_weights(PLAIN, 0, torch.float32)
    del weights[name]
    (saved / FILE).write_bytes(save(weights))

    with pytest.raises(MissingTensor, match=name):
        load_weights(saved)


@pytest.mark.parametrize("name", sorted(parameter_shapes(PLAIN)))
def test_each_misshapen_tensor_is_named(name: str, saved: Path) -> None:
    """Weights of another size than config.json says are told apart from damaged ones."""
    weights = random_weights(PLAIN, 0, torch.float32)
    weights[name] = torch.cat([weights[name], weights[name][:1]])
    (saved / FILE).write_bytes(save(weights))

    with pytest.raises(MisshapenTensor, match=name):
        load_weights(saved)


def test_whole_numbers_are_no_weights(saved: Path) -> None:
    """A quantised file needs code that knows how to read it; silence would give noise."""
    weights = random_weights(PLAIN, 0, torch.float32)
    weights["final_norm.weight"] = torch.ones(16, dtype=torch.int8)
    (saved / FILE).write_bytes(save(weights))

    with pytest.raises(MisshapenTensor, match=r"final_norm.*int8"):
        load_weights(saved)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 2000, -1])
def test_a_truncated_file_is_refused(kept: int, saved: Path) -> None:
    """An interrupted download ends anywhere: in the header's length, the header, the data."""
    whole = (saved / FILE).read_bytes()
    (saved / FILE).write_bytes(whole[:kept])

    with pytest.raises(DamagedWeights, match=FILE):
        load_weights(saved)


def test_a_file_of_another_kind_is_refused(saved: Path) -> None:
    """A Git LFS pointer is text of this sort."""
    (saved / FILE).write_text("version https://git-lfs.github.com/spec/v1\n" * 9)

    with pytest.raises(DamagedWeights):
        load_weights(saved)


def test_missing_weights_are_refused(saved: Path) -> None:
    """config.json alone makes no model."""
    (saved / FILE).unlink()

    with pytest.raises(ModelFileMissing, match=FILE):
        load_weights(saved)


def test_every_error_is_a_model_error() -> None:
    """Callers of the engine catch one type."""
    for kind in (DamagedWeights, MissingTensor, MisshapenTensor):
        assert issubclass(kind, WeightsError)
        assert issubclass(kind, ModelError)


def test_weights_of_another_shape_are_not_saved(tmp_path: Path) -> None:
    """A directory that can't be loaded again must not be written."""
    with pytest.raises(WeightsError):
        save_model(tmp_path, EVERYTHING, random_weights(PLAIN, 0, torch.float32))

    assert list(tmp_path.iterdir()) == []
