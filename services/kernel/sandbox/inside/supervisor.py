"""The loop of PID 1: takes frames from the host, one at a time, and between them looks after what lives on.

It trusts the host and nothing that it meets inside: no signal from inside reaches it, its memory cannot be read
(undumpable).
"""

import os
import select

from services.kernel.sandbox.inside.command import Command, Tree
from services.kernel.sandbox.inside.files import Files
from services.kernel.sandbox.inside.usage import Bounds, Usage, live_pids
from services.kernel.sandbox.inside.wire import Control

IDLE_TICK_MS = 200
PR_SET_DUMPABLE = 4


class Supervisor:
    def __init__(self, control: Control, null_fd: int) -> None:
        self._control, self._null_fd = control, null_fd
        self._tree = Tree()
        self._files = Files()
        self._memory_bytes_max = 0

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._control.fd, select.POLLIN)
        while True:
            if not poll.poll(IDLE_TICK_MS if self._tree.reap() else None):
                self._tree.drain_lingering()
                if self._memory_bytes_max and Usage(live_pids()).over_memory(self._memory_bytes_max):
                    self._tree.end()
                continue
            kind, *parts = self._control.read_frame()
            if kind == b"exec":
                self._control.write_frame(*self._execute(parts))
            elif kind == b"end-now":
                self._tree.end()
            elif kind != b"end":  # an end that crossed the answer of its exec asks for nothing
                answer = self._files.handle(kind, parts)
                if answer:
                    self._control.write_frame(*answer)

    def _execute(self, parts: list[bytes]) -> list[bytes]:
        """bounds, cwd, stdin, script, number of variables, variables, argv -> why, exit code, CPU, wall, total,
        output.
        """
        bounds = Bounds(parts[0])
        self._memory_bytes_max = bounds.memory_bytes
        env_end = 5 + int(parts[4])
        command = Command(self._tree, self._control, bounds, self._null_fd)
        command.start(parts[env_end:], parts[5:env_end], *parts[1:4])
        why = command.wait()
        numbers = command.finish(why)
        return [why, *numbers, str(command.output.total).encode(), command.output.kept()]


def main(control_fd: int) -> None:
    import _signal  # type: ignore[import-not-found]  # the public module costs 2 ms
    import ctypes

    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
    for number in (_signal.SIGINT, _signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)  # PID 1 ignores them all the same, and children inherit no SIG_IGN
    os.umask(0o022)
    os.set_inheritable(control_fd, False)
    control = Control(control_fd)
    null_fd = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null_fd, fd)
    control.write_frame(b"ready")
    Supervisor(control, null_fd).serve()
