"""Sampling parameters: what is refused, and how other spellings are translated."""

import math
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from kernel.errors import ValidationError
from kernel.params import SamplingParams
from kernel.structured_outputs import StructuredOutputs


def test_defaults_draw_from_the_whole_distribution_until_the_model_ends() -> None:
    """The defaults are vLLM's, but for max_tokens, whose default differs in every peer."""
    params = SamplingParams()

    assert (params.temperature, params.top_p, params.top_k) == (1.0, 1.0, 0)
    assert params.max_tokens is None


def takes_four(_a: object, _b: object, _c: object, _d: object) -> None:
    """No logits processor."""


REFUSED: list[Mapping[str, Any]] = [
    {"temperature": -0.1},
    {"temperature": math.nan},
    {"temperature": math.inf},
    {"temperature": "hot"},
    {"temperature": True},
    {"top_p": 0},
    {"top_p": 1.01},
    {"top_p": math.nan},
    {"top_k": -2},
    {"top_k": 1.5},
    {"seed": -1},
    {"seed": 2**64},
    {"max_tokens": 0},
    {"max_tokens": 1.0},
    {"min_tokens": -1},
    {"min_tokens": 3, "max_tokens": 2},
    {"stop": ""},
    {"stop": ["a", ""]},
    {"stop": [3]},
    {"stop": 3},
    {"stop": "a", "detokenize": False},
    {"stop_token_ids": [-1]},
    {"stop_token_ids": 7},
    {"stop_token_ids": ["a"]},
    {"ignore_eos": 1},
    {"detokenize": None},
    {"include_stop_str_in_output": "no"},
    {"min_p": -0.1},
    {"min_p": 1.5},
    {"typical_p": 0},
    {"typical_p": 1.1},
    {"presence_penalty": 2.5},
    {"frequency_penalty": -2.1},
    {"frequency_penalty": math.nan},
    {"repetition_penalty": 0},
    {"repetition_penalty": -1},
    {"logit_bias": {"a": 1}},
    {"logit_bias": {-1: 1}},
    {"logit_bias": {1: "much"}},
    {"logit_bias": {1: math.inf}},
    {"logit_bias": {1: 1.0, "1": 2.0}},
    {"logit_bias": [1, 2]},
    {"logit_bias": 3},
    {"allowed_token_ids": []},
    {"allowed_token_ids": [-1]},
    {"allowed_token_ids": 3},
    {"bad_words": [""]},
    {"bad_words": " "},
    {"bad_words": [[]]},
    {"bad_words": [3, 4]},
    {"bad_words": [[3, -1]]},
    {"bad_words": 3},
    {"logits_processors": [3]},
    {"logits_processors": [lambda: None]},
    {"logits_processors": [takes_four]},
    {"logits_processors": print},
    {"logprobs": -2},
    {"logprobs": True},
    {"prompt_logprobs": 1.0},
    {"skip_special_tokens": None},
    {"structured_outputs": {}},
    {"structured_outputs": {"regex": "a", "choice": ["b"]}},
    {"structured_outputs": {"json_object": False}},
    {"structured_outputs": "json"},
]


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_bad_value_is_refused_and_named(given: dict[str, Any]) -> None:
    """What is refused here can't fail in the middle of a step."""
    with pytest.raises(ValidationError) as caught:
        SamplingParams(**given)

    assert caught.value.parameter in given


def test_one_stop_string_and_several_become_a_tuple() -> None:
    """Both spellings are vLLM's; inside there is one form."""
    assert SamplingParams(stop="END").stop == ("END",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")
    assert SamplingParams(stop_token_ids=[1, 2]).stop_token_ids == (1, 2)


def test_top_k_minus_one_keeps_all() -> None:
    """Older vLLM spelled it so."""
    assert SamplingParams(top_k=-1) == SamplingParams(top_k=0)


def test_evolve_checks_again() -> None:
    """A copy with a change must not be a way around the checks."""
    with pytest.raises(ValidationError):
        attrs.evolve(SamplingParams(max_tokens=4), min_tokens=5)


def test_from_dict_names_the_unknown_parameter_and_a_near_one() -> None:
    """A misspelt parameter that was ignored silently would be found in production."""
    with pytest.raises(ValidationError, match="did you mean temperature") as caught:
        SamplingParams.from_dict({"temprature": 0.5})

    assert caught.value.parameter == "temprature"


def test_from_dict_lists_all_names_where_none_is_near() -> None:
    """The message is the documentation at hand."""
    with pytest.raises(ValidationError, match="known are allowed_token_ids, bad_words, detokenize"):
        SamplingParams.from_dict({"xyzzy": 1})


def test_hugging_face_names_are_translated() -> None:
    """A model's generation_config.json can be used as it is."""
    params = SamplingParams.from_hf(
        {
            "max_new_tokens": 20,
            "min_new_tokens": 2,
            "do_sample": True,
            "temperature": 0.6,
            "top_p": 0.9,
            "top_k": 50,
            "stop_strings": ["END"],
            "eos_token_id": 7,
            "bos_token_id": 1,
            "transformers_version": "5.0",
            "num_beams": 1,
            "repetition_penalty": 1.0,
            "no_such_key_but_none": None,
        }
    )

    assert params == SamplingParams(
        max_tokens=20,
        min_tokens=2,
        temperature=0.6,
        top_p=0.9,
        top_k=50,
        stop="END",
        stop_token_ids=(7,),
    )


def test_hugging_face_greedy_overrides_the_distribution() -> None:
    """There, temperature and top-k are ignored when do_sample is False."""
    params = SamplingParams.from_hf({"do_sample": False, "temperature": 0.6, "top_k": 50})

    assert params == SamplingParams(temperature=0)


@pytest.mark.parametrize(
    "given",
    [
        {"num_beams": 4},
        {"no_repeat_ngram_size": 2},
        {"sequence_bias": [[[3, 4], -1.0]]},
        {"sequence_bias": [3]},
        {"guidance_scale": 1.5},
        {"max_time": 3.0},
        {"do_sample": "yes"},
    ],
    ids=str,
)
def test_hugging_face_key_that_would_change_the_output_is_refused(given: dict[str, Any]) -> None:
    """Continuous batching in transformers drops such keys with a warning; we don't."""
    with pytest.raises(ValidationError) as caught:
        SamplingParams.from_hf(given)

    assert caught.value.parameter in given


def test_several_outputs_have_a_name_everywhere() -> None:
    """OpenAI's and vLLM's is ours; transformers counts sequences to return."""
    assert SamplingParams.from_openai({"n": 3}) == SamplingParams(n=3)
    assert SamplingParams.from_hf({"num_return_sequences": 2}) == SamplingParams(n=2)


def test_openai_names_are_translated() -> None:
    """The HTTP adapter and its users' clients speak this."""
    params = SamplingParams.from_openai(
        {
            "max_completion_tokens": 9,
            "temperature": 0,
            "stop": None,
            "seed": 3,
            "n": 1,
            "presence_penalty": 0,
            "logit_bias": {},
            "top_k": 4,
        }
    )

    assert params == SamplingParams(max_tokens=9, temperature=0, seed=3, top_k=4)


@pytest.mark.parametrize(
    "given",
    [
        {"n": 0},
        {"best_of": 2},
        {"model": "x"},
        {"echo": True},
        {"top_logprobs": 3},
        {"logprobs": True, "top_logprobs": -1},
        {"logprobs": 2, "top_logprobs": 3},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
    ],
    ids=str,
)
def test_openai_key_that_is_not_served_is_refused(given: dict[str, Any]) -> None:
    """Ignored silently it would be a wrong answer."""
    with pytest.raises(ValidationError):
        SamplingParams.from_openai(given)


def test_openai_limits_that_differ_are_a_contradiction() -> None:
    """Equal ones are what some clients send for old and new servers."""
    both = {"max_tokens": 5, "max_completion_tokens": 5}

    assert SamplingParams.from_openai(both).max_tokens == 5
    with pytest.raises(ValidationError, match="max_completion_tokens is 6"):
        SamplingParams.from_openai({**both, "max_completion_tokens": 6})


def test_hugging_face_bans_and_biases_take_our_names() -> None:
    """Three spellings there of what is a bad word or a bias here."""
    params = SamplingParams.from_hf(
        {
            "min_p": 0.05,
            "typical_p": 0.9,
            "repetition_penalty": 1.2,
            "bad_words_ids": [[3], [4, 5]],
            "suppress_tokens": [7, 8],
            "sequence_bias": [[[3], -2.0], [[9], 1.5]],
        }
    )

    assert params == SamplingParams(
        min_p=0.05,
        typical_p=0.9,
        repetition_penalty=1.2,
        bad_words=[[3], [4, 5], [7], [8]],
        logit_bias={3: -2.0, 9: 1.5},
    )
    assert SamplingParams.from_hf({"sequence_bias": {(3,): 1.0}}).logit_bias == ((3, 1.0),)


def test_hugging_face_greedy_ignores_every_limit() -> None:
    """There, warpers run only when do_sample is True."""
    params = SamplingParams.from_hf({"do_sample": False, "min_p": 0.1, "typical_p": 0.5})

    assert params == SamplingParams(temperature=0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 5}, 5),
        ({"logprobs": 3}, 3),
        ({"logprobs": 3, "top_logprobs": 3}, 3),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": None}, None),
    ],
    ids=str,
)
def test_openai_logprobs_of_both_apis_are_read(given: dict[str, Any], expected: int | None) -> None:
    """Chat requests say whether and how many, completions say how many."""
    assert SamplingParams.from_openai(given).logprobs == expected


def test_openai_names_of_vllm_are_passed_on() -> None:
    """JSON has no keys but strings."""
    params = SamplingParams.from_openai(
        {
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "logit_bias": {"3": 1, "10": -100},
            "min_p": 0.1,
            "bad_words": ["no"],
            "allowed_token_ids": [9, 3, 3],
            "prompt_logprobs": 2,
            "skip_special_tokens": False,
        }
    )

    assert params == SamplingParams(
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={3: 1.0, 10: -100.0},
        min_p=0.1,
        bad_words=("no",),
        allowed_token_ids=(3, 9),
        prompt_logprobs=2,
        skip_special_tokens=False,
    )


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, StructuredOutputs(json_object=True)),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"b": 1, "a": 2}}},
            StructuredOutputs(json='{"b": 1, "a": 2}'),
        ),
    ],
    ids=str,
)
def test_openai_response_format_is_a_structured_output(
    form: dict[str, Any], expected: StructuredOutputs | None
) -> None:
    """The order of a schema's keys stays: outputs follow it."""
    assert SamplingParams.from_openai({"response_format": form}).structured_outputs == expected


def test_params_hash_whatever_they_carry() -> None:
    """They are values: sets and caches of them must work."""
    given: dict[str, Any] = {
        "logit_bias": {1: 2.0},
        "bad_words": ["a", [1, 2]],
        "structured_outputs": {"json": {"type": "object"}},
    }

    assert hash(SamplingParams(**given)) == hash(SamplingParams(**given))
