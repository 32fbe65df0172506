"""Where randomness comes from: 64-bit keys that are pure functions of seed, turn and request.

A token is drawn from ``(key, index)``; see :class:`kernel.step.RowSampling`. There is no generator
whose state could depend on what else was in the batch, so preemption, replay and restart draw
alike. BLAKE2b gives the same keys on every platform and version of Python.
"""

import hashlib
import struct

__all__ = ["choice_seed", "request_seed", "turn_key"]

_MASK = 2**64 - 1


def turn_key(seed: int, turn: int) -> int:
    """Fold the seed and the number of the turn (both modulo 2**64) into one 64-bit key."""
    return _digest(b"tenure.turn", struct.pack("<QQ", seed & _MASK, turn & _MASK))


def request_seed(engine_seed: int, request_id: str) -> int:
    """Give a request without a seed of its own one in 0 to 2**64 - 1, by the request's id."""
    # surrogatepass: an id is the caller's; one that isn't valid text must not fail here.
    named = request_id.encode("utf-8", "surrogatepass")
    return _digest(b"tenure.request", struct.pack("<Q", engine_seed & _MASK) + named)


def choice_seed(seed: int, index: int) -> int:
    """Give each of several outputs of a request a seed of its own; the first keeps the request's.

    So the first of n outputs is what one output alone would be.
    """
    if index == 0:
        return seed
    return _digest(b"tenure.choice", struct.pack("<QQ", seed & _MASK, index & _MASK))


def _digest(purpose: bytes, data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, person=purpose).digest(), "little")
