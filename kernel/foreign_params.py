"""Sampling parameters in the spelling of Hugging Face and of OpenAI, turned into ours.

A name is translated, passed on, or refused. A name that we don't serve is accepted only at the
value that changes nothing, because whole configurations are often handed over with every default
spelled out; anything else would be ignored silently, and that is refused.
"""

from collections.abc import Mapping

from kernel import checks
from kernel.errors import ValidationError

__all__ = ["from_hugging_face", "from_openai"]

_HF_NAMES = {
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "stop_strings": "stop",
    "eos_token_id": "stop_token_ids",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
}
_HF_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "num_return_sequences": (1,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "length_penalty": (1,),
    "diversity_penalty": (0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "typical_p": (1,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "early_stopping": (False,),
    "renormalize_logits": (False,),
    "remove_invalid_values": (False,),
    "output_scores": (False,),
    "output_logits": (False,),
    "output_attentions": (False,),
    "output_hidden_states": (False,),
    "return_dict_in_generate": (False,),
    "use_cache": (True,),
}
_HF_ABOUT = frozenset(
    {"_from_model_config", "transformers_version", "bos_token_id", "pad_token_id"}
)
_OPENAI_NAMES = {
    "max_completion_tokens": "max_tokens",
    **{
        name: name
        for name in (
            "max_tokens",
            "temperature",
            "top_p",
            "seed",
            "stop",
            "top_k",
            "min_tokens",
            "stop_token_ids",
            "ignore_eos",
            "include_stop_str_in_output",
        )
    },
}
_OPENAI_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "min_p": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "echo": (False,),
}


def from_hugging_face(given: Mapping[str, object]) -> dict[str, object]:
    """Translate the keys of a ``GenerationConfig``; keys at ``None`` are as if not given.

    ``do_sample=False`` is temperature 0. What is not given keeps Tenure's default, not that of
    transformers (which draws 20 tokens, and keeps the 50 likeliest). ``eos_token_id`` adds stop
    token ids to the model's own.

    Raises:
        ValidationError: a key that isn't served, at a value that would change the output.
    """
    rest = {key: value for key, value in given.items() if key not in _HF_ABOUT}
    do_sample = rest.pop("do_sample", None)
    if rest.get("max_time") is not None:
        raise ValidationError(
            parameter="max_time", value=rest["max_time"], why="pass timeout_s with the request"
        )
    ours = _translate(rest, _HF_NAMES, _HF_NEUTRAL, of="a generation config for Tenure")
    if isinstance(ours.get("stop_token_ids"), int):
        ours["stop_token_ids"] = (ours["stop_token_ids"],)
    if do_sample is not None:
        checks.truth("do_sample", do_sample)
        if not do_sample:
            ours |= {"temperature": 0.0, "top_p": 1.0, "top_k": 0}
    return ours


def from_openai(given: Mapping[str, object]) -> dict[str, object]:
    """Translate the sampling keys of an OpenAI request (and vLLM's additions to it).

    Keys at ``None`` are as if not given. Keys that are not about sampling (``model``, ``messages``,
    ``stream``) are refused too: take them out first.

    Raises:
        ValidationError: a key that isn't served, at a value that would change the output, or
            ``max_tokens`` and ``max_completion_tokens`` that differ.
    """
    old, new = given.get("max_tokens"), given.get("max_completion_tokens")
    if old is not None and new is not None and old != new:
        raise ValidationError(
            parameter="max_tokens", value=old, why=f"max_completion_tokens is {new!r}; pass one"
        )
    return _translate(given, _OPENAI_NAMES, _OPENAI_NEUTRAL, of="an OpenAI request for Tenure")


def _translate(
    given: Mapping[str, object],
    names: Mapping[str, str],
    neutral: Mapping[str, tuple[object, ...]],
    *,
    of: str,
) -> dict[str, object]:
    ours: dict[str, object] = {}
    for key, value in given.items():
        if value is None:
            continue
        if key in names:
            ours[names[key]] = value
        elif key not in neutral:
            checks.known_names([key], [*names, *neutral], of=of)
        elif value not in neutral[key]:
            raise ValidationError(
                parameter=key, value=value, why=f"only {neutral[key][0]!r} is served; leave it out"
            )
    return ours
