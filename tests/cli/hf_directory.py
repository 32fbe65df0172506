"""A model directory as ``transformers`` writes it: tiny, with a tokenizer and a chat template."""

import importlib
from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["CHATML", "Peer", "write_directory"]

Peer = Any
"""A model, or a tokenizer, of ``transformers``, whose own types are only in part there."""

_transformers: Any = importlib.import_module("transformers")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT = [
    "A slot has one owner, and the type says who. The pool lends it to a turn, the turn gives it",
    "back or keeps it for its session; nobody frees it twice.",
]


def _tokenizer() -> Peer:
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(_TEXT, trainer)
    tokenizer: Peer = _transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, eos_token="<|im_end|>"
    )
    tokenizer.chat_template = CHATML
    return tokenizer


def write_directory(path: Path) -> tuple[Peer, Peer]:
    """Write a hybrid of two Mamba-2 layers and one of attention; the peer that wrote it."""
    tokenizer = _tokenizer()
    # torch leaves the type of its result open.
    cast(Any, torch).manual_seed(5)
    config = _transformers.GraniteMoeHybridConfig(
        vocab_size=len(tokenizer) + 3,  # padded, as published models are
        hidden_size=32,
        intermediate_size=48,
        shared_intermediate_size=48,
        num_hidden_layers=3,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=0,
        num_experts_per_tok=0,
        mamba_n_heads=8,
        mamba_d_head=8,
        mamba_d_state=16,
        mamba_chunk_size=16,
        position_embedding_type="rope",
        embedding_multiplier=6.0,
        initializer_range=0.4,
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        bos_token_id=None,
        pad_token_id=None,
    )
    peer: Peer = _transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    peer.generation_config.do_sample = False
    peer.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return peer, tokenizer
