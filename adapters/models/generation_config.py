"""generation_config.json: where a model's outputs end, and how its makers mean it to be sampled.

Read once, when a model is opened. Its ends of sequence join those of config.json. Its sampling
values become the model's default parameters, for callers that give none. What it asks for and
isn't served is left out with a warning, not refused: such files carry much that nobody meant, and
a default of somebody else's must not keep a model from being served. A value that *is* served and
makes no sense is an error, as is a file that can't be read.
"""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

import attrs

from adapters.models.config_reader import ConfigReader
from adapters.models.directory import GENERATION_FILE
from adapters.models.errors import ConfigError
from kernel.errors import ValidationError
from kernel.params import SamplingParams
from kernel.step import ModelSpec

__all__ = [
    "NO_DEFAULTS",
    "GenerationDefaults",
    "UnservedKeys",
    "read_generation_config",
]

_SERVED: Final = {
    "do_sample": "temperature",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "stop_strings": "stop",
    "bad_words_ids": "bad_words",
    "suppress_tokens": "bad_words",
}
"""The parameter that each key is about."""
_NO_MATTER: Final = frozenset(
    {
        # About the file, the prompt or the batch, or about how fast transformers computes.
        *("_from_model_config", "transformers_version", "transformers_weights"),
        *("bos_token_id", "pad_token_id", "decoder_start_token_id"),
        *("use_cache", "cache_implementation", "cache_config", "max_cache_len"),
        *("compile_config", "disable_compile", "continuous_batching_config", "low_memory"),
        *("prefill_chunk_size", "is_assistant", "num_assistant_tokens", "use_mtp"),
        *("num_assistant_tokens_schedule", "assistant_confidence_threshold"),
        *("prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit"),
        *("assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight"),
        *("speculation_type", "output_scores", "output_logits", "output_attentions"),
        *("output_hidden_states", "return_dict_in_generate"),
    }
)
_NEUTRAL: Final[Mapping[str, object]] = {
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences", "length_penalty"), 1),
    **dict.fromkeys(("encoder_repetition_penalty", "guidance_scale", "top_h"), 1),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length"), 0),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "diversity_penalty", "penalty_alpha"), 0),
    **dict.fromkeys(("early_stopping", "renormalize_logits", "remove_invalid_values"), False),
    "token_healing": False,
}
"""At this value a key that isn't served changes nothing."""


class UnservedKeys(UserWarning):
    """generation_config.json asks for what isn't served; it is left out."""


@attrs.frozen
class GenerationDefaults:
    """What a model's generation_config.json says, as far as it is served."""

    eos_token_ids: tuple[int, ...] = ()
    params: SamplingParams | None = None
    """``None``: it says nothing about sampling."""
    unserved: tuple[str, ...] = ()
    """Keys that would change outputs and were left out."""

    def with_ends(self, *more: int) -> "GenerationDefaults":
        """The same with more ends of sequence (the tokenizer's own)."""
        return attrs.evolve(self, eos_token_ids=tuple(dict.fromkeys((*self.eos_token_ids, *more))))

    def applied_to(self, spec: ModelSpec) -> ModelSpec:
        """A model with these defaults; its own ends of sequence stay, and come first."""
        ends = tuple(dict.fromkeys((*spec.eos_token_ids, *self.eos_token_ids)))
        return attrs.evolve(spec, eos_token_ids=ends, default_params=self.params)


NO_DEFAULTS: Final = GenerationDefaults()
"""Of a model without the file."""


def read_generation_config(directory: Path, *, vocab_size: int) -> GenerationDefaults:
    """Read ``directory/generation_config.json``; a model without one has no defaults.

    Warns:
        UnservedKeys: names the keys that are left out.

    Raises:
        ConfigError: the file can't be read or is no JSON object, or a key that is served has a
            value that makes no sense; names key and value.
    """
    path = directory / GENERATION_FILE
    if not path.is_file():
        return NO_DEFAULTS
    values = _load(path)
    given = {key: value for key, value in values.items() if value is not None}
    unserved = tuple(sorted(key for key, value in given.items() if _is_unserved(key, value)))
    if unserved:
        warnings.warn(
            f"{path}: {', '.join(unserved)} would change outputs, and can't be served as a default;"
            " left out",
            UnservedKeys,
            stacklevel=2,
        )
    ends, params = _ends(given, vocab_size), _params(path, given)
    _check_banned(path, params, vocab_size)
    return GenerationDefaults(ends, params, unserved)


def _load(path: Path) -> Mapping[str, object]:
    try:
        parsed: object = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} can't be read: {error}; mend it or delete it") from error
    if not isinstance(parsed, dict):
        raise ConfigError(f"{path} must hold an object; mend it or delete it")
    return cast("dict[str, object]", parsed)


def _is_unserved(key: str, value: object) -> bool:
    if key in _SERVED or key in _NO_MATTER or key == "eos_token_id":
        return False
    return key not in _NEUTRAL or value != _NEUTRAL[key]


def _ends(given: Mapping[str, object], vocab_size: int) -> tuple[int, ...]:
    reader = ConfigReader(given, where=GENERATION_FILE)
    ids = reader.integers("eos_token_id", ())
    if any(id_ >= vocab_size for id_ in ids):
        raise reader.wrong(
            "eos_token_id", given["eos_token_id"], f"token ids below {vocab_size}, the vocabulary"
        )
    return tuple(dict.fromkeys(ids))


def _check_banned(path: Path, params: SamplingParams | None, vocab_size: int) -> None:
    """Else every request without parameters would be refused, as if its caller had asked for it."""
    for word in () if params is None else params.bad_words:
        beyond = [id_ for id_ in word if isinstance(id_, int) and id_ >= vocab_size]
        if beyond:
            raise ConfigError(
                f"{path}: bad_words_ids or suppress_tokens name {beyond[0]}, and token ids are"
                f" below {vocab_size}, the vocabulary; mend the file or delete it"
            )


def _params(path: Path, given: Mapping[str, object]) -> SamplingParams | None:
    asked = {key: given[key] for key in _SERVED if key in given}
    if not asked:
        return None
    try:
        return SamplingParams.from_hf(asked)
    except ValidationError as error:
        about = (key for key in asked if error.parameter in (key, _SERVED[key]))
        key = next(about, error.parameter)
        raise ConfigError(f"{path}: {key}: {error}; mend the file or delete it") from error
