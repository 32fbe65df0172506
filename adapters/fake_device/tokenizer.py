"""A tokenizer without files: the 256 bytes, then invented words, then special tokens."""

from collections.abc import Iterable, Sequence

import attrs

__all__ = ["FakeTokenizer"]

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def _word(number: int) -> bytes:
    text = ""
    while number or len(text) < 4:
        number, syllable = divmod(number, len(_SYLLABLES))
        text += _SYLLABLES[syllable]
    return f" {text}".encode()


def _as_ids(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(ids)


@attrs.frozen
class FakeTokenizer:
    """Ids 0 to 255 are bytes, higher ones words like `` tiba``; text is encoded as bytes alone.

    ``decode`` puts U+FFFD where bytes are no UTF-8, as byte-level tokenizers do, so half
    characters occur. Special tokens have no text.
    """

    vocab_size: int = 1000
    special_token_ids: tuple[int, ...] = attrs.field(default=(), converter=_as_ids)
    _bytes: tuple[bytes, ...] = attrs.field(init=False, repr=False, eq=False)
    _names: tuple[bytes, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        table = [bytes([byte]) for byte in range(256)]
        table += [_word(number) for number in range(self.vocab_size - 256)]
        names = table.copy()
        for special in self.special_token_ids:
            table[special], names[special] = b"", f"<|{special}|>".encode()
        object.__setattr__(self, "_bytes", tuple(table[: self.vocab_size]))
        object.__setattr__(self, "_names", tuple(names[: self.vocab_size]))

    def encode(self, text: str, /) -> list[int]:
        """Encode as UTF-8; a lone surrogate becomes a question mark."""
        return list(text.encode("utf-8", "replace"))

    def decode(self, token_ids: Sequence[int], /) -> str:
        """Join the tokens' bytes and decode them.

        Raises:
            IndexError: an id is not below ``vocab_size``.
        """
        return b"".join([self._bytes[token] for token in token_ids]).decode("utf-8", "replace")

    def decode_with_special(self, token_ids: Sequence[int], /) -> str:
        """As ``decode``; special tokens as ``<|id|>``."""
        return b"".join([self._names[token] for token in token_ids]).decode("utf-8", "replace")
