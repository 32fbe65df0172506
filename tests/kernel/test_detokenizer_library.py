"""The detokenizer over a real byte-level BPE of the library that adapters use."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from kernel.requests.detokenizer import IncrementalDetokenizer

HALF = "\ufffd"


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
