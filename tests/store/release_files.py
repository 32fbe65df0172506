"""Files that every later release must open: written by ``python -m tests.store.release_files``.

Run once for each version of a format, and never again: what lies in ``fixtures`` was written by
the release that introduced that version.
"""

import sys
from array import array
from pathlib import Path

from adapters.session_files import FORMAT_VERSION as FILE_VERSION
from adapters.session_files import pack
from adapters.session_store.schema import FORMAT_VERSION as STORE_VERSION
from kernel.session_store import (
    FileHeader,
    KeepFacts,
    KeepState,
    KeepTurn,
    Kept,
    SessionRecord,
    StoredTurn,
)
from kernel.state_image import ImageArray, StateImage
from tests.store.stores import opened

__all__ = ["FIXTURES", "HEADER", "IMAGE", "RECORD", "SMALL_IMAGE", "file_of", "store_of"]

FIXTURES = Path(__file__).parent / "fixtures"
HEADER = FileHeader(
    model="fixture", fingerprint="0123456789abcdef", dtype="bfloat16", state_dtype="float32"
)
IMAGE = StateImage(
    position=6,
    first_position=2,
    arrays={
        "recurrent": ImageArray("F32", (2, 3, 4), bytes(range(96))),
        "keys": ImageArray("BF16", (1, 4, 2, 5), bytes(range(80))),
        "steps": ImageArray("I64", (), b"\x07" + bytes(7)),
    },
)
SMALL_IMAGE = StateImage(position=1, arrays={"recurrent": ImageArray("F64", (2,), bytes(16))})
RECORD = SessionRecord(
    session_id="chat-é",
    turns=[
        StoredTurn(
            start=0,
            input_len=3,
            tokens=array("I", [1, 2, 3, 2**32 - 1]),
            kind="generate",
            facts={"messages": [{"role": "user", "content": "Grüße, \U0001f30d"}], "n": 1.5},
        ),
        StoredTurn(start=4, input_len=3, tokens=array("I", [7, 8, 9]), kind="append"),
    ],
    facts={"marks": {"before": 4}, "limit": None},
    state_position=6,
    state_bytes=IMAGE.nbytes,
)


def file_of(version: int) -> Path:
    return FIXTURES / f"session-v{version}.safetensors"


def store_of(version: int) -> Path:
    return FIXTURES / f"store-v{version}"


def main() -> int:
    file, store = file_of(FILE_VERSION), store_of(STORE_VERSION)
    if file.exists() or store.exists():
        sys.stderr.write("these versions have their files; a new version comes first\n")
        return 1
    FIXTURES.mkdir(exist_ok=True)
    file.write_bytes(pack(RECORD, IMAGE, HEADER))
    with opened(store, header=HEADER, file_bytes=100) as kept:
        name = RECORD.session_id
        reports = kept.all(
            [
                *(KeepTurn(name, turn) for turn in RECORD.turns),
                KeepFacts(name, RECORD.facts),
                KeepState(name, IMAGE),  # in a file of its own
                KeepTurn("small", RECORD.turns[0]),
                KeepState("small", SMALL_IMAGE),  # in the database
            ]
        )
    return int(any(report != Kept() for report in reports))


if __name__ == "__main__":
    sys.exit(main())
