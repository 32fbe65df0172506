"""Writes GGUF files of models from Hugging Face's names and layouts, as llama.cpp's converter does.

Names come from the ``gguf`` package's own tables, and what is done to tensors is written down here
once more, from the converter (llama.cpp b11434), so that the reader's inverse is not measured by
itself. ``python -m tests.gguf.converter`` compares what the real converter writes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs
import gguf
import numpy as np
import torch
from torch import Tensor

from tests.gguf.sizes import ARCHITECTURES, write_sizes

__all__ = ["Stored", "converted", "quantised", "write_gguf"]

_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
_PERMUTED = ("llama", "granitemoehybrid", "bamba", "nemotron_h")
_CENTRED = ("qwen3_next", "qwen3_5_text")


@attrs.frozen(eq=False)
class Stored:
    """A tensor as it goes into a file."""

    data: Tensor
    """Numbers, or rows of bytes of a quantised type."""
    kind: str = "F32"

    def map(self, data: Tensor) -> "Stored":
        return attrs.evolve(self, data=data)


def write_gguf(
    path: Path,
    config: Mapping[str, Any],
    weights: Mapping[str, Stored],
    *,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model that llama.cpp and this package can read.

    Args:
        path: of the file.
        config: as in config.json.
        weights: by Hugging Face's names. A quantised one is rows of bytes.
        metadata: more of it (a tokenizer); texts, numbers, truth values, lists.
    """
    config = {"num_hidden_layers": len(config.get("layers_block_type") or ()), **config}
    family = config["model_type"]
    architecture = gguf.MODEL_ARCH[ARCHITECTURES[family]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    write_sizes(writer, config)
    for key, value in (metadata or {"tokenizer.ggml.model": "none"}).items():
        _add_value(writer, key, value)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, stored in converted(config, weights):
        kind = gguf.GGMLQuantizationType[stored.kind]
        data = stored.data.contiguous().numpy()
        writer.add_tensor(_mapped(names, name), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, cast("Sequence[Any]", value))
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_string(key, value)


def _mapped(names: gguf.TensorNameMap, name: str) -> str:
    if name.startswith("blk."):
        return name
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        raise ValueError(f"no name in a GGUF file for {name}")
    return found


def converted(
    config: Mapping[str, Any], weights: Mapping[str, Stored]
) -> Iterator[tuple[str, Stored]]:
    """Tensors as the converter has them before it maps their names."""
    family = config["model_type"]
    stacks: dict[str, dict[int, Stored]] = {}
    for name, stored in weights.items():
        expert = _EXPERT.fullmatch(name)
        if expert:
            merged = re.sub(r".*layers\.(\d+)\..*", r"model.layers.\1.mlp.experts", expert[1])
            stacks.setdefault(f"{merged}.{expert[3]}.weight", {})[int(expert[2])] = stored
            continue
        yield from _one(family, config, name, stored)
    for merged, experts in stacks.items():
        own = merged.removeprefix("model.").replace("mlp", "feed_forward")
        stack = torch.stack([experts[number].data for number in range(len(experts))])
        yield own if family == "lfm2_moe" else merged, experts[0].map(stack)


def _one(
    family: str, config: Mapping[str, Any], name: str, stored: Stored
) -> Iterator[tuple[str, Stored]]:
    """A tensor of the model as the file's tensors; most are one, under a name of the tables."""
    stored = stored.map(_changed(family, config, name, stored.data))
    block = re.sub(r".*layers\.(\d+)\..*", r"blk.\1.", name)
    if name.endswith("input_linear.weight"):
        yield from _halves(config, block, name, stored)
    elif name.endswith("in_proj_qkvz.weight"):
        yield from _by_kind(config, block, stored)
    else:
        yield _renamed(family, config, block, name), stored


def _renamed(family: str, config: Mapping[str, Any], block: str, name: str) -> str:
    """The name in the file where the tables don't have it; else one that they have."""
    if name.endswith("dt_bias"):
        return name.replace("dt_bias", "dt_proj.bias")
    if name.endswith(("e_score_correction_bias", "expert_bias")):
        return f"{block}exp_probs_b.bias"
    if name.endswith("pre_ff_layernorm.weight") and family == "falcon_h1":
        return f"{block}ffn_norm"  # without a suffix, as the converter has it
    if name.endswith("shared_mlp.output_linear.weight") and not config["num_local_experts"]:
        return f"{block}ffn_down.weight"
    return name


def _changed(family: str, config: Mapping[str, Any], name: str, data: Tensor) -> Tensor:
    """The numbers as the file has them."""
    if family in _PERMUTED and re.search(r"\.[qk]_proj\.(weight|bias)$", name):
        heads = "num_attention_heads" if ".q_proj" in name else "num_key_value_heads"
        data = _permuted(data, config[heads])
    if name.endswith(".A_log"):
        data = -torch.exp(data)
    if name.endswith((".A_log", ".D")) and family not in ("mamba", "jamba", *_CENTRED):
        data = data.reshape(-1, 1)
    if "conv" in name and data.ndim == 3:
        data = data.squeeze(1)
    if name.endswith(("mamba.norm.weight", "mixer.norm.weight")):
        data = data.reshape(config.get("mamba_n_groups") or config["n_groups"], -1)
    return _centred(family, config, name, data) if family in _CENTRED else data


def _centred(family: str, config: Mapping[str, Any], name: str, data: Tensor) -> Tensor:
    """What is done to the Qwen models of the gated delta rule besides."""
    if name.endswith("norm.weight") and "linear_attn.norm" not in name:
        data = data + 1
    if family == "qwen3_5_text" and "linear_attn." in name:
        data = _dealt(config, name, data)
    return data


def _permuted(rows: Tensor, heads: int) -> Tensor:
    split = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def _halves(
    config: Mapping[str, Any], block: str, name: str, stored: Stored
) -> Iterator[tuple[str, Stored]]:
    """Granite's gate and up projections, apart."""
    suffix = "_exps" if "block_sparse_moe" in name else ""
    if not suffix and config["num_local_experts"]:
        suffix = "_shexp"
    gate, up = stored.data.chunk(2, dim=-2)
    yield f"{block}ffn_gate{suffix}.weight", stored.map(gate)
    yield f"{block}ffn_up{suffix}.weight", stored.map(up)


def _by_kind(config: Mapping[str, Any], block: str, stored: Stored) -> Iterator[tuple[str, Stored]]:
    """Qwen3-Next's joined projection: all queries, keys and values; all gates apart."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    shared = values // keys * config["linear_value_head_dim"]
    widths = [config["linear_key_head_dim"]] * 2 + [shared] * 2
    heads = stored.data.view(keys, sum(widths), -1)
    *joined, gates = (part.flatten(0, 1) for part in torch.split_with_sizes(heads, widths, dim=1))
    yield f"{block}attn_qkv.weight", stored.map(torch.cat(joined))
    yield f"{block}attn_gate.weight", stored.map(gates)


def _dealt(config: Mapping[str, Any], name: str, data: Tensor) -> Tensor:
    """Qwen3.5's value heads: each key head's first, then each one's second, and so on."""
    keys, values = config["linear_num_key_heads"], config["linear_num_value_heads"]

    def deal(rows: Tensor) -> Tensor:
        heads = rows.reshape(keys, values // keys, -1, *rows.shape[1:])
        return heads.transpose(0, 1).reshape(rows.shape)

    if name.endswith("linear_attn.norm.weight"):
        return data
    if "out_proj" in name:
        return deal(data.T).T
    if "in_proj_qkv" in name or "conv1d" in name:
        first = 2 * keys * config["linear_key_head_dim"]
        return torch.cat((data[:first], deal(data[first:])))
    return deal(data)


def quantised(weight: Tensor, kind: str) -> tuple[Stored, Tensor]:
    """A matrix in a number type of the file, and the numbers that it then stands for."""
    number = gguf.GGMLQuantizationType[kind]
    rows = gguf.quants.quantize(weight.numpy(), number)
    back = np.array(gguf.quants.dequantize(rows, number), dtype=np.float32)
    return Stored(torch.as_tensor(np.array(rows)), kind), torch.as_tensor(back)
