"""config.json is checked key by key; an error names the key, the value and what would be right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adapters.models.config_reader import ConfigReader
from adapters.models.errors import ConfigError, ModelFileMissing

Read = Callable[[ConfigReader], object]


def reader(**values: object) -> ConfigReader:
    return ConfigReader(values)


WRONG: list[tuple[Read, object, str]] = [
    (lambda c: c.integer("key"), "8", "key must be a whole number from 1, not '8'"),
    (lambda c: c.integer("key"), 0, "key must be a whole number from 1, not 0"),
    (lambda c: c.integer("key"), True, "key must be a whole number from 1, not True"),
    (lambda c: c.integer("key"), 8.0, "key must be a whole number from 1, not 8.0"),
    (lambda c: c.number("key"), "1", "key must be a number above 0, not '1'"),
    (lambda c: c.number("key"), False, "key must be a number above 0, not False"),
    (lambda c: c.number("key"), 0, "key must be a number above 0, not 0"),
    (lambda c: c.number("key"), float("inf"), "key must be a number above 0, not inf"),
    (lambda c: c.number("key"), float("nan"), "key must be a number above 0, not nan"),
    (lambda c: c.number("key"), 10**400, "key must be a number above 0, not 1000"),
    (lambda c: c.numbers("key"), [10**400], "key must be a list of numbers"),
    (lambda c: c.boolean("key"), 1, "key must be true or false, not 1"),
    (lambda c: c.text("key"), 1, "key must be a text, not 1"),
    (lambda c: c.choice("key", {"a": 1, "b": 2}), "c", "key must be one of a, b, not 'c'"),
    (lambda c: c.choice("key", {"a": 1}), ["a"], r"key must be one of a, not \['a'\]"),
    (lambda c: c.integers("key"), [1, -1], "key must be a list of whole numbers from 0"),
    (lambda c: c.integers("key"), [1, True], "key must be a list of whole numbers from 0"),
    (lambda c: c.integers("key"), "12", "key must be a list of whole numbers from 0"),
    (lambda c: c.numbers("key"), ["1"], "key must be a list of numbers"),
    (lambda c: c.numbers("key"), [{"__float__": "x"}], "key must be a list of numbers"),
    (lambda c: c.texts("key", ("a",)), "a", "key must be a list of names, not 'a'"),
    (lambda c: c.texts("key", ("a", "b")), ["a", "c"], "key must be one of a, b, not 'c'"),
    (lambda c: c.sub("key"), [], r"key must be an object, not \[\]"),
]


@pytest.mark.parametrize(("read", "value", "message"), WRONG)
def test_a_wrong_value_is_named(read: Read, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^config.json: {message}"):
        read(reader(key=value))


REQUIRED: list[Read] = [
    lambda c: c.integer("key"),
    lambda c: c.number("key"),
    lambda c: c.boolean("key"),
    lambda c: c.text("key"),
    lambda c: c.choice("key", {"a": 1}),
    lambda c: c.integers("key"),
    lambda c: c.numbers("key"),
    lambda c: c.texts("key", ("a",)),
]


@pytest.mark.parametrize("read", REQUIRED)
@pytest.mark.parametrize("values", [{}, {"key": None}])
def test_a_missing_key_is_named_and_null_is_missing(read: Read, values: dict[str, object]) -> None:
    """``transformers`` writes null for what isn't set."""
    with pytest.raises(ConfigError, match=r"missing keys in config\.json: key"):
        read(ConfigReader(values))


def test_a_default_stands_in_for_a_missing_key_and_for_no_wrong_one() -> None:
    assert reader().integer("key", 3) == 3
    assert reader(key=None).number("key", 0.5) == 0.5
    assert reader().boolean("key", False) is False
    assert reader().integers("key", ()) == ()
    with pytest.raises(ConfigError):
        reader(key=-1).integer("key", 3)


def test_one_id_is_a_list_of_one() -> None:
    """eos_token_id comes as a number and as a list."""
    assert reader(key=7).integers("key") == (7,)
    assert reader(key=[7, 9]).integers("key") == (7, 9)


def test_infinity_is_read_in_both_spellings() -> None:
    """JSON has none; writers of different years found different ways out."""
    text = '{"old": [0.0, Infinity], "new": [0.0, {"__float__": "Infinity"}]}'
    config = ConfigReader.from_json(text)

    assert config.numbers("old") == config.numbers("new") == (0.0, float("inf"))


def test_a_feature_that_is_not_built_is_refused_unless_it_is_off() -> None:
    """Silence would be another model than the one that was published."""
    reader(key=False).refuse("key", unless=False, why="not built")
    reader(key=None).refuse("key", unless=False, why="not built")
    reader().refuse("key", unless=False, why="not built")
    with pytest.raises(ConfigError, match=r"^config\.json: key is True: not built"):
        reader(key=True).refuse("key", unless=False, why="not built")


def test_an_error_in_a_part_says_which_part() -> None:
    config = reader(text_config={"hidden_size": "x"})

    with pytest.raises(ConfigError, match=r"^config\.json: text_config: hidden_size must be"):
        config.sub("text_config").integer("hidden_size")


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"{", "isn't JSON"),
        (b"[]", "must hold an object"),
        (b"[" * 100_000, "isn't JSON"),
        (b"\xff\xfe{", "isn't UTF-8 text"),
        (None, "is no model: can't read config.json"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes | None, error: str) -> None:
    if data is not None:
        (tmp_path / "config.json").write_bytes(data)

    with pytest.raises(ModelFileMissing if data is None else ConfigError, match=error):
        ConfigReader.load(tmp_path)
