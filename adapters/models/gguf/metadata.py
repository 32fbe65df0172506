"""A GGUF file's metadata, asked for by key and type."""

from collections.abc import Callable, Sequence

import attrs

from adapters.models.gguf.errors import MetadataMissing
from adapters.models.gguf.header import Header, Value

__all__ = ["Metadata"]


@attrs.frozen(eq=False)
class Metadata:
    """Metadata and tensors' shapes; keys without a dot in front are under the architecture's."""

    header: Header
    where: str
    """How messages call the file."""
    numbers_of: Callable[[str], Sequence[float]]
    """The numbers of a small tensor that says more about the model than a key does."""

    @property
    def architecture(self) -> str:
        return self.text("general.architecture", whole=True)

    @property
    def blocks(self) -> int:
        """All blocks, those that predict further tokens (multi-token prediction) included."""
        count, most = self.integer("block_count"), len(self.header.tensors)
        if not 1 <= count <= most:
            # Each has a tensor: a number that is a lie must not be counted up to.
            raise self._wrong("block_count", count, f"from 1 to {most}, the number of tensors")
        return count

    @property
    def layers(self) -> int:
        """The model's own layers."""
        blocks, further = self.blocks, self.integer("nextn_predict_layers", 0)
        if not 0 <= further < blocks:
            raise self._wrong("nextn_predict_layers", further, f"less than {blocks}, all blocks")
        return blocks - further

    def value(self, key: str) -> Value | None:
        """Any value by its whole key."""
        return self.header.metadata.get(key)

    def has(self, name: str) -> bool:
        """Whether the architecture has such a key."""
        return self._key(name) in self.header.metadata

    def integer(self, name: str, default: int | None = None) -> int:
        value = self._get(name, default)
        if type(value) is not int:
            raise self._wrong(name, value, "a whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(name, value, "a number")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def text(self, name: str, *, whole: bool = False) -> str:
        """A text; ``whole``: under this very key."""
        value = self.header.metadata.get(name) if whole else self._get(name, None)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text", whole=whole)
        return value

    def per_layer(self, name: str, default: int | None = None) -> tuple[int, ...]:
        """A number for each layer; one for all stands for each."""
        value = self._get(name, default)
        if type(value) is int:
            return (value,) * self.layers
        if isinstance(value, tuple) and len(value) == self.blocks:
            numbers = tuple(item for item in value if type(item) is int)
            if len(numbers) == self.blocks:
                return numbers[: self.layers]
        raise self._wrong(name, value, f"a whole number, or {self.blocks} of them")

    def has_tensor(self, name: str) -> bool:
        return name in self.header.tensors

    def any_layer(self, name: str) -> bool:
        """Whether a layer has a tensor of this name."""
        return any(f"blk.{layer}.{name}" in self.header.tensors for layer in range(self.layers))

    def layers_with(self, name: str) -> list[int]:
        """The layers that have such a tensor."""
        return [layer for layer in range(self.layers) if self.has_tensor(f"blk.{layer}.{name}")]

    def rows(self, *names: str) -> int:
        """Rows of the first of these tensors that is there (whole names, or those of a layer)."""
        for name in names:
            for full in (name, *(f"blk.{layer}.{name}" for layer in range(self.layers))):
                placed = self.header.tensors.get(full)
                if placed is not None and placed.shape:
                    return placed.shape[-2 if len(placed.shape) > 1 else 0]
        raise MetadataMissing(f"{self.where} has no tensor {names[0]}, which tells a size")

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def _get(self, name: str, default: Value | None) -> Value | None:
        return self.header.metadata.get(self._key(name), default)

    def _wrong(
        self, name: str, value: Value | None, right: str, *, whole: bool = False
    ) -> MetadataMissing:
        key = name if whole else self._key(name)
        if value is None:
            return MetadataMissing(f"{self.where} lacks {key} in its metadata: convert it again")
        return MetadataMissing(f"{self.where}: {key} must be {right}, not {value!r:.80}")
