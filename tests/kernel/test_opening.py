"""Opening: devices are found by name among what is installed, or passed in."""

from typing import Any

import attrs
import pytest

from adapters.fake_device import FakeDevice, open_fake
from kernel import Engine, EngineConfig, ModelError, ValidationError
from kernel.engine.opening import DEVICES, make_probe, open_device
from kernel.environment import Environment
from kernel.loading import LoadProgress, OnProgress
from kernel.probe import EventProbe, NullProbe
from kernel.step import OpenedDevice
from tests.kernel.small import GREEDY


@attrs.frozen
class Entry:
    """As much of an entry point as is looked at."""

    name: str
    factory: Any

    def load(self) -> Any:
        return self.factory


@attrs.define
class Watched:
    """A factory that remembers what it opened, and how it was asked."""

    asked: list[dict[str, Any]] = attrs.field(factory=list[dict[str, Any]])
    device: FakeDevice | None = None

    def __call__(self, *, progress: OnProgress, **how: Any) -> OpenedDevice:
        progress(LoadProgress(1, 2, "a"))
        self.asked.append(how)
        self.device = FakeDevice(eos_token_ids=())
        return OpenedDevice(device=self.device, tokenizer=self.device.tokenizer)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is installed in the group of devices, by name."""
    entries: dict[str, Any] = {}

    def find(*, group: str, name: str | None = None) -> list[Entry]:
        assert group == DEVICES == "tenure.devices"
        return [Entry(key, made) for key, made in entries.items() if name in (None, key)]

    monkeypatch.setattr("kernel.engine.opening.entry_points", find)
    return entries


async def test_a_device_is_found_by_its_name_and_closed_by_who_opened_it(
    installed: dict[str, Any],
) -> None:
    """A package brings a device by an entry point; the kernel imports none of them."""
    factory = Watched()
    installed["mine"] = factory
    told: list[LoadProgress] = []
    names = {"model": "some/path", "device": "mine", "dtype": "float64", "state_dtype": "bfloat16"}
    async with Engine.open(EngineConfig.from_dict(names), progress=told.append) as engine:
        result = await engine.complete("hello", GREEDY)

    assert len(result.token_ids) == 4
    assert factory.asked == [names]
    assert told == [LoadProgress(1, 2, "a")]
    assert factory.device is not None
    with pytest.raises(RuntimeError, match="allocate"):
        _ = factory.device.arenas


def test_an_unknown_device_is_refused_with_the_known_ones(installed: dict[str, Any]) -> None:
    """Before a model is read."""
    installed |= {"cuda": Watched(), "cpu": Watched()}
    with pytest.raises(ValidationError, match="use cpu, cuda") as caught:
        open_device(EngineConfig(device="tpu"))

    assert (caught.value.parameter, caught.value.value) == ("device", "tpu")


async def test_an_unknown_device_opens_no_engine(installed: dict[str, Any]) -> None:
    """The same error, out of the door."""
    with pytest.raises(ValidationError):
        async with Engine.open(EngineConfig(device="tpu")):
            raise AssertionError("it opened")


async def test_a_device_of_the_callers_own_stays_the_callers(installed: dict[str, Any]) -> None:
    """Nothing is looked up, and it isn't closed: it may serve another engine, one after another."""
    device = FakeDevice(eos_token_ids=())
    tokens: list[tuple[int, ...]] = []
    for _ in range(2):
        async with Engine.open(EngineConfig(), device=device) as engine:
            tokens.append((await engine.complete([1, 2], GREEDY)).token_ids)
        assert device.arenas is not None

    assert tokens[0] == tokens[1]


async def test_a_config_that_does_not_fit_the_model_opens_nothing(
    installed: dict[str, Any],
) -> None:
    """And what was opened for it is closed again."""
    factory = Watched()
    installed["cpu"] = factory
    with pytest.raises(ValidationError, match="at most 100000"):
        async with Engine.open(EngineConfig(max_model_len=200_000)):
            raise AssertionError("it opened")

    assert factory.device is not None
    with pytest.raises(RuntimeError):
        _ = factory.device.arenas


async def test_a_model_that_can_not_be_opened_is_its_own_error(installed: dict[str, Any]) -> None:
    """From the factory, through the thread it runs in, unchanged."""
    installed["fake"] = open_fake
    with pytest.raises(ModelError, match="no fake model 'nonsense'"):
        async with Engine.open(EngineConfig(model="nonsense", device="fake")):
            raise AssertionError("it opened")


def test_events_go_to_the_logger_that_is_passed_or_to_nobody() -> None:
    """``log_events`` without a logger is the application's own structlog."""
    environment = Environment()

    class Logger:
        def info(self, event: str, **fields: object) -> None:
            raise AssertionError

    assert isinstance(make_probe(EngineConfig(), None, environment), NullProbe)
    assert isinstance(make_probe(EngineConfig(), Logger(), environment), EventProbe)
    assert isinstance(make_probe(EngineConfig(log_events=True), None, environment), EventProbe)
