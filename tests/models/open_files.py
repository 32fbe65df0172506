"""Which weights files this process has open right now."""

import os
from pathlib import Path

import pytest

__all__ = ["LISTS_OPEN_FILES", "open_weights"]

_LIST = Path("/proc/self/fd")
LISTS_OPEN_FILES = pytest.mark.skipif(
    not _LIST.exists(), reason="looks at the list of open files that Linux keeps"
)


def open_weights() -> set[str]:
    """Paths of open safetensors files; nothing is collected first."""
    found: set[str] = set()
    for number in os.listdir(_LIST):
        try:
            target = os.readlink(_LIST / number)
        except FileNotFoundError:
            continue  # the list itself was open while it was read
        if "safetensors" in target:
            found.add(target)
    return found
