"""Our models against transformers' own, on the same random weights; docs/models.md has the table.

Here one shape of each family in float64; ``-m slow`` and ``python -m tests.parity`` do the rest.
"""

import json
from pathlib import Path

import pytest
import torch

from adapters.models.registry import known_model_types
from tests.parity import table
from tests.parity.cases import CASES, Case
from tests.parity.double import double_precision
from tests.parity.ours import open_device
from tests.parity.paths import measure
from tests.parity.peer import build_peer
from tests.parity.result import CACHED, TOLERANCES, ask_peer, compare, texts_of
from tests.parity.tokens import judge, like_generate
from tests.results.record import FOLDER

FIRST_OF_FAMILY = list({case.family: case for case in reversed(CASES)}.values())
SAME_AS = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
"""Model types of a text model inside another one's configuration."""


def _key(case: Case) -> str:
    return case.key


def _case(key: str) -> Case:
    return next(case for case in CASES if case.key == key)


def test_every_family_that_transformers_has_is_compared() -> None:
    """A family that nobody compares is right by luck."""
    known = {SAME_AS.get(kind, kind) for kind in known_model_types()} - {"tenure_hybrid"}

    assert known == {case.family for case in CASES}


@pytest.mark.parametrize("case", FIRST_OF_FAMILY, ids=_key)
def test_every_path_gives_the_logits_of_transformers(case: Case, tmp_path: Path) -> None:
    """Prompts at once, token by token, cut in any way, beside others, across turns."""
    peer = build_peer(case, torch.float64)
    peer.save(tmp_path)
    texts = texts_of(peer)

    errors = measure(open_device(tmp_path, "float64"), texts)

    worst = {path: max(found) for path, found in errors.items()}
    assert max(worst.values()) <= TOLERANCES["float64"], worst
    assert peer.leaks == set()


@pytest.mark.parametrize("key", ["granitemoehybrid:moe-nope", "lfm2:three-taps"])
def test_requests_at_once_generate_what_transformers_generates(key: str, tmp_path: Path) -> None:
    """Through the engine, as users run it."""
    peer = build_peer(_case(key), torch.float64)
    peer.save(tmp_path)
    prompts = [text.tokens for text in texts_of(peer)]

    count = like_generate(open_device(tmp_path, "float64"), peer, prompts, 8)

    assert (count.compared, count.differing) == (24, 0)


def test_a_weight_that_is_off_by_a_millionth_shows(tmp_path: Path) -> None:
    """What is compared must be able to differ; so it does on every path."""
    peer = build_peer(_case("mamba2:two-groups"), torch.float64)
    texts = texts_of(peer)
    skip = peer.model.state_dict()["backbone.layers.1.mixer.D"]
    skip[2] *= 1 + 1e-6
    peer.save(tmp_path)

    errors = measure(open_device(tmp_path, "float64"), texts)

    assert all(max(found) > TOLERANCES["float64"] for found in errors.values()), errors


def test_a_token_that_is_not_the_likeliest_counts_as_differing() -> None:
    """And one that is does not."""
    peer = build_peer(_case("llama:grouped"), torch.float64)
    right = peer.greedy([1, 2, 3], 3)
    wrong = (*right[:2], (right[2] + 1) % 97)

    assert judge(peer, [1, 2, 3], right).differing == 0
    assert judge(peer, [1, 2, 3], wrong).differing == 1


def test_float64_reaches_every_cast_of_the_peer() -> None:
    """A cast to float32 that stayed would hide errors of ours below it."""
    half = torch.tensor([1.0], dtype=torch.float64)
    with double_precision() as leaks:
        made = [
            half.float(),
            half.to(torch.float32),
            torch.softmax(half, dim=0, dtype=torch.float32),
            torch.arange(3, dtype=torch.float),
            torch.ones(2),
        ]
        assert {tensor.dtype for tensor in made} == {torch.float64}
        assert leaks == set()
        half.type("torch.FloatTensor")

    assert leaks == {"type"}
    assert torch.ones(2).dtype is torch.float32


@pytest.mark.parametrize(
    ("key", "stepped", "appended"),
    [
        ("mamba2:one-group", True, True),
        ("mamba2:limited-steps", False, True),  # one token at a time ignores time_step_limit
        ("mamba:plain", True, False),  # appending several tokens forgets the state
    ],
)
def test_where_the_peers_cache_is_wrong_is_known(
    key: str, *, stepped: bool, appended: bool
) -> None:
    """There the uncached pass is the oracle; once it is mended, the page must say so."""
    peer = build_peer(_case(key), torch.float64)

    found = ask_peer(peer, texts_of(peer)[0])

    assert (found.stepped < CACHED, found.appended < CACHED) == (stepped, appended)


def test_the_page_shows_the_figures_that_are_kept() -> None:
    """Written by the run that made them."""
    kept = json.loads((FOLDER / "parity.json").read_text(encoding="utf-8"))["figures"]

    page = table.PAGE.read_text(encoding="utf-8")

    assert page == table.page_with(table.table(kept["results"]))
    assert list(kept["results"]) == [case.key for case in CASES]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=_key)
def test_every_shape_and_number_type_is_within_its_tolerance(case: Case, tmp_path: Path) -> None:
    """All that the table shows."""
    assert compare(case, tmp_path, worlds=1).faults == []
