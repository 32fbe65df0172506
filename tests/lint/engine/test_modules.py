"""Names through modules: imports of every kind, re-exports, bases, generics, what is not there."""

from pathlib import Path

import pytest

from ownership.lint import Config, check_paths, check_source

FILES = {
    "app/__init__.py": "from .ports import Port as Door, spend\nfrom app.types import *\n",
    "app/types.py": (
        "from typing import Generic, NewType, TypeVar\n"
        "from ownership import BatchOwned, Consume, Refused\n"
        "T = TypeVar('T')\n"
        "Name = NewType('Name', str)\n"
        "Answer = BatchOwned | Refused\n"
        "class Box(Generic[T]):\n"
        "    item: T\n"
        "    def get(self) -> T: ...\n"
        "    class Inner:\n"
        "        def make(self) -> 'Answer': ...\n"
    ),
    "app/ports.py": (
        "import typing\n"
        "from ownership import BatchPort, Consume, BatchOwned, ZEROS, Need\n"
        "if typing.TYPE_CHECKING:\n"
        "    from .types import Answer\n"
        "try:\n"
        "    import fast\n"
        "except ImportError:\n"
        "    fast = None\n"
        "with open('x') as f:\n"
        "    LIMIT = 3\n"
        "class Port:\n"
        "    batch: BatchPort\n"
        "    def __init__(self, batch: BatchPort) -> None:\n"
        "        self.other, self.count = batch, 1\n"
        "        self.third: BatchPort = batch\n"
        "        self.loop = self.loop\n"
        "    def take(self) -> 'Answer': ...\n"
        "def spend(claim: 'Consume[BatchOwned]') -> None:\n"
        "    print(claim)\n"
        "HERE: BatchPort\n"
        "ALSO = HERE\n"
        "LOOP = LOOP\n"
    ),
    "app/deep/__init__.py": "",
    "app/deep/use.py": (
        "from .. import Door, spend, Box, Answer\n"
        "from ..ports import HERE, ALSO, LOOP\n"
        "import app.ports, app.ports as p\n"
        "from app import types as kinds\n"
        "def f(door: Door, box: Box[Door], inner: kinds.Box.Inner) -> None:\n"
        "    door.take()\n"
        "    box.get().take()\n"
        "    box.item.take()\n"
        "    app.ports.HERE.reserve(1, 2, turn='t')\n"
        "    ALSO.reserve(1, 2, turn='t')\n"
        "    p.Port(HERE).other.reserve(1, 2, turn='t')\n"
        "    p.Port(HERE).third.reserve(1, 2, turn='t')\n"
        "    inner.make()\n"
        "    print(LOOP, door.loop, door.count, p.missing, kinds.Name('x'), p.LIMIT)\n"
    ),
    "app/other.py": "def f(door):\n    return door.rollback(1)\n",
    "app/far.py": "import app.types, app\nimport app.nothing\nx = 1\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def lines(project: Path, *names: str, config: Config | None = None) -> list[tuple[str, int, str]]:
    report = check_paths([project / name for name in names], config)
    return [(Path(one.path).name, one.line, one.rule) for one in report.findings]


def test_names_are_followed_to_where_they_are_defined(project: Path) -> None:
    """Through the package's re-exports, relative and starred imports, strings and generics."""
    ignored = [("use.py", line, "OWN003") for line in range(6, 14)]

    found = lines(project, "app")
    assert [one for one in found if one[0] == "use.py"] == ignored
    assert ("ports.py", 18, "OWN003") in found


def test_a_file_alone_is_judged_by_the_modules_that_it_imports(project: Path) -> None:
    """What a hook is given is one changed file."""
    found = lines(project, "app/deep/use.py")

    assert len(found) == 8
    assert lines(project, "app/other.py") == []


def test_files_can_be_left_out(project: Path) -> None:
    """By patterns of paths."""
    assert lines(project, "app", config=Config(exclude=["*/use.py", "*/ports.py"])) == []


def test_what_cannot_be_read_is_told_and_the_rest_is_judged(project: Path) -> None:
    """One broken file must not hide the others' findings."""
    (project / "app" / "broken.py").write_text("from ownership import (\n", encoding="utf-8")
    (project / "app" / "latin.py").write_bytes(b"# \xe9\n")
    report = check_paths([project / "app", project / "app" / "deep" / "use.py"])

    assert sorted(Path(path).name for path, _ in report.unreadable) == ["broken.py", "latin.py"]
    assert len(report.findings) == 9
    assert report.files == len(FILES) + 1
    assert (report.statistics["OWN003"], report.lines > 40) == (9, True)


def test_an_import_that_leads_to_a_broken_module_is_not_followed(project: Path) -> None:
    """It is some class by that name, of which nothing is known."""
    (project / "app" / "types.py").write_text("class (\n", encoding="utf-8")

    assert len(lines(project, "app/deep/use.py")) < 8


def test_imports_in_a_circle_end() -> None:
    """A name that is only passed round is not known."""
    text = (
        "from ownership import BatchOwned\nX = Y\nY = X\ndef f(a: X, b: BatchOwned) -> None: a(b)\n"
    )

    assert check_source(text) == []


def test_a_text_that_is_no_python_is_refused() -> None:
    """Whoever checks a text wants to know that nothing was checked."""
    with pytest.raises(SyntaxError):
        check_source("from ownership import (\n", "broken.py")
    assert check_source("x = 1\n", "not a name.py") == []


ODD = """\
import typing, ownership.ports
from typing import *
from ownership import BatchOwned, BatchPort, Consume, Owns, SessionOwned
from ownership.marks import Mark
from elsewhere import Thing, thing
Alias = "Consume[BatchOwned]"
P = ParamSpec("P")
a, b = 1, 2
class Odd(Thing, typing.Generic[T]):
    n: typing.Literal["x"]
    class Deep:
        port: BatchPort
    deep: Deep
    def me(self) -> typing.Self: ...
    def none(self) -> "not python(": ...
    @staticmethod
    def new() -> "typing.Optional[BatchOwned]": ...
    def plain() -> None: ...
    @typing.overload
    @property
    def prop(self) -> int: ...
    @prop.setter
    def prop(self, value): ...
def f(odd: Odd, x: typing.Union[BatchOwned, int], y: Annotated[BatchOwned, Mark.CONSUME],
      z: Annotated[BatchOwned, "x"], t: type[BatchPort], u: type, v: "Owns[list[BatchOwned]]",
      w: thing[int], q: 3, r: Annotated[list[BatchOwned], Mark.OWNS], s: P, any: Any) -> None:
    odd.me().deep.port.rollback(x)
    odd.me().new()
    odd.none()
    odd.unknown.rollback(x)
    thing.made(z).rollback(z)
    t.reserve(any, 1, 2, turn="t")
    ownership.ports.BatchPort.rollback(any, z)
    typing.assert_never(y)
"""


def test_odd_annotations_are_read_or_left_alone() -> None:
    """Nothing that stands in an annotation may stop the checker."""
    found = [(one.line, one.rule) for one in check_source(ODD)]

    assert found == [(27, "OWN004"), (28, "OWN003"), (30, "OWN002"), (32, "OWN003")]
