"""A model as it lies on disk: a directory, or a GGUF file."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import attrs

from adapters.models.config_reader import ConfigReader
from adapters.models.directory import model_path, open_store, refuse_quantized
from adapters.models.generation_config import (
    NO_DEFAULTS,
    GenerationDefaults,
    read_generation_config,
)
from adapters.models.gguf.reader import SUFFIX, find_gguf, open_gguf
from adapters.models.gguf.text import open_gguf_text
from adapters.models.store import TensorStore
from adapters.text.opening import ModelText, open_text

__all__ = ["ModelSource", "open_source"]


@attrs.frozen(eq=False)
class ModelSource:
    """What is read before the weights, and how these are opened."""

    path: Path
    config: ConfigReader
    open_store: Callable[[], TensorStore]
    """The caller closes it."""
    open_text: Callable[[], ModelText]
    read_generation: Callable[[int], GenerationDefaults]
    """Its argument is the size of the model's vocabulary."""


@contextmanager
def open_source(model: str) -> Generator[ModelSource]:
    """Find a model and read its configuration; nothing of it is open when the context ends.

    Raises:
        ModelError: there is none, or its configuration is missing or damaged.
    """
    path = model_path(model, files=(SUFFIX,))
    file = find_gguf(path)
    if file is None:
        config = ConfigReader.load(path)
        refuse_quantized(config)
        yield ModelSource(
            path,
            config,
            open_store=lambda: open_store(path),
            open_text=lambda: open_text(path),
            read_generation=lambda size: read_generation_config(path, vocab_size=size),
        )
        return
    opened = open_gguf(file)
    try:
        yield ModelSource(
            file,
            opened.config,
            open_store=lambda: opened.store,
            open_text=lambda: open_gguf_text(opened),
            read_generation=lambda _size: NO_DEFAULTS,
        )
    finally:
        opened.store.close()
