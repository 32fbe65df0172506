"""Small tokenizers of every kind in use, trained here: nothing is downloaded."""

import json
from collections.abc import Callable
from functools import cache

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from adapters.text.tokenizer import HubTokenizer
from tests.text.templates import SPECIAL

__all__ = ["KINDS", "library", "tokenizer"]

CORPUS = [
    "the cat and the hat, the end. you are a helpful assistant",
    "user assistant system User: Assistant: <|user|> <|assistant|> Today Date: \n\n\n",
    "über die Brücke, €5 — naïve café; 家族 家 שלום عائلة привет мир",
    "😀 👨‍👩‍👧 🏳️‍🌈 e\u0301 ñ  two  spaces\tand a tab\r\n 12345 3.14",
    "<tools> </tools> <tool_response> </tool_response> <think> </think>",
]


def _byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    _train(made, trainer)
    return made


def _byte_level_with_bos() -> Tokenizer:
    """As Llama 3: its own splitting rule, and a post-processor that puts a token before a text."""
    made = _byte_level()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bos = made.token_to_id("<|begin_of_text|>")
    made.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)]
    )
    return made


def _byte_fallback(prepend: str) -> Tokenizer:
    """As Llama 2 and Mistral: words begin with a mark, and unknown characters are bytes."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if prepend == "normalizer":
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
        made.decoder = decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        )
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend, split=False)
        made.decoder = decoders.Sequence(
            [
                decoders.ByteFallback(),
                decoders.Metaspace("▁", prepend),
                decoders.Fuse(),
            ]
        )
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<unk>", *SPECIAL, *bytes_]
    _train(
        made,
        trainers.BpeTrainer(
            vocab_size=700, special_tokens=special, show_progress=False, limit_alphabet=40
        ),
    )
    made = _with_ordinary_bytes(made)
    bos = made.token_to_id("<s>")
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    return made


def _with_ordinary_bytes(made: Tokenizer) -> Tokenizer:
    """Byte tokens belong to the model; the trainer could reserve them as special ones only."""
    fields = json.loads(made.to_str())
    fields["added_tokens"] = [
        token for token in fields["added_tokens"] if not token["content"].startswith("<0x")
    ]
    return Tokenizer.from_str(json.dumps(fields))


def _word_piece() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    special = ["[UNK]", "[CLS]", "[SEP]", *SPECIAL]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    _train(made, trainer)
    ends = [(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return made


def _unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False
    )
    _train(made, trainer)
    return made


def _whitespace() -> Tokenizer:
    """Whole words, joined by the library's own space: no decoder at all."""
    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=["<unk>", *SPECIAL], show_progress=False)
    _train(made, trainer)
    return made


def _replaced() -> Tokenizer:
    """A decoder that changes words and puts nothing between them."""
    made = _whitespace()
    made.decoder = decoders.Sequence([decoders.Replace("the", "le"), decoders.Fuse()])
    return made


def _bpe_suffix() -> Tokenizer:
    """As CLIP and GPT-1: words end with a mark, which becomes a space."""
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.decoder = decoders.BPEDecoder("</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<unk>", *SPECIAL],
        end_of_word_suffix="</w>",
        show_progress=False,
    )
    _train(made, trainer)
    return made


def _train(made: Tokenizer, trainer: trainers.Trainer) -> None:
    made.train_from_iterator(CORPUS * 2, trainer)


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": _byte_level,
    "byte level with a beginning": _byte_level_with_bos,
    "byte fallback, normalizer prepends": lambda: _byte_fallback("normalizer"),
    "byte fallback, first": lambda: _byte_fallback("first"),
    "byte fallback, always": lambda: _byte_fallback("always"),
    "byte fallback, never": lambda: _byte_fallback("never"),
    "word pieces": _word_piece,
    "unigram": _unigram,
    "whole words": _whitespace,
    "replaced and fused": _replaced,
    "suffixes": _bpe_suffix,
}


@cache
def library(kind: str) -> Tokenizer:
    return KINDS[kind]()


@cache
def tokenizer(kind: str) -> HubTokenizer:
    return HubTokenizer(Tokenizer.from_str(library(kind).to_str()))
