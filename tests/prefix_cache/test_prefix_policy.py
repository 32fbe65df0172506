"""Which positions are worth a state."""

import pytest

from kernel.prefixes.policy import CachePolicy, Prospect

POLICY = CachePolicy(block=64, least=8)


def prompt(length: int, **facts: object) -> Prospect:
    given: dict[str, object] = {"start": 0, "end": length - 1, "prompt_end": length - 1, **facts}
    return Prospect(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        (prompt(8), []),
        (prompt(9), [8]),
        (prompt(64), [63]),
        (prompt(65), [64]),
        (prompt(66), [65]),
        (prompt(72), [71]),
        (prompt(73), [72, 64]),
        (prompt(200), [199, 128, 64]),
        (prompt(200, start=64), [199, 128]),
        (prompt(200, start=125), [199]),
        (prompt(200, branch=100), [199, 128, 100, 64]),
        (prompt(200, branch=195), [195, 128, 64]),
        (prompt(200, branch=66), [199, 128, 66]),
        (prompt(200, branch=5), [199, 128, 64]),
        (prompt(200, missed=(40, 196)), [196, 128, 64, 40]),
        (prompt(200, named=(3, 5, 64)), [199, 128, 64, 5, 3]),
        (prompt(200, named=(200, 0)), [199, 128, 64]),
        (prompt(200, end=260), [199, 128, 64]),
        (prompt(200, end=100), [64]),
        (Prospect(100, 150, None, named=(120,)), [120]),
    ],
)
def test_states_are_wanted_where_others_may_begin_alike(turn: Prospect, wanted: list[int]) -> None:
    """Named positions, where prompts part, the end of the prompt, blocks; none too close."""
    assert POLICY.positions(turn) == wanted


def test_a_branch_goes_before_the_end_of_the_prompt() -> None:
    """A state behind it would hold what only this prompt says, and serve nobody else."""
    assert POLICY.positions(prompt(70, branch=66)) == [66]
