"""Random jobs of which most succeed, for runs that are crashed."""

import random
from collections.abc import Iterator

from kernel.session_store import (
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    RemoveSession,
    StoreJob,
)
from kernel.state_image import StateImage
from tests.store.model import ModelStore
from tests.store.stores import image_at, turn_of

__all__ = ["workload"]

NAMES = ("a", "b", "c")


def workload(rng: random.Random, groups: int, model: ModelStore) -> Iterator[list[StoreJob]]:
    """Groups of jobs on few sessions, most of which succeed; the model goes along."""
    for _ in range(groups):
        jobs = list[StoreJob]()
        for _ in range(rng.choice((1, 1, 2, 4))):
            job = _job(rng, model)
            model.do(job)
            jobs.append(job)
        yield jobs


def _job(rng: random.Random, model: ModelStore) -> StoreJob:
    name = rng.choice(NAMES)
    kept = model.sessions.get(name)
    length = 0 if kept is None else kept.length
    kind = rng.choices(
        ("turn", "state", "file", "cut", "facts", "drop", "remove", "bad"),
        (8, 4, 3, 2, 1, 1, 1, 1),
    )[0]
    if kind == "state" and length > 1:
        return KeepState(name, _image(rng, rng.randrange(1, length), (16, 400)))
    if kind == "file" and length > 1:
        return KeepState(name, _image(rng, length - 1, (600, 9000)))
    if kind == "cut" and length:
        return CutLog(name, rng.randrange(length))
    if kind == "facts":
        return KeepFacts(name, {"mark": rng.randrange(9)})
    if kind == "drop":
        return DropState(name)
    if kind == "remove":
        return RemoveSession(name)
    start = length + 7 if kind == "bad" else rng.choice((length, length, length, length // 2))
    tokens = [rng.randrange(1 << 32) for _ in range(rng.randrange(1, 6))]
    return KeepTurn(name, turn_of(start, tokens, text="x" * rng.choice((5, 5000))))


def _image(rng: random.Random, position: int, sizes: tuple[int, ...]) -> StateImage:
    return image_at(position, size=rng.choice(sizes), fill=rng.randrange(99))
