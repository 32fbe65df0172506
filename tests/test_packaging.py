"""What is shipped: the wheel, its metadata, and the pins that only the project itself uses."""

import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        name = build_wheel(str(folder))
    with zipfile.ZipFile(folder / name) as wheel:
        return set(wheel.namelist())


@pytest.mark.timeout(60)
def test_the_wheel_carries_the_weights_and_the_type_markers(wheel_names: set[str]) -> None:
    """A build that drops data files still installs, and fails at the first user's."""
    wanted = {f"{package}/py.typed" for package in ("ownership", "kernel", "adapters")}
    bundled = ROOT / "adapters" / "models" / "bundled"
    wanted |= {str(path.relative_to(ROOT)) for path in bundled.iterdir()}

    assert wanted <= wheel_names
    assert "adapters/models/bundled/model.safetensors" in wheel_names


@pytest.mark.timeout(60)
def test_the_wheel_carries_no_tests(wheel_names: set[str]) -> None:
    """An installed package named ``tests`` shadows everybody's own."""
    tops = {name.partition("/")[0] for name in wheel_names}

    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "ownership",
        "kernel",
        "adapters",
    }


def test_only_the_constraints_pin_torch() -> None:
    """A user's torch is the user's; what the project is tested with is written down once."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")

    assert "torch>=2.13" in project["dependencies"]
    assert "torch==2.13.0" in constraints.splitlines()
