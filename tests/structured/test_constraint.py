"""A constraint is a function of the tokens that it is asked about, whatever it was asked before."""

import gc
import threading
import weakref

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.structured import LibraryCompiler
from adapters.structured.constraint import DeadEnd, GrammarConstraint
from kernel import StructuredOutputs
from tests.structured.forms import EOS, PERSON, allowed, constraint_of, ids, tokenizer

DIGITS = StructuredOutputs(regex="[0-9]{1,3}")
FORMS = (
    DIGITS,
    StructuredOutputs(json=PERSON),
    StructuredOutputs(json_object=True),
    StructuredOutputs(choice=["red", "green", "grey", "é😀"]),
    StructuredOutputs(grammar='start: "(" start ")" | /[a-z]+/ | start "+" start'),
    StructuredOutputs(regex=r"(.|\n)*"),
)


@given(form=st.sampled_from(FORMS), data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.data_too_large])
def test_what_it_says_depends_on_the_tokens_alone(
    form: StructuredOutputs, data: st.DataObject
) -> None:
    """Grow, cut and change the tokens at random: it agrees with one that was never asked before."""
    followed, taken = constraint_of(form), list[int]()
    for _ in range(12):
        fresh = constraint_of(form)
        expected = allowed(fresh, taken)
        assert allowed(followed, taken) == expected
        assert followed.is_complete(taken) == fresh.is_complete(taken)
        text = [token for token in expected if token != EOS]
        grows: bool = data.draw(st.sampled_from([True, True, True, False]))
        if text and grows:
            taken = [*taken, data.draw(st.sampled_from(text))]
        else:
            keep = data.draw(st.integers(0, len(taken)))
            taken = taken[:keep]


def test_other_tokens_of_the_same_length_are_followed() -> None:
    """A length alone would not tell them from those before."""
    constraint = constraint_of(StructuredOutputs(regex="ab|cd"))
    after_a = allowed(constraint, ids("a"))

    assert allowed(constraint, ids("c")) == [*ids("d")]
    assert allowed(constraint, ids("a")) == after_a == [*ids("b")]


def test_a_token_that_does_not_fit_is_an_error_and_changes_nothing() -> None:
    constraint = constraint_of(DIGITS)
    before = allowed(constraint, ids("1"))

    for _ in range(2):
        with pytest.raises(DeadEnd, match="isn't in the form"):
            allowed(constraint, [*ids("1"), *ids("x")])
    assert allowed(constraint, ids("1")) == before


def test_two_turns_of_one_form_do_not_move_each_other() -> None:
    first, second = constraint_of(DIGITS), constraint_of(DIGITS)
    start = allowed(second, [])

    allowed(first, ids("1"))

    assert allowed(second, []) == start


def test_constraints_of_one_form_serve_several_threads() -> None:
    """Copies of the library's matcher share what they have worked out."""
    text, done = ids('{"name":"Ada","age":36,"tags":["red"]}'), list[bool]()

    def follow() -> None:
        constraint = constraint_of(StructuredOutputs(json=PERSON))
        done.append(all(token in allowed(constraint, text[:at]) for at, token in enumerate(text)))

    threads = [threading.Thread(target=follow) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert done == [True] * 4


def test_a_form_that_wears_its_library_out_fails_each_turn_at_the_same_token() -> None:
    """What the copies share is bounded; the second turn would otherwise fail at its first."""
    form = StructuredOutputs(regex="((a{1,300}){1,300}){1,300}")
    compiler = LibraryCompiler(tokenizer().to_str, (EOS,))

    def lasts() -> int:
        constraint = compiler.constraint(form, stop_ids=frozenset({EOS}), min_tokens=0)
        taken: list[int] = []
        while len(taken) < 400:
            try:
                found = allowed(constraint, taken)
            except DeadEnd as error:
                assert "too much for its library" in str(error)  # noqa: PT017 - the loop's end
                return len(taken)
            taken.append(next(token for token in found if token != EOS))
        return len(taken)

    first = lasts()

    assert 0 < first < 400
    assert lasts() == first


# Where an output may end


def test_an_end_is_allowed_where_the_form_may_end_and_nowhere_else() -> None:
    constraint = constraint_of(DIGITS)

    assert EOS not in allowed(constraint, [])
    assert EOS in allowed(constraint, ids("1"))
    assert allowed(constraint, ids("123")) == [EOS]


def test_every_end_of_the_turn_is_allowed_there_the_callers_own_too() -> None:
    ends = {EOS, 300, 301}
    constraint = constraint_of(DIGITS, stop_ids=ends)

    assert ends.isdisjoint(allowed(constraint, []))
    assert allowed(constraint, ids("123")) == sorted(ends)


def test_an_end_that_is_ignored_is_never_allowed() -> None:
    stop = 300
    constraint = constraint_of(DIGITS, stop_ids={stop})

    assert EOS not in allowed(constraint, ids("1"))
    assert allowed(constraint, ids("123")) == [stop]


def test_a_stop_token_is_no_text_of_the_form_as_long_as_anything_else_is() -> None:
    """Drawn as text, it would end the turn in the midst of its output."""
    one, two = *ids("1"), *ids("2")
    either = constraint_of(StructuredOutputs(regex="[12]1"), stop_ids={EOS, one})

    assert allowed(either, []) == [two]
    assert allowed(either, [two]) == [one]


def test_before_min_tokens_no_end_is_allowed_while_anything_else_is() -> None:
    constraint = constraint_of(DIGITS, min_tokens=3)

    assert EOS not in allowed(constraint, ids("1"))
    assert EOS not in allowed(constraint, [*ids("1"), *ids("2")])
    assert allowed(constraint, [*ids("1"), *ids("2"), *ids("3")]) == [EOS]


def test_the_end_of_the_form_goes_before_min_tokens() -> None:
    """Nothing else is left: the alternative would be a turn that can't draw."""
    constraint = constraint_of(StructuredOutputs(choice=["1"]), min_tokens=5)

    assert allowed(constraint, ids("1")) == [EOS]


def test_it_is_complete_where_nothing_may_follow_and_no_token_could_say_so() -> None:
    constraint = constraint_of(DIGITS, stop_ids=())

    assert not constraint.is_complete(ids("1"))
    assert constraint.is_complete([*ids("1"), *ids("2"), *ids("3")])
    assert not constraint_of(DIGITS).is_complete([*ids("1"), *ids("2"), *ids("3")])


def test_a_complete_output_has_no_next_token() -> None:
    constraint = constraint_of(DIGITS, stop_ids=())

    with pytest.raises(DeadEnd, match="no token can go on"):
        allowed(constraint, [*ids("1"), *ids("2"), *ids("3")])


def test_the_first_token_after_an_output_that_may_be_empty_may_be_an_end() -> None:
    assert EOS in allowed(constraint_of(StructuredOutputs(regex="[0-9]*")), [])


# The mask


@pytest.mark.parametrize("vocabulary", [2048, 2049, 2080, 2100])
def test_rows_beyond_the_tokenizers_ids_are_never_allowed(vocabulary: int) -> None:
    """Models have more rows than tokens, and the library's own end mark is one beyond the last."""
    constraint = constraint_of(DIGITS)

    for generated in ([], ids("1"), ids("123")):
        assert max(allowed(constraint, generated, vocabulary)) < 2048


def test_a_mask_is_whole_before_it_is_written() -> None:
    constraint = constraint_of(DIGITS)
    mask = torch.full((64,), -1, dtype=torch.int32)

    with pytest.raises(DeadEnd):
        constraint.fill(ids("x"), mask)

    assert (mask == -1).all()


def test_a_constraint_is_collected_with_its_turn() -> None:
    """The compiler keeps the form, and nothing of the turn."""
    constraint: GrammarConstraint | None = constraint_of(DIGITS)
    assert constraint is not None
    gone = weakref.ref(constraint)

    del constraint
    gc.collect()

    assert gone() is None
