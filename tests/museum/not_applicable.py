"""Entries that can't apply to this system, each with its reason in a line; none so far."""

__all__ = ["NOT_APPLICABLE"]

NOT_APPLICABLE: dict[str, str] = {}
