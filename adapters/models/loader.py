"""What a family asks for its tensors: checked as a whole first, then read one at a time.

A family's ``build`` runs twice. The first time matrices are meta tensors and vectors are zeros
that take no memory, and the asking is recorded; the record is compared with the store's facts, so
that a missing, extra, misshapen or mistyped tensor is an error before a number is read. The second
time it gets the tensors themselves, each converted and moved on its own, so that at no moment more
than one is held twice.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

import attrs
import torch
from torch import Tensor

from adapters.models.errors import ExtraTensor, MisshapenTensor, MissingTensor, MistypedTensor
from adapters.models.precision import Precision
from adapters.models.store import TORCH_NAMES, TensorFacts, TensorStore
from adapters.models.stream import TensorStream

__all__ = ["Asked", "TensorLoader"]

_NOT_FLOATS = ("I8", "I16", "I32", "I64", "U", "BOOL", "C64", "F8_", "F6_", "F4")
"""Beginnings of the names of number types that aren't weights as they are."""
_SHOWN = 5


@attrs.define(eq=False)
class Asked:
    """What a family asked for: shapes by name, and names that it leaves alone."""

    shapes: dict[str, tuple[int, ...]] = attrs.field(factory=dict[str, tuple[int, ...]])
    skipped: list[str] = attrs.field(factory=list[str])
    num_bytes: int = 0
    """That the tensors take on the device, in the types of the model."""
    fingerprint: str = ""
    """Of the model, once it is loaded."""

    @property
    def num_parameters(self) -> int:
        """Numbers in all tensors together."""
        return sum(torch.Size(shape).numel() for shape in self.shapes.values())

    def check(self, stored: Mapping[str, TensorFacts]) -> None:
        """Compare with what a store has.

        Raises:
            MissingTensor, MisshapenTensor, MistypedTensor, ExtraTensor: names the tensors.
        """
        missing = [name for name in self.shapes if name not in stored]
        if missing:
            first = list(self.shapes[missing[0]])
            raise MissingTensor(f"the weights lack {missing[0]} {first}{_others(missing)}")
        for name, shape in self.shapes.items():
            facts = stored[name]
            if facts.shape != shape:
                raise MisshapenTensor(f"{name} is {list(facts.shape)}, not {list(shape)}")
            if facts.dtype.startswith(_NOT_FLOATS):
                raise MistypedTensor(
                    f"{name} holds {_spelled(facts.dtype)}, not floating-point numbers; use the"
                    " weights as they were before they were quantised"
                )
        extra = [name for name in stored if name not in self.shapes and not self._skips(name)]
        if extra:
            raise ExtraTensor(
                f"the weights have {extra[0]} {list(stored[extra[0]].shape)}{_others(extra)}, which"
                " config.json gives no place to; they don't belong together"
            )

    def _skips(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.skipped)


def _spelled(dtype: str) -> str:
    known = [
        str(kind).removeprefix("torch.") for kind, name in TORCH_NAMES.items() if name == dtype
    ]
    return f"{dtype} ({known[0]})" if known else dtype


def _others(names: list[str]) -> str:
    rest = names[1:]
    if not rest:
        return ""
    shown = ", ".join(rest[: _SHOWN - 1])
    return f" (and {len(rest)} more: {shown}{', ...' if len(rest) >= _SHOWN else ''})"


@attrs.frozen(eq=False)
class TensorLoader:
    """Gives a family its tensors by name, in the types and on the device of the model."""

    store: TensorStore
    precision: Precision
    device: torch.device
    """``meta`` while the names and shapes are checked."""
    asked: Asked = attrs.field(factory=Asked)
    prefix: str = ""
    stream: TensorStream = attrs.field(
        default=attrs.Factory(lambda self: TensorStream(self.store), takes_self=True)
    )
    """Copies what is read; counts and hashes it where that is wanted."""

    def under(self, prefix: str) -> "TensorLoader":
        """The same, for names that begin with ``prefix`` (dot included)."""
        return attrs.evolve(self, prefix=self.prefix + prefix)

    def has(self, name: str) -> bool:
        """Whether the store has such a tensor."""
        return self.prefix + name in self.store.tensors

    def skip(self, pattern: str) -> None:
        """Let tensors whose whole name matches ``pattern`` (shell style) be there unused."""
        self.asked.skipped.append(pattern)

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A tensor in the weights' type."""
        return self._load(name, shape, self.precision.weights)

    def vector(self, name: str, *shape: int) -> Tensor:
        """A small tensor in the compute type: norms, biases of the recurrence, decays.

        While all is checked it is zeros that take no memory, since families work with vectors,
        and the first exponential of a meta tensor makes torch import its compiler.
        """
        if self.device.type != "meta":
            return self._load(name, shape, self.precision.compute)
        self.asked.shapes[self.prefix + name] = shape
        nothing = torch.zeros((), dtype=self.precision.compute).expand(shape)
        self.asked.num_bytes += nothing.nbytes
        return nothing

    def matrix(self, name: str, rows: int, columns: int) -> Tensor:
        """[rows, columns] in the weights' type."""
        return self.tensor(name, rows, columns)

    def copy_of(self, name: str, other: Tensor) -> Tensor:
        """``other`` itself if the store's tensor has the same numbers, else that tensor.

        For a matrix that the configuration says is tied to another and that is there all the
        same: most writers store it twice; where the two differ, ``transformers`` keeps both.
        """
        full = self.prefix + name
        self.asked.shapes[full] = tuple(other.shape)
        if self.device.type == "meta":
            return other
        if self.stream.equals(other, full):
            del self.asked.shapes[full]
            return other
        return self.matrix(name, *other.shape)

    def stack(self, parts: Mapping[str, int], *columns: int) -> Tensor:
        """Matrices (or, without ``columns``, vectors) joined along their rows.

        Args:
            parts: rows by name, in order.
        """
        rows = sum(parts.values())
        joined = self._place((rows, *columns), self.precision.weights)
        begin = 0
        for name, count in parts.items():
            self._read_into(joined[begin : begin + count], name, (count, *columns))
            begin += count
        return joined

    def _load(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        target = self._place(shape, dtype)
        self._read_into(target, name, shape)
        return target

    def _place(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        empty = torch.empty(shape, dtype=dtype, device=self.device)
        self.asked.num_bytes += empty.nbytes
        return empty

    def _read_into(self, target: Tensor, name: str, shape: tuple[int, ...]) -> None:
        full = self.prefix + name
        self.asked.shapes[full] = shape
        if self.device.type != "meta":
            self.stream.fill(target, full)
