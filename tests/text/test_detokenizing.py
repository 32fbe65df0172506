"""Incremental text is the whole text, for a tokenizer of each kind in use."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.text.tokenizer import HubTokenizer
from kernel.requests.detokenizer import IncrementalDetokenizer
from tests.text.texts import HARD, difference, random_ids
from tests.text.trained import KINDS, tokenizer

BYTES = [kind for kind in KINDS if kind.startswith("byte")]
FALLBACK = [kind for kind in KINDS if kind.startswith("byte fallback")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_streaming_hard_texts_gives_what_decoding_gives(kind: str, batch: int) -> None:
    """Emoji with joiners, combining marks, scripts that the vocabulary lacks, no text at all."""
    made = tokenizer(kind)

    assert [difference(made, made.encode(text), batch) for text in HARD] == [None] * len(HARD)


@pytest.mark.parametrize("kind", KINDS)
def test_streaming_any_tokens_gives_what_decoding_gives(kind: str) -> None:
    """A sampled model may draw any token: broken bytes, special tokens in the midst of a word."""
    made = tokenizer(kind)
    sequences = random_ids(made, random.Random(5), 400)

    assert [found for ids in sequences if (found := difference(made, ids))] == []


@pytest.mark.parametrize("kind", BYTES)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=20))
def test_no_half_character_is_ever_shown(kind: str, text: str) -> None:
    """Every text can be written by a tokenizer with bytes, and is shown character by character."""
    made = tokenizer(kind)
    detokenizer = IncrementalDetokenizer(made)
    pieces = [detokenizer.push([token]) for token in made.encode(text)]

    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + detokenizer.finish() == made.decode(made.encode(text))


@pytest.mark.parametrize("kind", FALLBACK)
def test_an_emoji_stays_when_the_next_one_begins(kind: str) -> None:
    """The library turns a run of byte tokens that isn't whole into U+FFFD, all of it.

    So a second emoji, while it was coming, took back the first one, which had been shown.
    """
    made = tokenizer(kind)
    ids = made.encode("🦊🦊")
    half = ids[:-2]

    assert made.decode(ids) == "🦊🦊"
    assert made.decode(half) == "🦊\ufffd"
    assert difference(made, ids) is None


@pytest.mark.parametrize("kind", FALLBACK)
@given(data=st.data())
def test_whole_runs_of_byte_tokens_are_decoded_as_the_library_does(
    kind: str, data: st.DataObject
) -> None:
    """Ours differs where a run is broken, and nowhere else."""
    made = tokenizer(kind)
    text = data.draw(st.text(st.characters(codec="utf-8", exclude_characters="\ufffd"), max_size=9))
    ids = made.encode(text)

    assert made.decode(ids) == made.library.decode(ids)


def test_a_first_token_without_text_is_not_forgotten() -> None:
    """The space before a first word is stripped, and the one after that isn't."""
    made = tokenizer("unigram")
    space = made.id_of("▁")
    dot = made.id_of(".")
    assert space is not None
    assert dot is not None

    assert made.decode([space, space, dot]) == " ."
    assert difference(made, [space, space, dot]) is None


def test_special_tokens_have_no_text_and_leave_no_trace() -> None:
    """Also at the beginning, where text may be missing for another reason."""
    made: HubTokenizer = tokenizer("byte level")
    special = made.encode("<|im_end|>")
    word = made.encode("the")

    assert len(special) == 1
    for ids in ([*special, *word], [*word, *special, *word], [*special * 40, *word]):
        assert difference(made, ids) is None
        assert "im_end" not in made.decode(ids)
        assert "im_end" in made.decode_with_special(ids)
