"""The text side of a model directory: its tokenizer, its chat format, its special tokens."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from adapters.text.chat_format import TemplateChatFormat
from adapters.text.errors import TokenizerMissing
from adapters.text.special_tokens import SpecialTokens, read_special_tokens
from adapters.text.template import ChatTemplate
from adapters.text.template_files import read_templates
from adapters.text.tokenizer import HubTokenizer

__all__ = ["ModelText", "make_text", "open_text"]

_TOKENIZER_FILE = "tokenizer.json"
_OTHERS = (
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "tekken.json",
    "vocab.txt",
    "spiece.model",
)


@attrs.frozen
class ModelText:
    """What a model directory says about text."""

    tokenizer: HubTokenizer
    chat: TemplateChatFormat | None
    """``None``: the directory has no chat template."""
    special_tokens: SpecialTokens

    @property
    def opening_ids(self) -> tuple[int, ...]:
        """What a text at the start of a log begins with."""
        return self.tokenizer.opening_ids

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """The tokenizer's own end of sequence; a model's configuration may name others."""
        name = self.special_tokens.named.get("eos_token")
        token = None if name is None else self.tokenizer.id_of(name)
        return () if token is None else (token,)


def open_text(directory: Path) -> ModelText:
    """Read tokenizer.json and what lies beside it; templates are compiled when they are used.

    Raises:
        TokenizerMissing: there is no tokenizer.json.
        TokenizerError: a file is damaged.
    """
    path = directory / _TOKENIZER_FILE
    if not path.is_file():
        found = [name for name in _OTHERS if (directory / name).is_file()]
        has = f"only {', '.join(found)}" if found else "no tokenizer at all"
        raise TokenizerMissing(
            f"{directory} has no {_TOKENIZER_FILE} ({has}); write one with transformers:"
            " AutoTokenizer.from_pretrained(directory).save_pretrained(directory)"
        )
    special = read_special_tokens(directory)
    tokenizer = HubTokenizer.load(path, special.added)
    return make_text(tokenizer, special, read_templates(directory), name=directory.name)


def make_text(
    tokenizer: HubTokenizer, special: SpecialTokens, templates: Mapping[str, str], *, name: str
) -> ModelText:
    """Put together what was read from files of any form.

    Args:
        tokenizer: the model's.
        special: its special tokens by name.
        templates: chat templates by name; ``"default"`` is the usual one.
        name: the model's, for errors.
    """
    compiled = {
        key: ChatTemplate(source, f"the chat template {key!r} of {name}", special.named)
        for key, source in templates.items()
    }
    chat = TemplateChatFormat(compiled, tokenizer) if compiled else None
    return ModelText(tokenizer, chat, special)
