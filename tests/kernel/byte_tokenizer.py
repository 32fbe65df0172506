"""A tokenizer whose tokens are any bytes, and ways to cut text into such tokens."""

from collections.abc import Sequence
from itertools import pairwise

import attrs
from hypothesis import strategies as st


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
        raise NotImplementedError  # Only text is made here: a call is a fault of the test.

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
    return [data[a:b] for a, b in pairwise(edges) if data[a:b]]
