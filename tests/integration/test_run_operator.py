"""`envwheel run operator`: begins a run on a server that others run, and leaves one alone that has begun."""

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.codec import same_body
from services.cli.connect import started
from services.kernel.artifacts import ArtifactStore
from services.kernel.delivery import read_event
from services.kernel.jetstream_log import connect
from services.kernel.nats_server import NatsServer
from tests.support.mesh import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def begin(desk: Desk, url: str, config: str = "run.toml") -> subprocess.CompletedProcess[str]:
    flags = ["--run=wheel", f"--nats-url={url}", f"--artifacts={desk.home}/store", f"--work={desk.home}/own"]
    return subprocess.run(
        [sys.executable, "-m", "services.cli", "run", "operator", "-c", config, *flags],
        cwd=desk.home,
        env=desk.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_it_begins_once_and_what_the_beginning_names_is_stored(desk: Desk) -> None:
    with NatsServer(desk.home / "nats") as server:
        first = begin(desk, server.url)
        assert first.returncode == 0, first.stderr
        assert begin(desk, server.url).returncode == 0
        log = await connect(server.url, "wheel", same_body)
        events = [read_event("wheel", stored) async for stored in log.read()]
        await log.close()
        assert [event.body.name for event in events] == ["run_started", "roster_changed"]
        run = started(events)
        assert run.science.model == "tiny"
        store = ArtifactStore(desk.home / "store")
        named = [run.checkpoint, run.base_digest, str(run.heldout_grams), *(e for s in run.heldout for e in s.envs)]
        assert [digest for digest in named if not store.has(digest)] == []
        assert {held.name: len(held.envs) >= 64 for held in run.heldout} == {"near": True, "far": True}

        text = (desk.home / "run.toml").read_text()
        (desk.home / "other.toml").write_text(text.replace("target = 4", "target = 5"))
        other = begin(desk, server.url, "other.toml")
        assert other.returncode == 2
        assert "science.pool.target: 4 and 5" in other.stderr
