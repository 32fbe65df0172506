"""The engine's configuration and the numbers that follow from it."""

import math
from typing import Any

import pytest

from kernel.config import EngineConfig, resolve
from kernel.errors import ValidationError
from kernel.step import ModelSpec


def spec(*, slots: bool = True, pages: bool = True, max_model_len: int = 4096) -> ModelSpec:
    return ModelSpec(
        name="toy",
        vocab_size=10,
        max_model_len=max_model_len,
        eos_token_ids=(),
        uses_slots=slots,
        uses_pages=pages,
        slot_bytes=8,
        page_token_bytes=8,
    )


REFUSED: list[dict[str, Any]] = [
    {"max_num_seqs": 0},
    {"max_num_seqs": True},
    {"page_size": 0},
    {"num_slots": -1},
    {"num_pages": "many"},
    {"max_num_batched_tokens": 8, "max_num_seqs": 9},
    {"max_model_len": 1},
    {"max_sessions": 0},
    {"seed": -1},
    {"idle_timeout_s": 0},
    {"step_timeout_s": math.inf},
    {"stop_timeout_s": -1},
    {"priority_weight_s": -1},
    {"scheduling_policy": "lottery"},
    {"model": ""},
    {"device": 0},
]


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_bad_value_is_refused_and_named(given: dict[str, Any]) -> None:
    """Before anything is loaded or allocated."""
    with pytest.raises(ValidationError) as caught:
        EngineConfig(**given)

    assert caught.value.parameter in given


def test_weight_of_zero_is_refused_with_the_tenant() -> None:
    """It would starve the tenant for ever."""
    with pytest.raises(ValidationError, match="'b'"):
        EngineConfig(tenant_weights={"a": 1, "b": 0})


def test_weights_are_copied_and_the_config_can_be_a_key() -> None:
    """A frozen value must not change through the caller's dict."""
    weights = {"a": 1.0}
    config = EngineConfig(tenant_weights=weights)
    weights["a"] = 9.0

    assert config.tenant_weights == {"a": 1.0}
    assert hash(config) == hash(EngineConfig(tenant_weights={"a": 1.0}))


def test_from_dict_names_the_near_name() -> None:
    """Options of the command line come through here."""
    with pytest.raises(ValidationError, match="did you mean max_num_seqs"):
        EngineConfig.from_dict({"max_num_seq": 3})

    assert EngineConfig.from_dict({"page_size": 4}) == EngineConfig(page_size=4)


def test_defaults_give_each_running_turn_a_slot_and_2048_tokens() -> None:
    """Documented beside the fields."""
    limits = resolve(EngineConfig(max_num_seqs=4), spec())

    assert limits.num_slots == 4
    assert limits.num_pages == 4 * 2048 // 16
    assert limits.max_model_len == 4096
    assert (limits.max_rows, limits.max_step_tokens) == (4, 512)


def test_a_short_model_gets_pages_for_its_own_length_only() -> None:
    """Rounded up to whole pages."""
    assert resolve(EngineConfig(max_num_seqs=2), spec(max_model_len=17)).num_pages == 4


def test_a_model_without_slots_or_pages_gets_none() -> None:
    """Its claims take none either."""
    assert resolve(EngineConfig(), spec(slots=False)).num_slots == 0
    assert resolve(EngineConfig(), spec(pages=False)).num_pages == 0
    assert resolve(EngineConfig(num_pages=0), spec(pages=False)).num_pages == 0


def test_one_slot_one_row_and_one_token_a_step_is_legal() -> None:
    """Idle sessions give their slot up, so one is enough for any number of them."""
    config = EngineConfig(max_num_seqs=1, num_slots=1, num_pages=1, max_num_batched_tokens=1)

    limits = resolve(config, spec())

    assert (limits.num_slots, limits.max_rows, limits.max_step_tokens) == (1, 1, 1)


@pytest.mark.parametrize(
    ("config", "model", "parameter"),
    [
        (EngineConfig(max_model_len=5000), spec(), "max_model_len"),
        (EngineConfig(num_slots=0), spec(), "num_slots"),
        (EngineConfig(num_pages=0), spec(), "num_pages"),
        (EngineConfig(num_slots=3), spec(slots=False), "num_slots"),
        (EngineConfig(num_pages=3), spec(pages=False), "num_pages"),
    ],
)
def test_numbers_that_contradict_the_model_are_refused(
    config: EngineConfig, model: ModelSpec, parameter: str
) -> None:
    """They can only be judged once the model is known; the message carries both numbers."""
    with pytest.raises(ValidationError, match="toy") as caught:
        resolve(config, model)

    assert caught.value.parameter == parameter
