"""What is known of a session in memory, and may not be of a dormant one."""

from typing import TypeVar

__all__ = ["known"]

T = TypeVar("T")


def known(fact: T | None) -> T:
    """The fact, which a session that is in memory always has."""
    assert fact is not None
    return fact
