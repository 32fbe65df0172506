"""Characters that a vocabulary lacks, as tokens of their bytes: decoded one by one.

SentencePiece vocabularies (Llama 2, Mistral, Gemma) write such a character as ``<0xF0><0x9F>...``.
The ``tokenizers`` library decodes a run of byte tokens as one: if it is not UTF-8 as a whole, each
of its bytes becomes U+FFFD, those of whole characters too. While a second emoji is being generated
the first one would turn into rubbish again, after it was sent. Here a broken run is decoded as
byte-level tokenizers decode it: whole characters stay, and only what is broken is replaced. Runs
that are UTF-8 are left to the library.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import cast

from tokenizers import Tokenizer as LibraryTokenizer

__all__ = ["ByteFallbackDecoder", "find_byte_tokens"]

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def find_byte_tokens(library: LibraryTokenizer) -> dict[int, int]:
    """The bytes by token id; empty when the tokenizer's decoder knows no byte tokens."""
    if '"ByteFallback"' not in json.dumps(json.loads(library.to_str()).get("decoder")):
        return {}
    vocabulary = library.get_vocab(with_added_tokens=True)
    return {
        token: int(match[1], 16)
        for name, token in vocabulary.items()
        if (match := _BYTE.fullmatch(name))
    }


class ByteFallbackDecoder:
    """Decodes ids among which there may be byte tokens."""

    def __init__(self, library: LibraryTokenizer, byte_tokens: dict[int, int]) -> None:
        self._library = library
        self._bytes = byte_tokens
        added = library.get_added_tokens_decoder()
        self._special = frozenset(token for token, known in added.items() if known.special)

    def decode(self, token_ids: Sequence[int], *, skip_special: bool) -> str:
        """The text of some tokens."""
        ids = [token for token in token_ids if not (skip_special and token in self._special)]
        if self._bytes.keys().isdisjoint(ids):
            return self._library.decode(ids, skip_special_tokens=False)
        parts = list(self._parts(ids))
        if not any("\ufffd" in text for text, is_run in parts if is_run):
            return self._library.decode(ids, skip_special_tokens=False)
        return cast("str", self._library.decoder.decode([text for text, _ in parts]))

    def _parts(self, ids: Sequence[int]) -> Iterator[tuple[str, bool]]:
        """Tokens by name, and each run of byte tokens as its text."""
        for is_run, tokens in groupby(ids, key=self._bytes.__contains__):
            if is_run:
                data = bytes(self._bytes[token] for token in tokens)
                yield data.decode("utf-8", "replace"), True
            else:
                for token in tokens:
                    name = self._library.id_to_token(token)
                    if name is not None:
                        yield name, False
