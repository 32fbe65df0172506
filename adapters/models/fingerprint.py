"""A model's fingerprint: two runs have the same one if a saved state of one is valid in the other.

It is the SHA-256 of three things: the configuration's values that a family has read (defaults
left out, so that writing one out changes nothing; and the name and the ends of sequence, since no
state depends on them); name, shape, number type and content of every tensor that is
used, in the order of their names (so that sharding changes nothing); and the number types that
the model runs in, since a state of a bfloat16 run isn't one of a float32 run. Paths, machines and
devices don't matter.

Content is hashed while it is read, in leaves of :data:`LEAF_BYTES` (a tensor's digest is that of
its leaves' digests), by a few threads beside the one that copies.
"""

import hashlib
import json
import os
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, cast

import torch
from torch import Tensor

from adapters.models.precision import Precision
from adapters.models.store import TensorFacts

__all__ = ["LEAF_BYTES", "ContentHash", "fingerprint"]

LEAF_BYTES = 16 << 20
"""Part of what a fingerprint is: another value makes other fingerprints."""
_MOST_THREADS = 4
_VERSION = "tenure-model-1"
_WITHOUT_EFFECT = (
    "name",
    "eos_token_id",
    "eos_token_ids",
    "dtype",
    "torch_dtype",
    "tie_word_embeddings",
)
"""Keys of config.json on which no state depends, or what they say is in the hash already: the
types of the run, and the tensors that are used."""


class ContentHash:
    """SHA-256 of tensors as they are read; use it as a context, which joins its threads."""

    def __init__(self, threads: int | None = None) -> None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._threads = threads or min(_MOST_THREADS, max(1, processors - 1))
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tenure-fingerprint")
        self._leaves: dict[str, list[Future[bytes]]] = {}
        self._running: deque[Future[bytes]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._leaves.clear()
        self._running.clear()

    def add(self, name: str, piece: Tensor) -> None:
        """Hash the next piece of a tensor; all pieces but its last fill whole leaves.

        The piece must not change until the context ends or so many others have been added.
        """
        leaves = self._leaves.setdefault(name, [])
        data = piece.contiguous().view(torch.uint8)
        for begin in range(0, len(data), LEAF_BYTES):
            # Only so many at once: each holds on to the memory of its leaf.
            if len(self._running) > self._threads:
                self._running.popleft().result()
            leaf = self._pool.submit(_digest, data[begin : begin + LEAF_BYTES])
            leaves.append(leaf)
            self._running.append(leaf)

    def digests(self) -> dict[str, str]:
        """Digest of each tensor by name; waits for what is still being hashed."""
        return {
            name: hashlib.sha256(b"".join(leaf.result() for leaf in leaves)).hexdigest()
            for name, leaves in self._leaves.items()
        }


def _digest(data: Tensor) -> bytes:
    # An array is a buffer, which its stubs say from Python 3.12 on only.
    return hashlib.sha256(cast("bytes", data.numpy())).digest()


def fingerprint(
    config: Mapping[str, object],
    tensors: Mapping[str, TensorFacts],
    digests: Mapping[str, str],
    precision: Precision,
) -> str:
    """The fingerprint of a model as it runs: 64 hexadecimal digits.

    Args:
        config: the values of config.json that the model depends on.
        tensors: facts by name of those that ``digests`` has.
        digests: as :meth:`ContentHash.digests` gives them.
        precision: the number types of the run.
    """
    weights = [
        (name, list(tensors[name].shape), tensors[name].dtype, digests[name])
        for name in sorted(digests)
    ]
    runs_in = [str(kind) for kind in (precision.weights, precision.compute, precision.state)]
    whole = json.dumps([_VERSION, _canonical(config), weights, runs_in], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()


def _canonical(value: object) -> object:
    """One form for values that mean the same: 10000 and 10000.0, a tuple and a list."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        kept = {name: _canonical(item) for name, item in items if name not in _WITHOUT_EFFECT}
        return {name: item for name, item in kept.items() if item != {}}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value
