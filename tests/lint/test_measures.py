"""The three measures can be read by a program, and what was classed by hand is in order."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.lint import recall, speed
from tests.lint.corpus import CLASSES, LIBRARIES, Library, classified, measure

KNOWN = classified()


def test_recall_prints_what_was_planted_and_what_was_missed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the reason beside each that was missed."""
    monkeypatch.setattr("sys.argv", ["recall", "--seeds", "3", "--json"])
    status = recall.main()
    printed = json.loads(capsys.readouterr().out)

    assert status == 0
    assert (printed["injected"], printed["reported"], printed["recall"]) == (3, 3, 1.0)
    assert printed["missed"] == []
    assert printed["findings_without_faults"] == 0


def test_speed_counts_the_lines_that_it_checked() -> None:
    """Installed packages know nothing of handles, and nothing is found in them."""
    measured = speed.measure_unmarked(5_000)

    assert int(str(measured["lines"])) >= 5_000
    assert int(str(measured["lines_per_second"])) > 0
    assert (measured["findings"], measured["unreadable"]) == (0, 0)


def test_every_classed_finding_is_of_a_pinned_library_and_says_why() -> None:
    """A version that nobody checks any more would keep stale verdicts."""
    pinned = {(library.name, library.version) for library in LIBRARIES}

    assert len(pinned) >= 3
    assert {(one.library, one.version) for one in KNOWN} <= pinned
    assert {one.verdict for one in KNOWN} <= set(CLASSES)
    assert all(one.reason for one in KNOWN)
    assert len({one.key for one in KNOWN}) == len(KNOWN)


def test_at_most_one_in_twenty_classed_findings_is_false() -> None:
    """The figure of the corpus, without the network."""
    verdicts = Counter(one.verdict for one in KNOWN)

    assert len(KNOWN) >= 20
    assert verdicts["false"] <= 0.05 * len(KNOWN), verdicts


def test_a_finding_that_nobody_has_classed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The corpus fails on it; here a library of one file stands for a large one."""
    package = tmp_path / "channels-1.0" / "channels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class Channel:\n    def close(self) -> None: ...\n    def send(self) -> None: ...\n"
        "\n\ndef end(channel: Channel) -> None:\n    channel.close()\n    channel.send()\n",
        encoding="utf-8",
    )
    (config,) = (library.config for library in LIBRARIES[:1])
    config = type(config)(consuming=("channels.Channel.close",))
    library = Library("channels", "1.0", ("channels",), config)

    def unpacked(_library: Library, folder: Path) -> Path:
        return folder / "channels-1.0"

    monkeypatch.setattr(Library, "unpack", unpacked)
    measured = measure(library, tmp_path, KNOWN)

    assert [one["line"] for one in measured.unclassified] == [8]
    assert measured.consuming_calls == 1
    assert measured.findings_without_configuration == 0
