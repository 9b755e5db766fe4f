"""The supervisor tells a service to end, not what the service has at work: that is the service's to finish."""

import asyncio
import sys
from pathlib import Path

from services.cli.folder import RunFolder
from services.cli.mesh import Mesh, Service
from services.cli.users import Users
from services.kernel.nats_server import NatsServer

SERVICE = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: None)
child = subprocess.Popen(["sleep", "1"])
open("ready", "w").close()
open("child", "w").write(str(child.wait()))
"""


async def test_work_that_a_service_finishes_while_it_ends_is_not_ended_under_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    own = folder.services / "solver-0"
    own.mkdir(parents=True)
    command = [sys.executable, "-c", f"import os; os.chdir({str(own)!r}){SERVICE}"]
    mesh = Mesh(folder, NatsServer(folder.nats), Users(False, "a test"), "host")
    mesh.services.append(Service("solver", 0, own, None, command))
    await mesh.start()
    while not (own / "ready").exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    await mesh.end()
    assert (own / "child").read_text() == "0"
