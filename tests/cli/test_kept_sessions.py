"""``tenure chat`` and ``tenure sessions`` on a store: conversations that outlive the process."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from adapters.cli import main
from adapters.session_store.logs import Logs
from adapters.session_store.tables import JobRefused
from kernel.session_store import KeepTurn

FAKE = ["--device", "fake", "--model", "fake", "--max-tokens", "8", "--seed", "1"]
KEPT = ["chat", *FAKE, "--session-store"]


def run(lines: str, *arguments: str) -> Result:
    result = CliRunner().invoke(main, [*arguments], input=lines)
    assert result.exit_code == 0, result.output
    return result


def answers(result: Result) -> list[str]:
    """What was answered, without the prompts."""
    return [line.removeprefix("> ") for line in result.stdout.splitlines()]


def test_a_conversation_goes_on_after_a_restart_as_if_there_had_been_none(tmp_path: Path) -> None:
    """The same answers, token for token, and /undo reaches back across the restart."""
    whole = answers(run("one\ntwo\n/undo\n/undo\n/quit\n", "chat", *FAKE))
    first = answers(run("one\n/quit\n", *KEPT, str(tmp_path)))
    second = answers(run("two\n/undo\n/undo\n/quit\n", *KEPT, str(tmp_path)))

    assert second[0].startswith("chat: idle, 1 turn, ")
    assert first[:1] + second[1:4] == whole[:4]
    assert whole[3] == "undone; 0 turns left"


def test_conversations_of_one_store_are_told_apart_by_name(tmp_path: Path) -> None:
    """Both go on; the list names them with their turns."""
    run("one\n/quit\n", *KEPT, str(tmp_path), "--session", "ada")
    run("one\ntwo\n/quit\n", *KEPT, str(tmp_path), "--session", "bob")
    again = run("/info\n/quit\n", *KEPT, str(tmp_path), "--session", "ada")
    listed = run("", "sessions", str(tmp_path)).stdout.splitlines()
    found = json.loads(run("", "sessions", str(tmp_path), "--json").stdout)

    assert "ada: idle, 1 turn" in again.stdout
    assert [line.split(", ")[0] for line in listed[:2]] == ["ada: 1 turn", "bob: 2 turns"]
    assert listed[2].startswith("2 sessions of fake")
    assert [one["turns"] for one in found["sessions"]] == [1, 2]
    assert all(one["state_position"] == one["tokens"] - 1 for one in found["sessions"])


def test_a_name_that_would_write_on_the_terminal_is_shown_as_a_string(tmp_path: Path) -> None:
    """Whoever opens a session may name it; JSON has the name itself."""
    evil = "\x1b[2Jada\nbob: 9 turns\u202e"
    run("one\n/quit\n", *KEPT, str(tmp_path), "--session", evil)
    again = run(
        "/checkpoint \x1b[1m\n/info\n/restore\n/quit\n", *KEPT, str(tmp_path), "--session", evil
    )
    listed = run("", "sessions", str(tmp_path)).stdout.splitlines()
    found = json.loads(run("", "sessions", str(tmp_path), "--json").stdout)

    assert listed[0].startswith(f"{evil!r}: 1 turn, ")
    assert len(listed) == 2
    assert [one["session_id"] for one in found["sessions"]] == [evil]
    assert repr(evil) in again.stdout
    assert not {"\x1b", "\u202e"} & set(again.stdout)


def test_a_line_that_could_not_be_kept_is_said_and_the_next_one_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full for a moment: that is no reason to leave."""
    kept = Logs.keep_turn
    turns = list[KeepTurn]()

    def keep(self: Logs, job: KeepTurn) -> None:
        turns.append(job)
        if len(turns) == 2:
            raise JobRefused("planted", "full")
        kept(self, job)

    monkeypatch.setattr(Logs, "keep_turn", keep)
    result = run("one\ntwo\nthree\n/info\n/quit\n", *KEPT, str(tmp_path))

    assert result.stderr.count("StoreError") == 1
    assert "planted" in result.stderr
    assert "idle, 2 turns" in result.stdout


def test_a_name_without_a_store_is_refused(tmp_path: Path) -> None:
    """Nothing would be kept under it."""
    result = CliRunner().invoke(main, ["chat", *FAKE, "--session", "ada"])

    assert result.exit_code == 2
    assert "--session-store" in result.stderr


def test_a_store_of_another_model_is_refused_in_one_line(tmp_path: Path) -> None:
    """With the way out, and no traceback."""
    run("one\n/quit\n", *KEPT, str(tmp_path))
    other = ["--device", "fake", "--model", "fake-recurrent", "--session-store", str(tmp_path)]
    result = CliRunner().invoke(main, ["chat", *other], input="/quit\n")

    assert result.exit_code == 1
    assert "give another directory" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--host-memory", "0", "--enable-prefix-caching"],
        ["--host-memory", "1MiB", "--disable-prefix-caching"],
    ],
    ids=["no host memory", "no cache"],
)
def test_host_memory_and_prefix_caching_are_options_of_every_engine(options: list[str]) -> None:
    """They change what is kept, and no answer."""
    plain = run("one\n/quit\n", "chat", *FAKE)

    assert run("one\n/quit\n", "chat", *FAKE, *options).stdout == plain.stdout


def test_the_stores_policies_reach_the_engine(tmp_path: Path) -> None:
    """A budget that no state fits into leaves the log, and the conversation goes on from it."""
    policies = ["--session-store-bytes", "8", "--session-store-sync", "off"]
    run("one\n/quit\n", *KEPT, str(tmp_path), *policies)

    assert "only the log" in run("", "sessions", str(tmp_path)).stdout
    assert "1 turn" in run("/quit\n", *KEPT, str(tmp_path), *policies).stdout
