"""The gate `no leak`: neither tests nor solution can be read in the image or the instruction."""

import asyncio
import hashlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from services.kernel.harbor.task import HarborTask
from services.kernel.meter import spend
from services.kernel.sandbox.protocol import Image, ImageFile, SandboxBackend, SandboxRefusedError
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case, Cost, Finding, Need, failed, passed
from services.validator.gates.leak_secrets import Block, Secrets, View, secrets_of
from services.validator.gates.leak_views import Budget, views

FILE_BYTES_MAX = 32 * 2**20
"""Of a larger file the head is read."""
OPENED_BYTES_MAX = 64 * 2**20
"""What is taken out of the wrappings of one file."""
SHOWN_MAX = 4
TOLD_LINES_SHARE = 0.6
ASSERTION_CHARS_MIN = 24
_ASSERTION = re.compile(rb"assert |self\.assert|\[\[? .*\$\(|\[\[? .* (=|==|-eq) |grep -q|cmp |diff ")
_ANSWER = re.compile(r"(^|[/._-])(expected|answers?|solutions?|solved?|gold(en)?|truth|oracle)([/._-]|$)")
_INPUT = re.compile(r"(^|[/._-])(inputs?|orig(inal)?|sources?|before|pristine|fixtures?|samples?)([/._-]|$)")
_GIT = re.compile(r"\b(git|commits?|branch(es)?|repositor(y|ies))\b", re.IGNORECASE)
_ROOTS = frozenset(("app", "home", "root", "opt", "srv", "usr", "var", "etc", "tmp", "data", "workspace", "files"))


@dataclass
class _Search:
    """What was found so far, and what could not be looked into."""

    secrets: Secrets
    task: HarborTask
    leaks: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """By secret and place, the first sight of it: a file may lie in several layers and show it in several ways."""
    told: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    """Found, and no leak: the task itself speaks of the place."""
    cut: set[str] = field(default_factory=set)
    files: int = 0
    read_bytes: int = 0

    def note(self, secret: str, place: str, how: str, why: str, *, told: bool = False) -> None:
        kept = self.told if told else self.leaks
        found = {"secret": secret, "place": _plain(place), "how": _plain(how), "why": why}
        kept.setdefault((secret, place), found)

    def evidence(self) -> dict[str, list[Any]]:
        leaks, told = ([kept[key] for key in sorted(kept)] for kept in (self.leaks, self.told))
        return {"leaks": leaks, "told": told, "cut": sorted(map(_plain, self.cut))}


class NoLeak:
    """Files of tests/ and solution/, or what is distinctive in them, are neither in the files of the image above its
    base (in any of its layers, also what a later one deletes), nor in its environment, nor in the instruction;
    plainly, or wrapped as `views` can unwrap.
    """

    name = "no leak"
    cost = Cost.running
    hidden = False
    needs = (Need.task, Need.image)

    async def check(self, case: Case) -> Finding:
        task, image = case.known_task(), case.known_image()
        search = _Search(secrets_of(task.files), task)
        try:
            cpu_s = await asyncio.to_thread(_search_all, search, image, case.workshop)
        except SandboxRefusedError as error:
            return failed(f"the image's files cannot be looked into: {error}")
        spend(cpu_s)
        evidence, observed = search.evidence(), {"files": search.files, "bytes": search.read_bytes}
        if leaks := evidence["leaks"]:
            return replace(failed("; ".join(map(_said, leaks[:SHOWN_MAX])), **evidence), observed=observed)
        shown = ", ".join(evidence["cut"][:SHOWN_MAX])
        return replace(passed(f"not wholly looked into: {shown}" if shown else "", **evidence), observed=observed)


def _plain(name: str) -> str:
    """A name of the author's choice, fit to be printed: bytes that are no UTF-8 and control characters are escaped."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in name
    )


def _said(leak: dict[str, str]) -> str:
    how = f" ({leak['how']})" if leak["how"] else ""
    return f"{leak['secret']} in {leak['place']}{how}: {leak['why']}"


def _search_all(search: _Search, image: Image, workshop: Workshop) -> float:
    """Gives the CPU seconds of this thread."""
    began_s = time.thread_time()
    _search_instruction(search)
    for name, value in image.env:
        _search_bytes(search, f"${name}", value.encode("utf-8", "surrogateescape"))
    backend, base = workshop.backend, workshop.base_image
    above, layers = _above(image, base)
    seen = {file.path for file in backend.image_files(above)} if layers else set()
    known = {} if layers or not base.engine_id else _digests_of(base, backend)
    for part in layers or [above]:
        for file in backend.image_files(part):
            content = _content(search, file)
            if known.get(file.path) == _digest(content):
                continue
            gone = "deleted by a later layer" if layers and file.path not in seen else ""
            _search_bytes(search, file.path, content, gone)
    return time.thread_time() - began_s


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


_known: dict[str, dict[str, bytes]] = {}


def _digests_of(base: Image, backend: SandboxBackend) -> dict[str, bytes]:
    """Of the heads of a base's files, by path, where an engine shows images only whole. Found once for each base."""
    if (known := _known.get(base.digest)) is not None:
        return known
    found = {}
    for file in backend.image_files(base):
        with file.open() as opened:
            found[file.path] = _digest(opened.read(FILE_BYTES_MAX))
    _known.clear()
    _known[base.digest] = found
    return found


def _above(image: Image, base: Image) -> tuple[Image, list[Image]]:
    """The image without its base, and its layers one by one; all of it and none where layers are not known."""
    count = len(base.lowers)
    if not image.lowers or image.lowers[:count] != base.lowers:
        return image, []
    own = image.lowers[count:]
    return replace(image, lowers=own), [replace(image, lowers=(layer,)) for layer in own]


def _content(search: _Search, file: ImageFile) -> bytes:
    with file.open() as opened:
        content = opened.read(FILE_BYTES_MAX)
    search.files += 1
    search.read_bytes += len(content)
    if file.size > FILE_BYTES_MAX:
        search.cut.add(file.path)
    return content


def _search_bytes(search: _Search, place: str, content: bytes, gone: str = "") -> None:
    budget = Budget(OPENED_BYTES_MAX)
    for wrapping, data in views(content, budget):
        if not search.secrets.may_be_in(data):
            continue
        how = ", ".join(filter(None, (wrapping, gone)))
        for secret, why, told in _found(search, View(data), place):
            search.note(secret, place, how, why, told=told)
    if budget.spent_out:
        search.cut.add(place)


def _found(search: _Search, view: View, place: str) -> Iterator[tuple[str, str, bool]]:
    """Secret, why it is seen to be there, and whether the task speaks of the place itself."""
    for script in search.secrets.scripts:
        if why := script.found_in(view, place):
            # An agent may be given tests to run; a solution never.
            yield script.name, why, script.name.startswith("tests/") and _spoken_of(place, search.task.instruction)
    for block in search.secrets.blocks:
        if block.found_in(view):
            yield block.name, "word for word", _is_fair(block, place, search.task)


def _is_fair(block: Block, place: str, task: HarborTask) -> bool:
    if block.is_program:
        return False
    if "/.git/" in place and _GIT.search(task.instruction):
        return True
    if _spoken_of(place, task.instruction):
        return True
    name = place.rpartition("/")[2]
    if _ANSWER.search(place):
        return False
    return name == block.name.rpartition("/")[2] or _INPUT.search(block.name) is not None


def _spoken_of(place: str, instruction: str) -> bool:
    """Does the instruction name the file, or write a folder of its own that it lies in as part of a path?"""
    *folders, name = [part for part in place.split("/") if part]
    if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", instruction):
        return True
    return any(re.search(rf"/{re.escape(part)}\b|\b{re.escape(part)}/", instruction) for part in set(folders) - _ROOTS)


def _search_instruction(search: _Search) -> None:
    """Wrapped secrets, most of a solution's commands, or what tests assert, word for word."""
    instruction = search.task.instruction.encode()
    budget = Budget(OPENED_BYTES_MAX)
    for how, data in views(instruction, budget):
        text = View(data).text
        for script in search.secrets.scripts:
            said = [line for line in script.own if line in text]
            if script.name.startswith("tests/"):
                asserting = [line for line in said if len(line) >= ASSERTION_CHARS_MIN and _ASSERTION.search(line)]
                why = f"{len(asserting)} of its assertions" if len(asserting) > 1 else ""
            else:
                many = len(said) >= max(3, TOLD_LINES_SHARE * len(script.own))
                why = f"{len(said)} of its {len(script.own)} own lines" if many else ""
            if how and not why:
                why = script.found_in(View(data), "instruction.md") or ""
            if why:
                search.note(script.name, "instruction.md", how, why)
