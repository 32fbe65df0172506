"""Hugging Face directories that are damaged: refused by name when the engine is opened.

One test for each way, each from ``Engine.open`` down: the type of the error, what it names, the
way out; and that no file and no thread of the attempt is left.
"""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import torch
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import BPE
from torch import Tensor

from adapters.models import errors, safetensors_store
from adapters.text.errors import TokenizerMissing
from kernel import Engine, EngineConfig, LoadProgress, ModelError
from tests.models.open_files import LISTS_OPEN_FILES, open_weights
from tests.models.tiny import config_of, make_directory, make_weights, save_shards

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])

SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"
NORM, HEAD = "model.norm.weight", "lm_head.weight"
Damage = Callable[[Path], object]


def configured(**changes: Any) -> Damage:
    return lambda model: (model / "config.json").write_text(json.dumps(config_of(**changes)))


def weighted(change: Callable[[dict[str, Tensor]], object]) -> Damage:
    def damage(model: Path) -> None:
        weights = make_weights(config_of())
        change(weights)
        save_shards(model, weights, 3)

    return damage


def written(name: str, content: bytes) -> Damage:
    return lambda model: (model / name).write_bytes(content)


def removed(*patterns: str) -> Damage:
    def damage(model: Path) -> None:
        for pattern in patterns:
            for path in model.glob(pattern):
                path.unlink()

    return damage


def cut(name: str, kept: float) -> Damage:
    def damage(model: Path) -> None:
        whole = (model / name).read_bytes()
        (model / name).write_bytes(whole[: int(len(whole) * kept)])

    return damage


def noise_in_the_header(model: Path) -> None:
    whole = bytearray((model / SHARD).read_bytes())
    whole[8] = ord("?")
    (model / SHARD).write_bytes(whole)


def mapped(change: Callable[[dict[str, str]], object]) -> Damage:
    def damage(model: Path) -> None:
        index = json.loads((model / INDEX).read_text())
        change(index["weight_map"])
        (model / INDEX).write_text(json.dumps(index))

    return damage


def shard_twice(model: Path) -> None:
    other = "model-00003-of-00003.safetensors"
    (model / other).write_bytes((model / SHARD).read_bytes())


def pickles_only(model: Path) -> None:
    removed("*.safetensors", INDEX)(model)
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def large_tokenizer(model: Path) -> None:
    path = str(model / "tokenizer.json")
    LibraryTokenizer(BPE(vocab={"a": 24}, merges=[])).save(path)


def retyped(dtype: torch.dtype) -> Damage:
    return weighted(lambda weights: weights.update({NORM: weights[NORM].to(dtype)}))


DAMAGES: dict[str, tuple[Damage, type[ModelError], tuple[str, ...]]] = {
    "a missing tensor": (
        weighted(lambda weights: weights.pop(NORM)),
        errors.MissingTensor,
        (f"the weights lack {NORM} [16]",),
    ),
    "a layer too few": (
        configured(num_hidden_layers=3),
        errors.MissingTensor,
        ("model.layers.2.", "and 8 more"),
    ),
    "an extra tensor": (
        weighted(lambda weights: weights.update({"model.adapter.weight": torch.ones(2, 3)})),
        errors.ExtraTensor,
        ("model.adapter.weight [2, 3]", "don't belong together"),
    ),
    "a layer too many": (
        configured(num_hidden_layers=1),
        errors.ExtraTensor,
        ("model.layers.1.", "and 8 more"),
    ),
    "a misshapen tensor": (
        weighted(lambda weights: weights.update({HEAD: torch.ones(24, 17)})),
        errors.MisshapenTensor,
        (f"{HEAD} is [24, 17], not [24, 16]",),
    ),
    "whole numbers": (retyped(torch.int8), errors.MistypedTensor, (NORM, "I8 (int8)")),
    "numbers of 8 bits": (
        retyped(torch.float8_e4m3fn),
        errors.MistypedTensor,
        (NORM, "F8_E4M3", "before they were quantised"),
    ),
    "quantised by another library": (
        configured(quantization_config={"quant_method": "gptq", "bits": 4}),
        errors.UnsupportedQuantization,
        ("'gptq'", "use the model's weights in bfloat16"),
    ),
    "a shard that is cut short": (cut(SHARD, 0.9), errors.DamagedWeights, (SHARD, "cut short")),
    "a shard that is cut in its header": (
        cut(SHARD, 0.05),
        errors.DamagedWeights,
        (SHARD, "inside of its header", "copy it again"),
    ),
    "a damaged header": (noise_in_the_header, errors.DamagedWeights, (SHARD, "header")),
    "an empty shard": (written(SHARD, b""), errors.DamagedWeights, (SHARD, "0 bytes")),
    "a shard that isn't there": (
        removed(SHARD),
        errors.ShardMissing,
        (f"lacks {SHARD}", "3 files"),
    ),
    "an index that names the wrong shard": (
        mapped(lambda names: names.update({NORM: SHARD, HEAD: SHARD})),
        errors.MissingTensor,
        (f"is in {SHARD}, which lacks it",),
    ),
    "a tensor in two shards": (shard_twice, errors.AmbiguousTensor, (SHARD, "00003-of-00003")),
    "a damaged index": (written(INDEX, b"{"), errors.DamagedWeights, (INDEX, "isn't JSON")),
    "an empty directory": (
        removed("*"),
        errors.ModelFileMissing,
        ("is no model: can't read config.json",),
    ),
    "no weights": (
        removed("*.safetensors", INDEX),
        errors.ModelFileMissing,
        ("no model.safetensors",),
    ),
    "pickles only": (pickles_only, errors.UnsafeWeights, ("pytorch_model.bin", "save_pretrained")),
    "no configuration": (removed("config.json"), errors.ModelFileMissing, ("config.json",)),
    "a damaged configuration": (
        cut("config.json", 0.5),
        errors.ConfigError,
        ("config.json isn't JSON",),
    ),
    "a configuration without model_type": (
        configured(model_type=None),
        errors.ConfigError,
        ("model_type", "known are", "mamba2"),
    ),
    "an unsupported model_type": (
        configured(model_type="rwkv9"),
        errors.UnsupportedModel,
        ("'rwkv9'", "known are", "docs/adding-a-family.md"),
    ),
    "an unsupported rope type": (
        configured(rope_scaling={"rope_type": "spiral", "factor": 2.0}),
        errors.UnsupportedRope,
        ("rope_type 'spiral' isn't served", "llama3"),
    ),
    "a size that is no number": (
        configured(hidden_size="wide"),
        errors.ConfigError,
        ("hidden_size must be a whole number from 1, not 'wide'",),
    ),
    "sizes that contradict each other": (
        configured(num_key_value_heads=3),
        errors.ConfigError,
        ("num_key_value_heads", "divisor of 4 heads"),
    ),
    "a tokenizer larger than the vocabulary": (
        large_tokenizer,
        errors.TokenizerMismatch,
        ("25 ids", "only 24", "don't belong together"),
    ),
    "no tokenizer": (removed("tokenizer.json"), TokenizerMissing, ("tokenizer.json",)),
}


async def refusal(model: str) -> ModelError:
    """The error of an engine that doesn't open, which leaves nothing behind."""
    before = set(threading.enumerate())
    with pytest.raises(ModelError) as caught:
        async with Engine.open(EngineConfig(model=model, max_num_seqs=1)):
            raise AssertionError("it opened")
    ours = {thread for thread in set(threading.enumerate()) - before if "tenure" in thread.name}
    assert ours == set()
    assert open_weights() == set()
    return caught.value


@LISTS_OPEN_FILES
@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_directory_is_refused_by_name_and_leaves_nothing(
    name: str, anyio_backend: str, tmp_path: Path
) -> None:
    damage, kind, told = DAMAGES[name]
    damage(make_directory(tmp_path, shards=3))
    error = await refusal(str(tmp_path))

    assert type(error) is kind
    assert all(part in str(error) for part in told), str(error)


@LISTS_OPEN_FILES
@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("{path}/model-00002-of-00003.safetensors", "is a file: name 'bundled', a directory"),
        ("{path}/config.json", "is a file"),
        ("some-org/some-model-1.5", "run `hf download some-org/some-model-1.5 --local-dir DIR`"),
        ("{path}/nothing-here", "neither in the package nor on disk"),
    ],
)
async def test_a_name_that_is_no_directory_is_refused_with_the_way_out(
    model: str, told: str, anyio_backend: str, tmp_path: Path
) -> None:
    error = await refusal(model.format(path=make_directory(tmp_path, shards=3)))

    assert type(error) is errors.ModelNotFound
    assert told in str(error)


async def test_a_tensor_that_the_family_leaves_alone_is_no_extra_one(
    anyio_backend: str, tmp_path: Path
) -> None:
    """Old writers store what is worked out from the configuration."""
    weights = make_weights(config_of())
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    config = EngineConfig(model=str(make_directory(tmp_path, weights=weights)), max_num_seqs=1)
    async with Engine.open(config) as engine:
        assert engine.core.model.num_parameters == sum(
            tensor.numel() for name, tensor in weights.items() if "inv_freq" not in name
        )


async def test_the_whole_directory_opens_and_tells_how_far_it_is(
    anyio_backend: str, tmp_path: Path
) -> None:
    """So that what is refused above is refused for its damage. Nothing is printed."""
    told: list[LoadProgress] = []
    config = EngineConfig(model=str(make_directory(tmp_path, shards=3)), max_num_seqs=1)
    async with Engine.open(config, progress=told.append) as engine:
        result = await engine.complete([1, 2, 3])

    assert result.token_ids
    assert told[0].done_bytes == 0
    assert told[-1].fraction == 1.0


@LISTS_OPEN_FILES
async def test_an_opening_that_is_cancelled_ends_with_the_piece_that_is_read(
    anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading 100 GB can't be waited for by somebody who has gone."""
    monkeypatch.setattr(safetensors_store, "PIECE_BYTES", 64)
    model = str(make_directory(tmp_path, shards=3))
    seen: list[LoadProgress] = []

    def cancel(now: LoadProgress) -> None:
        seen.append(now)
        if len(seen) == 10:
            anyio.from_thread.run_sync(scope.cancel)

    before = set(threading.enumerate())
    with anyio.CancelScope() as scope:
        async with Engine.open(EngineConfig(model=model), progress=cancel):
            raise AssertionError("it opened")

    assert scope.cancelled_caught
    assert len(seen) == 10
    assert open_weights() == set()
    assert not [thread for thread in set(threading.enumerate()) - before if "tenure" in thread.name]


@LISTS_OPEN_FILES
async def test_what_a_callers_progress_raises_comes_out_of_the_opening(
    anyio_backend: str, tmp_path: Path
) -> None:
    """As it is, and with the files closed."""

    def stop(_now: LoadProgress) -> None:
        raise ZeroDivisionError

    config = EngineConfig(model=str(make_directory(tmp_path)))
    with pytest.raises(ZeroDivisionError):
        async with Engine.open(config, progress=stop):
            raise AssertionError("it opened")
    assert open_weights() == set()
