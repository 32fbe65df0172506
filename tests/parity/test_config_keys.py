"""No key of config.json that means something to transformers is read past by ours.

Each key of a written configuration is given another value, and then left out. Where that changes
what transformers computes, ours computes the same or refuses, by name and before it serves. So a
default that isn't the peer's shows as well.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import torch
from torch import Tensor

from adapters.models.directory import open_store
from adapters.torch_device import TorchDevice
from kernel.errors import ModelError
from tests.parity.cases import CASES, Case
from tests.parity.ours import Desk
from tests.parity.peer import build_peer

TOKENS = (5, 31, 8, 8, 90, 2, 17, 44, 61, 3, 3, 70, 12)
SAME = 1e-4
FIRST_OF_FAMILY = list({case.family: case for case in reversed(CASES)}.values())
OF_THE_WRITER = (
    "architectures",
    "dtype",
    "model_type",
    "tie_word_embeddings",
    "transformers_version",
)
"""Not of the model; what is tied is compared in tests/models/test_tied.py."""
_LEFT_OUT = object()


def _others(key: str, value: Any) -> Iterator[Any]:
    """Values of the same type that mean something else."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
        yield value * 2
    elif isinstance(value, float):
        yield value * 1.5 + 0.1
    elif isinstance(value, str):
        yield "gelu" if key.endswith("act") else "of tomorrow"
    elif isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        for name, inner in parts.items():
            yield from ({**parts, name: other} for other in _others(name, inner))
    elif key == "time_step_limit":
        yield [0.05, 0.2]
    elif isinstance(value, list) and value:
        items = cast("Sequence[Any]", value)
        names = isinstance(items[0], str)
        yield items[::-1] if names else [next(_others(key, inner), inner) for inner in items]


def _changes(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if key in OF_THE_WRITER or key.endswith("token_id"):
            continue
        yield from ((key, other) for other in _others(key, value))
        if not isinstance(value, int) or isinstance(value, bool):
            yield key, _LEFT_OUT  # sizes show by the tensors' shapes, and their defaults are large


def _peer_says(case: Case, config: dict[str, Any]) -> Tensor | None:
    """Its logits at the end, or nothing where it can't be built so, or says no numbers."""
    settings = {key: value for key, value in config.items() if key not in OF_THE_WRITER}
    limits = settings.get("time_step_limit")
    if isinstance(limits, list) and isinstance(limits[-1], dict):
        settings["time_step_limit"] = [0.0, float("inf")]
    settings["tie_word_embeddings"] = config.get("tie_word_embeddings", False)
    try:
        peer = build_peer(attrs.evolve(case, settings=settings), torch.float32)
        said = peer.logits(TOKENS)[-1]
    except Exception:  # whatever it raises, at any depth: it can't be asked
        return None
    return said if bool(said.isfinite().all()) else None


def _ours_says(config: dict[str, Any], weights: dict[str, Tensor]) -> Tensor | None:
    """Our logits at the end, or nothing where it is refused."""
    try:
        device = TorchDevice.of_weights(config, weights, dtype="float32", num_threads=1)
    except ModelError:
        return None
    desk = Desk(device)
    return desk.run([(desk.begin(TOKENS), len(TOKENS))])[0]


def _differ(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return True
    # Put so that what is no number differs.
    return not float((one - other).abs().max()) <= SAME * float(other.abs().max())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=case.family, marks=() if case.family == "mamba2" else pytest.mark.slow
        )
        for case in FIRST_OF_FAMILY
    ],
)
def test_a_key_that_changes_the_peer_changes_ours_alike_or_is_refused(
    case: Case, tmp_path: Path
) -> None:
    build_peer(case, torch.float32).save(tmp_path)
    written: dict[str, Any] = json.loads((tmp_path / "config.json").read_text())
    with closing(open_store(tmp_path)) as store:
        weights = {name: store.read(name).clone() for name in store.tensors}
    before = _peer_says(case, written)
    assert before is not None

    changed, read_past = 0, list[tuple[str, str]]()
    for key, value in _changes(written):
        config = copy.deepcopy(written)
        config[key] = value
        if value is _LEFT_OUT:
            del config[key]
        peer = _peer_says(case, config)
        if peer is None or not _differ(peer, before):
            continue
        changed += 1
        ours = _ours_says(config, weights)
        if ours is not None and _differ(ours, peer):
            read_past.append((key, "left out" if value is _LEFT_OUT else repr(value)))

    assert read_past == []
    assert changed > 5
