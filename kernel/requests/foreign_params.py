"""Sampling parameters in the spelling of Hugging Face and of OpenAI, turned into ours.

A name is translated, passed on, or refused. A name that we don't serve is accepted only at the
value that changes nothing, because whole configurations are often handed over with every default
spelled out; anything else would be ignored silently, and that is refused.
"""

from collections.abc import Mapping, Sequence
from typing import cast

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
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repetition_penalty",
    "bad_words_ids": "bad_words",
    "num_return_sequences": "n",
}
_HF_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "encoder_repetition_penalty": (1,),
    "length_penalty": (1,),
    "diversity_penalty": (0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
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
    "guidance_scale": (1,),
    "token_healing": (False,),
    "is_assistant": (False,),
    "low_memory": (False,),
    "disable_compile": (False, True),
    "use_mtp": (False,),
}
_HF_ABOUT = frozenset(
    {"_from_model_config", "transformers_version", "bos_token_id", "pad_token_id"}
)
_OPENAI_NAMES = {
    "max_completion_tokens": "max_tokens",
    **{
        name: name
        for name in (
            "n",
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
            "min_p",
            "typical_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
            "allowed_token_ids",
            "bad_words",
            "prompt_logprobs",
            "skip_special_tokens",
            "structured_outputs",
        )
    },
}
_OPENAI_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
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
    bias, suppressed = rest.pop("sequence_bias", None), rest.pop("suppress_tokens", None)
    ours = _translate(rest, _HF_NAMES, _HF_NEUTRAL, of="a generation config for Tenure")
    if isinstance(ours.get("stop_token_ids"), int):
        ours["stop_token_ids"] = (ours["stop_token_ids"],)
    if bias is not None:
        ours["logit_bias"] = _single_biases(bias)
    if suppressed is not None:
        banned = [(token,) for token in checks.token_ids("suppress_tokens", suppressed)]
        ours["bad_words"] = (*checks.items("bad_words_ids", ours.get("bad_words")), *banned)
    if do_sample is not None:
        checks.truth("do_sample", do_sample)
        if not do_sample:
            ours |= {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "typical_p": 1.0}
    return ours


def _single_biases(given: object) -> list[tuple[object, object]]:
    """``sequence_bias`` where every sequence is one token: a mapping, or pairs as JSON has them."""
    pairs = cast("Mapping[object, object]", given).items() if isinstance(given, Mapping) else given
    found: list[tuple[object, object]] = []
    for pair in checks.items("sequence_bias", pairs):
        ids, bias = cast("tuple[object, object]", pair) if _is_pair(pair) else ((), None)
        tokens = checks.token_ids("sequence_bias", ids)
        if len(tokens) != 1:
            why = "only sequences of one token are served; ban longer ones by bad_words_ids"
            raise ValidationError(parameter="sequence_bias", value=pairs, why=why)
        found.append((tokens[0], bias))
    return found


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(cast("Sequence[object]", value)) == 2


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
    rest = {key: value for key, value in given.items() if value is not None}
    logprobs, top = rest.pop("logprobs", None), rest.pop("top_logprobs", None)
    wanted = rest.pop("response_format", None)
    ours = _translate(rest, _OPENAI_NAMES, _OPENAI_NEUTRAL, of="an OpenAI request for Tenure")
    count = _logprobs(logprobs, top)
    if count is not None:
        ours["logprobs"] = count
    if wanted is not None:
        form = _response_format(wanted)
        if form is not None:
            if "structured_outputs" in ours:
                why = "structured_outputs says it, too; pass one"
                raise ValidationError(parameter="response_format", value=wanted, why=why)
            ours["structured_outputs"] = form
    return ours


def _logprobs(logprobs: object, top: object) -> int | None:
    """How many to report: chat requests say whether and how many, completions how many."""
    if top is not None:
        checks.integer("top_logprobs", top, least=0)
    if logprobs is None or isinstance(logprobs, bool):
        if top and not logprobs:
            raise ValidationError(parameter="top_logprobs", value=top, why="it needs logprobs=True")
        return cast("int", top or 0) if logprobs else None
    checks.integer("logprobs", logprobs, least=-1)
    if top is not None and top != logprobs:
        why = f"top_logprobs is {top!r}; pass one"
        raise ValidationError(parameter="logprobs", value=logprobs, why=why)
    return cast("int", logprobs)


def _response_format(given: object) -> dict[str, object] | None:
    """OpenAI's ``response_format``; ``None``: plain text."""
    checks.instance("response_format", given, dict)
    form = cast("dict[str, object]", given)
    match form.get("type"):
        case "text":
            return None
        case "json_object":
            return {"json_object": True}
        case "json_schema":
            described = form.get("json_schema")
            checks.instance("response_format.json_schema", described, dict)
            return {"json": cast("dict[str, object]", described).get("schema")}
        case kind:
            why = "its type must be text, json_object or json_schema"
            raise ValidationError(parameter="response_format", value=kind, why=why)


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
