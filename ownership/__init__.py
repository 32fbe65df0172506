"""Who may give back what: typed, single-use handles over slots and pages, and their one ledger."""

from ownership.audit import AuditReport
from ownership.book import Violation
from ownership.claims import Content, Kind
from ownership.errors import (
    BaseChanged,
    ForeignHandle,
    LedgerError,
    OwnershipError,
    StaleHandle,
    WrongOwner,
)
from ownership.handles import BatchOwned, CacheOwned, ClaimHandle, Lease, SessionOwned
from ownership.ids import (
    DEVICE,
    NO_SLOT,
    ClaimId,
    CustodianId,
    LeaseId,
    NoSlot,
    PageIndex,
    Place,
    RunId,
    SlotIndex,
)
from ownership.ledger import Ledger
from ownership.marks import Consume, Owns
from ownership.observer import Observer
from ownership.placements import CopyFrom, Placement, TailCopy
from ownership.ports import BatchPort, CachePort, SessionPort
from ownership.simulation import ReleaseSimulation
from ownership.values import (
    ZEROS,
    Absorbed,
    Base,
    BaseName,
    Capacity,
    Grown,
    GrowResult,
    LandOutcome,
    Need,
    Reclaimed,
    Refused,
    StepFailed,
    Zeros,
)
from ownership.view import BaseView, ClaimView, Counters, LedgerView

__all__ = [
    "DEVICE",
    "NO_SLOT",
    "ZEROS",
    "Absorbed",
    "AuditReport",
    "Base",
    "BaseChanged",
    "BaseName",
    "BaseView",
    "BatchOwned",
    "BatchPort",
    "CacheOwned",
    "CachePort",
    "Capacity",
    "ClaimHandle",
    "ClaimId",
    "ClaimView",
    "Consume",
    "Content",
    "CopyFrom",
    "Counters",
    "CustodianId",
    "ForeignHandle",
    "GrowResult",
    "Grown",
    "Kind",
    "LandOutcome",
    "Lease",
    "LeaseId",
    "Ledger",
    "LedgerError",
    "LedgerView",
    "Need",
    "NoSlot",
    "Observer",
    "OwnershipError",
    "Owns",
    "PageIndex",
    "Place",
    "Placement",
    "Reclaimed",
    "Refused",
    "ReleaseSimulation",
    "RunId",
    "SessionOwned",
    "SessionPort",
    "SlotIndex",
    "StaleHandle",
    "StepFailed",
    "TailCopy",
    "Violation",
    "WrongOwner",
    "Zeros",
]
