"""The text files of a model directory: what is read of them, and what is said of damaged ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from adapters.text.errors import TokenizerError, TokenizerMissing
from adapters.text.opening import open_text
from adapters.text.tokenizer import HubTokenizer
from kernel.chat import ChatPrompt
from kernel.errors import ModelError
from tests.text.conversations import said
from tests.text.trained import KINDS, library, tokenizer

KIND = "byte level with a beginning"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    library(KIND).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(path: Path, value: Any) -> None:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def shown(directory: Path, **more: Any) -> str:
    chat = open_text(directory).chat
    assert chat is not None
    return chat.render(ChatPrompt([said("user", "Hi")], **more))


def test_a_tokenizer_alone_is_enough(directory: Path) -> None:
    text = open_text(directory)

    assert text.chat is None
    assert text.eos_token_ids == ()
    assert text.opening_ids == (text.tokenizer.id_of("<|begin_of_text|>"),)


@pytest.mark.parametrize("kind", KINDS)
def test_opening_ids_are_what_the_post_processor_puts_before_a_text(kind: str) -> None:
    made = tokenizer(kind)
    plain = made.encode("the cat")
    full = made.library.encode("the cat", add_special_tokens=True).ids

    assert full[: len(made.opening_ids) + len(plain)] == [*made.opening_ids, *plain]
    assert bool(made.opening_ids) == (full[0] != plain[0])


def test_truncation_and_padding_of_the_file_are_not_obeyed(directory: Path) -> None:
    """They are what a training run used; a prompt would be cut in silence."""
    changed: Any = Tokenizer.from_file(str(directory / "tokenizer.json"))
    changed.enable_truncation(4)
    changed.enable_padding(length=64)
    changed.save(str(directory / "tokenizer.json"))
    ids = open_text(directory).tokenizer.encode("the cat and the hat, the end")

    assert ids == tokenizer(KIND).encode("the cat and the hat, the end")
    assert len(ids) > 4


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("entry", ["<|im_end|>", {"content": "<|im_end|>", "lstrip": False}])
def test_special_tokens_are_named_by_either_file(directory: Path, file: str, entry: Any) -> None:
    write(directory / file, {"eos_token": entry, "bos_token": "<s>", "pad_token": None})
    text = open_text(directory)

    assert text.special_tokens.named == {"eos_token": "<|im_end|>", "bos_token": "<s>"}
    assert text.eos_token_ids == (text.tokenizer.id_of("<|im_end|>"),)


def test_tokens_that_the_tokenizer_lacks_are_added_after_its_last_id(directory: Path) -> None:
    """As transformers does; else a template's marks would be written in letters."""
    config = {
        "eos_token": "<|new_end|>",
        "added_tokens_decoder": {"500": {"content": "<|call|>", "special": False}},
        "additional_special_tokens": ["<|extra|>"],
        "extra_special_tokens": {"image_token": "<|image|>"},
    }
    write(directory / "tokenizer_config.json", config)
    text = open_text(directory)
    before = tokenizer(KIND).vocab_size
    names = ("<|call|>", "<|new_end|>", "<|extra|>", "<|image|>")

    assert sorted(text.tokenizer.id_of(name) or 0 for name in names) == list(
        range(before, before + 4)
    )
    assert text.special_tokens.named["image_token"] == "<|image|>"
    assert text.tokenizer.decode(text.tokenizer.encode("<|call|>a<|extra|>")) == "<|call|>a"


def test_templates_lie_in_four_places_and_the_files_win(directory: Path) -> None:
    write(directory / "tokenizer_config.json", {"chat_template": "config"})
    assert shown(directory) == "config"
    write(directory / "chat_template.json", {"chat_template": "json"})
    assert shown(directory) == "json"
    write(directory / "chat_template.jinja", "jinja {{ bos_token }}")
    assert shown(directory) == "jinja "
    (directory / "additional_chat_templates").mkdir()
    write(directory / "additional_chat_templates" / "tool_use.jinja", "tools")
    assert shown(directory) == "jinja "
    assert shown(directory, tools=[{}]) == "tools"


@pytest.mark.parametrize("form", ["list", "object"])
def test_named_templates_are_chosen_by_whether_there_are_tools(directory: Path, form: str) -> None:
    named: Any = {"default": "plain", "tool_use": "with tools"}
    if form == "list":
        named = [{"name": name, "template": source} for name, source in named.items()]
    write(directory / "tokenizer_config.json", {"chat_template": named})

    assert shown(directory) == "plain"
    assert shown(directory, tools=[{"name": "look"}]) == "with tools"


def test_templates_without_a_default_are_named(directory: Path) -> None:
    write(directory / "tokenizer_config.json", {"chat_template": {"rag": "x"}})

    with pytest.raises(ValueError, match="rag, and no default"):
        shown(directory)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{"),
        ("tokenizer.json", "{}"),
        ("tokenizer.json", ""),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("tokenizer_config.json", {"eos_token": 5}),
        ("tokenizer_config.json", {"eos_token": {"id": 5}}),
        ("tokenizer_config.json", {"added_tokens_decoder": []}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": "a"}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"9" * 5000: "a"}}),
        ("tokenizer_config.json", {"additional_special_tokens": "a"}),
        ("tokenizer_config.json", {"chat_template": 5}),
        ("tokenizer_config.json", {"chat_template": [{"name": "a"}]}),
        ("special_tokens_map.json", "nothing"),
        ("chat_template.json", "nothing"),
    ],
)
def test_a_damaged_file_is_named(directory: Path, file: str, content: Any) -> None:
    write(directory / file, content)

    with pytest.raises(TokenizerError, match=file) as raised:
        open_text(directory)

    assert isinstance(raised.value, ModelError)


def test_a_template_that_is_no_text_is_named(directory: Path) -> None:
    (directory / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(TokenizerError, match=r"chat_template\.jinja can't be read"):
        open_text(directory)


def test_a_directory_without_a_tokenizer_says_what_it_has_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(TokenizerMissing, match="no tokenizer at all"):
        open_text(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"sentencepiece")

    with pytest.raises(TokenizerMissing, match=r"only tokenizer\.model.*save_pretrained"):
        open_text(tmp_path)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("byte")])
def test_text_that_follows_text_has_no_first_word(kind: str) -> None:
    made: HubTokenizer = tokenizer(kind)
    ids = [*made.encode("a"), *made.encode_after_text("\nthe cat")]

    assert made.decode(ids) == "a\nthe cat"
