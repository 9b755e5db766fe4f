"""A mesh at work, watched from /proc: each service in its folder, with its own user, talking to NATS alone.

Samples see what is open at a moment; that nothing else can be opened is the kernel's part, by user and mode.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.mesh import Desk

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give services users of their own")

ROLES = ("proposer", "validator", "solver", "trainer", "observer")
LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


@dataclass
class Seen:
    """What samples showed of one service: its process and, for files and users, the processes below it."""

    uids: set[tuple[int, ...]] = field(default_factory=set)
    files: set[Path] = field(default_factory=set)
    """Open or mapped, below the run's folder."""
    peers: set[int] = field(default_factory=set)
    """Remote TCP ports."""
    listening: set[int] = field(default_factory=set)
    names: set[Path] = field(default_factory=set)
    """Of unix sockets in the file system."""
    children: int = 0
    samples: int = 0


@dataclass
class Watch:
    desk: Desk
    seen: dict[str, Seen] = field(default_factory=dict)
    port: int = 0

    def sample(self) -> None:
        state = self.desk.state()
        tree = parents()
        for name, child in state["children"].items():
            if name == "nats-server" or child["pid"] is None:
                continue
            self.port = int(state["url"].rpartition(":")[2])
            seen = self.seen.setdefault(name, Seen())
            below = descendants(child["pid"], tree)
            for pid in (child["pid"], *below):
                with suppress(FileNotFoundError, ProcessLookupError):
                    users = uids(pid)
                    seen.uids.add(users)
                    # The launcher, still root, holds the paths that it shows to the service which it becomes.
                    if 0 not in users:
                        seen.files |= {path for path in files(pid) if path.is_relative_to(self.desk.run)}
            with suppress(FileNotFoundError, ProcessLookupError):
                if self._serves(name):
                    self._sockets(child["pid"], seen)
                seen.children += len(below)
                seen.samples += 1

    def _serves(self, name: str) -> bool:
        """Before that the check of the sandboxes opens a port for a moment, which none of them may reach."""
        return "serves run" in (self.desk.run / "services" / f"{name}.log").read_text()

    def _sockets(self, pid: int, seen: Seen) -> None:
        inodes = {match[1] for link in links(pid) if (match := _SOCKET.fullmatch(link))}
        for family in ("tcp", "tcp6", "udp", "udp6"):
            for fields in table(pid, family):
                if fields[9] in inodes:
                    open_to_all = fields[3] == LISTENING or family.startswith("udp")
                    address = fields[1] if open_to_all else fields[2]
                    (seen.listening if open_to_all else seen.peers).add(int(address.rpartition(":")[2], 16))
        for fields in table(pid, "unix"):
            if len(fields) > 7 and fields[6] in inodes and not fields[7].startswith("@"):
                seen.names.add(resolved(pid, Path(fields[7])))


def parents() -> dict[int, int]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return found


def descendants(pid: int, tree: dict[int, int]) -> list[int]:
    found = [pid]
    for each in found:
        found += [child for child, parent in tree.items() if parent == each]
    return found[1:]


def uids(pid: int) -> tuple[int, ...]:
    """Real, effective, saved and file system user."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:"))
    return tuple(map(int, line.split()[1:]))


def links(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            yield str(entry.readlink())


def files(pid: int) -> Iterator[Path]:
    yield from (Path(link) for link in links(pid) if link.startswith("/"))
    yield from (Path(part[5]) for line in maps(pid) if len(part := line.split(maxsplit=5)) == 6)


def maps(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def table(pid: int, family: str) -> list[list[str]]:
    return [line.split() for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]]


def resolved(pid: int, name: Path) -> Path:
    """Where a socket's name leads that was given by a descriptor of its process."""
    with suppress(FileNotFoundError):
        if name.is_relative_to("/proc/self/fd"):
            return Path(f"/proc/{pid}/fd/{name.parts[4]}").readlink().joinpath(*name.parts[5:])
    return name


@pytest.fixture(scope="module")
def watch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watch]:
    """A whole short run, watched from its first service to its end."""
    desk = Desk(tmp_path_factory.mktemp("isolation"))
    watched = Watch(desk)
    try:
        process = desk.up("-c", "run.toml")
        desk.wait_for(lambda: sampled(watched, process))
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 0, output
        yield watched
    finally:
        desk.clear()


def sampled(watched: Watch, process: Any) -> bool:
    watched.sample()
    return process.poll() is not None


def test_all_five_services_were_seen_at_work(watch: Watch) -> None:
    assert set(watch.seen) == {f"{role}-0" for role in ROLES}
    assert all(seen.samples >= 10 for seen in watch.seen.values())
    assert all(watch.seen[f"{role}-0"].children > 0 for role in ("proposer", "validator", "solver"))


def test_every_service_has_a_user_of_its_own_that_none_of_its_processes_leaves(watch: Watch) -> None:
    assert watch.desk.state()["users"] == "separate"
    found = {name: {uid for four in seen.uids for uid in four} for name, seen in watch.seen.items()}
    # Root for the moment in which the launcher becomes the service.
    own = {name: uids - {0} for name, uids in found.items()}
    assert all(len(uids) == 1 for uids in own.values()), own
    assert len(set().union(*own.values())) == len(ROLES)
    told = {name: {child["uid"]} for name, child in watch.desk.state()["children"].items() if name in own}
    assert own == told


def test_no_service_has_a_file_of_another_open_or_mapped(watch: Watch) -> None:
    run = watch.desk.run
    for name, seen in watch.seen.items():
        allowed = (run / "services" / name, run / "services" / f"{name}.log", run / "artifacts")
        strangers = {path for path in seen.files if not any(path.is_relative_to(place) for place in allowed)}
        assert strangers == set(), name
        assert any(path.is_relative_to(place) for path in seen.files for place in allowed[:2]), f"{name}: nothing seen"


def test_services_talk_to_nats_and_to_nobody_else(watch: Watch) -> None:
    for name, seen in watch.seen.items():
        assert seen.peers == {watch.port}, name
        assert seen.listening == set(), name
        own = watch.desk.run / "services" / name
        assert all(path.is_relative_to(own) for path in seen.names), (name, seen.names)
    assert watch.seen["proposer-0"].names, "the drafts' channel was never seen"


def test_the_folder_of_a_service_is_its_own_and_shut(watch: Watch) -> None:
    for name, child in watch.desk.state()["children"].items():
        if name != "nats-server":
            status = (watch.desk.run / "services" / name).stat()
            assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, child["uid"])
    assert stat.S_IMODE((watch.desk.run / "nats" / "nats.conf").stat().st_mode) == 0o600
