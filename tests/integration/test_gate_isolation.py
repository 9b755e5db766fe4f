"""Grading runs where nothing of the agent but its outputs reaches it; a task or a grader that lets more in is found."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome
from services.kernel.harbor.grade import Grade, GradeFailed, Grader
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.protocol import (
    Image,
    Limits,
    Mount,
    Pins,
    Sandbox,
    SandboxBackend,
    SandboxError,
    SnapshotId,
)
from services.kernel.workshop import Workshop
from services.validator.gates.gate import Case, Finding
from services.validator.gates.isolation import NEVER, SHARED, IsolatedVerifier
from services.validator.gates.reading import WellFormed
from services.validator.gates.run import run_gates
from services.validator.gates.running import Builds, NoopFails
from tests.support.harbor_tasks import TOML, greeting
from tests.support.sandboxes import BACKENDS
from tests.support.shop import Files, case_of, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEPARATE = 'artifacts = ["/app/hello.txt"]\n' + TOML.replace('"shared"', '"separate"')


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BACKENDS)
async def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("isolation"), request.param) as opened:
        yield opened


async def prepared(shop: Workshop, files: Files) -> Case:
    case = case_of(shop, files)
    report = await run_gates(case, (WellFormed(), Builds(), NoopFails()))
    assert {found.outcome for _, found in report.findings} == {GateOutcome.passed}, report
    return case


async def looked_into(shop: Workshop, files: Files) -> Finding:
    return await IsolatedVerifier().check(await prepared(shop, files))


async def test_a_shared_verifier_sees_the_agents_files_but_no_process_and_no_program_of_it(shop: Workshop) -> None:
    found = await looked_into(shop, greeting())
    assert found.outcome is GateOutcome.passed, found
    assert found.detail == "shared: the agent's processes gone, programs and start-up files of the image"
    assert set(found.content["reached"]) == {*SHARED, "/app"}
    assert (found.content["beyond"], found.content["changed"]) == ([], [])
    assert {"sh", "solve.sh"} & set(found.observed["left_processes"])


async def test_a_separate_verifier_sees_what_is_declared_and_nothing_else(shop: Workshop) -> None:
    found = await looked_into(shop, greeting({"task.toml": SEPARATE}))
    assert found.outcome is GateOutcome.passed, found
    assert found.detail == "separate: declared artifacts only"
    assert found.content["reached"] == ["/logs/artifacts"]
    whole = await looked_into(shop, greeting({"task.toml": SEPARATE.replace("/app/hello.txt", "/app")}))
    assert whole.outcome is GateOutcome.passed, whole
    assert whole.content["reached"] == ["/app", "/logs/artifacts"]


async def test_an_image_that_takes_programs_or_modules_from_the_agents_folder_is_found(shop: Workshop) -> None:
    for variable, seen in (("PYTHONPATH=/app", "python "), ("PATH=/app/bin:/usr/bin:/bin", "tool ")):
        dockerfile = f"FROM envwheel/base:1\nWORKDIR /app\nENV {variable}\n"
        found = await looked_into(shop, greeting({"environment/Dockerfile": dockerfile}))
        assert found.outcome is GateOutcome.failed
        assert "the verifier is not isolated" in found.detail
        assert any(line.startswith(seen) for line in found.content["changed"]), found.content


async def test_the_same_evidence_comes_of_a_second_look_however_little_time_the_verifier_has(shop: Workshop) -> None:
    files = greeting({"task.toml": TOML.replace("timeout_sec = 10.0", "timeout_sec = 0.5")})
    one, two = await looked_into(shop, files), await looked_into(shop, files)
    assert one.outcome is GateOutcome.passed, one
    assert (one.detail, one.content_bytes()) == (two.detail, two.content_bytes())


class Careless:
    """A backend that lets verifiers see more of what the agent left than they should."""

    def __init__(self, backend: SandboxBackend, *, trusts: bool) -> None:
        self._backend, self._trusts = backend, trusts

    async def start(
        self,
        image: Image,
        *,
        pins: Pins | None = None,
        limits: Limits | None = None,
        mounts: tuple[Mount, ...] = (),
        snapshot: SnapshotId | None = None,
        trusted_system: bool = False,
    ) -> Sandbox:
        trusted = trusted_system and not self._trusts
        sandbox = await self._backend.start(
            image, pins=pins, limits=limits, mounts=mounts, snapshot=snapshot, trusted_system=trusted
        )
        if snapshot is not None and not self._trusts:
            await sandbox.exec("sleep 600 > /dev/null 2>&1 &")
        return sandbox

    async def drop(self, snapshot: SnapshotId) -> None:
        await self._backend.drop(snapshot)


@pytest.mark.parametrize("trusts", [False, True], ids=["processes", "programs"])
async def test_a_grader_that_lets_processes_or_programs_of_the_agent_in_is_found(
    shop: Workshop, tmp_path: Path, *, trusts: bool
) -> None:
    if trusts and shop.base.kind == "built" and not isinstance(shop.backend, DockerBackend):
        pytest.skip("without the image's own python3 no sandbox starts there")
    case = await prepared(shop, greeting())
    careless = Careless(shop.backend, trusts=trusts)
    case.workshop = replace(shop, grader=Grader(careless, shop.builder, tmp_path))  # type: ignore[arg-type] # half a backend
    found = await IsolatedVerifier().check(case)
    assert found.outcome is GateOutcome.failed
    if not trusts:
        assert found.content["changed"] in (["process sleep"], ["process bash"])
    elif "from reporting" not in found.detail:
        assert [line for line in found.content["changed"] if "/etc/ld.so.preload" in line]


async def test_no_place_is_both_open_to_an_agents_files_and_closed() -> None:
    assert not set(NEVER) & {"/app", *SHARED}


class Mute(Grader):
    """Grades the untouched environment alone."""

    async def attempt(
        self, task: HarborTask, image: Image, snapshot: SnapshotId | None, **more: object
    ) -> Grade | GradeFailed:
        good = Grade(reward=0.0, output=b"tool sh /bin/sh\n")
        return good if snapshot is None else GradeFailed(reason="no reward file")


async def test_a_probe_that_cannot_report_after_an_agent_is_a_finding_and_one_that_never_can_is_the_tasks_fault(
    shop: Workshop, tmp_path: Path
) -> None:
    case = await prepared(shop, greeting())
    case.workshop = replace(shop, grader=Mute(shop.backend, shop.builder, tmp_path))
    found = await IsolatedVerifier().check(case)
    assert found.outcome is GateOutcome.failed
    assert "an agent keeps a probe in the verifier's place from reporting: no reward file" in found.detail


async def test_trouble_of_the_machine_is_no_finding(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as own:
        case = await prepared(own, greeting())
        await own.backend.close()
        with pytest.raises(SandboxError):
            await IsolatedVerifier().check(case)
