"""A session that somebody made up is refused at the door, before it can fail others' steps."""

from array import array

import attrs
import pytest

from adapters.session_files import pack, unpack
from adapters.session_files.container import split
from kernel import Session, ValidationError
from kernel.session_store import FileHeader, SessionRecord
from kernel.state_image import StateImage
from tests.durable.test_migrate import an_engine, one

VOCABULARY = 1000
"""Of the fake device."""


async def exported(session: Session) -> tuple[SessionRecord, StateImage | None, FileHeader]:
    """What a session's file says, and whose it is."""
    data = await session.export()
    header = FileHeader(
        **{field.name: split(data)[1][field.name] for field in attrs.fields(FileHeader)}
    )
    return *unpack(data, header, source="here"), header


async def test_a_log_with_a_token_that_the_model_does_not_have_is_refused() -> None:
    """With its checksum right, and with a state or without."""
    async with an_engine("fake") as engine, engine.session() as session:
        await one(session, 2, 7)
        record, image, header = await exported(session)
        [turn] = record.turns
        tokens = array("I", [*turn.tokens[:-1], VOCABULARY])
        foreign = attrs.evolve(record, turns=[attrs.evolve(turn, tokens=tokens)])
        for state in (image, None):
            with pytest.raises(ValidationError, match="token id"):
                await engine.import_session(pack(foreign, state, header), session_id="b")

        whole = await engine.import_session(pack(record, image, header), session_id="b")
        assert (await one(whole, 3))[1] == record.log_len - 1


@pytest.mark.parametrize("name", ["", "one-shot:1"])
async def test_a_name_that_no_session_can_have_is_refused_from_a_file_too(name: str) -> None:
    """Another one can be given."""
    async with an_engine("fake") as engine, engine.session() as session:
        await one(session, 2, 7)
        record, image, header = await exported(session)
        data = pack(attrs.evolve(record, session_id=name), image, header)
        with pytest.raises(ValidationError, match="session_id"):
            await engine.import_session(data)

        assert (await engine.import_session(data, session_id="b")).session_id == "b"
