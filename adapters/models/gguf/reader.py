"""Open a GGUF file as a model: a configuration, a store, and what its metadata says of text."""

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import BinaryIO

import attrs

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import DamagedWeights, ModelFileMissing
from adapters.models.gguf import architectures
from adapters.models.gguf.errors import UnsupportedArchitecture
from adapters.models.gguf.header import Header, read_header
from adapters.models.gguf.layout import Architecture, Recipe, Source, recipes
from adapters.models.gguf.metadata import Metadata
from adapters.models.gguf.store import GgufStore
from kernel.errors import TenureError

__all__ = ["SUFFIX", "GgufModel", "find_gguf", "known_architectures", "open_gguf"]

SUFFIX = ".gguf"
_WHOLE_TYPES = {"F32": "float32", "F16": "float16"}
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
_SPLIT = "split.count"
_MISFITS = (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError)
"""What sizes of zero and shapes that nobody could mean come to, where tables are worked out."""


@attrs.frozen(eq=False)
class GgufModel:
    """An open file; the caller closes the store."""

    path: Path
    metadata: Metadata
    config: ConfigReader
    """As config.json would be."""
    store: GgufStore


def find_gguf(path: Path) -> Path | None:
    """The GGUF file that a path means: itself, or the only one in a directory without config.json.

    Raises:
        ModelFileMissing: the directory has several.
    """
    if path.is_file():
        return path if path.name.endswith(SUFFIX) else None
    if (path / "config.json").is_file():
        return None
    found = sorted(path.glob(f"*{SUFFIX}"))
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:3])
        raise ModelFileMissing(
            f"{path} has {len(found)} GGUF files ({names}, ...): name the one to open"
        )
    return found[0] if found else None


def open_gguf(path: Path) -> GgufModel:
    """Read a file's header and check it; no numbers are read yet.

    Raises:
        GgufNotInstalled: the ``gguf`` package is missing.
        DamagedWeights: it is no GGUF file, or cut short, or what it says of itself doesn't fit.
        UnsupportedArchitecture: its architecture isn't read here.
        MetadataMissing: a key that the architecture needs isn't there, or is of a wrong type.
        UnsupportedQuantization: a tensor is quantised in a way that can't be undone.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise DamagedWeights(f"{path} can't be opened: {error.strerror}") from error
    try:
        return _opened(file, path)
    except BaseException as error:
        file.close()
        if isinstance(error, TenureError) or not isinstance(error, _MISFITS):
            raise
        why = f"its metadata and its tensors don't fit together ({error}); convert it again"
        raise DamagedWeights(f"{path}: {why}") from error


def _opened(file: BinaryIO, path: Path) -> GgufModel:
    header = read_header(file, path)
    metadata = Metadata(header, path.name, lambda name: _numbers(file, path, header, name))
    architecture = _architecture(metadata)
    config = ConfigReader(_config(metadata, architecture), where=f"{path.name} (metadata)")
    made = recipes(architecture.layout(metadata), metadata)
    return GgufModel(path, metadata, config, GgufStore(file, path, header.tensors, made))


def _numbers(file: BinaryIO, path: Path, header: Header, name: str) -> list[float]:
    store = GgufStore(file, path, header.tensors, {name: Recipe((Source(name),), None)})
    return [float(number) for number in store.read(name).reshape(-1)]


@cache
def _architectures() -> dict[str, Architecture]:
    found: dict[str, Architecture] = {}
    for module in pkgutil.iter_modules(architectures.__path__):
        known: Architecture = importlib.import_module(
            f"{architectures.__name__}.{module.name}"
        ).ARCHITECTURE
        found |= dict.fromkeys(known.names, known)
    return found


def known_architectures() -> list[str]:
    """All that can be read, in order of the alphabet."""
    return sorted(_architectures())


def _architecture(metadata: Metadata) -> Architecture:
    parts = metadata.value(_SPLIT)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedArchitecture(
            f"{metadata.where} is one of {parts} files: join them first (llama-gguf-split --merge)"
        )
    found = _architectures().get(metadata.architecture)
    if found is None:
        known = ", ".join(known_architectures())
        raise UnsupportedArchitecture(
            f"{metadata.where}: architecture {metadata.architecture!r} isn't read; known: {known}"
        )
    return found


def _config(metadata: Metadata, architecture: Architecture) -> dict[str, object]:
    """What all architectures have, and what this one adds."""
    ends = [metadata.value(f"tokenizer.ggml.{name}") for name in _ENDS]
    return {
        **architecture.config(metadata),
        "vocab_size": metadata.rows("token_embd.weight"),
        "tie_word_embeddings": not metadata.has_tensor("output.weight"),
        "eos_token_id": list(dict.fromkeys(end for end in ends if end is not None)),
        "bos_token_id": metadata.value("tokenizer.ggml.bos_token_id"),
        "dtype": _stored_type(metadata.header),
    }


def _stored_type(header: Header) -> str:
    """The number type that most of the file's bytes are worth: bfloat16 for quantised ones."""
    sizes: dict[str, int] = {}
    for placed in header.tensors.values():
        sizes[placed.kind.name] = sizes.get(placed.kind.name, 0) + placed.num_bytes
    most = max(sizes, key=lambda name: sizes[name], default="F32")
    return _WHOLE_TYPES.get(most, "bfloat16")
