"""Identities of the kernel: distinct types, so that one can't stand for another."""

from typing import NewType

from ownership import CustodianId

__all__ = ["GPU_POOL", "SCHEDULER", "STORE", "SessionId", "StepId", "TurnId", "session_custodian"]

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
StepId = NewType("StepId", int)

SCHEDULER = CustodianId("scheduler")
GPU_POOL = CustodianId("gpu-pool")
STORE = CustodianId("store")


def session_custodian(session_id: SessionId) -> CustodianId:
    """The name under which a session's actor holds its handles."""
    return CustodianId(f"session:{session_id}")
