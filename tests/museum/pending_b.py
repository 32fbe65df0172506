"""Entries from M086 on: those that wait for a feature of a later issue, by its name."""

__all__ = ["PENDING"]

PENDING: dict[str, str] = {}
