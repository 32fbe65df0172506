"""Files and stores of every version that a release has written open in this one."""

import shutil
from pathlib import Path

import attrs
import pytest

from adapters.session_files import FORMAT_VERSION as FILE_VERSION
from adapters.session_files import pack, session_files
from adapters.session_store.schema import FORMAT_VERSION as STORE_VERSION
from kernel.session_store import KeepTurn, Kept, ReadSession, ReadState
from kernel.state_image import StateImage
from tests.store.model import plain
from tests.store.release_files import HEADER, IMAGE, RECORD, SMALL_IMAGE, file_of, store_of
from tests.store.stores import opened


@pytest.mark.parametrize("version", range(1, FILE_VERSION + 1))
def test_a_file_of_any_release_opens(version: int) -> None:
    """A session that was saved years ago goes on."""
    data = session_files.read(file_of(version))

    record, image = session_files.unpack(data, HEADER, source="fixture")

    assert record == RECORD
    assert image is not None
    assert plain(image) == plain(IMAGE)


@pytest.mark.parametrize("version", range(1, STORE_VERSION + 1))
def test_a_store_of_any_release_opens_and_goes_on(version: int, tmp_path: Path) -> None:
    """An upgrade of the package is no reason to lose a session."""
    shutil.copytree(store_of(version), tmp_path / "store")

    with opened(tmp_path / "store", header=HEADER, file_bytes=100) as store:
        record = store.do(ReadSession(RECORD.session_id))
        images = [store.do(ReadState(name)) for name in (RECORD.session_id, "small")]
        more = store.do(KeepTurn(RECORD.session_id, attrs.evolve(RECORD.turns[1], start=7)))

    assert plain(record) == RECORD
    assert [plain(image) for image in images] == [plain(IMAGE), plain(SMALL_IMAGE)]
    assert all(isinstance(image, StateImage) for image in images)
    assert more == Kept()


def test_this_release_writes_the_file_of_its_version_byte_for_byte() -> None:
    """A change of the bytes is a change of the format, and needs a new version."""
    assert pack(RECORD, IMAGE, HEADER) == file_of(FILE_VERSION).read_bytes()
