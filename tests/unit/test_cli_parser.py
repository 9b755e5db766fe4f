"""The command line: every level explains itself, and wrong words end with code 2 and one line."""

import argparse
import subprocess
import sys
from collections.abc import Iterator

import pytest

from services.cli import main
from services.cli.outcome import Exit
from services.cli.parser import build_parser
from tests.support.tree import ROOT

COMMANDS = (
    "demo", "up", "stop", "status", "run", "log tail", "log show", "log verify", "log export", "env check",
    "env list", "env show", "env recheck", "env grams", "env cache show", "env cache clear",
    "work list", "work retry", "work give-up", "roster", "swap proposer", "import", "compare", "replay", "report",
    "cost", "models build", "models pull", "models list", "base build", "sandbox reap",
)  # fmt: skip


def parsers(parser: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                yield from parsers(child, f"{path} {name}".strip())


def test_all_commands_are_there() -> None:
    leaves = [path for path, parser in parsers(build_parser()) if parser.get_default("does")]
    assert sorted(leaves) == sorted(COMMANDS)


@pytest.mark.parametrize("path", [path for path, _ in parsers(build_parser())])
def test_every_level_has_help_in_one_plain_sentence(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*path.split(), "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    parser = dict(parsers(build_parser()))[path]
    assert parser.description is not None
    assert parser.description.endswith(".")
    assert parser.description.split()[0] in text
    for action in parser._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_names_a_function_that_exists(path: str) -> None:
    parser = dict(parsers(build_parser()))[path]
    module, function = parser.get_default("does").split(":")
    loaded = __import__(f"services.cli.commands.{module}", fromlist=[function])
    assert callable(getattr(loaded, function))


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        [],
        ["log"],
        ["run", "painter"],
        ["swap", "proposer", "x", "--share", "2"],
        ["replay", "--level", "moon"],
        ["up", "--conf", "x"],
    ],
)
def test_wrong_words_end_with_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == Exit.usage
    assert "usage: envwheel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["status", "nowhere"], "no run 'nowhere': no run.toml and nats/ in nowhere or runs/nowhere"),
        (["status", "/nowhere"], "no run '/nowhere': no run.toml and nats/ in /nowhere\n"),
        (["env", "check", "missing"], "missing is no task directory: No such file or directory"),
        (["base", "build", "--lock", "missing"], "--lock missing is no file"),
        (["up", "-c", "missing.toml"], "missing.toml: No such file"),
        (["up", "--folder", "empty"], "holds no run to resume"),
        (["run", "solver"], "--run is missing: give it, or set ENVWHEEL_RUN"),
        (["report"], "no run here: start one"),
        (["swap", "proposer", "x", "--run", "nowhere"], "no run 'nowhere'"),
        (["models", "build", "nano", "--to", "full"], "full is not empty"),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do(
    words: list[str], said: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(str(tmp_path))
    subprocess.run(["mkdir", "-p", "full/x"], check=True)
    assert main(words) == Exit.usage
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("envwheel: ")
    assert error.count("\n") == 1


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ENVWHEEL_DEBUG", "1")
    assert main(["status", "nowhere"]) == Exit.usage
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m services.cli log --help | head -1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr == ""
