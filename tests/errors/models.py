"""A tiny model directory on disk, whole or damaged."""

from pathlib import Path

import torch
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.models import WordLevel

from adapters.models.hybrid import HybridConfig
from adapters.models.weights import random_weights, save_model

__all__ = ["make_model"]


def make_model(directory: Path) -> Path:
    """Write a hybrid of two layers with random weights, and a tokenizer of a few words."""
    config = HybridConfig(
        vocab_size=16,
        hidden_size=16,
        layer_types=("mamba2", "attention"),
        state_size=4,
        head_dim=8,
        num_heads=2,
        num_kv_heads=1,
        attn_head_dim=8,
        max_model_len=64,
    )
    save_model(directory, config, random_weights(config, seed=0, dtype=torch.float32))
    words = {word: number for number, word in enumerate(["[UNK]", "a", "b", "c"])}
    LibraryTokenizer(WordLevel(words, unk_token="[UNK]")).save(str(directory / "tokenizer.json"))
    return directory
