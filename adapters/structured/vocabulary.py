"""A tokenizer.json as the library's vocabulary, with an end mark that no text can contain."""

import json
from typing import Any, cast

from adapters.structured.matcher import Vocabulary
from kernel.errors import ValidationError

__all__ = ["vocabulary_of"]

_END = "<|tenure:end of output|>"


def vocabulary_of(definition: str, library: Any) -> Vocabulary:
    """Build the library's vocabulary; takes about 10 µs a token, and holds the interpreter lock.

    The library wants to know an end-of-sequence token, guesses where it isn't told, and takes the
    token out of texts. Models have one, several or none, and a caller may change which count. So
    it is given a token of our own, one beyond the last, and the real ones are seen to elsewhere.

    Args:
        definition: the text of a tokenizer.json.

    Raises:
        ValidationError: the library doesn't know how this kind of tokenizer makes text of tokens.
    """
    parsed = cast("dict[str, Any]", json.loads(definition))
    added = cast("list[dict[str, Any]]", parsed["added_tokens"])
    vocabulary: Any = parsed["model"]["vocab"]  # a mapping; of a unigram model, pairs
    pairs = parsed["model"]["type"] == "Unigram"
    names: list[str] = [name for name, _ in vocabulary] if pairs else [*vocabulary]
    # Their number is the id that a further token gets, in the library and in ``tokenizers``. Ids
    # beyond it, of a vocabulary with gaps, are never allowed.
    end = len({*names, *(token["content"] for token in added)})
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added.append({"id": end, "content": _END, "special": True, **plain})
    try:
        return cast("Vocabulary", library.LLTokenizer(json.dumps(parsed), eos_token=end))
    except ValueError as error:
        raise ValidationError(
            parameter="structured_outputs",
            value="this form",
            why=f"it can't be served with this model's tokenizer: {error}",
        ) from error
