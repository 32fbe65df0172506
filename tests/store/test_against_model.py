"""Random jobs, alone and in groups, with the store reopened at any moment, against the model."""

import tempfile
from array import array
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from adapters.session_store.snapshots import FILE_BYTES
from kernel.session_store import (
    CutLog,
    DropState,
    KeepFacts,
    KeepState,
    KeepTurn,
    ReadSession,
    ReadState,
    RemoveSession,
    StoredTurn,
    StoreJob,
)
from kernel.testing.simulation.disk import Disk
from tests.store.model import ModelStore, plain
from tests.store.stores import image_at, opened

NAMES = st.sampled_from(["a", "b", "ä c", "d" * 300, "e\0f"])
LENGTHS = st.integers(0, 12)
FACTS: SearchStrategy[dict[str, object]] = st.dictionaries(
    st.sampled_from(["x", "mark"]), st.one_of(st.text(max_size=4), st.integers(), st.none())
)
SIZES = st.sampled_from([8, 24, 40, 400, FILE_BYTES + 8])
REOPEN = "reopen"


@st.composite
def turns(draw: st.DrawFn) -> StoredTurn:
    tokens = draw(st.lists(st.integers(0, 2**32 - 1), max_size=5))
    return StoredTurn(
        start=draw(LENGTHS),
        input_len=draw(st.integers(0, len(tokens))),
        tokens=array("I", tokens),
        kind=draw(st.sampled_from(["generate", "append"])),
        facts=draw(FACTS),
    )


JOBS: SearchStrategy[StoreJob] = st.one_of(
    st.builds(KeepTurn, NAMES, turns()),
    st.builds(KeepTurn, NAMES, turns()),
    st.builds(CutLog, NAMES, LENGTHS),
    st.builds(KeepFacts, NAMES, FACTS),
    st.builds(
        KeepState,
        NAMES,
        st.builds(image_at, LENGTHS, size=SIZES),
    ),
    st.builds(DropState, NAMES),
    st.builds(ReadSession, NAMES),
    st.builds(ReadState, NAMES),
    st.builds(RemoveSession, NAMES),
)


@settings(max_examples=60)
@given(jobs=st.lists(JOBS, max_size=40))
def test_the_disk_of_the_simulation_answers_as_the_model_does(jobs: list[StoreJob]) -> None:
    """What the kernel is tried on must be what it runs on."""
    model, disk = ModelStore(), Disk()
    for job in jobs:
        assert plain(disk.do(job)) == plain(model.do(job))
    assert disk.sessions.keys() == model.sessions.keys()
    assert disk.usage().state_bytes == model.usage().state_bytes


@settings(max_examples=30)
@given(
    groups=st.lists(st.one_of(st.lists(JOBS, min_size=1, max_size=8), st.just(REOPEN)), max_size=8),
    budget=st.sampled_from([None, 48, 420]),
)
def test_every_report_is_that_of_the_model(
    groups: list[list[StoreJob] | str], budget: int | None
) -> None:
    """Groups share a commit and reopening reads all from the disk; neither may be noticed."""
    model = ModelStore(max_state_bytes=budget)
    with tempfile.TemporaryDirectory() as directory:
        parts: list[list[list[StoreJob]]] = [[]]
        for group in groups:
            if isinstance(group, str):
                parts.append([])
            else:
                parts[-1].append(group)
        for part in parts:
            with opened(Path(directory), max_state_bytes=budget) as store:
                for jobs in part:
                    reports = [plain(report) for report in store.all(jobs)]

                    assert reports == [plain(model.do(job)) for job in jobs]
                names = sorted(model.sessions)
                images = [kept.image for kept in model.sessions.values() if kept.image is not None]
                files = list((Path(directory) / "snapshots").iterdir())

                assert list(store.worker.session_ids()) == names
                assert all(store.worker.holds(name) for name in names)
                assert store.usage == model.usage()
                assert len(files) == sum(image.nbytes > FILE_BYTES for image in images)
