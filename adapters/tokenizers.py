"""Text and token ids through the ``tokenizers`` library."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as LibraryTokenizer

from kernel.errors import ModelError

__all__ = ["HubTokenizer"]


class HubTokenizer:
    """A tokenizer.json, as :class:`kernel.step.Tokenizer`.

    Adds no special tokens to what it encodes, and leaves special tokens out of what it decodes.
    The library's object is immutable here and safe to use from several threads.
    """

    def __init__(self, library: LibraryTokenizer) -> None:
        self._library = library
        # Ids may have gaps, so the number of tokens doesn't bound them.
        ids = library.get_vocab(with_added_tokens=True).values()
        self._vocab_size = max(ids, default=-1) + 1

    @classmethod
    def load(cls, path: Path) -> "HubTokenizer":
        """Read a tokenizer.json.

        Raises:
            ModelError: the file is missing or isn't a tokenizer.
        """
        try:
            return cls(LibraryTokenizer.from_str(path.read_text(encoding="utf-8")))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{path} can't be read as a tokenizer: {error}") from error

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    def encode(self, text: str, /) -> list[int]:
        return self._library.encode(text, add_special_tokens=False).ids

    def decode(self, token_ids: Sequence[int], /) -> str:
        return self._library.decode(list(token_ids), skip_special_tokens=True)
