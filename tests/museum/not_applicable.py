"""Entries up to M085: those that can't apply to this system, each with its reason."""

__all__ = ["NOT_APPLICABLE"]

NOT_APPLICABLE: dict[str, str] = {}
