"""A pytest plugin for code that uses Tenure: an engine without a model, and no claim left behind.

``tenure_engine`` hands a test an engine on the fake device; ``tenure_no_leaks`` fails a test that
ends with a claim that it took and did not give back, and says where it took it. Both are described
in ``docs/pytest-plugin.md``. A suite that asks for neither runs the same as without this plugin,
but that :mod:`kernel` is imported before it.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import Any

import anyio
import pytest

from kernel.config import EngineConfig
from kernel.engine.engine import Engine
from kernel.errors import ValidationError
from kernel.step import OpenedDevice
from kernel.testing.device import FaultyDevice, open_faulty_device
from kernel.testing.watching import Watch, watching

__all__ = ["tenure_device", "tenure_engine", "tenure_no_leaks"]

SETTLE_WITHIN_S = 5.0
"""How long a test's engine may take to come to rest; what it holds after that is told."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for whole suites."""
    parser.addini(
        "tenure_no_leaks",
        type="bool",
        default=False,
        help="let each test fail that ends with a claim of Tenure's that was not given back",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that strict suites can use it."""
    text = "tenure(**options): how tenure_engine is opened; fields of kernel.EngineConfig."
    config.addinivalue_line("markers", text)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the watch in every test, where the suite asks for it."""
    if not config.getini("tenure_no_leaks"):
        return
    for item in items:
        if isinstance(item, pytest.Function) and "tenure_no_leaks" not in item.fixturenames:
            item.fixturenames.insert(0, "tenure_no_leaks")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a watched test that passed and holds something; a test that failed has said enough."""
    yield
    # Here and not around the function: tests of unittest's classes don't go that way.
    watch = item.funcargs.get("tenure_no_leaks") if isinstance(item, pytest.Function) else None
    if isinstance(watch, Watch) and (report := watch.report(str(item.config.rootpath))):
        pytest.fail(report, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Let a watched test's engine come to rest on the test's own event loop."""
    engine = pyfuncitem.funcargs.get("tenure_engine")
    is_watched = isinstance(pyfuncitem.funcargs.get("tenure_no_leaks"), Watch)
    sound = pyfuncitem.obj
    if is_watched and isinstance(engine, Engine) and inspect.iscoroutinefunction(sound):
        pyfuncitem.obj = _settled(sound, engine)
    try:
        return (yield)
    finally:
        pyfuncitem.obj = sound


def _settled(test: Callable[..., Awaitable[object]], engine: Engine) -> Callable[..., object]:
    """The test, and after it whatever its engine has yet to do: a cancelled turn lands first."""

    @functools.wraps(test)
    async def wrapped(*args: object, **options: object) -> None:
        await test(*args, **options)
        with anyio.move_on_after(SETTLE_WITHIN_S):
            await engine.settle()

    return wrapped


@pytest.fixture
def tenure_no_leaks() -> Generator[Watch]:
    """Fail the test when it ends with a claim that was not given back, saying where it was taken.

    Ledgers are watched that are made within the test: those of its engines, and bare ones. The
    value has ``report()``, for a look in between.
    """
    with watching() as watch:
        yield watch


@pytest.fixture
def _tenure_opened(request: pytest.FixtureRequest) -> tuple[EngineConfig, OpenedDevice]:
    if "tenure_no_leaks" in request.fixturenames:
        request.getfixturevalue("tenure_no_leaks")  # the watch begins before there is a ledger
    options: dict[str, Any] = {"model": "fake", "device": "fake"}
    for marker in reversed(list(request.node.iter_markers("tenure"))):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.tenure takes options by name, not {marker.args}")
        options |= marker.kwargs
    try:
        config = EngineConfig.from_dict(options)
    except ValidationError as error:
        raise pytest.UsageError(f"@pytest.mark.tenure: {error}") from None
    return config, open_faulty_device(config.model)


@pytest.fixture
def tenure_device(_tenure_opened: tuple[EngineConfig, OpenedDevice]) -> FaultyDevice:
    """The device of ``tenure_engine``: ``fail_next()`` and ``hang_next()`` order faults."""
    device = _tenure_opened[1].device
    assert isinstance(device, FaultyDevice)
    return device


@pytest.fixture
async def tenure_engine(
    _tenure_opened: tuple[EngineConfig, OpenedDevice],
    tenure_device: FaultyDevice,
    anyio_backend: object,  # noqa: ARG001  # asked for, anyio's plugin runs this on the test's loop
) -> AsyncGenerator[Engine]:
    """An engine on the fake device, open until the test has ended.

    ``@pytest.mark.tenure(num_slots=2)`` says how it is opened. For tests that anyio's plugin runs.
    """
    config, opened = _tenure_opened
    async with Engine.open(config, device=opened) as engine:
        yield engine
        tenure_device.unhang()  # a step that hung for the test's sake must not hold up the end
    assert engine.core.audit is not None
    assert engine.core.audit.conserved, engine.core.audit.problems
