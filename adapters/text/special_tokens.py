"""The special tokens that tokenizer_config.json and special_tokens_map.json name."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import attrs
from tokenizers import AddedToken

from adapters.text.errors import TokenizerError
from adapters.text.json_files import read_json_object

__all__ = ["SpecialTokens", "read_special_tokens"]

_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_DIGITS = 20
"""Fewer are in every id."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@attrs.frozen
class SpecialTokens:
    """What the files beside a tokenizer.json say of its special tokens."""

    named: Mapping[str, str]
    """``bos_token`` and the like, to the token's text; templates see them under these names."""
    added: tuple[AddedToken, ...]
    """Tokens that the tokenizer should know, in the order of their ids."""


def read_special_tokens(directory: Path) -> SpecialTokens:
    """Read both files; tokenizer_config.json wins where they differ.

    Raises:
        TokenizerError: a file is damaged, or an entry is neither text nor a token.
    """
    named: dict[str, str] = {}
    added: dict[str, AddedToken] = {}
    config_path = directory / "tokenizer_config.json"
    config = read_json_object(config_path)
    for token in _numbered(config_path, config.get("added_tokens_decoder")):
        added[token.content] = token
    for path in (directory / "special_tokens_map.json", config_path):
        entries = config if path == config_path else read_json_object(path)
        for name in (*_NAMES, "extra_special_tokens", "additional_special_tokens"):
            value = entries.get(name)
            if name in _NAMES:
                tokens = [] if value is None else [_token(path, name, value)]
                named.update((name, token.content) for token in tokens)
            else:
                tokens = _several(path, name, value, named)
            for token in tokens:
                added.setdefault(token.content, token)
    return SpecialTokens(named, tuple(added.values()))


def _numbered(path: Path, value: object) -> list[AddedToken]:
    """The tokens of ``added_tokens_decoder``, by id."""
    if value is None:
        return []
    if not isinstance(value, dict):
        raise _unreadable(path, "added_tokens_decoder", value)
    entries = cast("dict[str, object]", value)
    if not all(number.isdecimal() and len(number) < _DIGITS for number in entries):
        raise _unreadable(path, "added_tokens_decoder", list(entries)[:5])
    return [
        _token(path, "added_tokens_decoder", entries[number], special=False)
        for number in sorted(entries, key=int)
    ]


def _several(path: Path, name: str, value: object, named: dict[str, str]) -> list[AddedToken]:
    """A list of tokens, or tokens by names of the model's own (which templates see, too)."""
    if value is None:
        return []
    if isinstance(value, dict):
        tokens: list[AddedToken] = []
        for key, entry in cast("dict[str, object]", value).items():
            token = _token(path, f"{name}.{key}", entry)
            named[key] = token.content
            tokens.append(token)
        return tokens
    if isinstance(value, list):
        return [_token(path, name, entry) for entry in cast("list[object]", value)]
    raise _unreadable(path, name, value)


def _token(path: Path, name: str, value: object, *, special: bool = True) -> AddedToken:
    """A token as text, or as an object with ``content`` and flags."""
    given = value
    if isinstance(value, str):
        return AddedToken(value, special=True, normalized=False)
    entry = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    content = entry.get("content")
    if not isinstance(content, str):
        raise _unreadable(path, name, given)
    flags = {flag: bool(entry[flag]) for flag in _FLAGS if flag in entry}
    return AddedToken(content, **{"special": special, **flags})


def _unreadable(path: Path, name: str, value: object) -> TokenizerError:
    return TokenizerError(f"{path}: {name} is {value!r}; it must be a token's text, or its object")
