"""How the tensors of a GGUF file become those that a family asks for.

An architecture lists what it has as entries: a name in Hugging Face's layout, the tensors of the
file that it is made of, and how. An entry whose tensors aren't in the file doesn't exist. Tensors
of the file that no entry names keep their own names, so that the loader finds and names them as
extra.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs
from torch import Tensor

from adapters.models.gguf.metadata import Metadata

__all__ = ["Architecture", "Entry", "Layout", "Recipe", "Source", "modules", "recipes"]

Make = Callable[..., Tensor]
"""Tensors of the file, in order, to one tensor of the model; must work on meta tensors."""
_SUFFIXES = ("weight", "bias")
_EXPERT = "{expert}"


@attrs.frozen
class Entry:
    """One tensor of the model, or one for each expert where the name has ``{expert}`` in it."""

    name: str
    sources: tuple[str, ...]
    make: Make | None = None
    """``None``: as it is."""


@attrs.frozen
class Layout:
    """All tensors of an architecture."""

    prefix: str
    """Of layers, their number not included: ``"model.layers."``."""
    whole: tuple[Entry, ...]
    """Outside of layers."""
    layer: tuple[Entry, ...]
    """Of each layer, without ``blk.N.`` and without ``prefix`` and number."""
    unused: tuple[str, ...] = ()
    """Tensors of the file that are read elsewhere, if at all (whole names)."""


@attrs.frozen
class Architecture:
    """What the reader knows of one architecture."""

    names: tuple[str, ...]
    """Values of ``general.architecture``."""
    config: Callable[[Metadata], dict[str, object]]
    """config.json as the family reads it, without what all architectures have."""
    layout: Callable[[Metadata], Layout]


@attrs.frozen
class Source:
    """A tensor of the file, or one expert's part of it."""

    name: str
    expert: int | None = None


@attrs.frozen
class Recipe:
    """Where a tensor of the model comes from."""

    sources: tuple[Source, ...]
    make: Make | None


def modules(names: Mapping[str, str], make: Make | None = None) -> tuple[Entry, ...]:
    """Entries for the weights and biases of modules, names in the file to names in the model."""
    return tuple(
        Entry(f"{ours}.{suffix}", (f"{theirs}.{suffix}",), make)
        for theirs, ours in names.items()
        for suffix in _SUFFIXES
    )


def recipes(layout: Layout, metadata: Metadata) -> dict[str, Recipe]:
    """The recipe of every tensor that the file can give, by the name that a family asks for."""
    found: dict[str, Recipe] = {}
    tensors = metadata.header.tensors
    for layer, entry in _all(layout, metadata.layers):
        sources = tuple(f"{layer}{source}" for source in entry.sources)
        if not all(source in tensors for source in sources):
            continue
        prefix = layer.replace("blk.", layout.prefix)
        if _EXPERT not in entry.name:
            found[f"{prefix}{entry.name}"] = Recipe(_whole(sources), entry.make)
            continue
        for expert in range(tensors[sources[0]].shape[0]):
            parts = tuple(Source(source, expert) for source in sources)
            name = entry.name.replace(_EXPERT, str(expert))
            found[f"{prefix}{name}"] = Recipe(parts, entry.make)
    used = {source.name for recipe in found.values() for source in recipe.sources}
    beyond = tuple(f"blk.{block}." for block in range(metadata.layers, metadata.blocks))
    for name in tensors:
        if name not in used and name not in layout.unused and not name.startswith(beyond):
            found.setdefault(name, Recipe(_whole((name,)), None))
    return found


def _all(layout: Layout, layers: int) -> Iterable[tuple[str, Entry]]:
    yield from (("", entry) for entry in layout.whole)
    yield from ((f"blk.{number}.", entry) for number in range(layers) for entry in layout.layer)


def _whole(sources: Sequence[str]) -> tuple[Source, ...]:
    return tuple(Source(name) for name in sources)
