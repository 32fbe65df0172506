"""Entries from M086 on: those that wait for a feature of a later issue, by its name."""

__all__ = ["PENDING"]

PENDING: dict[str, str] = {
    "M088": "speculation",
    "M093": "connectors",
    "M130": "persistence",
    "M132": "persistence",
}
