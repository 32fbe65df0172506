"""The tokens of a GGUF file, as its metadata lists them."""

from collections.abc import Sequence
from typing import cast

import attrs
from tokenizers import AddedToken

from adapters.models.gguf.errors import UnsupportedVocabulary
from adapters.models.gguf.header import Value
from adapters.models.gguf.metadata import Metadata

__all__ = ["Vocabulary", "read_vocabulary"]

_UNDER = "tokenizer.ggml."
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
_NORMAL = 1
_NAMES = {
    "bos_token_id": "bos_token",
    "eos_token_id": "eos_token",
    "unknown_token_id": "unk_token",
    "padding_token_id": "pad_token",
    "seperator_token_id": "sep_token",  # the format's own spelling
    "mask_token_id": "mask_token",
}


@attrs.frozen(eq=False)
class Vocabulary:
    """Tokens, and what is known of them."""

    model: str
    """``"gpt2"``: byte-level pairs. ``"llama"``: SentencePiece's."""
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    metadata: Metadata

    @property
    def ids(self) -> dict[str, int]:
        """Ids by token, without those that only fill the embedding up."""
        return {
            token: number
            for number, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True))
            if kind != _UNUSED
        }

    @property
    def added(self) -> list[AddedToken]:
        """Tokens that are found in a text before it is cut: control tokens and those of users."""
        return [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(self.tokens, self.types, strict=True)
            if kind in (_CONTROL, _USER_DEFINED) and token
        ]

    @property
    def named(self) -> dict[str, str]:
        """``bos_token`` and the like to their texts."""
        found: dict[str, str] = {}
        for key, name in _NAMES.items():
            number = self._number(key)
            if number is not None:
                found[name] = self.tokens[number]
        return found

    @property
    def bos(self) -> tuple[str, int] | None:
        """Beginning of sequence: token and id."""
        number = self._number("bos_token_id")
        return None if number is None else (self.tokens[number], number)

    def flag(self, name: str, default: bool) -> bool:
        """``add_bos_token`` and the like."""
        value = self.metadata.value(f"{_UNDER}{name}")
        return value if isinstance(value, bool) else default

    def text(self, name: str, default: str) -> str:
        """``pre`` and the like."""
        value = self.metadata.value(f"{_UNDER}{name}")
        return value if isinstance(value, str) else default

    def _number(self, key: str) -> int | None:
        value = self.metadata.value(f"{_UNDER}{key}")
        return value if type(value) is int and 0 <= value < len(self.tokens) else None


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Read the tokens.

    Raises:
        UnsupportedVocabulary: the file has none, or its lists don't fit together.
    """
    model, tokens = metadata.value(f"{_UNDER}model"), metadata.value(f"{_UNDER}tokens")
    if not isinstance(model, str) or not isinstance(tokens, tuple):
        raise UnsupportedVocabulary(
            f"{metadata.where} has no tokenizer ({_UNDER}model and {_UNDER}tokens): convert it"
            " again, with its vocabulary"
        )
    count = len(tokens)
    return Vocabulary(
        model=model,
        tokens=cast("Sequence[str]", tokens),
        types=cast("Sequence[int]", _list(metadata, "token_type", (_NORMAL,) * count, count)),
        scores=cast("Sequence[float]", _list(metadata, "scores", (0.0,) * count, count)),
        merges=cast("Sequence[str]", _list(metadata, "merges", ())),
        metadata=metadata,
    )


def _list(
    metadata: Metadata, name: str, default: tuple[Value, ...], count: int | None = None
) -> tuple[Value, ...]:
    value = metadata.value(f"{_UNDER}{name}")
    if value is None:
        return default
    if not isinstance(value, tuple) or (count is not None and len(value) != count):
        raise UnsupportedVocabulary(
            f"{metadata.where}: {_UNDER}{name} doesn't fit the {count} tokens; convert it again"
        )
    return value
