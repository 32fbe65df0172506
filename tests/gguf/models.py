"""Tiny models in both forms, a directory and a GGUF file, with the same numbers in them."""

import importlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from adapters.models.config_reader import ConfigReader
from adapters.models.directory import open_store
from adapters.models.gguf.reader import open_gguf
from adapters.models.precision import Precision
from adapters.models.registry import load_model
from adapters.models.store import TensorStore
from adapters.torch_device import TorchDevice
from tests.gguf.writing import Stored, quantised, write_gguf
from tests.parity.cases import CASES, Case
from tests.parity.ours import Desk
from tests.parity.peer import build_peer

__all__ = [
    "case_of",
    "config_of",
    "continuation",
    "device_of",
    "logits_of",
    "logits_of_directory",
    "logits_of_file",
    "make_both",
    "peer_tokens",
]

_PROMPT = 19
_SINGLE = 2
_VOCABULARY = 97
_PRECISION = Precision(torch.float32, torch.float32, torch.float32)
_MULTIPLIERS = {
    **dict.fromkeys(("lm_head_multiplier", "embedding_multiplier", "key_multiplier"), 1.0),
    **dict.fromkeys(("attention_in_multiplier", "attention_out_multiplier"), 1.0),
    **dict.fromkeys(("ssm_in_multiplier", "ssm_out_multiplier"), 1.0),
    "mlp_multipliers": [1.0] * 2,
    "ssm_multipliers": [1.0] * 5,
}
_UNKNOWN = ("chunk_size", "mamba_chunk_size")
"""Not in a GGUF file. Another size sums in another order, so the last bits would differ."""
_SPELLED = {"linear_attention": "mamba", "full_attention": "attention"}


def case_of(key: str) -> Case:
    """A case of the parity tests by its key."""
    return next(case for case in CASES if case.key == key)


def make_both(
    case: Case, root: Path, kind: str = "F32", *, metadata: Mapping[str, Any] | None = None
) -> tuple[Path, Path]:
    """A directory, and a file of the same numbers.

    Args:
        case: the model.
        root: where they go.
        kind: number type of the matrices whose rows fill whole blocks of it; of all others, F32.
        metadata: of the file, beside sizes.
    """
    directory = root / "model"
    build_peer(case, torch.float32).save(directory)
    config = config_of(directory)
    stored: dict[str, Stored] = {}
    weights: dict[str, Tensor] = {}
    for name, weight in load((directory / "model.safetensors").read_bytes()).items():
        weights[name] = _exact(config["model_type"], name, weight)
        stored[name] = Stored(weights[name])
        if kind != "F32" and _is_matrix(name, weight):
            stored[name], weights[name] = quantised(weight, kind)
    (directory / "model.safetensors").write_bytes(save(weights))
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_gguf(root / "model.gguf", config, stored, metadata=metadata)
    return directory, root / "model.gguf"


def config_of(directory: Path) -> dict[str, Any]:
    """config.json as the converter knows it, without what a GGUF file has no place for."""
    config: dict[str, Any] = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    for name in _UNKNOWN:
        config.pop(name, None)
    if config["model_type"] == "falcon_h1":
        config |= _MULTIPLIERS
    if config["model_type"] == "granitemoehybrid":
        config["layer_types"] = [_SPELLED.get(kind, kind) for kind in config["layer_types"]]
    return config


def _is_matrix(name: str, weight: Tensor) -> bool:
    return weight.ndim >= 2 and weight.shape[-1] % 32 == 0 and "conv" not in name


def _exact(family: str, name: str, weight: Tensor) -> Tensor:
    """The nearest numbers that survive what is done to them on the way, bit by bit."""
    if name.endswith("A_log"):
        for _ in range(50):
            weight = torch.log(torch.exp(weight))
        return torch.where(torch.log(torch.exp(weight)) == weight, weight, 0.0)
    if family.startswith("qwen3_") and name.endswith("norm.weight") and "linear" not in name:
        return (weight + 1) - 1
    return weight


def logits_of_directory(directory: Path) -> Tensor:
    """Of a fixed text: after a prompt, and after each of some single tokens."""
    return logits_of(ConfigReader.load(directory), open_store(directory))


def logits_of_file(path: Path) -> Tensor:
    """The same from a GGUF file."""
    opened = open_gguf(path)
    return logits_of(opened.config, opened.store)


def logits_of(config: ConfigReader, store: TensorStore) -> Tensor:
    """The same from anything; closes the store."""
    desk = Desk(device_of(config, store))
    sequence = desk.begin([(7 * number + 3) % 97 for number in range(_PROMPT + _SINGLE)])
    found = [desk.run([(sequence, count)]) for count in (_PROMPT, *([1] * _SINGLE))]
    return torch.cat([logits for step in found for logits in step]).double()


def device_of(config: ConfigReader, store: TensorStore) -> TorchDevice:
    """A model on the CPU; closes the store."""
    where = torch.device("cpu")
    with closing(store):
        model, asked = load_model(config, store, _PRECISION, where)
    return TorchDevice(
        model, _PRECISION, num_parameters=asked.num_parameters, device=where, num_threads=1
    )


def continuation(
    config: ConfigReader, store: TensorStore, prompt: Sequence[int], count: int
) -> tuple[list[int], Tensor]:
    """``count`` likeliest tokens after a prompt, and the logits of the first; closes the store."""
    desk = Desk(device_of(config, store))
    known, found = list(prompt), list[Tensor]()
    for _ in range(count):
        # Anew each time: it tests prefill, and a decode path can't hide behind itself.
        sequence = desk.begin(known)
        found.append(desk.run([(sequence, len(known))])[0].reshape(-1, _VOCABULARY)[-1].double())
        desk.end(sequence)
        known.append(int(found[-1].argmax()))
    return known[len(prompt) :], found[0]


def peer_tokens(directory: Path, prompt: Sequence[int], count: int) -> list[int]:
    """The same by transformers' forward pass over the whole text, without a cache."""
    transformers: Any = importlib.import_module("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, experts_implementation="eager"
    )
    known = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            logits: Tensor = model(torch.tensor([known]), use_cache=False).logits[0, -1]
            known.append(int(logits.argmax()))
    return known[len(prompt) :]
