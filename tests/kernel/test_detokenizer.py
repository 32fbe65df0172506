"""Incremental text: equal to the whole, never half a character, cut exactly at stop strings."""

from collections.abc import Sequence
from itertools import accumulate

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kernel.detokenizer import IncrementalDetokenizer, StopHit

HALF = "\ufffd"


@attrs.define(eq=False)
class ByteTokenizer:
    """Each id is some bytes; decoding joins and decodes them, as byte-level tokenizers do."""

    table: list[bytes]
    decoded: int = 0
    """Ids decoded so far: the cost."""

    @property
    def vocab_size(self) -> int:
        return len(self.table)

    def encode(self, text: str, /) -> list[int]:
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int], /) -> str:
        self.decoded += len(token_ids)
        return b"".join([self.table[token] for token in token_ids]).decode("utf-8", "replace")


def one_token_each(*pieces: bytes) -> tuple[ByteTokenizer, list[int]]:
    return ByteTokenizer(list(pieces)), list(range(len(pieces)))


@st.composite
def split_bytes(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Cut bytes into tokens anywhere, characters' insides included."""
    cuts = draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=len(data)))
    edges = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False) if data[a:b]]


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


def expected_hit(tokens: list[bytes], stops: Sequence[str], least: int = 0) -> StopHit | None:
    """Say by brute force where the text ends: decode everything after each token."""
    before = ""
    for number, data in enumerate(accumulate(tokens), start=1):
        text = data.decode("utf-8", "ignore")
        found = [
            (start + len(stop), start, stop)
            for stop in stops
            for start in range(len(text))
            if text.startswith(stop, start) and start + len(stop) > len(before)
        ]
        if found and number > least:
            _, start, stop = min(found)
            output = text[:start]
            size = len(output.encode())
            kept = next(n for n in range(number + 1) if len(b"".join(tokens[:n])) >= size)
            return StopHit(stop, kept, output)
        before = text
    return None


@st.composite
def text_with_stops(draw: st.DrawFn) -> tuple[str, list[bytes], tuple[str, ...]]:
    letters = st.text(st.sampled_from("ab€😀"), max_size=14)
    text = draw(letters)
    stop = st.text(st.sampled_from("ab€😀"), min_size=1, max_size=4)
    return text, draw(split_bytes(text.encode())), tuple(draw(st.lists(stop, max_size=3)))


@given(case=text_with_stops(), least=st.integers(0, 4))
def test_stop_string_ends_text_and_tokens_where_brute_force_says(
    case: tuple[str, list[bytes], tuple[str, ...]], least: int
) -> None:
    """The kept tokens are the fewest that cover the output: at the stop's token, or after it."""
    text, tokens, stops = case
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer, stops, min_tokens=least)
    pieces = [detokenizer.push([token]) for token in ids]
    pieces.append(detokenizer.finish())
    hit = expected_hit(tokens, stops, least)

    assert detokenizer.stop_hit == hit
    assert "".join(pieces) == (text if hit is None else hit.text)


@given(case=text_with_stops())
def test_included_stop_string_is_the_end_of_the_text(
    case: tuple[str, list[bytes], tuple[str, ...]],
) -> None:
    """And the tokens that wrote it stay."""
    _, tokens, stops = case
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer, stops, include_stop=True)
    detokenizer.push(ids)
    hit = detokenizer.stop_hit
    excluded = expected_hit(tokens, stops)
    if hit is None or excluded is None:
        assert hit is excluded
        return

    assert hit.text == excluded.text + hit.stop
    assert tokenizer.decode(range(hit.kept_tokens)).startswith(hit.text)
    assert not tokenizer.decode(range(hit.kept_tokens - 1)).startswith(hit.text)


def test_beginning_of_a_stop_string_is_held_back_and_released() -> None:
    """Half a stop string that was shown could not be taken back."""
    tokenizer, ids = one_token_each(b"one ST", b"O", b" two")
    detokenizer = IncrementalDetokenizer(tokenizer, ("STOP",))

    assert [detokenizer.push([token]) for token in ids] == ["one ", "", "STO two"]
    assert detokenizer.delivered_tokens == 3


def test_stop_at_a_token_boundary_keeps_the_tokens_before_it() -> None:
    """The usual case: the session's log then ends before the stop string."""
    tokenizer, ids = one_token_each(b"one ", b"ST", b"OP", b"more")
    detokenizer = IncrementalDetokenizer(tokenizer, ("STOP",))
    detokenizer.push(ids)

    assert detokenizer.stop_hit == StopHit("STOP", 1, "one ")
    assert detokenizer.num_tokens == 3
    assert detokenizer.push([0]) == ""


def test_stop_within_a_token_keeps_that_token_and_all_text_before_it() -> None:
    """Text up to the stop string is output, as in vLLM, so its token belongs to the log."""
    tokenizer, ids = one_token_each(b"one", b".\n", b"two")
    detokenizer = IncrementalDetokenizer(tokenizer, ("\n",))
    detokenizer.push(ids)

    assert detokenizer.stop_hit == StopHit("\n", 2, "one.")


def test_token_that_ends_a_delivered_character_is_kept() -> None:
    """Else the log would end in half of a character that was shown."""
    tokenizer, ids = one_token_each(b"\xe2\x82", b"\xacS", b"TOP")
    detokenizer = IncrementalDetokenizer(tokenizer, ("STOP",))
    detokenizer.push(ids)

    assert detokenizer.stop_hit == StopHit("STOP", 2, "€")


def test_stop_string_within_min_tokens_does_not_count_later_either() -> None:
    """It is held back as the beginning of a longer one when the first countable token comes."""
    tokenizer, ids = one_token_each(b"b", b"a", b"x", b"a")
    detokenizer = IncrementalDetokenizer(tokenizer, ("a", "bac"), min_tokens=2)

    assert [detokenizer.push([token]) for token in ids[:3]] == ["", "", "bax"]
    detokenizer.push(ids[3:])
    assert detokenizer.stop_hit == StopHit("a", 3, "bax")


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
        raise NotImplementedError

    def decode(self, token_ids: Sequence[int], /) -> str:
        return "".join(self.words[token] for token in token_ids).replace("▁", " ").removeprefix(" ")


def test_first_word_rule_applies_to_the_first_word_only() -> None:
    """Decoding each token alone would glue the words together."""
    detokenizer = IncrementalDetokenizer(Metaspace())
    pieces = [detokenizer.push([token]) for token in (0, 1, 2, 3, 4)]

    assert pieces == ["Hello", " brave", " new", " world", "!"]


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    """A real byte-level BPE, small enough that most characters take several tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat and the hat, the end.", "über die Brücke, €5"], trainer)
    return tokenizer


@attrs.frozen
class Real:
    inner: Tokenizer

    @property
    def vocab_size(self) -> int:
        return self.inner.get_vocab_size()

    def encode(self, text: str, /) -> list[int]:
        return self.inner.encode(text).ids

    def decode(self, token_ids: Sequence[int], /) -> str:
        return self.inner.decode(list(token_ids))


TEXT = "the über cat 😀 and 家族 👨‍👩‍👧 the €5 hat. the end"


def test_real_tokenizer_streams_its_own_encoding(trained: Tokenizer) -> None:
    """The library that adapters use decodes in Rust; its half characters are alike."""
    tokenizer = Real(trained)
    detokenizer = IncrementalDetokenizer(tokenizer, ("the end",))
    pieces = [detokenizer.push([token]) for token in tokenizer.encode(TEXT)]

    assert not any(HALF in piece for piece in pieces)
    assert "".join(pieces) + detokenizer.finish() == TEXT.removesuffix("the end")


@given(ids=st.lists(st.integers(0, 299), max_size=120))
def test_real_tokenizer_streams_random_tokens(trained: Tokenizer, ids: list[int]) -> None:
    """Random ids are mostly broken UTF-8, with a special token now and then."""
    detokenizer = IncrementalDetokenizer(Real(trained))
    pieces = [detokenizer.push([token % trained.get_vocab_size()]) for token in ids]
    whole = trained.decode([token % trained.get_vocab_size() for token in ids])

    assert "".join(pieces) + detokenizer.finish() == whole
