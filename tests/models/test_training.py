"""The training scripts' own parts, on a few bytes: text, windows, schedule, optimizer."""

import struct

import pytest
import torch

from adapters.models.weights import random_weights
from adapters.training.corpus import clean, r_vector, without_markup
from adapters.training.data import Windows
from adapters.training.evaluate import bits_per_byte, words
from adapters.training.muon import orthogonal
from adapters.training.train import BUNDLED, Schedule
from tests.models.sizes import PLAIN


def test_clean_text_is_ascii_paragraphs() -> None:
    """A narrow alphabet spends no tokens on typography."""
    text = "  “Don’t—” said  Anaïs…\n\n\t_Emma_ [1] went. "

    assert clean(text) == '"Don\'t--" said Anais...\nEmma 1 went.'


def test_markup_leaves_words_and_paragraphs() -> None:
    """Notes and headings are another voice; a space lost between verses makes new words."""
    osis = (
        '<title level="1">Psalm</title><w lemma="x">He</w><note placement="foot">or, <i>she</i>'
        '</note> sang\n\n<l level="1" sID="a"/>aloud<l eID="a"/>'
        '<l level="1" sID="b"/>and long.<div sID="p" type="x-p"/>Then'
    )

    assert clean(without_markup(osis)) == "He sang aloud and long.\nThen"


def test_an_r_character_vector_is_read() -> None:
    """R stores a length and then each text with its kind; -1 marks a missing one."""
    texts = [b"", b"It is a truth"]
    cells = b"".join(struct.pack(">Ii", 0x40009, len(text)) + text for text in texts)
    block = struct.pack(">I", 3) + cells + struct.pack(">Ii", 9, -1)

    assert list(r_vector(block, 0)) == ["", "It is a truth", ""]


def test_another_r_object_is_refused() -> None:
    """Numbers read as text would be noise in the corpus."""
    with pytest.raises(ValueError, match="kind 14"):
        list(r_vector(struct.pack(">IIi", 1, 14, 1), 0))


def test_words_are_lower_case_and_keep_apostrophes() -> None:
    """The share of real words must not depend on where a sentence starts."""
    assert words("Don't! THE king's 12 sons--") == ["don't", "the", "king's", "sons"]


def test_an_epoch_of_windows_covers_the_text_once() -> None:
    """Windows of one epoch start a window apart, each once, whatever the order."""
    windows = Windows([list(range(100))], 8, seed=0)
    starts = sorted(int(row[0]) for row in windows.take(windows.per_epoch))

    assert [start - starts[0] for start in starts] == list(range(0, 8 * windows.per_epoch, 8))


def test_windows_are_taken_up_where_they_were_left() -> None:
    """A resumed run reads on instead of reading the beginning twice."""
    whole, first = Windows([list(range(99))], 8, seed=3), Windows([list(range(99))], 8, seed=3)
    expected = whole.take(30)
    first.take(13)
    resumed = Windows([list(range(99))], 8, seed=3)
    resumed.taken = first.taken

    assert torch.equal(expected[13:], resumed.take(17))


def test_the_rate_rises_stays_and_falls_to_nothing() -> None:
    """The schedule is in seconds of work, so that a busy machine can't stretch it."""
    schedule = Schedule(total_s=1000, cooldown_s=200, warmup_s=100)

    assert schedule.factor(0) < 0.02
    assert schedule.factor(500) == 1
    assert schedule.factor(900) == pytest.approx(0.5)
    assert schedule.factor(1001) == 0


def test_a_cooldown_can_start_early() -> None:
    """Whoever needs the machine back still gets a model whose rate went down to nothing."""
    schedule = Schedule(total_s=1000, cooldown_s=200)
    schedule.cool_down_from(300)

    assert schedule.total_s == 500
    schedule.cool_down_from(400)
    assert schedule.total_s == 500


def test_orthogonal_updates_are_nearly_so() -> None:
    """That every direction moves alike is what the optimizer is for."""
    draw = torch.Generator().manual_seed(0)
    made = orthogonal(torch.randn(2, 12, 5, generator=draw))

    off = (made.mT @ made - torch.eye(5)).abs()

    assert off.max() < 0.6


def test_a_model_that_knows_nothing_needs_all_the_bits() -> None:
    """Zero weights make every token equally likely: log2(V) bits each, across windows too."""
    nothing = {k: w * 0 for k, w in random_weights(PLAIN, 0, torch.float32).items()}
    score = bits_per_byte(PLAIN, nothing, [1] * 2101, size=4200)

    assert score.per_byte == pytest.approx(4.9542 / 2, rel=1e-4)


def test_the_bundled_configuration_has_an_attention_layer_in_about_six() -> None:
    """The shape that the project promises: mostly recurrent, with attention among it."""
    share = len(BUNDLED.attention_layers) / BUNDLED.num_layers

    assert 1 / 8 <= share <= 1 / 5
