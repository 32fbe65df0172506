"""Damaged rows and files are told by name; the rest of the store goes on."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from adapters.session_store import DatabaseFault
from adapters.session_store.database import SqliteDatabase
from kernel.session_store import (
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    Kept,
    ReadSession,
    ReadState,
    SessionRecord,
    StoreFault,
)
from kernel.state_image import StateImage
from tests.store.flawed import FlawedDisk
from tests.store.stores import image_at, opened, turn_of

BIG = 300_000


def edit(store: Path, sql: str) -> None:
    connection = sqlite3.connect(store / "sessions.sqlite3")
    changed = connection.execute(sql).rowcount
    connection.commit()
    connection.close()
    assert changed > 0


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Sessions ``a`` and ``b`` of two turns each, with a small snapshot and a large one."""
    with opened(tmp_path) as kept:
        for name, size in (("a", 16), ("b", BIG)):
            kept.all(
                [
                    KeepTurn(name, turn_of(0, [1, 2, 3], text="hello")),
                    KeepTurn(name, turn_of(3, [4, 5, 6])),
                    KeepFacts(name, {"mark": 3}),
                    KeepState(name, image_at(5, size=size)),
                ]
            )
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        "tokens = x'0100000002000000ff000000'",
        "tokens = x'0100000002000000'",
        "facts = ''",
        "kind = 'append'",
        "input_len = 2",
        "crc = crc + 1",
        "kind = CAST(kind AS BLOB)",
        "tokens = CAST(tokens AS TEXT)",
        "facts = CAST(facts AS TEXT)",
    ],
)
def test_a_damaged_turn_is_told_by_session_and_start(store: Path, change: str) -> None:
    """Whatever of a turn is not as it was written."""
    edit(store, f"UPDATE turns SET {change} WHERE key = (1 << 32)")

    with opened(store) as kept:
        report = kept.do(ReadSession("a"))
        other = kept.do(ReadSession("b"))

    assert isinstance(report, StoreFault)
    assert report.reason == "damaged"
    assert "'a'" in report.why
    assert "turn at 0" in report.why
    assert isinstance(other, SessionRecord)


def test_text_that_is_no_text_is_damage_too(store: Path) -> None:
    """Python finds it before the checksum is looked at."""
    edit(store, "UPDATE turns SET kind = CAST(x'ff' AS TEXT) WHERE key = (1 << 32)")

    with opened(store) as kept:
        report = kept.do(ReadSession("a"))

    assert isinstance(report, StoreFault)
    assert report.reason == "damaged"


@pytest.mark.parametrize("way", ["../victim", "{victim}", "snapshots/../../victim", "no\0file"])
def test_a_row_that_names_a_file_elsewhere_reaches_none(
    store: Path, tmp_path_factory: pytest.TempPathFactory, way: str
) -> None:
    """A store may have come from anyone; dropping a snapshot must not cost a file of the user's."""
    victims = (store / "victim", tmp_path_factory.mktemp("elsewhere") / "victim")
    for victim in victims:
        victim.write_bytes(b"precious")
    file = way.format(victim=victims[1]).encode().hex()
    edit(store, f"UPDATE snapshots SET file = CAST(x'{file}' AS TEXT) WHERE file IS NOT NULL")

    with opened(store) as kept:
        report = kept.do(ReadState("b"))
        dropped = kept.do(DropState("b"))

    assert isinstance(report, StoreFault)
    assert (report.reason, dropped) == ("damaged", Kept())
    assert [victim.read_bytes() for victim in victims] == [b"precious"] * 2


def test_a_turn_that_is_missing_is_told_by_session_and_start(store: Path) -> None:
    """Each row is whole, and the log is not."""
    edit(store, "DELETE FROM turns WHERE key = (1 << 32)")

    with opened(store) as kept:
        report = kept.do(ReadSession("a"))

    assert isinstance(report, StoreFault)
    assert (report.reason, "no turn starts at 0" in report.why) == ("damaged", True)


def test_a_turn_under_another_session_is_damaged(store: Path) -> None:
    """The checksum covers whose turn it is."""
    edit(store, "DELETE FROM turns WHERE key >= (2 << 32)")
    edit(store, "UPDATE turns SET key = key + (1 << 32)")

    with opened(store) as kept:
        report = kept.do(ReadSession("b"))

    assert isinstance(report, StoreFault)
    assert report.reason == "damaged"


@pytest.mark.parametrize("facts", ["'{}'", "CAST(facts AS TEXT)"])
def test_damaged_facts_are_told(store: Path, facts: str) -> None:
    """Marks and limits of a session are not made up; nor is one type taken for another."""
    edit(store, f"UPDATE facts SET facts = {facts} WHERE session = 1")

    with opened(store) as kept:
        report = kept.do(ReadSession("a"))

    assert isinstance(report, StoreFault)
    assert (report.reason, "facts of session 'a'" in report.why) == ("damaged", True)


def test_a_turn_that_is_damaged_is_not_cut_through(store: Path) -> None:
    """A new checksum over damaged tokens would make them look right."""
    edit(store, "UPDATE turns SET tokens = x'0100000002000000ff000000' WHERE key = (1 << 32)")

    with opened(store) as kept:
        report = kept.do(CutLog("a", 2))
        whole = kept.do(CutLog("a", 3))

    assert isinstance(report, StoreFault)
    assert report.reason == "damaged"
    assert whole == StoreFault(getattr(whole, "why", ""), "damaged")


def edited(sql: str) -> Callable[[Path], object]:
    return partial(edit, sql=sql)


def cut_file(store: Path) -> None:
    for path in (store / "snapshots").iterdir():
        path.write_bytes(path.read_bytes()[:-1])


def flip_file(store: Path) -> None:
    for path in (store / "snapshots").iterdir():
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)


def remove_file(store: Path) -> None:
    for path in (store / "snapshots").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("a", edited("UPDATE snapshots SET data = zeroblob(16)")),
        ("a", edited("UPDATE snapshots SET position = 4")),
        ("a", edited("UPDATE snapshots SET layout = replace(layout, 'F', 'I')")),
        ("a", edited("UPDATE snapshots SET data = CAST(data AS TEXT)")),
        ("a", edited("UPDATE snapshots SET layout = CAST(layout AS BLOB)")),
        ("a", edited("UPDATE snapshots SET data = NULL")),
        ("b", edited("UPDATE snapshots SET file = x'0102' WHERE file IS NOT NULL")),
        ("b", edited("UPDATE snapshots SET file = hex(zeroblob(300)) WHERE file IS NOT NULL")),
        ("b", cut_file),
        ("b", flip_file),
        ("b", remove_file),
    ],
)
def test_a_damaged_snapshot_is_told_and_the_log_stays(
    store: Path, name: str, damage: Callable[[Path], object]
) -> None:
    """The log is the truth; the state can be made from it again, and kept again."""
    damage(store)

    with opened(store) as kept:
        report = kept.do(ReadState(name))
        record = kept.do(ReadSession(name))
        again = kept.all([KeepState(name, image_at(5, size=BIG)), ReadState(name)])
        left = kept.all([DropState(name), ReadState(name)])

    assert isinstance(report, StoreFault)
    assert report.reason == "damaged"
    assert f"snapshot of session '{name}'" in report.why
    assert isinstance(record, SessionRecord)
    assert record.log_len == 6
    assert again[0] == Kept()
    assert isinstance(again[1], StateImage)
    assert isinstance(left[1], StoreFault)
    assert left[1].reason == "missing"


def test_a_page_that_sqlite_finds_damaged_fails_its_job_alone(tmp_path: Path) -> None:
    """The database's own checks are told like ours."""
    fault = DatabaseFault("database disk image is malformed", "damaged")
    disk = FlawedDisk(fault, lambda _sql, values: "bad" in values)

    with opened(tmp_path, disk=disk) as kept:
        reports = kept.all(
            [KeepTurn(name, turn_of(0, [1])) for name in ("good", "bad", "also good")]
        )

        assert reports[0] == reports[2] == Kept()
        assert isinstance(reports[1], StoreFault)
        assert reports[1].reason == "damaged"
        assert not kept.worker.holds("bad")
        assert kept.usage.sessions == 2


def test_an_error_that_sqlite_words_with_what_is_no_text_is_damage(tmp_path: Path) -> None:
    """As of a schema with a flipped bit; Python can't read the message."""
    path = tmp_path / "a"
    database = SqliteDatabase(path)
    database.execute("CREATE TABLE t (a)")
    database.execute("PRAGMA writable_schema = ON")
    database.execute("UPDATE sqlite_master SET name = CAST(x'74ff' AS TEXT), sql = 'CREATE x'")
    database.close()
    database = SqliteDatabase(path)

    with pytest.raises(DatabaseFault) as caught:
        database.execute("SELECT a FROM t")
    database.close()
    assert caught.value.reason == "damaged"
