"""`envwheel env recheck`: what a run once admitted goes through the gates again, and what fails can be taken back."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from schemas.envelope import Event
from schemas.messages import EnvProposed, EnvRecalled, EnvValidated, Message, PoolChanged, RunFinished
from schemas.outcomes import GateOutcome, Verdict
from schemas.parts import GateResult, PoolEntry, RosterEntry, Usage
from schemas.science import GateRules, Science
from services.cli import genesis
from services.cli.connect import OpenRun, entry, joined, open_run
from services.cli.entry import run
from services.cli.folder import RunFolder
from services.kernel.archive import pack
from services.kernel.nats_server import NatsServer
from services.kernel.runfile import Deployment, RunFile
from services.kernel.workshop import choose_base
from tests.support.harbor_tasks import greeting

GATES = ("well-formed", "builds", "oracle passes", "no-op fails", "not flaky")
MUTE = {"instruction.md": None}


def proposed(slot: int, env: str) -> list[Message]:
    """A proposal, and the verdict of the day: every gate passed."""
    gates = tuple(GateResult(gate=name, outcome=GateOutcome.passed) for name in GATES)
    about: dict[str, Any] = {"round": 0, "slot": slot, "revision": 0, "env": env}
    maker = RosterEntry(name="procedural", model="procedural")
    rest: dict[str, Any] = {"parent": None, "cited": (), "checkpoint": None, "usage": Usage(), "pool_version": 0}
    return [
        EnvProposed(**about, entry=maker, transcript=env, **rest),
        EnvValidated(**about, verdict=Verdict.valid, gates=gates, sketch="00"),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A run at rest whose pool has two members, of which one does not hold; and their digests."""
    root = tmp_path_factory.mktemp("runs") / "aged"
    science = Science(gates=GateRules(flaky_repeats=1, mutants_max=1))
    envs = asyncio.run(
        _begin(RunFolder(root), RunFile(science=science, deployment=Deployment(name="aged", base="host")))
    )
    return root, envs


async def _begin(folder: RunFolder, file: RunFile) -> dict[str, str]:
    folder.create(file)
    base = choose_base("host", folder.root / "base")
    with NatsServer(folder.nats) as server:
        async with joined(folder, server.url, live=False, create=True) as run:
            run.artifacts.create()
            await genesis.begin(run.log, run.artifacts, file, base)
            envs = {name: run.artifacts.put(pack(greeting(changes))) for name, changes in _tasks().items()}
            members = tuple(PoolEntry(env=env, round=0, slot=slot) for slot, env in enumerate(envs.values()))
            said = [message for slot, env in enumerate(envs.values()) for message in proposed(slot, env)]
            said.append(PoolChanged(pool_version=1, members=tuple(sorted(envs.values())), added=members, retired=()))
            await say(run, *said)
    return envs


def _tasks() -> Mapping[str, Mapping[str, str | bytes | None]]:
    return {"good": {}, "mute": MUTE}


async def say(run: OpenRun, *messages: Message) -> None:
    await run.log.append([entry(run.name, message) for message in messages])


async def events_of(root: Path) -> list[Event]:
    async with open_run(RunFolder(root)) as opened:
        return await opened.events()


@pytest.fixture
def quiet_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVWHEEL_CACHE", str(tmp_path_factory.getbasetemp() / "recheck-cache"))


@pytest.mark.usefixtures("quiet_cache")
def test_what_no_longer_holds_is_shown_gate_by_gate_and_taken_back_when_told(
    folder: tuple[Path, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    root, envs = folder
    assert run(["env", "recheck", str(root), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["base"] == found["run_base"]
    verdicts = {each["env"]: each for each in found["envs"]}
    assert verdicts[envs["good"]]["verdict"] == "valid"
    assert verdicts[envs["good"]]["differences"] == []
    assert verdicts[envs["mute"]]["member"]
    differences = [(each["gate"], each["before"], each["now"]) for each in verdicts[envs["mute"]]["differences"]]
    assert differences == [("well-formed", "passed", "failed")]
    assert not any(isinstance(event.body, EnvRecalled) for event in asyncio.run(events_of(root)))

    assert run(["env", "recheck", str(root), envs["mute"][:8], "--retire"]) == 1
    output = capsys.readouterr().out
    assert "0 hold, 1 do not, 0 could not be checked" in output
    assert "what does not hold leaves the pool at its next version" in output
    (recall,) = [event.body for event in asyncio.run(events_of(root)) if isinstance(event.body, EnvRecalled)]
    assert (recall.env, recall.ordinal, recall.base_digest) == (envs["mute"], 0, found["base"])
    (failed,) = [gate for gate in recall.gates if gate.outcome is GateOutcome.failed]
    assert failed.evidence is not None
    evidence = json.loads((root / "artifacts" / "sha256" / failed.evidence[:2] / failed.evidence).read_text())
    assert evidence["problems"] == ["missing_file: instruction.md: a Harbor task needs this file"]

    assert run(["env", "list", str(root), "--json"]) == 0
    listed = {each["env"]: each["rechecks"] for each in json.loads(capsys.readouterr().out)}
    assert listed[envs["good"]] == []
    assert listed[envs["mute"]][0].startswith(f"taken back by the operator, on base {found['base'][:12]}: well-formed")


@pytest.mark.usefixtures("quiet_cache")
def test_what_cannot_be_chosen_or_taken_back_is_said(
    folder: tuple[Path, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = folder
    assert run(["env", "recheck", str(root), "00000000"]) == 2
    assert "no environment begins so" in capsys.readouterr().err
    assert run(["env", "recheck", str(root), "--base", str(root / "none")]) == 2
    assert "none" in capsys.readouterr().err
    asyncio.run(finish(root))
    assert run(["env", "recheck", str(root), "--retire"]) == 2
    assert "this run has finished: nothing is retired in it any more" in capsys.readouterr().err


async def finish(root: Path) -> None:
    async with open_run(RunFolder(root)) as opened:
        await say(opened, RunFinished(why="all rounds are done"))
