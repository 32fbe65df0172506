"""What the ledger raises: each names the slot, its generation, its custodian and the way there.

All of them mean a mistake in the caller, except :class:`BaseChanged`, which is how a commit that
came too late is told. Whatever is raised, nothing was changed.
"""

__all__ = [
    "BaseChanged",
    "ForeignHandle",
    "LedgerError",
    "OwnershipError",
    "StaleHandle",
    "WrongOwner",
]


class OwnershipError(Exception):
    """A verb was refused; nothing was changed."""


class StaleHandle(OwnershipError):
    """The handle was moved on or spent: whoever uses it no longer holds it."""


class WrongOwner(OwnershipError):
    """The claim belongs to an owner of another type than the handle says: the handle is forged."""


class ForeignHandle(OwnershipError):
    """This ledger never made the handle: it is another ledger's, or forged."""


class LedgerError(OwnershipError):
    """The handle is good, but the claim is in no state for this verb."""


class BaseChanged(LedgerError):
    """The working claim did not start from the state that it should replace."""
