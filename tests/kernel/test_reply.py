"""The reply port: settled once, awaited by one, dead with its asker."""

import anyio
import pytest

from kernel.actors.reply import Reply


async def test_an_answer_that_came_first_is_read_at_once() -> None:
    """The actor doesn't wait for its asker."""
    reply: Reply[int] = Reply()
    reply.answer(7)

    assert reply.is_settled
    assert await reply.wait() == 7


async def test_an_answer_wakes_the_asker() -> None:
    """The usual order."""
    reply: Reply[str] = Reply()
    got: list[str] = []

    async def ask() -> None:
        got.append(await reply.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        reply.answer("yes")

    assert got == ["yes"]


async def test_a_failure_is_raised_to_the_asker() -> None:
    """The very error, so that its fields can be read."""
    reply: Reply[None] = Reply()
    error = ValueError("no")
    reply.fail(error)

    with pytest.raises(ValueError, match="no") as caught:
        await reply.wait()
    assert caught.value is error


async def test_none_is_an_answer() -> None:
    """Not being settled is something else."""
    reply: Reply[None] = Reply()
    before = reply.is_settled
    reply.answer(None)
    await reply.wait()

    assert not before


@pytest.mark.parametrize("first", ["answer", "fail"])
async def test_the_first_settlement_stands(first: str) -> None:
    """Whoever buries an actor answers its mail once more; the asker hears one thing only."""
    reply: Reply[int] = Reply()
    if first == "answer":
        reply.answer(1)
    else:
        reply.fail(ValueError("first"))
    reply.answer(2)
    reply.fail(KeyError("late"))

    if first == "answer":
        assert await reply.wait() == 1
    else:
        with pytest.raises(ValueError, match="first"):
            await reply.wait()


async def test_a_cancelled_wait_takes_nothing_out_of_the_port() -> None:
    """The answer that comes later is a value; that it goes unread loses nothing."""
    reply: Reply[int] = Reply()
    with anyio.move_on_after(0) as scope:
        await reply.wait()
    reply.answer(3)

    assert scope.cancelled_caught
    assert await reply.wait() == 3
