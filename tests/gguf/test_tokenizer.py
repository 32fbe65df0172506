"""Tokenizers from metadata: equal to those that they were written from, on random Unicode."""

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, trainers
from tokenizers.pre_tokenizers import ByteLevel

from adapters.models.gguf.errors import UnsupportedVocabulary
from adapters.models.gguf.header import Header, Value
from adapters.models.gguf.metadata import Metadata
from adapters.models.gguf.pieces import build_tokenizer
from adapters.models.gguf.pretokenizers import cut_of, known_cuts
from adapters.models.gguf.vocabulary import read_vocabulary

TEXTS = [
    "The quick brown fox jumps over the lazy dog, and it's 12345 times he'd say: we'LL see!\n\n",
    "Größe naïve café übung ÀÉ Привет мир, как дела? 你好，世界！ こんにちは 안녕하세요 مرحبا",
    "def f(x):\n\treturn x ** 2  # squares\r\n    if x>=10:   print('a')  \n",
    "🙂🙃 e\u0301 \u00e9 ① ½ ²³ IV \u2028 a_b-c...d",
]
SPECIAL = ["<|bos|>", "<|end|>"]


def metadata_of(**values: Value) -> Metadata:
    header = Header({f"tokenizer.ggml.{key}": value for key, value in values.items()}, {})
    return Metadata(header, "model.gguf", lambda _name: ())


def serialised(tokenizer: Tokenizer) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(tokenizer.to_str())
    return parsed


@cache
def pair(kind: str) -> tuple[Tokenizer, Tokenizer]:
    original = trained(kind)
    return original, read_back(original, kind)


def trained(kind: str) -> Tokenizer:
    """A byte-level tokenizer as Hugging Face's directories of this kind have it."""
    cut = cut_of(kind, "")
    tokenizer = Tokenizer(models.BPE(ignore_merges=cut.whole_words))
    normalizer = cut.normalizer()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = cut.make()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=sorted(ByteLevel.alphabet()),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    user = AddedToken("<user>", special=False, normalized=False)
    tokenizer.add_tokens([user])  # pyright: ignore[reportUnknownMemberType]  # a bare list
    return tokenizer


def read_back(tokenizer: Tokenizer, kind: str) -> Tokenizer:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    types = [3 if token in SPECIAL else 4 if token == "<user>" else 1 for token in tokens]
    merges = serialised(tokenizer)["model"]["merges"]
    metadata = metadata_of(
        model="gpt2",
        pre=kind,
        tokens=(*tokens, "[PAD0]"),
        token_type=(*types, 5),
        merges=tuple(" ".join(pair) for pair in merges),
        bos_token_id=vocabulary["<|bos|>"],
        eos_token_id=vocabulary["<|end|>"],
    )
    return build_tokenizer(read_vocabulary(metadata))


KINDS = ["gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "falcon", "tekken", "gpt-4o", "mpt"]


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(max_size=60) | st.sampled_from(TEXTS))
@settings(max_examples=25, deadline=None)
def test_byte_level_tokenizers_come_back_as_they_were(kind: str, text: str) -> None:
    original, back = pair(kind)
    text = f"{text}<|end|>{text} <user>{text}"

    ids = original.encode(text, add_special_tokens=False).ids

    assert back.encode(text, add_special_tokens=False).ids == ids
    assert back.decode(ids) == original.decode(ids)
    assert back.decode(ids, skip_special_tokens=False) == original.decode(
        ids, skip_special_tokens=False
    )


@pytest.mark.parametrize("kind", known_cuts())
def test_every_kind_cuts_every_text_into_all_of_itself(kind: str) -> None:
    """A regular expression with a gap would lose text."""
    cut = cut_of(kind, "")
    for text in TEXTS:
        pieces = "".join(piece for piece, _ in cut.make().pre_tokenize_str(text))

        assert len(pieces) == len(text.encode())


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("it's 1234 we'LL", ["it", "'s", " ", "123", "4", " we", "'LL"]),
        ("a\n\n  b", ["a", "\n\n", " ", " b"]),
    ],
)
def test_llama3_cuts_as_its_regular_expression_says(text: str, pieces: list[str]) -> None:
    found = cut_of("llama-bpe", "").make().pre_tokenize_str(text)

    assert [text[begin:end] for _, (begin, end) in found] == pieces


def test_a_text_begins_with_bos_where_the_metadata_or_the_kind_says_so() -> None:
    _, plain = pair("qwen2")
    _, llama = pair("llama-bpe")

    assert plain.encode("a").ids == plain.encode("a", add_special_tokens=False).ids
    assert llama.encode("a").ids == [0, *llama.encode("a", add_special_tokens=False).ids]


def test_a_beginning_of_sequence_may_have_any_name() -> None:
    """The library's templates give spaces and colons a meaning of their own."""
    values: dict[str, Value] = {"model": "gpt2", "pre": "gpt-2", "tokens": ("a", "<the start:1>")}
    values |= {"token_type": (1, 3), "bos_token_id": 1, "add_bos_token": True}
    made = build_tokenizer(read_vocabulary(metadata_of(**values)))

    assert made.encode("a").ids == [1, 0]


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256))]
WORDS = [
    "\u2581",
    "a",
    "b",
    "c",
    "\u2581a",
    "ab",
    "bc",
    "abc",
    "\u2581ab",
    "ca",
    "\u2581\u2581",
    "cab",
]


def sentence_piece(*, add_space_prefix: bool = True) -> Tokenizer:
    tokens = (*PIECES, *WORDS)
    scores = (*([0.0] * len(PIECES)), *(-float(at * 7 % 11) - at / 100 for at in range(len(WORDS))))
    metadata = metadata_of(
        model="llama",
        tokens=tokens,
        scores=scores,
        token_type=(2, 3, 3, *([6] * 256), *([1] * len(WORDS))),
        unknown_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        add_space_prefix=add_space_prefix,
    )
    return build_tokenizer(read_vocabulary(metadata))


def joined_by_score(text: str) -> list[str]:
    """SentencePiece's algorithm, slowly: join the best scored neighbours, the first of equals."""
    scores = {word: -float(at * 7 % 11) - at / 100 for at, word in enumerate(WORDS)}
    symbols = list("\u2581" + text.replace(" ", "\u2581"))
    while True:
        joins = [
            (scores[left + right], -at)
            for at, (left, right) in enumerate(pairwise(symbols))
            if left + right in scores
        ]
        if not joins:
            break
        at = -max(joins)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        piece
        for symbol in symbols
        for piece in ([symbol] if symbol in WORDS else [f"<0x{b:02X}>" for b in symbol.encode()])
    ]


@given(text=st.text(alphabet="abc d\u00e9\u4f60", min_size=1, max_size=24))
@settings(max_examples=150, deadline=None)
def test_sentence_piece_joins_the_best_scored_neighbours(text: str) -> None:
    tokenizer = sentence_piece()

    encoded = tokenizer.encode(text)

    assert encoded.tokens == ["<s>", *joined_by_score(text)]
    assert tokenizer.decode(encoded.ids) == text


def test_sentence_piece_without_a_space_before_the_text() -> None:
    tokenizer = sentence_piece(add_space_prefix=False)

    encoded = tokenizer.encode("ab", add_special_tokens=False)

    assert encoded.tokens == ["ab"]
    assert tokenizer.decode(encoded.ids) == "ab"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "has no tokenizer"),
        ({"model": "t5", "tokens": ("a",)}, "'t5' isn't built"),
        ({"model": "gpt2", "pre": "other", "tokens": ("a",)}, "'other' isn't known; known: "),
        ({"model": "gpt2", "pre": "gpt-2", "tokens": ("a",), "token_type": ()}, "token_type"),
        (
            {"model": "gpt2", "pre": "gpt-2", "tokens": ("a",), "merges": ("a b",)},
            "isn't whole",
        ),
        ({"model": "llama", "tokens": ("a" * 1001,)}, "isn't whole: token 0 has 1001"),
        ({"model": "llama", "tokens": (1, 2)}, "isn't whole"),
    ],
)
def test_a_tokenizer_that_cannot_be_built_is_said(values: dict[str, Value], said: str) -> None:
    with pytest.raises(UnsupportedVocabulary, match=said):
        build_tokenizer(read_vocabulary(metadata_of(**values)))
