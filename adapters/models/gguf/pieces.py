"""Tokenizers from a vocabulary: byte-level pairs, and SentencePiece's pairs with byte fallback."""

from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer, decoders, models, normalizers, processors
from tokenizers.decoders import Decoder
from tokenizers.processors import PostProcessor

from adapters.models.gguf.errors import UnsupportedVocabulary
from adapters.models.gguf.pretokenizers import cut_of
from adapters.models.gguf.vocabulary import Vocabulary

__all__ = ["build_tokenizer"]

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""What SentencePiece writes for a space."""
_LONGEST = 1000
"""Characters of a token; each is looked at in all ways of cutting it in two."""


def build_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """The tokenizer that the metadata describes.

    Raises:
        UnsupportedVocabulary: it is of a kind that isn't built here, or isn't whole.
    """
    where = vocabulary.metadata.where
    make = {"gpt2": _byte_level, "llama": _sentence_piece}.get(vocabulary.model)
    if make is None:
        raise UnsupportedVocabulary(
            f"{where}: tokenizer.ggml.model {vocabulary.model!r} isn't built; known: gpt2, llama"
        )
    try:
        tokenizer, adds_bos = make(vocabulary)
        tokenizer.add_tokens(vocabulary.added)  # pyright: ignore[reportUnknownMemberType]  # a bare list
        bos = vocabulary.bos
        if bos is not None and vocabulary.flag("add_bos_token", adds_bos):
            tokenizer.post_processor = _begins_with(*bos)
        return tokenizer
    except UnsupportedVocabulary:
        raise
    except Exception as error:  # the library raises bare Exception
        raise UnsupportedVocabulary(f"{where}: the tokenizer isn't whole: {error}") from error


def _begins_with(token: str, number: int) -> PostProcessor:
    # Under another name: a token may hold spaces and colons, which have a meaning in templates.
    known = [{"id": "BOS", "ids": [number], "tokens": [token]}]
    return processors.TemplateProcessing("BOS $A", "BOS $A BOS $B", known)


def _byte_level(vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    cut = cut_of(vocabulary.text("pre", "default"), vocabulary.metadata.where)
    model = models.BPE(
        vocab=vocabulary.ids, merges=_pairs(vocabulary.merges), ignore_merges=cut.whole_words
    )
    tokenizer = Tokenizer(model)
    normalizer = cut.normalizer()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = cut.make()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer, cut.adds_bos


def _pairs(merges: Sequence[str]) -> list[tuple[str, str]]:
    """Both halves of each merge; a half may begin with a space."""
    pairs: list[tuple[str, str]] = []
    for merge in merges:
        at = merge.find(" ", 1)
        pairs.append((merge[:at], merge[at + 1 :]))
    return pairs


def _sentence_piece(vocabulary: Vocabulary) -> tuple[Tokenizer, bool]:
    ids = vocabulary.ids
    unknown = vocabulary.named.get("unk_token")
    has_bytes = "<0x00>" in ids
    tokenizer = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=_merges_of_scores(ids, vocabulary.scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=has_bytes,
        )
    )
    spaces = normalizers.Replace(" ", _SPACE)
    parts: list[Decoder] = [
        decoders.Replace(_SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if vocabulary.flag("add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
        parts.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(parts)
    return tokenizer, True


def _merges_of_scores(ids: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way in which a token is two tokens, the best scored tokens first.

    SentencePiece joins the neighbours whose joined token has the highest score; this says the
    same as a list of merges.
    """
    found: list[tuple[float, int, str, str]] = []
    for token, number in ids.items():
        if len(token) > _LONGEST:
            raise ValueError(f"token {number} has {len(token)} characters")
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in ids and right in ids:
                found.append((-scores[number], number, left, right))
    found.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in found]
