"""Images of sessions that were brought in are within their bytes, however many sessions come."""

import pytest

from kernel.actors.reply import Reply
from kernel.engine.core import Core
from kernel.ids import SessionId
from kernel.messages import Exported, ExportSession
from kernel.session_store import SessionRecord, StoredTurn
from kernel.sessions.image_shelf import ImageShelf
from kernel.sessions.session import SessionActor
from kernel.state_image import ImageArray, StateImage
from tests.durable.memory_store import MemoryFiles, MemoryStore
from tests.durable.worlds import Durable, open_engine, settled
from tests.kernel.loopless import Loopless
from tests.kernel.toys import Recorder
from tests.pressure.worlds import greedy, words

LENGTH = 6


def shelf_of(core: Core, max_bytes: int) -> ImageShelf:
    shelf = core.registry.shelf
    shelf.max_bytes = max_bytes
    return shelf


def record(name: str) -> SessionRecord:
    log = MemoryStore.array(*range(1, LENGTH + 1))
    return SessionRecord(name, [StoredTurn(0, LENGTH, log, "append")])


def an_image(position: int = LENGTH - 1, nbytes: int = 60) -> StateImage:
    return StateImage(position, {"state": ImageArray("U8", (nbytes,), bytes(nbytes))})


def bring_in(core: Core, name: str, image: StateImage) -> SessionActor:
    return core.bring_back(record(name), image=image, session_id=SessionId(name))


def test_an_image_without_room_is_left_to_the_log_and_that_is_told() -> None:
    """A thousand sessions that are imported and never used must not fill the host's memory."""
    probe = Recorder()
    world = Loopless.open(probe=probe)
    shelf = shelf_of(world.core, 100)
    first = bring_in(world.core, "a", an_image())
    second = bring_in(world.core, "b", an_image())

    assert first.state.image is not None
    assert second.state.image is None
    assert shelf.nbytes == 60
    told = probe.named("session.state_lost")
    assert [(one["session"], one["reason"]) for one in told] == [("b", "refused")]


def test_a_fork_shares_its_parents_image_and_the_last_one_gives_its_room_back() -> None:
    """It is the same bytes; whoever closes or dies first leaves them to the other."""
    world = Loopless.open()
    shelf = shelf_of(world.core, 100)
    parent = bring_in(world.core, "a", an_image())
    fork = world.core.open_session(
        SessionId("fork"), is_one_shot=False, idle_timeout_s=None, parent=parent
    )
    assert (fork.state.image, shelf.nbytes) == (parent.state.image, 60)
    world.close(parent)
    world.run()
    left = shelf.nbytes
    world.core.dispatcher.kill(fork.name, RuntimeError("planted"))
    world.run()

    assert (left, shelf.nbytes) == (60, 0)


def test_a_turn_that_is_committed_gives_the_images_room_back() -> None:
    """From there on the state is in a pool."""
    there = Durable.on(num_slots=6, num_pages=64)
    session = there.session("a")
    there.start(session, words(4, 1), greedy(3))
    there.rest()
    reply: Reply[Exported] = Reply()
    there.post(session, ExportSession(reply))
    there.rest()
    found = settled(reply)
    assert isinstance(found, Exported)
    image = found.image
    assert image is not None
    world = Loopless.open(num_slots=6, num_pages=64)
    shelf = shelf_of(world.core, image.nbytes)
    here = world.core.bring_back(found.record, image=image, session_id=SessionId("here"))
    before = shelf.nbytes
    turn = world.start(here, words(4, 2), greedy(3))
    world.finish(turn)

    assert (before, shelf.nbytes) == (image.nbytes, 0)
    assert turn.output.cached_tokens == image.position


def test_a_session_that_went_back_below_its_image_gives_its_room_back() -> None:
    """An image of more than the log is none."""
    shelf = ImageShelf(60)
    image = an_image()
    assert shelf.keep(image)
    assert not shelf.keep(an_image())
    shelf.let_go(image)

    assert shelf.nbytes == 0
    with pytest.raises(KeyError):
        shelf.let_go(image)


async def test_with_a_store_an_image_without_room_goes_there() -> None:
    """And its session goes on from the snapshot, as if it had kept the image."""
    disk = MemoryStore()
    files = MemoryFiles(disk)
    async with open_engine(files) as engine, engine.session(session_id="a") as session:
        await session.append([1, 2, 3, 4, 5])
        position = session.info.position
        data = await session.export()
    async with open_engine(files, session_store="anywhere") as engine:
        shelf = shelf_of(engine.core, 0)
        session = await engine.import_session(data)
        await engine.settle()
        assert (session.info.place, shelf.nbytes) == ("disk", 0)
        async with session.turn([7], greedy(2)) as turn:
            result = await turn.wait()
        assert result.usage.cached_tokens == position
