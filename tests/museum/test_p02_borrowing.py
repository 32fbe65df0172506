"""P2, from M086 on: what is borrowed is read, and never written in place."""

from tests.museum.exhibit import exhibit
from tests.scenarios.inputs import greedy, prompt
from tests.scenarios.stage import open_stage


@exhibit("M189", pattern="P2", guard="protocol", bug="row-writes-into-its-base")
async def test_m189_a_borrowers_decode_leaves_the_lenders_state_as_it_was() -> None:
    """youssofal/MTPLX#247: a restored view was written in place, and the lender spoke of others.

    A fork decodes from its parent's state, in the middle of a page; asked again, the parent
    answers as if there had never been a fork.
    """
    async with open_stage(num_slots=4, num_pages=40) as stage:
        async with stage.engine.session() as parent:
            shared = stage.note([], await stage.run(parent.turn(prompt(9), greedy(5))))
            (lent,) = stage.held_by(parent)
            begun = len(stage.device.steps)
            async with parent.fork() as child:
                own = stage.note(shared, await stage.run(child.turn(prompt(6, 1), greedy(9))))
                written = {row.slot for step in stage.device.steps[begun:] for row in step.rows}
                assert lent.slot not in written
                assert stage.held_by(parent) == (lent,)
                stage.note(shared, await stage.run(parent.turn(prompt(3, 2), greedy(6))))
                stage.note(own, await stage.run(child.turn([7], greedy(4))))
        await stage.settle()
        stage.assert_at_rest()
