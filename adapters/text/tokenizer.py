"""Text and token ids through the ``tokenizers`` library."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as LibraryTokenizer

from adapters.text.byte_fallback import ByteFallbackDecoder, find_byte_tokens
from adapters.text.errors import TokenizerError

__all__ = ["HubTokenizer"]

_FOLLOWED = ("\n", "a", "0", ".", "|")
"""What text may be said to follow; the first that no tokenizer rule joins with it is taken."""


class HubTokenizer:
    """A tokenizer.json, as :class:`kernel.step.Tokenizer`.

    ``encode`` adds no special tokens, ``decode`` leaves them out. What the post-processor puts
    before a text is told separately (``opening_ids``), because only a text at the start of a
    token log may have it. The library's object is not changed after the constructor, and is safe
    to use from several threads.
    """

    def __init__(self, library: LibraryTokenizer) -> None:
        # Both would cut or lengthen a prompt in silence; files carry what their training used.
        library.no_truncation()
        library.no_padding()
        self._library = library
        # Ids may have gaps, so the number of tokens doesn't bound them.
        ids = library.get_vocab(with_added_tokens=True).values()
        self._vocab_size = max(ids, default=-1) + 1
        self._opening_ids = _opening_ids(library)
        byte_tokens = find_byte_tokens(library)
        self._by_bytes = ByteFallbackDecoder(library, byte_tokens) if byte_tokens else None

    @classmethod
    def load(cls, path: Path, special_tokens: Sequence[AddedToken] = ()) -> "HubTokenizer":
        """Read a tokenizer.json.

        Args:
            path: the file.
            special_tokens: tokens that the files beside it name; those that the tokenizer lacks
                are added after its last id, as transformers does.

        Raises:
            TokenizerError: the file is missing or isn't a tokenizer.
        """
        try:
            library = LibraryTokenizer.from_str(path.read_text(encoding="utf-8"))
            known = library.get_added_tokens_decoder().values()
            names = {token.content for token in known}
            missing = [token for token in special_tokens if token.content not in names]
            if missing:
                library.add_tokens(missing)  # pyright: ignore[reportUnknownMemberType]  # a bare list
            return cls(library)
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"{path} can't be read as a tokenizer: {error}") from error

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return self._vocab_size

    @property
    def library(self) -> LibraryTokenizer:
        """The library's object; not to be changed."""
        return self._library

    @property
    def opening_ids(self) -> tuple[int, ...]:
        """What the post-processor puts before a text, as a rule one token or none."""
        return self._opening_ids

    def to_json(self) -> str:
        """The text of a tokenizer.json that says the same."""
        return self._library.to_str()

    def encode(self, text: str, /) -> list[int]:
        return self._library.encode(text, add_special_tokens=False).ids

    def encode_after_text(self, text: str) -> list[int]:
        """Encode text that does not stand at the beginning.

        Some tokenizers put a space before the first word of whatever they are given; here there
        is no first word.
        """
        for before in _FOLLOWED:
            start = self.encode(before)
            ids = self.encode(before + text)
            if ids[: len(start)] == start:
                return ids[len(start) :]
        return self.encode(text)

    def decode(self, token_ids: Sequence[int], /) -> str:
        return self._decode(token_ids, skip_special=True)

    def decode_with_special(self, token_ids: Sequence[int], /) -> str:
        """The text of all tokens, special ones by name."""
        return self._decode(token_ids, skip_special=False)

    def _decode(self, token_ids: Sequence[int], *, skip_special: bool) -> str:
        if self._by_bytes is not None:
            return self._by_bytes.decode(token_ids, skip_special=skip_special)
        return self._library.decode(list(token_ids), skip_special_tokens=skip_special)

    def id_of(self, token: str) -> int | None:
        """The id of a token by its name."""
        found: int | None = self._library.token_to_id(token)
        return found


def _opening_ids(library: LibraryTokenizer) -> tuple[int, ...]:
    """What stands before the plain ids of a text once special tokens are added."""
    plain = library.encode("a", add_special_tokens=False).ids
    full = library.encode("a", add_special_tokens=True).ids
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return tuple(full[:start])
    return ()
