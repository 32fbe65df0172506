"""What a store does to its directory, as values: the tape that crashes are replayed from."""

from pathlib import PurePosixPath

import attrs

__all__ = [
    "Acknowledged",
    "Create",
    "Delete",
    "MakeDirectory",
    "Operation",
    "Rename",
    "Sync",
    "SyncDirectory",
    "Truncate",
    "Write",
]


@attrs.frozen
class MakeDirectory:
    path: PurePosixPath


@attrs.frozen
class Create:
    """A file that wasn't there, empty; or one that was, made empty."""

    path: PurePosixPath


@attrs.frozen
class Write:
    path: PurePosixPath
    offset: int
    data: bytes = attrs.field(repr=lambda data: f"<{len(data)} bytes>")


@attrs.frozen
class Truncate:
    path: PurePosixPath
    size: int


@attrs.frozen
class Sync:
    """The content of a file is durable, not its name."""

    path: PurePosixPath


@attrs.frozen
class Delete:
    path: PurePosixPath


@attrs.frozen
class Rename:
    source: PurePosixPath
    target: PurePosixPath


@attrs.frozen
class SyncDirectory:
    """The names in a directory are durable."""

    path: PurePosixPath


@attrs.frozen
class Acknowledged:
    """The store has reported this many jobs."""

    jobs: int


Operation = (
    MakeDirectory
    | Create
    | Write
    | Truncate
    | Sync
    | Delete
    | Rename
    | SyncDirectory
    | Acknowledged
)
