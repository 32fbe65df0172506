"""Canonical forms of a store's jobs and reports."""

from typing import Any

from kernel.session_store import CutLog, KeepFacts, KeepState, KeepTurn, SessionRecord, StoreFault
from kernel.state_image import StateImage

__all__ = ["job_form", "report_form"]


def job_form(names: Any, job: Any) -> tuple[Any, ...]:
    """What a job asks for; of a state its position, since a check holds it against its log."""
    form: tuple[Any, ...] = (type(job).__name__, names.place(job.session_id))
    match job:
        case KeepTurn():
            turn = job.turn
            return (*form, turn.start, turn.input_len, turn.tokens.tobytes())
        case CutLog():
            return (*form, job.length)
        case KeepFacts():
            return (*form, repr(job.facts))
        case KeepState():
            return (*form, job.image.position)
        case _:
            return form


def report_form(names: Any, report: Any) -> tuple[Any, ...]:
    """What a job has come to."""
    match report:
        case StoreFault():
            return ("fault", report.reason)
        case StateImage():
            return ("image", report.position)
        case SessionRecord():
            return ("record", names.place(report.session_id), report.log_len, report.state_position)
        case _:
            return (type(report).__name__,)
