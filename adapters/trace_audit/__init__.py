"""Rebuilds the ledger from its event log alone and says whether every claim was conserved.

An audit that ran the ledger's own code would repeat the ledger's mistakes and call them right, so
this package imports nothing of ``ownership`` or ``kernel``: it knows the schema of the events
(``docs/events.md``) and applies the rules of conservation again, from scratch. It reads line by
line, and its memory grows with what is owned at one moment, never with the length of the log.
"""

from adapters.trace_audit.log import audit_file, audit_lines
from adapters.trace_audit.replay import Replay
from adapters.trace_audit.report import EngineAudit, Problem, TraceAudit

__all__ = ["EngineAudit", "Problem", "Replay", "TraceAudit", "audit_file", "audit_lines"]
