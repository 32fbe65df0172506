"""Keys are pure, spread, and the same for ever."""

from kernel.requests.sampling_key import request_seed, turn_key


def test_keys_are_the_same_in_every_process_and_version() -> None:
    """Literal values: a change of the function would change every seeded user's output."""
    assert turn_key(0, 0) == 0xEF96534B3CA543DA
    assert request_seed(0, "request-1") == 0x5D494D6F54F53C4A


def test_keys_differ_by_seed_and_by_turn() -> None:
    """And neither can stand in for the other."""
    keys = {turn_key(seed, turn) for seed in range(50) for turn in range(50)}

    assert len(keys) == 2500
    assert turn_key(1, 2) != turn_key(2, 1)
    assert all(0 <= key < 2**64 for key in keys)


def test_seeds_differ_by_engine_seed_and_by_request() -> None:
    """Two requests of one engine must not draw alike."""
    seeds = {request_seed(seed, f"r{n}") for seed in range(20) for n in range(20)}

    assert len(seeds) == 400


def test_any_request_id_and_any_int_are_taken() -> None:
    """A lone surrogate in a caller's id must not fail a request, nor a seed beyond 64 bits."""
    assert request_seed(2**70, "\ud800") == request_seed(2**70, "\ud800")
    assert turn_key(-1, 0) == turn_key(2**64 - 1, 0)
