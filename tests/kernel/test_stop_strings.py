"""Stop strings that span tokens: where text and tokens end, and what is held back."""

from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kernel.requests.detokenizer import IncrementalDetokenizer, StopHit
from tests.kernel.byte_tokenizer import one_token_each, split_bytes


def expected_hit(tokens: list[bytes], stops: Sequence[str], least: int = 0) -> StopHit | None:
    """Say by brute force where the text ends: decode everything after each token."""
    before = ""
    for number, data in enumerate(accumulate(tokens), start=1):
        text = data.decode("utf-8", "ignore")
        found = [
            (start + len(stop), start, stop)
            for stop in stops
            for start in range(len(text))
            if text.startswith(stop, start) and start + len(stop) > len(before)
        ]
        if found and number > least:
            _, start, stop = min(found)
            output = text[:start]
            size = len(output.encode())
            kept = next(n for n in range(number + 1) if len(b"".join(tokens[:n])) >= size)
            return StopHit(stop, kept, output)
        before = text
    return None


@st.composite
def text_with_stops(draw: st.DrawFn) -> tuple[str, list[bytes], tuple[str, ...]]:
    letters = st.text(st.sampled_from("ab€😀"), max_size=14)
    text = draw(letters)
    stop = st.text(st.sampled_from("ab€😀"), min_size=1, max_size=4)
    return text, draw(split_bytes(text.encode())), tuple(draw(st.lists(stop, max_size=3)))


@given(case=text_with_stops(), least=st.integers(0, 4))
def test_stop_string_ends_text_and_tokens_where_brute_force_says(
    case: tuple[str, list[bytes], tuple[str, ...]], least: int
) -> None:
    """The kept tokens are the fewest that cover the output: at the stop's token, or after it."""
    text, tokens, stops = case
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer, stops, min_tokens=least)
    pieces = [detokenizer.push([token]) for token in ids]
    pieces.append(detokenizer.finish())
    hit = expected_hit(tokens, stops, least)

    assert detokenizer.stop_hit == hit
    assert "".join(pieces) == (text if hit is None else hit.text)


@given(case=text_with_stops(), include_stop=st.booleans())
def test_no_token_is_delivered_that_the_stop_string_takes_back(
    case: tuple[str, list[bytes], tuple[str, ...]], include_stop: bool
) -> None:
    """Not even in the moment between the hit and the end of the turn."""
    _, tokens, stops = case
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer, stops, include_stop=include_stop)
    delivered = [0]
    for token in ids:
        detokenizer.push([token])
        delivered.append(detokenizer.delivered_tokens)

    assert delivered == sorted(delivered)
    if detokenizer.stop_hit is not None:
        assert delivered[-1] == detokenizer.stop_hit.kept_tokens


@given(case=text_with_stops())
def test_included_stop_string_is_the_end_of_the_text(
    case: tuple[str, list[bytes], tuple[str, ...]],
) -> None:
    """And the tokens that wrote it stay."""
    _, tokens, stops = case
    tokenizer, ids = one_token_each(*tokens)
    detokenizer = IncrementalDetokenizer(tokenizer, stops, include_stop=True)
    detokenizer.push(ids)
    hit = detokenizer.stop_hit
    excluded = expected_hit(tokens, stops)
    if hit is None or excluded is None:
        assert hit is excluded
        return

    assert hit.text == excluded.text + hit.stop
    assert tokenizer.decode(range(hit.kept_tokens)).startswith(hit.text)
    assert not tokenizer.decode(range(hit.kept_tokens - 1)).startswith(hit.text)


def test_beginning_of_a_stop_string_is_held_back_and_released() -> None:
    """Half a stop string that was shown could not be taken back."""
    tokenizer, ids = one_token_each(b"one ST", b"O", b" two")
    detokenizer = IncrementalDetokenizer(tokenizer, ("STOP",))

    assert [detokenizer.push([token]) for token in ids] == ["one ", "", "STO two"]
    assert detokenizer.delivered_tokens == 3


def test_stop_at_a_token_boundary_keeps_the_tokens_before_it() -> None:
    """The usual case: the session's log then ends before the stop string."""
    tokenizer, ids = one_token_each(b"one ", b"ST", b"OP", b"more")
    detokenizer = IncrementalDetokenizer(tokenizer, ("STOP",))
    detokenizer.push(ids)

    assert detokenizer.stop_hit == StopHit("STOP", 1, "one ")
    assert detokenizer.num_tokens == 3
    assert detokenizer.push([0]) == ""


def test_stop_within_a_token_keeps_that_token_and_all_text_before_it() -> None:
    """Text up to the stop string is output, as in vLLM, so its token belongs to the log."""
    tokenizer, ids = one_token_each(b"one", b".\n", b"two")
    detokenizer = IncrementalDetokenizer(tokenizer, ("\n",))
    detokenizer.push(ids)

    assert detokenizer.stop_hit == StopHit("\n", 2, "one.")


def test_token_that_ends_a_delivered_character_is_kept() -> None:
    """Else the log would end in half of a character that was shown."""
    tokenizer, ids = one_token_each(b"\xe2\x82", b"\xacS", b"TOP")
    detokenizer = IncrementalDetokenizer(tokenizer, ("STOP",))
    detokenizer.push(ids)

    assert detokenizer.stop_hit == StopHit("STOP", 2, "€")


def test_stop_string_within_min_tokens_does_not_count_later_either() -> None:
    """It is held back as the beginning of a longer one when the first countable token comes."""
    tokenizer, ids = one_token_each(b"b", b"a", b"x", b"a")
    detokenizer = IncrementalDetokenizer(tokenizer, ("a", "bac"), min_tokens=2)

    assert [detokenizer.push([token]) for token in ids[:3]] == ["", "", "bax"]
    detokenizer.push(ids[3:])
    assert detokenizer.stop_hit == StopHit("a", 3, "bax")
