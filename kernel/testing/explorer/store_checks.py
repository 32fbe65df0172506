"""What holds of the store: what was told is on its disk, and nothing else but what is under way."""

from collections.abc import Iterator

from kernel.ids import SessionId
from kernel.testing.explorer.callers import Caller
from kernel.testing.explorer.forms import field
from kernel.testing.explorer.held_store import HeldStore
from kernel.testing.explorer.knowledge import Tokens, possible_logs
from kernel.testing.explorer.stage import Stage
from kernel.testing.invariants import Broken
from kernel.testing.simulation.disk import Disk

__all__ = ["store_at_rest", "store_is_sound"]


def store_is_sound(stage: Stage) -> Iterator[Broken]:
    """If the process died now, each caller would find what it was told, or one change more."""
    store = stage.store
    if store is None:
        return
    for caller in stage.callers:
        yield from _came_back(caller)
        if not caller.plan.is_one_shot and not caller.is_closing:
            yield from _keeps(caller, store.disk)
    yield from _removals(stage, store)
    yield from _snapshots(stage, store.disk)


def store_at_rest(stage: Stage) -> Iterator[Broken]:
    """A session's log is the store's, if the store has said that it could."""
    store = stage.store
    for actor in stage.core.sessions.values() if store is not None else ():
        archive = actor.archive
        if store is None or archive is None or field(archive, "_is_in_doubt"):
            continue
        log, kept = tuple(actor.state.log), _log_of(store.disk, actor.session_id)
        if kept != (log if archive.is_opened else None) and (log or kept):
            yield Broken(
                "at rest a session's log is the store's",
                f"{actor.name} has {log}, the store has {kept}",
            )


def _log_of(disk: Disk, name: str) -> Tokens | None:
    return tuple(disk.log_of(name)) if name in disk.sessions else None


def _came_back(caller: Caller) -> Iterator[Broken]:
    for wrong in caller.wrong:
        yield Broken("a session comes back as its caller knows it", wrong)


def _keeps(caller: Caller, disk: Disk) -> Iterator[Broken]:
    kept = _log_of(disk, caller.plan.name) or ()
    possible = possible_logs(caller, has_died=False, is_disk=True)
    if kept not in possible:
        yield Broken(
            "what was told is kept",
            f"the store has {kept} of {caller.plan.name}, its caller knows {possible[0]}",
        )


def _removals(stage: Stage, store: HeldStore) -> Iterator[Broken]:
    for caller in stage.callers:
        removal = caller.removal
        if removal is None or stage.deaths or stage.core.door.closed_by is not None:
            continue
        is_removed = isinstance(field(removal, "_outcome"), tuple)
        if is_removed and store.holds(SessionId(caller.plan.name)):
            yield Broken("a closed session is off the disk", f"{caller.plan.name} is still there")


def _snapshots(stage: Stage, disk: Disk) -> Iterator[Broken]:
    for name, kept in disk.sessions.items():
        image, log = kept.image, disk.log_of(name)
        if image is None:
            continue
        held = stage.device.memory.image_of(image)
        if image.position >= len(log) or held != tuple(log[: image.position]):
            yield Broken(
                "a snapshot is a cache of its log", f"{name} is {log}, its snapshot says {held}"
            )
