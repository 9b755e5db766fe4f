"""The loop of PID 1: takes frames from the host, one at a time, and between them looks after what lives on.

It trusts the host and nothing that it meets inside: no signal from inside reaches it, its memory cannot be read
(undumpable).
"""

import os
import select
import sys

from services.kernel.sandbox.inside.changes import Changes
from services.kernel.sandbox.inside.command import Account, Command, Tree
from services.kernel.sandbox.inside.files import Files
from services.kernel.sandbox.inside.usage import Bounds, OomKills, Usage, live_pids
from services.kernel.sandbox.inside.wire import Control

IDLE_TICK_MS = 50
"""Between two execs: what a command left may multiply."""
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
SECCOMP_MODE_FILTER = 2


class Supervisor:
    def __init__(self, control: Control, null_fd: int, account: Account | None) -> None:
        self._control, self._null_fd, self._account = control, null_fd, account
        self._tree = Tree()
        self._files = Files()
        self._changes = Changes()
        self._oom_kills = OomKills()
        self._memory_bytes_max = self._pids_max = 0

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._control.fd, select.POLLIN)
        while True:
            if not poll.poll(IDLE_TICK_MS if self._tree.reap() else None):
                self._tree.drain_lingering()
                pids = live_pids()
                # They are counted before anything is read of each: a fork bomb leaves little time.
                if self._pids_max and (len(pids) > self._pids_max or Usage(pids).over_memory(self._memory_bytes_max)):
                    self._tree.end()
                continue
            kind, *parts = self._control.read_frame()
            if kind == b"exec":
                self._control.write_frame(*self._execute(parts))
            elif kind == b"end-now":
                self._tree.end()
            elif kind in Changes.KINDS:
                for frame in self._changes.handle(kind, parts):
                    self._control.write_frame(*frame)
            elif kind != b"end":  # an end that crossed the answer of its exec asks for nothing
                answer = self._files.handle(kind, parts)
                if answer:
                    self._control.write_frame(*answer)

    def _execute(self, parts: list[bytes]) -> list[bytes]:
        """bounds, cwd, stdin, script, number of variables, variables, argv -> why, exit code, CPU, wall, total,
        output.
        """
        bounds = Bounds(parts[0])
        self._memory_bytes_max, self._pids_max = bounds.memory_bytes, bounds.pids
        env_end = 5 + int(parts[4])
        command = Command(self._tree, self._control, bounds, self._null_fd, self._account, self._oom_kills)
        command.start(parts[env_end:], parts[5:env_end], *parts[1:4])
        why = command.wait()
        numbers = command.finish(why)
        return [why, *numbers, str(command.output.total).encode(), command.output.kept()]


def main(read_fd: int, write_fd: int, uid: int, gid: int, program: bytes) -> None:
    """Serve frames from `read_fd`, answer on `write_fd`. Commands run as `uid`; as PID 1 itself where it is -1. With
    `program`, a system-call filter, PID 1 sets it first.
    """
    import _signal  # type: ignore[import-not-found]  # the public module costs 2 ms
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def control_process(option: int, argument: int, pointer: int = 0) -> None:
        if libc.prctl(option, ctypes.c_ulong(argument), ctypes.c_ulong(pointer), 0, 0):
            raise OSError(ctypes.get_errno(), f"prctl({option}) failed")

    control_process(PR_SET_DUMPABLE, 0)
    if program:
        code = ctypes.create_string_buffer(program, len(program))
        size, address = len(program) // 8, ctypes.addressof(code)
        header = ctypes.create_string_buffer(size.to_bytes(8, sys.byteorder) + address.to_bytes(8, sys.byteorder))
        control_process(PR_SET_NO_NEW_PRIVS, 1)
        control_process(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(header))
    for number in (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)  # PID 1 ignores them all the same, and children inherit no SIG_IGN
    os.umask(0o022)
    control = Control(os.dup(read_fd), os.dup(write_fd))
    null_fd = os.open("/dev/null", os.O_RDWR)  # while 0 to 2 are taken: as one of them it would not be inherited
    for fd in {read_fd, write_fd}:
        os.close(fd)
    for fd in (0, 1, 2):
        os.dup2(null_fd, fd)
    control.write_frame(b"ready")
    Supervisor(control, null_fd, Account(uid, gid) if uid >= 0 else None).serve()
