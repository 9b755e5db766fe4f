"""What the pages say is there is there: links, and commands that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from services.cli.parser import build_parser
from tests.support.tree import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```[a-z]*\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?envwheel ([a-z-][^#\n]*)", re.MULTILINE)
_TARGET = re.compile(r"^(?:\$ )?make ([a-z]+)\b", re.MULTILINE)


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    dead = []
    for target in _LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = page if not path else (page.parent / path)
        if not found.exists() or (anchor and anchor not in anchors(found)):
            dead.append(target)
    assert not dead


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_is_one(page: Path) -> None:
    code = "\n".join(block or span for block, span in _CODE.findall(page.read_text()))
    wrong = [command for command in _COMMAND.findall(code) if not is_command(command.strip())]
    assert not wrong


def test_the_readme_begins_with_the_two_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join(block or span for page in PAGES for block, span in _CODE.findall(page.read_text()))
    named = set(_TARGET.findall(code))
    assert named <= targets
    assert {"demo", "test", "check"} <= targets


def is_command(command: str) -> bool:
    """Does the command line take it? Placeholders in capitals are taken as words; a bare group name is fine, too."""
    words = shlex.split(re.sub(r"[\[\]…]", "", command))
    try:
        build_parser().parse_args([*words, "--help"])
    except SystemExit as end:
        return end.code == 0
    return True


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", head.lower()).strip().replace(" ", "-") for head in heads}
