"""The nats-server of our own: ready when it says so, same port again, gone with its parent."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

from services.kernel.nats_server import NatsServer, NatsServerError


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            return connection.recv(5) == b"INFO "
    except ConnectionError:
        return False


def test_it_answers_when_started_and_keeps_its_port(tmp_path: Path) -> None:
    with NatsServer(tmp_path) as server:
        port, pid = server.port, server.pid
        assert answers(port)
        server.start()
        assert server.pid == pid
        server.kill()
        assert server.pid is None
        assert not answers(port)
        server.start()
        assert (server.port, answers(port)) == (port, True)
    assert not answers(port)
    server.stop()


@pytest.mark.parametrize(
    "name", ["with a blank", "ünï-日本", 'quote"back\\slash', "$HOME #1 {x}", os.fsdecode(b"latin-\xe9")]
)
def test_its_store_may_lie_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    with NatsServer(tmp_path / name) as server:
        assert answers(server.port)
        assert f'"store_dir": "{tmp_path}' in os.fsdecode((tmp_path / name / "nats.conf").read_bytes())
    assert {path.name for path in (tmp_path / name).iterdir()} >= {"jetstream", "nats.conf", "nats.log"}
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_by_its_own_word_it_syncs_to_disk_before_it_acknowledges(tmp_path: Path) -> None:
    with NatsServer(tmp_path):
        pass
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("nats-server")), "-c", str(tmp_path / "nats.conf"), "-m", str(port)]
    monitored = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        config = json.loads(fetch(f"http://127.0.0.1:{port}/jsz?config=true"))["config"]
    finally:
        monitored.kill()
        monitored.wait()
    assert config["sync_always"] is True


def fetch(url: str) -> bytes:
    deadline = time.monotonic() + 5.0
    while True:
        try:
            with urllib.request.urlopen(url) as response:  # noqa: S310 - a literal http URL on loopback
                return bytes(response.read())
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "one") as first:
        began = time.monotonic()
        with pytest.raises(NatsServerError, match="address already in use"):
            NatsServer(tmp_path / "two", port=first.port).start(ready_timeout_s=5.0)
        assert time.monotonic() - began < 5.0


def test_it_is_gone_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from services.kernel.nats_server import NatsServer\n"
        "server = NatsServer(Path(sys.argv[1])); server.start(); print(server.port, flush=True)\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    port = int(parent.stdout.readline())
    assert answers(port)

    parent.send_signal(signal.SIGKILL)
    parent.communicate()

    deadline = time.monotonic() + 5.0
    while answers(port) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not answers(port)
