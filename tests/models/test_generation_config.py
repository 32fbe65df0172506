"""generation_config.json becomes ends of sequence and default parameters, and errors name keys."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig

from adapters.models.directory import model_path
from adapters.models.errors import ConfigError
from adapters.models.generation_config import (
    NO_DEFAULTS,
    GenerationDefaults,
    UnservedKeys,
    read_generation_config,
)
from adapters.torch_device.factory import open_torch
from kernel import Engine, EngineConfig, SamplingParams, ValidationError
from kernel.step import ModelSpec
from tests.models.tiny import make_directory

VOCABULARY = 100


def read(directory: Path, values: object = None, *, text: str | None = None) -> GenerationDefaults:
    (directory / "generation_config.json").write_text(text or json.dumps(values))
    return read_generation_config(directory, vocab_size=VOCABULARY)


def saved(directory: Path, **values: object) -> GenerationDefaults:
    """What transformers itself writes for these values, read."""
    config: Any = GenerationConfig(**values)
    config.save_pretrained(directory)
    return read_generation_config(directory, vocab_size=VOCABULARY)


def test_a_model_without_the_file_has_no_defaults(tmp_path: Path) -> None:
    assert read_generation_config(tmp_path, vocab_size=VOCABULARY) is NO_DEFAULTS


def test_what_transformers_writes_is_read(tmp_path: Path) -> None:
    found = saved(
        tmp_path,
        do_sample=True,
        temperature=0.6,
        top_p=0.9,
        top_k=20,
        min_p=0.05,
        typical_p=0.95,
        repetition_penalty=1.05,
        max_new_tokens=50,
        min_new_tokens=2,
        stop_strings=["END"],
        bad_words_ids=[[5, 6], [7]],
        suppress_tokens=[8],
        eos_token_id=[2, 3],
        bos_token_id=1,
        pad_token_id=0,
        use_cache=True,
    )

    expected = SamplingParams(
        temperature=0.6,
        top_p=0.9,
        top_k=20,
        min_p=0.05,
        typical_p=0.95,
        repetition_penalty=1.05,
        max_tokens=50,
        min_tokens=2,
        stop=("END",),
        bad_words=((5, 6), (7,), (8,)),
    )
    assert found == GenerationDefaults((2, 3), expected)


def test_a_file_that_transformers_wrote_of_nothing_says_nothing(tmp_path: Path) -> None:
    assert saved(tmp_path) == NO_DEFAULTS


@pytest.mark.parametrize(("given", "ends"), [(7, (7,)), ([7, 8, 7], (7, 8)), (None, ())])
def test_ends_of_sequence_are_one_several_or_none(
    tmp_path: Path, given: object, ends: tuple[int, ...]
) -> None:
    assert read(tmp_path, {"eos_token_id": given}) == GenerationDefaults(ends)


def test_without_sampling_the_default_is_greedy_whatever_else_is_there(tmp_path: Path) -> None:
    """Transformers ignores temperature and the like then; penalties and lengths stay."""
    found = read(
        tmp_path,
        {"do_sample": False, "temperature": 0.6, "top_k": 50, "repetition_penalty": 1.1},
    )

    assert found.params == SamplingParams(temperature=0, repetition_penalty=1.1)


def test_without_a_word_on_sampling_the_values_are_taken_as_they_are(tmp_path: Path) -> None:
    """As vLLM reads it; transformers would be greedy."""
    assert read(tmp_path, {"top_p": 0.8}).params == SamplingParams(top_p=0.8)


def test_a_key_that_is_not_served_is_left_out_with_a_warning_that_names_it(tmp_path: Path) -> None:
    with pytest.warns(UnservedKeys, match=r"generation_config.json: max_length, num_beams would"):
        found = saved(tmp_path, num_beams=4, max_length=2048, temperature=None)

    assert found == GenerationDefaults(unserved=("max_length", "num_beams"))


def test_a_key_of_nobodys_is_left_out_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(UnservedKeys, match="foo"):
        assert read(tmp_path, {"foo": "bar", "top_k": 5}).params == SamplingParams(top_k=5)


def test_a_key_that_is_not_served_is_silent_where_it_changes_nothing(tmp_path: Path) -> None:
    neutral = {
        "num_beams": 1,
        "no_repeat_ngram_size": 0,
        "early_stopping": False,
        "length_penalty": 1.0,
        "diversity_penalty": None,
        "transformers_version": "5.0.0",
        "_from_model_config": True,
        "cache_implementation": "hybrid",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(tmp_path, neutral) == NO_DEFAULTS


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"temperature": "hot"}, "temperature: temperature='hot'"),
        ({"temperature": -1}, "temperature: temperature=-1"),
        ({"top_p": 0}, "top_p: top_p=0"),
        ({"max_new_tokens": 0}, "max_new_tokens: max_tokens=0"),
        ({"bad_words_ids": [["a"]]}, "bad_words_ids: bad_words"),
        ({"min_new_tokens": 5, "max_new_tokens": 3}, "min_new_tokens: min_tokens=5"),
        ({"do_sample": "no"}, "do_sample: do_sample='no'"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be a list of whole numbers"),
        ({"eos_token_id": [1, True]}, "eos_token_id must be"),
        ({"eos_token_id": -1}, "eos_token_id must be"),
        ({"eos_token_id": [1, 100]}, r"eos_token_id must be token ids below 100.*\[1, 100\]"),
        ({"bad_words_ids": [[1], [2, 100]]}, "name 100, and token ids are below 100"),
        ({"suppress_tokens": [100]}, "name 100, and token ids are below 100"),
    ],
)
def test_a_served_key_with_a_bad_value_is_an_error_that_names_key_and_value(
    tmp_path: Path, values: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        read(tmp_path, values)


@pytest.mark.parametrize("text", ["{", "[1]", "null", "[" * 100_000])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"generation_config\.json.*mend it or delete it"):
        read(tmp_path, text=text)


def test_a_file_that_is_no_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match=r"generation_config\.json can't be read"):
        read_generation_config(tmp_path, vocab_size=VOCABULARY)


def test_an_end_of_config_json_beyond_the_vocabulary_is_refused_too(tmp_path: Path) -> None:
    """Else a request with ``min_tokens`` would fail its whole step on the device."""
    model = make_directory(tmp_path)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    config["eos_token_id"] = config["vocab_size"]
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")

    with pytest.raises(ConfigError, match="eos_token_id must be token ids below"):
        open_torch(model=str(model), device="cpu", dtype="auto")


def test_ends_of_sequence_of_all_files_are_joined_the_models_own_first() -> None:
    spec = ModelSpec(
        name="m",
        vocab_size=VOCABULARY,
        max_model_len=64,
        eos_token_ids=(9, 3),
        uses_slots=False,
        uses_pages=False,
        slot_bytes=0,
        page_token_bytes=0,
    )
    defaults = GenerationDefaults((3, 4), SamplingParams(top_k=5)).with_ends(4, 6)

    joined = defaults.applied_to(spec)

    assert joined.eos_token_ids == (9, 3, 4, 6)
    assert joined.default_params == SamplingParams(top_k=5)


# Through an engine


def directory_with(directory: Path, values: object) -> EngineConfig:
    """The bundled model, with a generation_config.json beside it."""
    for file in model_path("bundled").glob("*.*"):
        (directory / file.name).symlink_to(file)
    (directory / "generation_config.json").write_text(json.dumps(values))
    return EngineConfig(model=str(directory), max_num_seqs=4, num_pages=64)


async def test_a_request_without_parameters_is_sampled_as_the_model_says(tmp_path: Path) -> None:
    config = directory_with(tmp_path, {"do_sample": False, "max_new_tokens": 6})
    async with Engine.open(config) as engine:
        asked = await engine.complete("The key is", SamplingParams(temperature=0, max_tokens=6))
        for _ in range(2):
            plain = await engine.complete("The key is")
            assert plain.token_ids == asked.token_ids
        (mapped,) = await engine.map(["The key is"])
        assert mapped.token_ids == asked.token_ids
        async with engine.session() as session, session.turn("The key is") as turn:
            assert (await turn.wait()).token_ids == asked.token_ids


async def test_a_callers_own_parameters_are_taken_whole(tmp_path: Path) -> None:
    config = directory_with(tmp_path, {"do_sample": False, "max_new_tokens": 6})
    async with Engine.open(config) as engine:
        given = await engine.complete("The key is", SamplingParams(max_tokens=7, seed=1))
        assert len(given.token_ids) == 7

        assert engine.default_params() == SamplingParams(temperature=0, max_tokens=6)
        changed = engine.default_params(max_tokens=9, seed=3)
        assert changed == SamplingParams(temperature=0, max_tokens=9, seed=3)
        with pytest.raises(ValidationError, match="max_token"):
            engine.default_params(max_token=9)


async def test_an_end_of_sequence_that_only_this_file_names_ends_a_turn(tmp_path: Path) -> None:
    async with Engine.open(EngineConfig(max_num_seqs=4, num_pages=64)) as engine:
        greedy = SamplingParams(temperature=0, max_tokens=6)
        whole = await engine.complete("The key is", greedy)
        assert engine.default_params() == SamplingParams()
    end = whole.token_ids[3]
    assert end not in whole.token_ids[:3]

    async with Engine.open(directory_with(tmp_path, {"eos_token_id": [end]})) as engine:
        assert engine.core.model.eos_token_ids == (0, end)
        ended = await engine.complete("The key is", greedy)
        assert (ended.finish_reason, ended.stop_reason) == ("stop", None)
        assert ended.token_ids == whole.token_ids[:4]
        on = await engine.complete(
            "The key is", SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
        )
        assert on.token_ids == whole.token_ids


async def test_a_damaged_file_keeps_the_model_from_being_opened(tmp_path: Path) -> None:
    config = directory_with(tmp_path, {"temperature": "hot"})
    with pytest.raises(ConfigError, match="temperature"):
        async with Engine.open(config):
            pass
