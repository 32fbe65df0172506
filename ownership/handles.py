"""The sealed tokens that are handed around: a handle's type is the owner of what it stands for.

Four final classes with nothing in common. A handle has no attribute to read and no method to
call; it can't be built, copied, pickled or subclassed, and compares by identity. What it stands
for is in the ledger, found by the identity of this very object, so that a forged one opens
nothing. A port's verb consumes one handle and returns another: there is no other way between them.
"""

from typing import Final, NoReturn, TypeVar, final

from ownership.claims import ClaimRecord
from ownership.ids import LeaseId

__all__ = [
    "BatchOwned",
    "CacheOwned",
    "ClaimHandle",
    "Lease",
    "SessionOwned",
    "issue_batch",
    "issue_cache",
    "issue_lease",
    "issue_session",
    "lease_of",
    "record_of",
]
T = TypeVar("T")
_UNBUILT: Final = "handles are made by the verbs of a port, nowhere else"


def _no_subclass(cls: type[object]) -> NoReturn:
    msg = f"a handle's type says who owns it: {cls.__mro__[1].__name__} can't be subclassed"
    raise TypeError(msg)


def _no_copy(self: object, _protocol: object, /) -> NoReturn:
    msg = f"a handle is single-use: {self!r} can't be copied or pickled"
    raise TypeError(msg)


def _describe(self: object) -> str:
    record, generation = record_of(self)
    if record is None:
        return f"<{type(self).__name__}, forged>"
    if isinstance(record.slot, int):
        return f"<{type(self).__name__} slot {record.slot} generation {generation}>"
    return f"<{type(self).__name__} claim {record.number} generation {generation}>"


_SEALS: Final = {"__init_subclass__": classmethod(_no_subclass), "__reduce_ex__": _no_copy}


def _sealed(cls: type[T]) -> type[T]:
    """Take from a class of handles what Python gives to every class."""
    for name, method in _SEALS.items():
        setattr(cls, name, method)
    return cls


@final
class _Seal:
    """What only this module has, and nothing without it can build a handle."""


_SEAL: Final = _Seal()


@final
@_sealed
class BatchOwned:
    """A working claim: a turn's, which may be given back at any moment.

    Ends by ``rollback``, ``commit`` or ``admit``; ``launch`` lends it to the device.
    """

    __slots__ = ("__weakref__", "_generation", "_record")
    __repr__ = _describe

    def __init__(self, seal: _Seal, record: ClaimRecord, /) -> None:
        if seal is not _SEAL:
            raise TypeError(_UNBUILT)
        self._record = record
        self._generation = record.generation


@final
@_sealed
class SessionOwned:
    """A session's state at rest. Ends by ``close``, or replaced by ``commit``."""

    __slots__ = ("__weakref__", "_generation", "_record")
    __repr__ = _describe

    def __init__(self, seal: _Seal, record: ClaimRecord, /) -> None:
        if seal is not _SEAL:
            raise TypeError(_UNBUILT)
        self._record = record
        self._generation = record.generation


@final
@_sealed
class CacheOwned:
    """A state of the prefix cache; immutable. Ends by ``evict``."""

    __slots__ = ("__weakref__", "_generation", "_record")
    __repr__ = _describe

    def __init__(self, seal: _Seal, record: ClaimRecord, /) -> None:
        if seal is not _SEAL:
            raise TypeError(_UNBUILT)
        self._record = record
        self._generation = record.generation


@final
@_sealed
class Lease:
    """All claims of one launched step, while the device has them. Ends by ``land`` alone."""

    __slots__ = ("__weakref__", "_ledger", "_number", "_step")

    def __init__(self, seal: _Seal, ledger: object, number: LeaseId, step: int, /) -> None:
        if seal is not _SEAL:
            raise TypeError(_UNBUILT)
        self._ledger = ledger
        self._number = number
        self._step = step

    def __repr__(self) -> str:
        said = lease_of(self)
        return "<Lease, forged>" if said is None else f"<Lease {said[1]} of step {said[2]}>"


ClaimHandle = BatchOwned | SessionOwned | CacheOwned
"""What custody is kept of by name; no verb accepts it."""


def issue_batch(record: ClaimRecord) -> BatchOwned:
    """Make a handle; only the ledger calls this, and makes it live."""
    return BatchOwned(_SEAL, record)


def issue_session(record: ClaimRecord) -> SessionOwned:
    """Make a handle; only the ledger calls this, and makes it live."""
    return SessionOwned(_SEAL, record)


def issue_cache(record: ClaimRecord) -> CacheOwned:
    """Make a handle; only the ledger calls this, and makes it live."""
    return CacheOwned(_SEAL, record)


def issue_lease(ledger: object, number: LeaseId, step: int) -> Lease:
    """Make a handle; only the ledger calls this, and makes it live."""
    return Lease(_SEAL, ledger, number, step)


def record_of(handle: object) -> tuple[ClaimRecord | None, int]:
    """What a handle says of itself, for messages: proof of nothing."""
    record = getattr(handle, "_record", None)
    generation = getattr(handle, "_generation", None)
    if isinstance(record, ClaimRecord) and isinstance(generation, int):
        return record, generation
    return None, 0


def lease_of(handle: object) -> tuple[object, LeaseId, int] | None:
    """What a lease says of itself, for messages: proof of nothing."""
    number = getattr(handle, "_number", None)
    if number is None:
        return None
    return getattr(handle, "_ledger", None), number, getattr(handle, "_step", 0)
