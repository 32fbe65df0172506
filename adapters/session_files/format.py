"""A session as one file: its log, its facts and its state, with a header that says whose it is.

The metadata is what a person or another program reads: model, types, version. The log lies in
arrays of its own, since a header has a limit and a long chat does not. A SHA-256 covers all.
"""

import hashlib
import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from adapters.session_files.container import NotAContainer, join, split
from adapters.session_store.refusals import difference_of
from adapters.session_store.rows import decode_tokens, encode_tokens
from kernel.errors import SessionFileError
from kernel.session_store import FileHeader, SessionRecord, StoredTurn
from kernel.state_image import ImageArray, StateImage

__all__ = ["FORMAT", "FORMAT_VERSION", "pack", "unpack"]

FORMAT = "tenure-session"
FORMAT_VERSION = 1

_KNOWN_VERSIONS = frozenset(map(str, range(1, FORMAT_VERSION + 1)))
_BEGINNING = 1024
"""Bytes of a file in which its format's name is found, also when it was cut."""
_KINDS = ("generate", "append")
_TOKENS, _LOG, _STATE = "log.tokens", "log.turns", "state."


def pack(record: SessionRecord, image: StateImage | None, header: FileHeader) -> bytes:
    """The bytes of one file.

    Raises:
        SessionFileError: the facts of the session or of a turn are no JSON.
    """
    tokens = array("I")
    for turn in record.turns:
        tokens.extend(turn.tokens)
    log = _log_of(record, image)
    arrays = {
        _TOKENS: ImageArray("U32", (len(tokens),), encode_tokens(tokens)),
        _LOG: ImageArray("U8", (len(log),), log),
    }
    if image is not None:
        arrays |= {_STATE + name: kept for name, kept in image.arrays.items()}
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        **attrs.asdict(header),
    }
    return join(arrays, {**metadata, "sha256": _digest(arrays, metadata)})


def unpack(
    data: bytes, header: FileHeader, *, source: str
) -> tuple[SessionRecord, StateImage | None]:
    """The session that :func:`pack` wrote.

    Raises:
        SessionFileError: another kind of file, a newer version, another model or dtype, or
            damaged; nothing of it is returned.
    """
    arrays, metadata = _checked(data, source)
    try:
        kept = FileHeader(**{name.name: metadata[name.name] for name in attrs.fields(FileHeader)})
        log = json.loads(arrays[_LOG].data)
        image = _image_of(log["state"], arrays)
        record = _record_of(log, decode_tokens(arrays[_TOKENS].data), image)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(source, f"what is in it doesn't fit together ({error!r})") from error
    difference = difference_of(kept, header)
    if difference is not None:
        reason, what = difference
        why = f"{what}; open it with an engine that runs the model which it was saved from"
        raise SessionFileError(source=source, reason=reason, why=why)
    return record, image


def _checked(data: bytes, source: str) -> tuple[Mapping[str, ImageArray], Mapping[str, str]]:
    """A file of this format and a known version, whole."""
    try:
        arrays, metadata = split(data)
    except NotAContainer as error:
        if FORMAT.encode() in data[:_BEGINNING]:
            raise _damaged(source, str(error)) from error
        raise _foreign(source) from error
    if metadata.get("format") != FORMAT:
        raise _foreign(source)
    version = metadata.get("format_version", "unknown")
    if version not in _KNOWN_VERSIONS:
        why = (
            f"its format is version {version:.20} and this release knows version"
            f" {FORMAT_VERSION}; open it with the release that saved it, or a later one"
        )
        raise SessionFileError(source=source, reason="version", why=why)
    signed = {name: value for name, value in metadata.items() if name != "sha256"}
    if metadata.get("sha256") != _digest(arrays, signed):
        raise _damaged(source, "its checksum is wrong")
    return arrays, metadata


def _digest(arrays: Mapping[str, ImageArray], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name, kept in sorted(arrays.items()):
        facts = [name, kept.dtype, list(kept.shape), len(kept.data)]
        digest.update(json.dumps(facts).encode())
        digest.update(kept.data)
    return digest.hexdigest()


def _log_of(record: SessionRecord, image: StateImage | None) -> bytes:
    log = {
        "session": record.session_id,
        "facts": record.facts,
        "turns": [
            {
                "start": turn.start,
                "input_len": turn.input_len,
                "tokens": len(turn.tokens),
                "kind": turn.kind,
                "facts": turn.facts,
            }
            for turn in record.turns
        ],
        "state": None if image is None else _state_facts(image),
    }
    try:
        return json.dumps(log, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise SessionFileError(
            source=f"of session {record.session_id!r}",
            reason="failed",
            why=f"its facts can't be written as JSON ({error}); keep JSON values only",
        ) from error


def _state_facts(image: StateImage) -> dict[str, object]:
    return {
        "position": image.position,
        "first_position": image.first_position,
        "arrays": list(image.arrays),
    }


def _record_of(
    log: Mapping[str, Any], tokens: "array[int]", image: StateImage | None
) -> SessionRecord:
    turns = list[StoredTurn]()
    end = 0
    for turn in cast(Sequence[Mapping[str, Any]], log["turns"]):
        start, end = end, end + _number(turn["tokens"], least=0)
        if turn["start"] != start:
            raise ValueError(f"no turn starts at {start}")
        if turn["kind"] not in _KINDS:
            raise ValueError(f"the turn at {start} is of no kind that is known")
        turns.append(
            StoredTurn(
                start=start,
                input_len=_number(turn["input_len"], least=0, most=end - start),
                tokens=tokens[start:end],
                kind=turn["kind"],
                facts=_facts(turn["facts"]),
            )
        )
    if end != len(tokens):
        raise ValueError(f"{end} of {len(tokens)} tokens belong to a turn")
    if image is not None and image.position >= end:
        raise ValueError(f"a state at position {image.position} needs a longer log than {end}")
    if not isinstance(log["session"], str):
        raise TypeError("its session has no name")
    return SessionRecord(
        session_id=log["session"],
        turns=turns,
        facts=_facts(log["facts"]),
        state_position=None if image is None else image.position,
        state_bytes=0 if image is None else image.nbytes,
    )


def _image_of(
    facts: Mapping[str, Any] | None, arrays: Mapping[str, ImageArray]
) -> StateImage | None:
    if facts is None:
        return None
    position = _number(facts["position"], least=1)
    return StateImage(
        position=position,
        first_position=_number(facts["first_position"], least=0, most=position - 1),
        arrays={name: arrays[_STATE + name] for name in facts["arrays"]},
    )


def _number(value: object, *, least: int, most: int | None = None) -> int:
    """A whole number of a file that anyone may have written."""
    if type(value) is not int or value < least or (most is not None and value > most):
        raise ValueError(f"{value!r:.40} is no number from {least} to {most or 'any'}")
    return value


def _facts(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} are no facts")
    return cast(Mapping[str, object], value)


def _damaged(source: str, why: str) -> SessionFileError:
    return SessionFileError(
        source=source, reason="damaged", why=f"it is damaged: {why}; use another copy of it"
    )


def _foreign(source: str) -> SessionFileError:
    why = "it is no session's file; give one that session.save wrote"
    return SessionFileError(source=source, reason="foreign", why=why)
