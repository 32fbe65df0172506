"""JSON files of a model directory, read with errors that name the file."""

import json
from pathlib import Path
from typing import cast

from adapters.text.errors import TokenizerError

__all__ = ["read_json_object"]


def read_json_object(path: Path) -> dict[str, object]:
    """The object in a file; empty when there is no such file.

    Raises:
        TokenizerError: it can't be read, or isn't a JSON object.
    """
    if not path.is_file():
        return {}
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} can't be read: {error}; download it again") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds a {type(value).__name__}, and no JSON object")
    return cast("dict[str, object]", value)
