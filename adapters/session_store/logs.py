"""Token logs: rows of turns that join, cut and extended at their ends."""

from collections.abc import Mapping

import attrs

from adapters.session_store.database import Row
from adapters.session_store.rows import (
    TOKEN_BYTES,
    are_of,
    checksum,
    decode_facts,
    decode_tokens,
    encode_facts,
    encode_tokens,
    turn_checksum,
)
from adapters.session_store.schema import KEY_SHIFT
from adapters.session_store.snapshots import Snapshots
from adapters.session_store.tables import JobRefused, Tables
from kernel.session_store import (
    CutLog,
    KeepFacts,
    KeepTurn,
    ReadSession,
    RemoveSession,
    SessionRecord,
    StoredTurn,
)

__all__ = ["MAX_LOG_TOKENS", "Logs"]

MAX_LOG_TOKENS = (1 << KEY_SHIFT) - 1
_COLUMNS = "key, input_len, kind, crc, tokens, facts"


@attrs.frozen(eq=False)
class Logs:
    """The tables ``sessions`` and ``turns``, inside the transaction of whoever calls."""

    tables: Tables
    snapshots: Snapshots

    def keep_turn(self, job: KeepTurn) -> None:
        """Cut the log to the start of the turn, and append it."""
        turn = job.turn
        if not 0 <= turn.input_len <= len(turn.tokens):
            raise JobRefused(
                f"a turn of {len(turn.tokens)} tokens has no input of {turn.input_len}", "refused"
            )
        number = self.tables.find(job.session_id)
        if number is None:
            number = self._open(job.session_id)
        last_start, length = self._end(number)
        if not 0 <= turn.start <= length or turn.start + len(turn.tokens) > MAX_LOG_TOKENS:
            raise JobRefused(
                f"a turn that starts at {turn.start} doesn't join the log of session"
                f" {job.session_id!r}, which has {length} tokens",
                "refused",
            )
        if turn.start < length:
            self._cut(job.session_id, number, turn.start)
        elif turn.start == last_start:  # the last turn has no tokens: this one takes its place
            self._delete(number, turn.start)
        self._append(job.session_id, number, turn)

    def cut(self, job: CutLog) -> None:
        """Shorten a log; one that is no longer than that stays as it is."""
        if job.length < 0:
            raise JobRefused(f"a log can't be cut to {job.length} tokens", "refused")
        number = self.tables.number_of(job.session_id)
        if job.length < self.length(number):
            self._cut(job.session_id, number, job.length)

    def keep_facts(self, job: KeepFacts) -> None:
        """Replace the facts of a session, which is opened if need be."""
        facts = _json_of(job.session_id, job.facts)
        number = self.tables.find(job.session_id)
        if number is None:
            number = self._open(job.session_id)
        self._drop_facts(number)
        if facts:
            self.tables.database.execute(
                "INSERT INTO facts VALUES (?, ?, ?)",
                (number, checksum(job.session_id, facts), facts),
            )
            self.tables.count(log_bytes=len(facts))

    def remove(self, job: RemoveSession) -> None:
        """Forget a session; one that isn't kept is forgotten already."""
        number = self.tables.find(job.session_id)
        if number is None:
            return
        self._delete(number, 0)
        self._drop_facts(number)
        self.snapshots.drop(number)
        self.tables.database.execute("DELETE FROM sessions WHERE name = ?", (job.session_id,))
        self.tables.count(sessions=-1)

    def read(self, job: ReadSession) -> SessionRecord:
        """A session's log and facts, each checked."""
        number = self.tables.number_of(job.session_id)
        position, state_bytes = self.snapshots.facts(number)
        return SessionRecord(
            session_id=job.session_id,
            turns=self._turns(job.session_id, number),
            facts=self._facts(job.session_id, number),
            state_position=position,
            state_bytes=state_bytes,
        )

    def length(self, number: int) -> int:
        """Tokens of a session's log."""
        return self._end(number)[1]

    def _open(self, session_id: str) -> int:
        number = self.tables.next_number()
        self.tables.database.execute("INSERT INTO sessions VALUES (?, ?)", (session_id, number))
        self.tables.count(sessions=1)
        return number

    def _drop_facts(self, number: int) -> None:
        database = self.tables.database
        old = database.execute("SELECT length(facts) FROM facts WHERE session = ?", (number,))
        if old:
            database.execute("DELETE FROM facts WHERE session = ?", (number,))
            self.tables.count(log_bytes=-old[0][0])

    def _facts(self, session_id: str, number: int) -> Mapping[str, object]:
        rows = self.tables.database.execute(
            "SELECT crc, facts FROM facts WHERE session = ?", (number,)
        )
        if not rows:
            return {}
        [(crc, facts)] = rows
        if not are_of([facts], bytes) or crc != checksum(session_id, facts):
            raise JobRefused(f"the facts of session {session_id!r} are damaged", "damaged")
        return decode_facts(facts)

    def _turns(self, session_id: str, number: int) -> list[StoredTurn]:
        rows = self.tables.database.execute(
            f"SELECT {_COLUMNS} FROM turns WHERE key BETWEEN ? AND ? ORDER BY key",
            (_key(number, 0), _key(number, MAX_LOG_TOKENS)),
        )
        turns = list[StoredTurn]()
        end = 0
        for row in rows:
            turn = _turn_of(session_id, number, row)
            if turn.start != end:
                raise JobRefused(
                    f"the log of session {session_id!r} is damaged: no turn starts at {end}",
                    "damaged",
                )
            turns.append(turn)
            end += len(turn.tokens)
        return turns

    def _last(self, number: int, columns: str) -> Row | None:
        rows = self.tables.database.execute(
            f"SELECT {columns} FROM turns WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1",
            (_key(number, 0), _key(number, MAX_LOG_TOKENS)),
        )
        return rows[0] if rows else None

    def _end(self, number: int) -> tuple[int | None, int]:
        """Start of the last turn, and the length of the log."""
        last = self._last(number, "key, length(tokens)")
        if last is None:
            return None, 0
        start = last[0] - _key(number, 0)
        return start, start + last[1] // TOKEN_BYTES

    def _cut(self, session_id: str, number: int, length: int) -> None:
        self._delete(number, length)
        last = self._last(number, _COLUMNS)
        if last is not None:
            turn = _turn_of(session_id, number, last)
            kept = length - turn.start
            if kept < len(turn.tokens):
                self._delete(number, turn.start)
                tokens = turn.tokens[:kept]
                self._append(
                    session_id,
                    number,
                    attrs.evolve(turn, input_len=min(turn.input_len, kept), tokens=tokens),
                )
        self.snapshots.drop_beyond(number, length - 1)

    def _append(self, session_id: str, number: int, turn: StoredTurn) -> None:
        tokens, facts = encode_tokens(turn.tokens), _json_of(session_id, turn.facts)
        crc = turn_checksum(session_id, turn, tokens, facts)
        self.tables.database.execute(
            f"INSERT INTO turns ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
            (_key(number, turn.start), turn.input_len, turn.kind, crc, tokens, facts),
        )
        self.tables.count(log_bytes=len(tokens) + len(facts))

    def _delete(self, number: int, start: int) -> None:
        database, span = self.tables.database, (_key(number, start), _key(number, MAX_LOG_TOKENS))
        [(removed,)] = database.execute(
            "SELECT sum(length(tokens) + length(facts)) FROM turns WHERE key BETWEEN ? AND ?", span
        )
        if removed is not None:
            database.execute("DELETE FROM turns WHERE key BETWEEN ? AND ?", span)
            self.tables.count(log_bytes=-removed)


def _key(number: int, start: int) -> int:
    return (number << KEY_SHIFT) + start


def _json_of(session_id: str, facts: Mapping[str, object]) -> bytes:
    try:
        return encode_facts(facts)
    except (TypeError, ValueError) as error:
        raise JobRefused(
            f"the facts of session {session_id!r} can't be written as JSON: {error}", "refused"
        ) from error


def _turn_of(session_id: str, number: int, row: Row) -> StoredTurn:
    """A turn whose checksum is right.

    Raises:
        JobRefused: it is damaged.
    """
    key, input_len, kind, crc, tokens, facts = row
    start = key - _key(number, 0)
    typed = are_of([input_len, kind, tokens, facts], int, str, bytes, bytes)
    if not typed or crc != checksum(session_id, start, input_len, kind, tokens, facts):
        raise JobRefused(
            f"the turn at {start} of session {session_id!r} is damaged: its checksum is wrong",
            "damaged",
        )
    return StoredTurn(
        start=start,
        input_len=input_len,
        tokens=decode_tokens(tokens),
        kind=kind,
        facts=decode_facts(facts),
    )
