"""Entries that wait for a feature of a later issue, by its name."""

__all__ = ["PENDING"]

PENDING: dict[str, str] = {
    "M011": "several machines",
    "M068": "several machines",
    "M084": "speculation",
    "M088": "speculation",
    "M093": "connectors",
}
