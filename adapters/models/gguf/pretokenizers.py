"""How text is cut before its pieces are encoded, by the kinds that GGUF files name.

``tokenizer.ggml.pre`` names a kind; llama.cpp (``src/llama-vocab.cpp``, revision 00ad355e009e)
knows which regular expressions belong to it. Here each kind is what the ``tokenizer.json`` of the
models has that are converted under its name, which also says what llama.cpp leaves out: that text
is normalised first.
"""

from collections.abc import Callable, Mapping

import attrs
from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

from adapters.models.gguf.errors import UnsupportedVocabulary

__all__ = ["Cut", "cut_of", "known_cuts"]

_SHORT_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_SHORT_WORDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_MARKS}|{_SPACES}"
_QWEN2 = rf"{_SHORT_WORDS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_MARKS}|{_SPACES}"
_QWEN35 = (
    rf"{_SHORT_WORDS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{{0}}"
)
_CASED_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_CASED.replace('{0}', '')}|\p{{N}}|{_CASED_MARKS}|{_SPACES}"
_GPT4O = rf"{_CASED.replace('{0}', _SHORT_WORDS + '?')}|\p{{N}}{{1,3}}|{_CASED_MARKS}|{_SPACES}"


@attrs.frozen(eq=False)
class Cut:
    """What one kind does to a text before it is encoded."""

    make: Callable[[], PreTokenizer]
    is_normalized: bool = False
    """To Unicode's composed form (NFC)."""
    whole_words: bool = False
    """A piece that is a token is one token, whatever the merges say."""
    adds_bos: bool = False
    """A text begins with the beginning of sequence, where the metadata doesn't say."""

    def normalizer(self) -> Normalizer | None:
        """A normaliser, where there is one."""
        return normalizers.NFC() if self.is_normalized else None


def _bytes() -> PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits() -> PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _bytes()])


def _falcon() -> PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            _bytes(),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )


def _split(pattern: str) -> Callable[[], PreTokenizer]:
    def make() -> PreTokenizer:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    return make


_LLAMA3_CUT = Cut(_split(_LLAMA3), whole_words=True, adds_bos=True)
_CUTS: Mapping[str, Cut] = {
    **dict.fromkeys(("gpt-2", "gpt2", "jais", "granite-docling", "exaone4"), Cut(_bytes)),
    # Of GPT-NeoX, whose tokenizer the Mamba models have, too.
    **dict.fromkeys(("mpt", "olmo"), Cut(_bytes, is_normalized=True)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        Cut(_digits),
    ),
    "falcon": Cut(_falcon),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"),
        _LLAMA3_CUT,
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), Cut(_split(_LLAMA3))),
    **dict.fromkeys(("qwen2", "stablelm2"), Cut(_split(_QWEN2), is_normalized=True)),
    "qwen35": Cut(_split(_QWEN35), is_normalized=True),
    "tekken": Cut(_split(_TEKKEN), whole_words=True, adds_bos=True),
    "gpt-4o": Cut(_split(_GPT4O)),
}


def known_cuts() -> list[str]:
    """All kinds by name, in order of the alphabet."""
    return sorted(_CUTS)


def cut_of(kind: str, where: str) -> Cut:
    """The kind of this name.

    Raises:
        UnsupportedVocabulary: there is none.
    """
    found = _CUTS.get(kind)
    if found is None:
        raise UnsupportedVocabulary(
            f"{where}: tokenizer.ggml.pre {kind!r} isn't known; known: {', '.join(known_cuts())}."
            " Open the model's own directory, which has a tokenizer.json"
        )
    return found
