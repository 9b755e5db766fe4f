"""One command, from fork to its status, and the tree of processes that it belongs to."""

import fcntl
import os
import select
import time

from services.kernel.sandbox.inside.streams import DRAIN_BYTES, Feed, Output, read_available
from services.kernel.sandbox.inside.usage import Bounds, OomKills, Usage, live_pids, unlinked_bytes
from services.kernel.sandbox.inside.wire import Control

TICK_MIN_S = 0.01
TICK_MAX_S = 0.1
KILL_WAIT_S = 10.0
SIGKILL = 9
SCRIPT_FD = 9
F_SETPIPE_SZ = 1031
CANNOT_START, NOT_FOUND = 126, 127


class Account:
    """Who commands run as, where that is not PID 1's own user."""

    def __init__(self, uid: int, gid: int) -> None:
        self._uid, self._gid = uid, gid

    def take(self) -> None:
        os.setgroups([])
        os.setgid(self._gid)
        os.setuid(self._uid)


class Tree:
    """Every process below PID 1. All orphans end here, so their CPU time is collected here."""

    def __init__(self) -> None:
        self.reaped_cpu_s = 0.0
        self.statuses: dict[int, int | None] = {}
        self.lingering: list[int] = []

    def reap(self) -> bool:
        """Collect what has ended; True while a child lives."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.reaped_cpu_s += used.ru_utime + used.ru_stime
            if pid in self.statuses:
                self.statuses[pid] = status

    def cpu_s(self) -> float:
        alive = self.reap()
        return self.reaped_cpu_s + (Usage(live_pids()).cpu_s if alive else 0.0)

    def end(self) -> None:
        """SIGKILL to all at once: from PID 1, -1 means everything but itself, and no fork slips through."""
        try:
            os.kill(-1, SIGKILL)
        except ProcessLookupError:
            return
        until = time.monotonic() + KILL_WAIT_S
        while self.reap() and time.monotonic() < until:
            time.sleep(0.001)

    def fork(self) -> int:
        """As os.fork. What earlier commands left may fill the table of processes: then it is ended first."""
        try:
            return os.fork()
        except BlockingIOError:
            self.end()
            return os.fork()

    def drain_lingering(self) -> None:
        """Background processes keep a reader for what they print, or the next line would end them; it is not kept."""
        for fd in list(self.lingering):
            if read_available(fd, None):
                self.lingering.remove(fd)
                os.close(fd)


class Command:
    def __init__(
        self,
        tree: Tree,
        control: Control,
        bounds: Bounds,
        null_fd: int,
        account: Account | None,
        oom_kills: OomKills,
    ) -> None:
        self._tree, self._control, self._bounds, self._null_fd = tree, control, bounds, null_fd
        self._account, self._oom_kills = account, oom_kills
        self._killed_before = oom_kills.count()
        self._started = time.monotonic()
        self._cpu_before_s = tree.cpu_s()
        self._feeds: dict[int, Feed] = {}
        self._pid = self._pidfd = self._out = -1
        self.output = Output(bounds.output_bytes)

    def start(self, argv: list[bytes], env: list[bytes], cwd: bytes, stdin: bytes, script: bytes) -> None:
        self._out, out_write = os.pipe()
        os.set_blocking(self._out, False)
        try:  # noqa: SIM105
            fcntl.fcntl(self._out, F_SETPIPE_SZ, DRAIN_BYTES)
        except PermissionError:
            pass  # the user's share of pipe memory is used up; the default size only costs wake-ups
        feeds = [Feed(data) if data else None for data in (stdin, script)]
        inherited = [self._null_fd if feeds[0] is None else feeds[0].read_fd, out_write, out_write]
        script_fd = -1 if feeds[1] is None else feeds[1].read_fd
        self._pid = self._tree.fork()
        if self._pid == 0:
            become(argv, env, cwd, self._bounds, inherited, script_fd, self._account)
        self._tree.statuses[self._pid] = None
        self._pidfd = os.pidfd_open(self._pid)
        os.close(out_write)
        for feed in filter(None, feeds):
            os.close(feed.read_fd)
            if feed.write_fd >= 0:
                self._feeds[feed.write_fd] = feed

    def wait(self) -> bytes:
        """Until the command ends, meets a limit or the host ends it; says which."""
        poll = select.poll()
        for fd in (self._pidfd, self._control.fd, self._out):
            poll.register(fd, select.POLLIN)
        for fd in self._feeds:
            poll.register(fd, select.POLLOUT)
        tick_s, next_tick = TICK_MIN_S, self._started + TICK_MIN_S
        while True:
            ready = dict(poll.poll(max(0.0, next_tick - time.monotonic()) * 1000 + 0.5))
            if self._out in ready and read_available(self._out, self.output):
                poll.unregister(self._out)
                os.close(self._out)
                self._out = -1
            for fd in self._feeds.keys() & ready.keys():
                if self._feeds[fd].write():
                    poll.unregister(fd)
                    del self._feeds[fd]
            if self._control.fd in ready:
                return self._control.read_frame()[1]
            if self._pidfd in ready:
                return b"memory_limit" if self._oom_killed() else b"exited"
            if time.monotonic() >= next_tick:
                why = self._limit_met(thorough=tick_s >= TICK_MAX_S)
                if why:
                    return why
                tick_s = min(TICK_MAX_S, tick_s * 1.5)
                next_tick = time.monotonic() + tick_s

    def _oom_killed(self) -> bool:
        return self._oom_kills.count() > self._killed_before

    def _limit_met(self, *, thorough: bool) -> bytes:
        self._tree.reap()
        self._tree.drain_lingering()
        pids, bounds = live_pids(), self._bounds
        if len(pids) > bounds.pids:
            return b"pids_limit"  # before anything is read of each: a fork bomb leaves little time
        usage = Usage(pids)
        if self._tree.reaped_cpu_s + usage.cpu_s - self._cpu_before_s > bounds.cpu_s:
            return b"cpu_limit"
        if usage.threads > bounds.pids:
            return b"pids_limit"
        if self._oom_killed() or usage.over_memory(bounds.memory_bytes):
            return b"memory_limit"
        if thorough and unlinked_bytes(usage.pids) > bounds.disk_bytes:
            return b"disk_limit"
        return b"wall_limit" if time.monotonic() - self._started > bounds.wall_s else b""

    def finish(self, why: bytes) -> list[bytes]:
        """End the tree where a limit was met, take the rest of the output: exit code, CPU seconds, wall seconds."""
        if why != b"exited":
            self._tree.end()
        self._tree.reap()
        if self._out >= 0:
            if read_available(self._out, self.output):
                os.close(self._out)
            else:
                self._tree.lingering.append(self._out)
        for feed in self._feeds.values():
            feed.close()
        os.close(self._pidfd)
        status = self._tree.statuses.pop(self._pid)
        code = 128 + SIGKILL if status is None else os.waitstatus_to_exitcode(status)
        numbers = (
            str(code if code >= 0 else 128 - code),
            f"{self._tree.cpu_s() - self._cpu_before_s:.6f}",
            f"{time.monotonic() - self._started:.6f}",
        )
        return [number.encode() for number in numbers]


def become(
    argv: list[bytes],
    env: list[bytes],
    cwd: bytes,
    bounds: Bounds,
    fds: list[int],
    script_fd: int,
    account: Account | None,
) -> None:
    """In the child: become the command, or print why not and end as a shell would."""
    code = CANNOT_START
    try:
        os.setsid()
        for target, fd in enumerate(fds):
            hand_down(fd, target)
        if script_fd >= 0:
            hand_down(script_fd, SCRIPT_FD)
        prefer_for_oom()
        bounds.apply()
        if account is not None:
            account.take()
        os.chdir(cwd)
        variables = dict(entry.split(b"=", 1) for entry in env)
        folders = variables.get(b"PATH", b"/usr/bin:/bin").split(b":")
        code = NOT_FOUND
        for candidate in [argv[0]] if b"/" in argv[0] else [folder + b"/" + argv[0] for folder in folders]:
            try:
                os.execve(candidate, argv, variables)  # noqa: S606
            except (FileNotFoundError, NotADirectoryError):
                continue
        os.write(2, argv[0] + b": command not found\n")
    except OSError as error:
        code = CANNOT_START
        os.write(2, b"cannot start the command: " + str(error).encode("utf-8", "backslashreplace") + b"\n")
    finally:
        os._exit(code)


def hand_down(fd: int, target: int) -> None:
    """As `target`, open in the program too: a copy onto itself would still be closed there."""
    os.dup2(fd, target)
    os.set_inheritable(target, True)


def prefer_for_oom() -> None:
    """Where memory of all processes together is out, the kernel is to end one of these and not PID 1."""
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    except OSError:
        return  # /proc is read-only in a sandbox without such a limit
    os.write(fd, b"1000")
    os.close(fd)
