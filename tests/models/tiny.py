"""Model directories as Hugging Face lays them out, made without its library: any size, any type."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import WordLevel
from torch import Tensor

__all__ = [
    "CONFIG",
    "RECURRENT",
    "config_of",
    "make_directory",
    "make_weights",
    "save_shards",
    "write_tensors",
]

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 24,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}
"""Of a model with attention layers only; its projections are joined when it is loaded."""

RECURRENT: dict[str, Any] = {
    "model_type": "mamba2",
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "state_size": 8,
    "num_heads": 4,
    "head_dim": 8,
    "expand": 2,
    "n_groups": 1,
    "conv_kernel": 4,
    "chunk_size": 8,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": True,
}
"""Of a model of Mamba-2 layers only."""


def config_of(**changes: Any) -> dict[str, Any]:
    """The configuration with other values; ``None`` takes a key out."""
    return {name: value for name, value in (CONFIG | changes).items() if value is not None}


def make_weights(
    config: Mapping[str, Any], dtype: torch.dtype = torch.float32, seed: int = 0
) -> dict[str, Tensor]:
    """Random weights by the names that the family gives them."""
    draw = torch.Generator().manual_seed(seed)
    hidden, width = config["hidden_size"], config["intermediate_size"]
    head = hidden // config["num_attention_heads"]
    shared = head * config["num_key_value_heads"]
    vocabulary = config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, hidden)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= {
            f"model.layers.{layer}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (hidden,),
                "self_attn.q_proj": (hidden, hidden),
                "self_attn.k_proj": (shared, hidden),
                "self_attn.v_proj": (shared, hidden),
                "self_attn.o_proj": (hidden, hidden),
                "post_attention_layernorm": (hidden,),
                "mlp.gate_proj": (width, hidden),
                "mlp.up_proj": (width, hidden),
                "mlp.down_proj": (hidden, width),
            }.items()
        }
    shapes["model.norm.weight"] = (hidden,)
    if not config.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (vocabulary, hidden)
    return {
        name: torch.randn(shape, generator=draw).mul_(0.1).to(dtype)
        for name, shape in shapes.items()
    }


def make_directory(
    directory: Path,
    *,
    dtype: torch.dtype = torch.float32,
    shards: int = 1,
    weights: Mapping[str, Tensor] | None = None,
    **changes: Any,
) -> Path:
    """Write config.json, weights and a tokenizer of a few words."""
    config = config_of(**changes)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    tensors = make_weights(config, dtype) if weights is None else weights
    if shards == 1:
        write_tensors(directory / "model.safetensors", tensors)
    else:
        save_shards(directory, tensors, shards)
    words = {word: number for number, word in enumerate(["[UNK]", "a", "b", "c"])}
    LibraryTokenizer(WordLevel(words, unk_token="[UNK]")).save(str(directory / "tokenizer.json"))
    return directory


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    """Write one safetensors file."""
    path.write_bytes(save(dict(tensors), metadata={"format": "pt"}))
    return path


def save_shards(directory: Path, tensors: Mapping[str, Tensor], shards: int) -> dict[str, str]:
    """Write the tensors in turn to so many files, and the index of them; returns its map."""
    files = [f"model-{at + 1:05}-of-{shards:05}.safetensors" for at in range(shards)]
    weight_map = {name: files[at % shards] for at, name in enumerate(tensors)}
    for file in files:
        part = {name: tensors[name] for name, where in weight_map.items() if where == file}
        write_tensors(directory / file, part)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return weight_map
