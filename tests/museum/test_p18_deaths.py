"""P18, from M086 on: a death is told to who waits, and life without progress is seen."""

import anyio
import attrs
import pytest

from adapters.fake_device import FakeDevice
from kernel import Engine, EngineClosed, EngineConfig, EngineFault, StepError
from kernel.environment import Environment
from kernel.messages import StartTurn
from kernel.step import DeviceWorker, WorkerContext
from tests.kernel.loopless import Loopless, error_of
from tests.kernel.toys import CALLER
from tests.kernel.turns import make_request
from tests.museum.exhibit import exhibit
from tests.museum.support import (
    MuteWorker,
    assert_solo,
    history_of,
    one_shot,
    serve,
    submit_all,
)
from tests.scenarios.inputs import greedy, prompt


@attrs.define(eq=False)
class _Clock:
    """Fails when it is told to, once."""

    at: float = 100.0
    fails: bool = False

    def __call__(self) -> float:
        if self.fails:
            self.fails = False
            raise RuntimeError("planted")
        return self.at


@exhibit("M121", pattern="P18", guard="protocol", bug="dead-loop-tells-nobody")
async def test_m121_the_death_of_the_loop_fails_who_waits_and_shows_in_health() -> None:
    """NVIDIA/TensorRT-LLM#14500: the event loop died, and the service went on with empty answers.

    The task that runs all actors dies of an error. Turns that run and turns that wait are told at
    once, health says that nothing lives here, and a new request is refused.
    """
    clock, device = _Clock(), FakeDevice(mode="manual", eos_token_ids=())
    errors: list[BaseException] = []
    engine: Engine | None = None
    with anyio.fail_after(15):
        async with anyio.create_task_group() as outside:
            with pytest.raises(BaseExceptionGroup, match="unhandled|nursery"):
                async with Engine.open(
                    EngineConfig(num_slots=1, num_pages=20, page_size=4, max_num_seqs=1),
                    device=device,
                    environment=Environment(clock=clock),
                ) as engine:
                    alive = engine

                    async def ask(salt: int) -> None:
                        try:
                            await alive.complete(prompt(4, salt), greedy(3))
                        except EngineClosed as error:
                            errors.append(error)

                    for salt in range(3):
                        outside.start_soon(ask, salt)
                    await anyio.wait_all_tasks_blocked()
                    assert engine.health().live
                    clock.fails = True
                    device.complete()
                    await anyio.sleep(14)
    assert engine is not None
    assert len(errors) == 3
    assert not engine.health().live
    with pytest.raises(EngineClosed):
        await engine.complete(prompt(3), greedy(1))
    assert engine.core.ledger.audit().conserved


@exhibit("M154", pattern="P18", guard="protocol", bug="tick-asks-for-a-tick")
def test_m154_two_thousand_turns_and_then_silence() -> None:
    """mlc-ai/mlc-llm#3145: after two thousand requests a server span at full load, without output.

    Every turn ends, in a bounded number of messages each, and an engine without work does nothing:
    no message waits, no timer is armed.
    """
    world = Loopless.open(
        num_slots=100, num_pages=200, max_num_seqs=100, max_num_batched_tokens=200
    )
    dispatcher = world.core.dispatcher
    first = make_request("first", prompt(3))
    world.core.door.enter(first.id, 3)
    one_shot(world, "first").mailbox.post(StartTurn(first), CALLER)
    serve(world)
    world.finish(first)
    assert_solo([], first)
    for number in range(20):
        before = dispatcher.hops
        pairs = submit_all(world, [[1 + n] for n in range(100)], greedy(3), f"r{number}")
        while world.device.waiting:
            world.step()
        assert all(turn.output.end is not None for _, turn in pairs)
        assert all(error_of(turn) is None for _, turn in pairs)
        assert dispatcher.hops - before < 100 * 8
    hops = dispatcher.hops
    world.advance(1000)
    assert dispatcher.hops == hops
    assert dispatcher.is_quiet
    assert dispatcher.next_timer_at() is None
    world.assert_all_free()


class _Broken(MuteWorker):
    """Its thread has died: it takes no step."""

    def submit(self, step: object, done: object, /) -> None:
        raise RuntimeError("the worker thread has died")

    def transfer(self, step: object, done: object, /) -> None:
        raise RuntimeError("the worker thread has died")


@exhibit("M160", pattern="P18", guard="protocol", bug="death-not-told")
def test_m160_a_dead_worker_is_told_at_once_and_with_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """huggingface/transformers#48301: a worker's error lay in a field that nobody read.

    The worker can't take the step: the turn fails in the same instant of the clock, with the
    cause. A worker that fails in the step says so too. The session's next turn runs on a successor.
    """
    device = FakeDevice(mode="manual", eos_token_ids=())
    real = device.start_worker
    workers: list[DeviceWorker] = [_Broken(has_ended=True)]

    def start_worker(context: WorkerContext, /) -> DeviceWorker:
        return workers.pop() if workers else real(context)

    monkeypatch.setattr(device, "start_worker", start_worker)
    world = Loopless.open(device=device, num_slots=2, num_pages=20)
    at = world.clock.at
    session = world.session("a")
    turn = world.start(session, prompt(4))
    error = error_of(turn)
    assert isinstance(error, EngineFault)
    assert "the worker thread has died" in error.why
    assert world.clock.at == at
    failing = world.start(session, prompt(4))
    device.fail(why="out of memory")
    world.run()
    failed = error_of(failing)
    assert isinstance(failed, StepError)
    assert failed.why == "out of memory"
    assert history_of(session) == []
    later = world.start(session, prompt(5, 1), greedy(3))
    world.finish(later)
    assert_solo([], later)
    world.close(session)
    world.advance(1)
    assert world.free == (2, 20)
