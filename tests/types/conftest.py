"""One run of each type checker over all programs."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from hatchling.build import build_wheel

from tests.types.programs import PROGRAMS, PROLOGUE

Findings = Mapping[str, Mapping[int, str]]
"""What was said, by program and by line of its body, the first line being 1."""

_OFFSET = PROLOGUE.count("\n")


@pytest.fixture(scope="session")
def type_check_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the package ``ownership`` that is checked against.

    A wheel that is built and unpacked here, so that what a user installs is what is checked; or
    what ``TENURE_TYPE_CHECK_ROOT`` names.
    """
    named = os.environ.get("TENURE_TYPE_CHECK_ROOT")
    if named is not None:
        return Path(named)
    folder = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parent.parent.parent)
        wheel = folder / build_wheel(str(folder))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name, body in PROGRAMS.items():
        (folder / f"{name}.py").write_text(PROLOGUE + body, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def mypy_findings(programs: Path, type_check_root: Path) -> Findings:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    command += ["--hide-error-context", "--no-pretty", "--cache-dir", str(programs / ".mypy")]
    environment = os.environ | {"MYPYPATH": str(type_check_root)}
    run = subprocess.run(
        [*command, *(f"{name}.py" for name in PROGRAMS)],
        cwd=programs,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    findings: dict[str, dict[int, str]] = defaultdict(dict)
    for line in run.stdout.splitlines():
        found = re.fullmatch(r"(\w+)\.py:(\d+): error: (.*)", line)
        assert found or ": note: " in line, line
        if found:
            findings[found[1]][int(found[2]) - _OFFSET] = found[3]
    return findings


@pytest.fixture(scope="session")
def pyright_findings(programs: Path, type_check_root: Path) -> Findings:
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(type_check_root)]}
    (programs / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=programs,
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    findings: dict[str, dict[int, str]] = defaultdict(dict)
    for found in json.loads(run.stdout)["generalDiagnostics"]:
        line = found["range"]["start"]["line"] + 1
        findings[Path(found["file"]).stem][line - _OFFSET] = found["message"]
    return findings
