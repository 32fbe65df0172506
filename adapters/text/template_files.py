"""Where a model directory keeps its chat templates, and which of several is meant."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from adapters.text.errors import TokenizerError
from adapters.text.json_files import read_json_object

__all__ = ["DEFAULT", "TOOL_USE", "read_templates"]

DEFAULT = "default"
TOOL_USE = "tool_use"
"""The name of the template that is taken, where there is one, when tools are given."""


def read_templates(directory: Path) -> dict[str, str]:
    """The chat templates of a directory by name; empty when it has none.

    A file of its own wins over the entry in tokenizer_config.json, as in transformers:
    chat_template.jinja, then chat_template.json (of processors), then the entry.

    Raises:
        TokenizerError: a file is damaged, or an entry is no template.
    """
    found: dict[str, str] = {}
    config = directory / "tokenizer_config.json"
    for path in (config, directory / "chat_template.json"):
        found.update(_named(path, read_json_object(path).get("chat_template")))
    single = directory / "chat_template.jinja"
    if single.is_file():
        # A single file stands for all: the entry's other templates belong to the entry.
        found = {DEFAULT: _text(single)}
    extra = directory / "additional_chat_templates"
    if extra.is_dir():
        found.update((path.stem, _text(path)) for path in sorted(extra.glob("*.jinja")))
    return found


def _named(path: Path, value: object) -> Mapping[str, str]:
    """A template as text, as a list of ``{"name", "template"}``, or as an object by name."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {DEFAULT: value}
    named: dict[object, object] = {}
    if isinstance(value, dict):
        named = cast("dict[object, object]", value)
    elif isinstance(value, list):
        for entry in cast("list[object]", value):
            if isinstance(entry, dict):
                fields = cast("dict[str, object]", entry)
                named[fields.get("name")] = fields.get("template")
    found = {
        name: template
        for name, template in named.items()
        if isinstance(name, str) and isinstance(template, str)
    }
    if not found or len(found) != len(cast("list[object]", value)):
        shown = json.dumps(value)[:80]
        raise TokenizerError(f"{path}: chat_template is {shown}; it must be a text, or named texts")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TokenizerError(f"{path} can't be read: {error}; download it again") from error
