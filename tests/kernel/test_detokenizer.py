"""Incremental text: equal to the whole, and never half a character."""

from collections.abc import Sequence
from itertools import accumulate

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.requests.detokenizer import IncrementalDetokenizer
from tests.kernel.byte_tokenizer import ByteTokenizer, one_token_each, split_bytes

HALF = "\ufffd"


@st.composite
def split_text(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    text = draw(st.text(st.characters(codec="utf-8", exclude_characters=HALF), max_size=30))
    return text, draw(split_bytes(text.encode()))


@st.composite
def garbage(draw: st.DrawFn) -> list[bytes]:
    """Tokens that need not be text: a model may draw any; some have no bytes at all."""
    lead = st.sampled_from([b"\xe2", b"\x82", b"\xac", b"\xf0\x9f", b"\x98", b"a", b"\xff", b""])
    return draw(st.lists(st.one_of(lead, st.binary(max_size=4)), max_size=150))


@given(split=split_text())
def test_pieces_are_the_whole_text_and_never_half_a_character(
    split: tuple[str, list[bytes]],
) -> None:
    """The promise of streaming: what was shown stays and adds up."""
    text, tokens = split
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer)
    pieces = [detokenizer.push([token]) for token in ids]

    assert not any(HALF in piece for piece in pieces)
    assert detokenizer.finish() == ""
    assert "".join(pieces) == text == detokenizer.text


@given(split=split_text())
def test_text_is_not_held_back_longer_than_the_character_needs(
    split: tuple[str, list[bytes]],
) -> None:
    """After each token all complete characters are out."""
    _, tokens = split
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer)
    for token, so_far in zip(ids, accumulate(tokens), strict=True):
        detokenizer.push([token])
        assert detokenizer.text == so_far.decode("utf-8", "ignore")


@given(tokens=garbage(), stop=st.sampled_from([(), ("never there",)]))
def test_garbage_is_what_a_full_decode_makes_of_it(
    tokens: list[bytes], stop: tuple[str, ...]
) -> None:
    """A sampled model writes bytes that are no text; nothing may be lost or doubled by that."""
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer, stop)
    pieces = [detokenizer.push([token]) for token in ids]

    assert "".join(pieces) + detokenizer.finish() == tokenizer.decode(ids)


@given(tokens=garbage(), sizes=st.lists(st.integers(1, 9), min_size=1), stop=st.text("a\x82"))
def test_batches_of_tokens_give_the_same_as_one_by_one(
    tokens: list[bytes], sizes: list[int], stop: str
) -> None:
    """Deltas are merged for a slow consumer."""
    tokenizer, ids = one_token_each(*tokens)
    stops = (stop,) if stop else ()
    one_by_one = IncrementalDetokenizer(tokenizer, stops)
    in_batches = IncrementalDetokenizer(tokenizer, stops)
    for token in ids:
        one_by_one.push([token])
    while ids:
        size = sizes[len(ids) % len(sizes)]
        in_batches.push(ids[:size])
        del ids[:size]
    one_by_one.finish()
    in_batches.finish()

    assert in_batches.text == one_by_one.text
    assert in_batches.stop_hit == one_by_one.stop_hit


def test_end_within_a_character_gives_a_replacement() -> None:
    """max_tokens can cut anywhere; the text must equal a full decode all the same."""
    tokenizer, ids = one_token_each(b"a", b"\xf0\x9f")
    detokenizer = IncrementalDetokenizer(tokenizer)

    assert detokenizer.push(ids) == "a"
    assert detokenizer.delivered_tokens == 1
    assert detokenizer.finish() == HALF


@pytest.mark.parametrize(
    "token", [b"word ", b"\x82", b"\xe2", b"\xac\xe2", b"", b"\xf0\x9f\x98"], ids=repr
)
def test_cost_of_a_token_does_not_grow_with_the_text(token: bytes) -> None:
    """Garbage and special tokens included: no run of tokens may make the window grow."""
    tokenizer = ByteTokenizer([token, b"a\xe2"])
    detokenizer = IncrementalDetokenizer(tokenizer, ("never there",))
    detokenizer.push([1])
    tokenizer.decoded = 0
    detokenizer.push([0] * 3000)

    assert tokenizer.decoded <= 3000 * 80


@attrs.frozen
class Metaspace:
    """A tokenizer that drops the space of the first word, as Llama's and T5's do."""

    words: tuple[str, ...] = ("▁Hello", "▁brave", "▁new", "▁world", "!")
    vocab_size: int = 5

    def encode(self, text: str, /) -> list[int]:
        raise NotImplementedError  # A detokenizer has no use for it: a call is a fault.

    def decode(self, token_ids: Sequence[int], /) -> str:
        return "".join(self.words[token] for token in token_ids).replace("▁", " ").removeprefix(" ")


def test_first_word_rule_applies_to_the_first_word_only() -> None:
    """Decoding each token alone would glue the words together."""
    detokenizer = IncrementalDetokenizer(Metaspace())
    pieces = [detokenizer.push([token]) for token in (0, 1, 2, 3, 4)]

    assert pieces == ["Hello", " brave", " new", " world", "!"]
