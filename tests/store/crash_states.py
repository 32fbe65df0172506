"""The directories that a crash may leave: what was synced, and any part of what was not.

A write is durable once its file is synced, a name once its directory is. Of all else a crash may
keep any subset, and of the last write any part: no file system is taken at its better word.
"""

import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import attrs

from tests.store.operations import (
    Acknowledged,
    Create,
    Delete,
    MakeDirectory,
    Operation,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Write,
)

__all__ = ["EMPTY", "CrashState", "Loss", "crash_states", "pending_at"]

ROOT = PurePosixPath(".")


@attrs.frozen
class Loss:
    """Which of the unsynced operations a crash undoes."""

    kind: str
    lost: frozenset[int] = frozenset()
    torn: int | None = None
    """A write of which the first half is kept only."""
    zeroed: frozenset[int] = frozenset()
    """Writes that lengthened their files, and whose bytes were lost."""

    def left_of(self, number: int, write: Write) -> bytes:
        """The bytes of a write that reached the disk."""
        if number in self.zeroed:
            return bytes(len(write.data))
        return write.data[: len(write.data) // 2] if number == self.torn else write.data


@attrs.frozen
class CrashState:
    """Files and directories after a crash."""

    directories: frozenset[PurePosixPath]
    files: Mapping[PurePosixPath, bytes]

    @property
    def digest(self) -> bytes:
        digest = hashlib.blake2b(repr(sorted(map(str, self.directories))).encode())
        for path, content in sorted(self.files.items()):
            digest.update(f"{path} {len(content)} ".encode())
            digest.update(content)
        return digest.digest()

    def build(self, root: Path) -> None:
        """Make it real in an empty directory."""
        for directory in sorted(self.directories):
            (root / directory).mkdir()
        for path, content in self.files.items():
            (root / path).write_bytes(content)


EMPTY = CrashState(frozenset(), {})


@attrs.define(eq=False)
class _Disk:
    """What is on the disk if some operations are lost: contents by file, and the names of files."""

    contents: dict[int, bytearray] = attrs.field(factory=dict[int, bytearray])
    names: dict[PurePosixPath, int] = attrs.field(factory=dict[PurePosixPath, int])
    """On the disk."""
    running: dict[PurePosixPath, int] = attrs.field(factory=dict[PurePosixPath, int])
    """As the process sees them: a file that is written to is found by these."""
    directories: set[PurePosixPath] = attrs.field(factory=lambda: {ROOT})

    @classmethod
    def of(cls, base: CrashState) -> "_Disk":
        """What was on the disk before the first operation, all of it durable."""
        names = _base_files(base)
        contents = {file: bytearray(base.files[path]) for path, file in names.items()}
        return cls(contents, names, dict(names), {ROOT, *base.directories})

    def apply(self, number: int, operation: Operation, loss: Loss) -> None:
        stays = number not in loss.lost
        match operation:
            case MakeDirectory(path) if stays:
                self.directories.add(path)
            case Create(path):
                self.contents[number] = bytearray()
                self.running[path] = number
                if stays:
                    self.names[path] = number
            case Delete(path):
                self.running.pop(path, None)
                if stays:
                    self.names.pop(path, None)
            case Rename(source, target):
                file = self.running[target] = self.running.pop(source)
                if stays:
                    self.names.pop(source, None)
                    self.names[target] = file
            case Truncate(path, size) if stays:
                content = self.contents[self.running[path]]
                content[size:] = bytes(max(0, size - len(content)))
            case Write(path, offset) if stays:
                content = self.contents[self.running[path]]
                self._write(content, offset, loss.left_of(number, operation))
            case _:
                pass

    @staticmethod
    def _write(content: bytearray, offset: int, data: bytes) -> None:
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def state(self) -> CrashState:
        reached = {ROOT}
        for directory in sorted(self.directories):
            if directory.parent in reached:
                reached.add(directory)
        files = {
            path: bytes(self.contents[file])
            for path, file in self.names.items()
            if path.parent in reached
        }
        return CrashState(frozenset(reached - {ROOT}), files)


def _base_files(base: CrashState) -> dict[PurePosixPath, int]:
    return {path: -1 - number for number, path in enumerate(base.files)}


def pending_at(operations: Sequence[Operation], base: CrashState = EMPTY) -> list[int]:
    """Numbers of the operations that no sync has made durable."""
    running = _base_files(base)
    writes = dict[int, list[int]]()
    named = dict[PurePosixPath, list[int]]()
    for number, operation in enumerate(operations):
        match operation:
            case MakeDirectory(path):
                named.setdefault(path.parent, []).append(number)
            case Create(path):
                running[path] = number
                named.setdefault(path.parent, []).append(number)
            case Delete(path):
                running.pop(path, None)
                named.setdefault(path.parent, []).append(number)
            case Rename(source, target):
                running[target] = running.pop(source)
                named.setdefault(target.parent, []).append(number)
            case Write(path) | Truncate(path):
                writes.setdefault(running[path], []).append(number)
            case Sync(path):
                writes.pop(running[path], None)
            case SyncDirectory(path):
                named.pop(path, None)
            case Acknowledged():
                pass
    numbers = [number for group in (*writes.values(), *named.values()) for number in group]
    return sorted(numbers)


def losses(
    operations: Sequence[Operation],
    base: CrashState,
    seed: int,
    *,
    alone: int | None,
    subsets: int,
) -> Iterator[Loss]:
    """What a crash after these operations may undo.

    Args:
        operations: up to the crash.
        base: what was there before them.
        seed: of the random choices.
        alone: at most so many operations are lost alone, and kept alone; ``None``: each.
        subsets: random subsets that are lost.
    """
    pending = pending_at(operations, base)
    yield Loss("nothing lost")
    if not pending:
        return
    rng = random.Random(seed)
    yield Loss("all lost", frozenset(pending))
    chosen = pending if alone is None else rng.sample(pending, min(alone, len(pending)))
    for number in chosen:
        yield Loss("one lost", frozenset([number]))
        yield Loss("one kept", frozenset(pending) - {number})
    for _ in range(subsets):
        share = rng.random()
        yield Loss("some lost", frozenset(n for n in pending if rng.random() < share))
    writes = [number for number in pending if isinstance(operations[number], Write)]
    if writes:
        yield Loss("torn", torn=writes[-1])
        earlier = frozenset(pending) - {writes[-1]}
        yield Loss("torn, rest lost", earlier, torn=writes[-1])
        yield Loss("zeroed", zeroed=frozenset(writes))


def crash_states(
    operations: Sequence[Operation],
    base: CrashState,
    seed: int,
    *,
    alone: int | None,
    subsets: int,
) -> Iterator[tuple[Loss, CrashState]]:
    """The directories that a crash after these operations may leave."""
    for loss in losses(operations, base, seed, alone=alone, subsets=subsets):
        disk = _Disk.of(base)
        for number, operation in enumerate(operations):
            disk.apply(number, operation, loss)
        yield loss, disk.state()
