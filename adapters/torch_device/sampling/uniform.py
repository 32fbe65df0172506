"""Where a draw's randomness comes from: a counter-based hash, so that no state is kept."""

__all__ = ["uniform"]

_MASK = (1 << 64) - 1


def _mix(z: int) -> int:
    """The finaliser of splitmix64."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(key: int, index: int) -> float:
    """A number in [0, 1) for the turn's ``index``-th draw: splitmix64 seeded by the mixed key.

    50 bits, so that the product with a float64 total stays below that total.
    """
    z = _mix((_mix(key & _MASK) + (index + 1) * 0x9E3779B97F4A7C15) & _MASK)
    return (z >> 14) * 2.0**-50
