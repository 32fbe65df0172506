"""The compiler keeps forms, knows the model's tokenizer, and says when its library is missing."""

import json
import sys
from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from adapters.structured import LibraryCompiler, compiler
from kernel import StructuredOutputs, ValidationError
from tests.structured.forms import EOS, allowed, ids, tokenizer

DIGITS = StructuredOutputs(regex="[0-9]")


def test_nothing_is_loaded_before_a_form_is_asked_for() -> None:
    """Most engines never compile one, and the vocabulary takes its time and memory."""
    asked: list[str] = []

    def definition() -> str:
        asked.append("once")
        return tokenizer().to_str()

    made = LibraryCompiler(definition, (EOS,))

    assert not made.is_compiled(DIGITS)
    assert asked == []

    for form in (DIGITS, DIGITS, StructuredOutputs(choice=["a"])):
        made.constraint(form, stop_ids=frozenset({EOS}), min_tokens=0)
    assert made.is_compiled(DIGITS)
    assert asked == ["once"]


def test_it_keeps_the_forms_that_were_asked_for_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "_KEPT", 2)
    made = LibraryCompiler(tokenizer().to_str, (EOS,))
    first, second, third = (StructuredOutputs(choice=[text]) for text in "abc")

    for form in (first, second, first, third):
        made.constraint(form, stop_ids=frozenset(), min_tokens=0)

    kept = [made.is_compiled(form) for form in (first, second, third)]
    assert kept == [True, False, True]


def test_a_form_that_is_refused_is_not_kept() -> None:
    made, bad = LibraryCompiler(tokenizer().to_str, (EOS,)), StructuredOutputs(regex="[")

    for _ in range(2):
        with pytest.raises(ValidationError):
            made.constraint(bad, stop_ids=frozenset(), min_tokens=0)
        assert not made.is_compiled(bad)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    made = LibraryCompiler(tokenizer().to_str, (EOS,))

    with pytest.raises(ValidationError, match=r"pip install 'tenure\[structured\]'"):
        made.constraint(DIGITS, stop_ids=frozenset(), min_tokens=0)


# Tokenizers


def add_special(library: Tokenizer, names: list[str]) -> None:
    added = [AddedToken(name, special=True) for name in names]
    library.add_special_tokens(added)  # pyright: ignore[reportUnknownMemberType]  # a bare list


def byte_level(tokens: list[str], *, special: bool) -> Tokenizer:
    """All bytes, and some tokens more, the first of which ends sequences."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({token: at for at, token in enumerate([*alphabet, *tokens])}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    if special:
        add_special(made, tokens)
    return made


def byte_fallback() -> Tokenizer:
    """As Llama's: words with a mark for the space, and a token for each byte."""
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "1", "2", "12"]
    made = Tokenizer(
        models.BPE({piece: at for at, piece in enumerate(pieces)}, [("1", "2")], byte_fallback=True)
    )
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    add_special(made, ["</s>"])
    return made


def added_behind() -> Tokenizer:
    """As Llama 3's: special tokens have ids behind the model's vocabulary, and are none of it."""
    made = byte_level([], special=False)
    add_special(made, ["<begin>", "<end>"])
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: byte_level(["<end>"], special=True),
        lambda: byte_level(["<end>"], special=False),
        byte_fallback,
        added_behind,
    ],
    ids=["special", "as text", "byte fallback", "added"],
)
def test_an_end_of_sequence_is_no_text_whatever_the_tokenizer_says(
    make: Callable[[], Tokenizer],
) -> None:
    """A model that draws it inside of a string has ended its turn in the midst of it."""
    library = make()
    end = library.token_to_id("</s>") or library.token_to_id("<end>")
    assert end is not None
    made = LibraryCompiler(library.to_str, (end,))
    constraint = made.constraint(
        StructuredOutputs(regex="[^0-9]*[0-9]+"), stop_ids=frozenset({end}), min_tokens=0
    )
    size = library.get_vocab_size()
    one = library.token_to_id("1")
    assert one is not None

    found = allowed(constraint, [one], size)

    assert end not in allowed(constraint, [], size)
    assert end in found
    assert all(library.decode([token]) for token in found if token != end)


def test_a_special_token_that_a_grammar_names_is_drawn_in_its_place() -> None:
    """``<name>`` in a grammar is a special token, an end of sequence too."""
    library = byte_level(["<end>", "<tool>"], special=True)
    end, tool = library.token_to_id("<end>"), library.token_to_id("<tool>")
    assert end is not None
    made = LibraryCompiler(library.to_str, (end,))
    constraint = made.constraint(
        StructuredOutputs(grammar='start: "a" <tool> | "b" <end>'),
        stop_ids=frozenset({end}),
        min_tokens=0,
    )
    (a,), (b,) = library.encode("a").ids, library.encode("b").ids
    size = library.get_vocab_size()

    assert allowed(constraint, [], size) == [a, b]
    assert allowed(constraint, [a], size) == [tool]
    assert allowed(constraint, [b], size) == [end]


def test_a_tokenizer_without_any_end_needs_none() -> None:
    library = byte_level([], special=False)
    made = LibraryCompiler(library.to_str, ())
    constraint = made.constraint(DIGITS, stop_ids=frozenset(), min_tokens=0)
    (one,) = library.encode("1").ids

    assert sorted(library.decode([token]) for token in allowed(constraint, [], 256)) == [
        *"0123456789"
    ]
    assert constraint.is_complete([one])


def test_ids_beyond_a_gap_in_the_vocabulary_are_never_allowed() -> None:
    """The library numbers tokens without gaps; what it can't name it must not allow."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids_by_name = {name: at for at, name in enumerate(alphabet)} | {"ab": 300}
    library = Tokenizer(models.BPE(ids_by_name, [("a", "b")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    made = LibraryCompiler(library.to_str, ())
    constraint = made.constraint(
        StructuredOutputs(regex="(ab|ac)+"), stop_ids=frozenset(), min_tokens=0
    )

    assert allowed(constraint, [], 301) == [ids_by_name["a"]]
    assert allowed(constraint, [ids_by_name["a"]], 301) == [ids_by_name["b"], ids_by_name["c"]]


def test_a_tokenizer_of_a_kind_that_the_library_cannot_read_is_refused() -> None:
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.decoder = decoders.WordPiece()
    made = LibraryCompiler(words.to_str, ())

    with pytest.raises(ValidationError, match=r"this model's tokenizer: can't determine decoder"):
        made.constraint(DIGITS, stop_ids=frozenset(), min_tokens=0)


def test_forms_with_the_same_text_are_told_apart() -> None:
    text = json.dumps({"type": "integer"})
    as_schema, as_choice = StructuredOutputs(json=text), StructuredOutputs(choice=[text])
    made = LibraryCompiler(tokenizer().to_str, (EOS,))

    found = [
        allowed(made.constraint(form, stop_ids=frozenset({EOS}), min_tokens=0), [])
        for form in (as_schema, as_choice)
    ]

    assert set(ids("1")) <= set(found[0])
    assert set(found[0]).isdisjoint(found[1])
