"""``tenure chat``: undoing lines, marking places and coming back to them."""

from click.testing import CliRunner

from adapters.cli import main

FAKE = ["--device", "fake", "--model", "fake", "--max-tokens", "8", "--seed", "1"]


def chat(*lines: str) -> list[str]:
    """What is shown, answers included, without the prompts."""
    result = CliRunner().invoke(main, ["chat", *FAKE], input="\n".join([*lines, "/quit", ""]))
    assert result.exit_code == 0, result.output
    shown = [line.removeprefix("> ") for line in result.stdout.splitlines()]
    return [line for line in shown if line.strip()]


def test_undo_takes_the_last_line_and_its_answer_back() -> None:
    """One by one, down to nothing, and then it says so."""
    shown = chat("one", "two", "/undo", "/info", "/undo", "/undo")

    assert sum("undone; 1 turn left" in line for line in shown) == 1
    assert sum("undone; 0 turns left" in line for line in shown) == 1
    assert any("idle, 1 turn," in line for line in shown)
    assert shown[-1] == "there is nothing to undo"


def test_talking_goes_on_after_an_undo_as_if_the_line_had_never_been() -> None:
    """The same line gets the same tokens: draws go by the number of the turn, which went back."""
    plain = chat("one", "/info")
    undone = chat("one", "two", "/undo", "/info")

    numbers = [line.split("turn, ")[1].split(" (")[0] for line in (plain[-1], undone[-1])]
    assert numbers[0] == numbers[1]


def test_a_checkpoint_is_listed_and_restored() -> None:
    """By the name that it was given, or by one that it was told."""
    shown = chat("one", "/checkpoint here", "two", "/checkpoint", "/info", "/restore here", "/info")

    assert any(line.endswith("here: 1 turn") for line in shown)
    assert any(line.startswith("  here: 1 turn, ") for line in shown)
    assert any(line.startswith("  checkpoint-") and "2 turns" in line for line in shown)
    assert "idle, 1 turn," in shown[-2]
    assert shown[-1].startswith("  here:")


def test_what_can_not_be_restored_is_said_and_nothing_is_lost() -> None:
    """The conversation goes on where it is."""
    shown = chat("one", "/restore", "/restore nowhere", "/info")

    assert any("none so far" in line for line in shown)
    assert any("CheckpointNotFound" in line for line in shown)
    assert "idle, 1 turn," in shown[-1]


def test_a_line_that_is_no_command_is_for_the_model() -> None:
    """Whatever it begins with."""
    assert "idle, 2 turns" in chat("/undoing is hard", "/etc/hosts?", "/info")[-1]


def test_a_mistyped_command_is_not_told_to_the_model() -> None:
    """It would be absorbed and answered as a turn, and the session is not where it was meant."""
    shown = chat("one", "/ifno", "/resotre here", "/undo 2", "/quit now", "/info")

    assert shown[-5:-1] == [
        "no command /ifno; did you mean /info? /help lists them",
        "no command /resotre; did you mean /restore? /help lists them",
        "/undo takes the last line and its answer back; nothing may stand after it",
        "/quit leaves, as the end of input does; nothing may stand after it",
    ]
    assert "idle, 1 turn," in shown[-1]


def test_help_lists_every_command() -> None:
    """Who is at the prompt need not leave it to find out."""
    shown = chat("/help")

    assert [line.split()[0] for line in shown] == [
        "/undo",
        "/checkpoint",
        "/restore",
        "/info",
        "/help",
        "/quit",
    ]
