"""Why a store isn't opened: what differs, or what is wrong, and the way out."""

import errno
from pathlib import Path
from typing import Literal

from adapters.session_store.database import DatabaseFault
from kernel.errors import SessionStoreError
from kernel.session_store import FileHeader

__all__ = ["StoreRefusal", "difference_of", "is_full", "refusal_of", "refused"]

StoreRefusal = Literal[
    "model", "dtype", "version", "foreign", "damaged", "in_use", "full", "failed"
]

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


def is_full(error: OSError | ValueError) -> bool:
    """Whether an operation failed because no room was left."""
    return isinstance(error, OSError) and error.errno in _NO_SPACE


def difference_of(
    kept: FileHeader, header: FileHeader
) -> tuple[Literal["model", "dtype"], str] | None:
    """What makes the states of one useless to the other, if anything does.

    Models are told apart by their fingerprints; the name is for people, and may change when a
    directory is moved.
    """
    for kind, theirs, ours in (
        ("dtype", kept.dtype, header.dtype),
        ("state dtype", kept.state_dtype, header.state_dtype),
    ):
        if theirs != ours:
            return "dtype", f"its {kind} is {theirs} and the engine's is {ours}"
    if kept.fingerprint != header.fingerprint:
        return "model", (
            f"it is of model {kept.model!r} (fingerprint {kept.fingerprint}) and the engine runs"
            f" {header.model!r} ({header.fingerprint})"
        )
    return None


def refused(directory: Path, reason: StoreRefusal, why: str) -> SessionStoreError:
    """The error for a store that was looked at and is not for this engine."""
    return SessionStoreError(path=str(directory), reason=reason, why=why)


def refusal_of(directory: Path, error: OSError | ValueError | DatabaseFault) -> SessionStoreError:
    """The error for a store that can't be read or made."""
    if not isinstance(error, DatabaseFault):
        reason: StoreRefusal = "full" if is_full(error) else "failed"
        return refused(directory, reason, f"{error}; give a directory that can be written")
    match error.reason:
        case "in_use":
            why = "another engine has it open; close that one, or give another directory"
        case "damaged":
            why = (
                f"its database is damaged ({error.why}); put a copy in its place, save what is"
                " left with sqlite3's .recover, or give another directory"
            )
        case "full":
            why = f"the disk is full ({error.why}); make room"
        case _:
            why = (
                f"its database can't be opened ({error.why}); see whether this user may write to"
                " it and to its directory, and what the system says of the disk"
            )
    return refused(directory, error.reason, why)
