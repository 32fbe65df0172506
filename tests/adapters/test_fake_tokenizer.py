"""The fake tokenizer: bytes back and forth, and words to read."""

from hypothesis import given
from hypothesis import strategies as st

from adapters.fake_device import FakeTokenizer


@given(text=st.text(st.characters(codec="utf-8")))
def test_tokenizer_gives_the_text_back(text: str) -> None:
    """Byte by byte, so half characters occur in between."""
    tokenizer = FakeTokenizer()

    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_tokenizer_words_are_distinct_and_special_tokens_silent() -> None:
    """The fake device's output can be read in a demo and told apart in a test."""
    tokenizer = FakeTokenizer(1000, special_token_ids=(999,))
    words = [tokenizer.decode([token]) for token in range(256, 999)]

    assert len(set(words)) == len(words)
    assert all(word.startswith(" ") and word[1:].isalpha() for word in words)
    assert tokenizer.decode([999]) == ""
    assert tokenizer.decode([0xE2]) == "\ufffd"
