"""Model directories: what is found in them, what is refused, and with which words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.models.config_reader import ConfigReader
from adapters.models.directory import model_path, open_store, refuse_quantized
from adapters.models.errors import (
    AmbiguousTensor,
    DamagedWeights,
    MissingTensor,
    ModelFileMissing,
    ModelNotFound,
    ShardMissing,
    UnsafeWeights,
    UnsupportedQuantization,
)
from kernel import ModelError
from tests.models.open_files import LISTS_OPEN_FILES, open_weights
from tests.models.tiny import config_of, make_directory, make_weights, save_shards, write_tensors

INDEX = "model.safetensors.index.json"
FIRST = "model-00001-of-00003.safetensors"


def test_the_bundled_model_and_a_directory_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path may begin at the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").mkdir()

    assert (model_path("bundled") / "config.json").is_file()
    assert model_path(str(tmp_path)) == tmp_path
    assert model_path("~/mine") == tmp_path / "mine"


def test_a_file_is_a_model_if_its_kind_is_known(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    file.touch()

    assert model_path(str(file), files=(".gguf",)) == file
    with pytest.raises(ModelNotFound, match="is a file: name 'bundled', a directory"):
        model_path(str(file))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "ibm-granite/granite-4.0-h-350m",
            "hf download ibm-granite/granite-4.0-h-350m --local-dir",
        ),
        ("no-such-model", "neither in the package nor on disk"),
        ("/no/such/model", "neither in the package nor on disk"),
        ("~nobody-of-this-name/model", "is no path .*: name 'bundled', a directory"),
        ("m" * 5000, "is no path .*: name 'bundled', a directory"),
    ],
)
def test_a_name_of_nothing_is_refused_with_the_way_out(name: str, told: str) -> None:
    """Nothing is downloaded behind the caller's back, so the hub's ids need a word of their own."""
    with pytest.raises(ModelNotFound, match=told):
        model_path(name)


@pytest.mark.parametrize("shards", [1, 3])
def test_weights_are_the_same_in_one_file_and_in_several(shards: int, tmp_path: Path) -> None:
    store = open_store(make_directory(tmp_path, shards=shards))
    weights = make_weights(config_of())

    assert set(store.tensors) == set(weights)
    assert all(torch.equal(store.read(name), tensor) for name, tensor in weights.items())
    store.close()


def test_a_joined_file_goes_before_an_index_that_was_left_behind(tmp_path: Path) -> None:
    """As in transformers."""
    make_directory(tmp_path, shards=3)
    write_tensors(tmp_path / "model.safetensors", {"a": torch.ones(1)})
    store = open_store(tmp_path)

    assert set(store.tensors) == {"a"}
    store.close()


def remove(name: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).unlink()


def make_it_a_directory(name: str) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        (directory / name).unlink()
        (directory / name).mkdir()

    return damage


def rewrite(name: str, text: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_text(text)


def map_of(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def damage(directory: Path) -> None:
        path = directory / INDEX
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))

    return damage


def put(name: str, file: object) -> Callable[[Path], object]:
    return map_of(lambda entries: entries.update({name: file}))


def copy_into_another(directory: Path) -> None:
    weights = make_weights(config_of())
    weight_map = save_shards(directory, weights, 3)
    name = next(name for name, file in weight_map.items() if file != FIRST)
    mine = {key: weights[key] for key, file in weight_map.items() if file == FIRST}
    write_tensors(directory / FIRST, mine | {name: weights[name]})


def pickles_only(directory: Path) -> None:
    for path in directory.glob("model*"):
        path.unlink()
    (directory / "pytorch_model-00001-of-00002.bin").touch()
    (directory / "pytorch_model-00002-of-00002.bin").touch()


def nothing_left(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


NORM = "model.norm.weight"
DAMAGES: dict[str, tuple[Callable[[Path], object], type[ModelError], str]] = {
    "an empty directory": (nothing_left, ModelFileMissing, "it has no model.safetensors, nor"),
    "a shard is missing": (remove(FIRST), ShardMissing, f"lacks {FIRST} of the 3 files"),
    "a shard is a directory": (make_it_a_directory(FIRST), ShardMissing, FIRST),
    "the index names a shard without the tensor": (
        put(NORM, FIRST),
        MissingTensor,
        f"says that {NORM} is in {FIRST}, which lacks it",
    ),
    "the index names a tensor that nobody has": (
        put("model.extra", FIRST),
        MissingTensor,
        "model.extra is in",
    ),
    "a tensor in two shards": (copy_into_another, AmbiguousTensor, f"is in {FIRST} and in"),
    "the index isn't JSON": (rewrite(INDEX, "{"), DamagedWeights, "isn't JSON"),
    "the index is a list": (rewrite(INDEX, "[]"), DamagedWeights, "no weight_map"),
    "the index is empty": (rewrite(INDEX, '{"weight_map": {}}'), DamagedWeights, "no weight_map"),
    "the index leads out of the directory": (
        put(NORM, "../model.safetensors"),
        DamagedWeights,
        "'../model.safetensors', which isn't the name of a file",
    ),
    "the index names a number": (put(NORM, 7), DamagedWeights, "is in 7"),
    "the index names a parent": (put(NORM, ".."), DamagedWeights, "isn't the name of a file"),
    "pickles only": (pickles_only, UnsafeWeights, "pytorch_model-00001-of-00002.bin, .*convert"),
}


@LISTS_OPEN_FILES
@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_weights_are_refused_by_name_and_no_file_stays_open(
    name: str, tmp_path: Path
) -> None:
    damage, kind, told = DAMAGES[name]
    make_directory(tmp_path, shards=3)
    damage(tmp_path)

    with pytest.raises(kind, match=told) as caught:
        open_store(tmp_path)
    assert type(caught.value) is kind
    assert open_weights() == set()


def test_many_missing_shards_are_counted_and_some_named(tmp_path: Path) -> None:
    make_directory(tmp_path, shards=9)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()

    with pytest.raises(ShardMissing, match=r"00003-of-00009.safetensors and 6 more of the 9"):
        open_store(tmp_path)


@pytest.mark.parametrize("method", ["fp8", "bitsandbytes", "gptq", "awq", "compressed-tensors"])
@pytest.mark.parametrize("nested", [False, True])
def test_weights_that_another_library_quantised_are_refused_by_the_method(
    method: str, nested: bool
) -> None:
    """Their tensors have the usual names and other meanings."""
    quantised: dict[str, object] = {"quantization_config": {"quant_method": method, "bits": 4}}
    config = {"text_config": quantised} if nested else quantised

    with pytest.raises(UnsupportedQuantization, match=f"quantised by '{method}'.*bfloat16"):
        refuse_quantized(ConfigReader(config))


def test_a_configuration_without_quantisation_passes() -> None:
    """Writers leave the key at null where there is none."""
    refuse_quantized(ConfigReader({"quantization_config": None, "text_config": {}}))
