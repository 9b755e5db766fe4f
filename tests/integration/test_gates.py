"""Every gate on environments that pass it and on environments that fail it, in real sandboxes."""

import asyncio
import base64
import io
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.outcomes import GateOutcome, Verdict
from schemas.science import GateRules
from services.kernel.archive import FileEntry, digest, pack
from services.kernel.harbor.task import read_task_dir
from services.kernel.heldout.grams import HeldOutText, build_grams, read_grams
from services.kernel.meter import spend
from services.kernel.sandbox.protocol import SandboxError
from services.kernel.workshop import Workshop, WorkshopError, open_workshop
from services.validator.gates.gate import DETAIL_CHARS_MAX, Case, Cost, Finding, Need
from services.validator.gates.likeness import sketch_of
from services.validator.gates.run import DRAFT_GATES, GATES, run_gates
from tests.integration.test_harbor_far_tasks import FOLDER
from tests.support.gate_runs import HALF_DONE, TWO_TESTS, finding, only_where, outcomes, stopped_at
from tests.support.harbor_tasks import TEST_SH, TOML, greeting
from tests.support.shop import Files, case_of, composed, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = [
    "well-formed",
    "decontaminated",
    "not a duplicate",
    "builds",
    "no leak",
    "oracle passes",
    "no-op fails",
    "not flaky",
    "verifier bites",
    "resists cheating",
    "isolated verifier",
]
COSTLY = 4
"""The last ones, of which drafts are spared."""
FEW = GateRules(flaky_repeats=1, mutants_max=2)
PASSED, FAILED, SKIPPED = GateOutcome.passed, GateOutcome.failed, GateOutcome.skipped
HELD_OUT = "Copy every ledger of the harbour office into the blue folder and then sort them all by tonnage, please."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("gates")) as opened:
        yield opened


async def test_gates_run_cheapest_first_and_drafts_are_spared_the_repeats() -> None:
    assert [gate.name for gate in GATES] == NAMES
    assert [gate.cost for gate in GATES] == sorted(gate.cost for gate in GATES)
    assert [gate.name for gate in DRAFT_GATES] == NAMES[:-COSTLY]
    assert [gate.name for gate in GATES if gate.hidden] == ["decontaminated"]
    assert Cost.repeating not in {gate.cost for gate in DRAFT_GATES}


async def test_sound_environments_pass_every_gate_with_evidence(shop: Workshop) -> None:
    hand_written = read_task_dir(FOLDER / "fill-the-gaps-copy").task
    assert hand_written is not None
    for files in (greeting(), composed("sort_numbers", "copy_file"), hand_written.files):
        report = await run_gates(case_of(shop, files, rules=FEW))
        assert list(outcomes(report).values()) == [PASSED] * len(NAMES), report
        assert report.verdict is Verdict.valid
        oracle, noop = finding(report, "oracle passes").content, finding(report, "no-op fails").content
        assert (oracle["reward"], oracle["exit_code"]) == (1.0, 0)
        assert noop["reward"] < 0.5
        assert oracle["tests"].keys() == noop["tests"].keys() != set()
        flaky = finding(report, "not flaky")
        assert flaky.content["runs"] == 4
        assert flaky.content["flake_rate_upper_95"] == pytest.approx(1 - 0.05 ** (1 / 4))
        assert flaky.content["varied"][:3] == ["hostname", "time zone", "locale"]


def linked() -> bytes:
    """A tar archive with a link in it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("environment/files/passwd")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (b"", "archive:"),
        (b"\x00" * 512, "archive:"),
        (b"PK\x03\x04 a zip", "archive:"),
        (linked(), "symbolic link"),
        ({"tests/test.sh": TEST_SH.replace("\n", "\r\n")}, "carriage_return: tests/test.sh"),
        ({"solution/solve.sh": b"#!/bin/bash\n\0"}, "nul: solution/solve.sh"),
        ({"solution/solve.sh": None}, "missing_file: solution/solve.sh"),
        ({"instruction.md": "\n\n"}, "is empty"),
        ({"instruction.md": "Write hi.\x1b[2J"}, "control characters 0x1b"),
        ({"task.toml": TOML + "gpu_count = 3\n"}, "unknown_key: environment.gpu_count"),
        ({"task.toml": TOML.replace("20.0", "inf")}, "agent.timeout_sec"),
        ({"task.toml": TOML.replace("10.0", "0.0")}, "verifier.timeout_sec"),
        ({"task.toml": TOML.replace("10.0", "-1.0")}, "verifier.timeout_sec"),
        ({"task.toml": TOML.replace("memory_mb = 256", "memory_mb = 0")}, "environment.memory_mb"),
        ({"environment/docker-compose.yaml": "services: {}\n"}, "unsupported: environment/docker-compose.yaml"),
        ({"task.toml": TOML + 'env = {KEY = "${SECRET}"}\n'}, "host_env: environment.env"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_what_is_not_well_formed_says_where_and_why(
    shop: Workshop, changes: bytes | dict[str, str | bytes | None], reason: str
) -> None:
    files = changes if isinstance(changes, bytes) else greeting(changes)
    found = await stopped_at(shop, files, "well-formed")
    assert reason in found.detail
    problems = [*found.content["problems"], *found.content.get("unsupported", ())]
    assert any(reason.removeprefix("archive:") in problem for problem in problems)


async def test_a_detail_that_quotes_the_environment_at_length_is_cut(shop: Workshop) -> None:
    found = await stopped_at(shop, greeting({"environment/Dockerfile": "FROM " + "\x01" * 60_000 + "\n"}), "builds")
    assert found.detail.startswith(r"base '\x01\x01")
    assert len(found.detail) == DETAIL_CHARS_MAX


async def test_an_implicit_limit_passes_and_is_told(shop: Workshop) -> None:
    files = greeting({"task.toml": TOML.replace("cpus = 1\n", "")})
    report = await run_gates(case_of(shop, files), GATES[:1])
    assert finding(report, "well-formed").detail == "implicit limits: environment.cpus"


async def test_thirteen_words_of_a_held_out_instruction_fail_and_twelve_do_not(shop: Workshop) -> None:
    grams = read_grams(build_grams([HeldOutText((HELD_OUT,))]))
    said = HELD_OUT.split()
    planted = "First look around. " + " ".join(said[2:15]).upper().replace(" ", "  ") + "! Then stop."
    found = await stopped_at(shop, greeting({"instruction.md": planted}), "decontaminated", grams=grams)
    assert found.content == {"shared": [" ".join(said[2:15]).lower()]}
    near = "First look around. " + " ".join(said[2:14]) + " a lot. Then stop."
    report = await run_gates(case_of(shop, greeting({"instruction.md": near}), grams=grams), GATES[:3])
    assert report.verdict is Verdict.valid
    assert finding(report, "decontaminated").detail == f"compared with {len(said) - 12} sequences"


async def test_an_exact_and_a_near_duplicate_of_the_pool_fail_and_name_it(shop: Workshop) -> None:
    original = composed("sort_numbers", "copy_file", seed=3)
    env, others = digest(pack(original)), {"0" * 64: sketch_of(composed("tar_pack", seed=5))}
    pool = others | {env: sketch_of(original)}
    same = await stopped_at(shop, original, "not a duplicate", pool=pool)
    assert (same.content["nearest"], same.content["similarity"]) == (env, 1.0)
    extra = original | {"tests/more.txt": FileEntry(b"only the tests differ\n")}
    near = await stopped_at(shop, extra, "not a duplicate", pool=pool)
    assert near.content["nearest"] == env
    assert near.content["similarity"] == pytest.approx(1.0, abs=0.05)
    assert near.content["threshold"] == 0.8
    told = original["instruction.md"].content + b"Thank you.\n"
    polite = original | {"instruction.md": FileEntry(told)}
    alike = await stopped_at(shop, polite, "not a duplicate", pool=pool)
    assert (alike.content["nearest"], alike.content["similarity"]) == (env, 1.0)


async def test_a_near_miss_passes_and_its_nearest_is_on_record(shop: Workshop) -> None:
    original = composed("sort_numbers", "copy_file", seed=3)
    env = digest(pack(original))
    for other in (composed("sort_numbers", "copy_file", seed=4), composed("sort_numbers", seed=9), greeting()):
        report = await run_gates(case_of(shop, other, pool={env: sketch_of(original)}), GATES[:3])
        found = finding(report, "not a duplicate")
        assert found.outcome is PASSED
        assert found.content["nearest"] == env
        assert found.content["similarity"] < 0.8
    empty = finding(await run_gates(case_of(shop, original), GATES[:3]), "not a duplicate")
    assert (empty.content["nearest"], empty.content["similarity"]) == (None, 0.0)


DOCKERFILE = "FROM envwheel/base:1\nWORKDIR /app\nCOPY files/ /app/\n"


@pytest.mark.parametrize(
    ("changes", "reason", "output"),
    [
        ({"environment/Dockerfile": DOCKERFILE + "UNKNOWN 80\n"}, "line 4: 'UNKNOWN' needs the docker backend", None),
        ({"environment/Dockerfile": "FROM python:3.12\n"}, "base 'python:3.12' needs the docker backend", None),
        ({"environment/Dockerfile": DOCKERFILE + "COPY none /app/\n"}, "no such file", b""),
        ({"environment/Dockerfile": DOCKERFILE + "RUN echo why >&2; exit 7\n"}, "exit code 7", b"why\n"),
        ({"environment/Dockerfile": DOCKERFILE + "USER nobody-here\nRUN true\n"}, "nobody-here", None),
        (
            {
                "environment/Dockerfile": DOCKERFILE + "RUN while :; do :; done\n",
                "task.toml": TOML.replace("build_timeout_sec = 20.0", "build_timeout_sec = 0.3"),
            },
            "stopped by its cpu_limit",
            b"",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_image_that_does_not_build_says_which_step(
    shop: Workshop, changes: dict[str, str | bytes | None], reason: str, output: bytes | None
) -> None:
    found = await stopped_at(shop, greeting(changes), "builds")
    assert reason in found.detail
    shown = found.observed.get("output")
    assert (shown if shown is None else base64.b64decode(shown)) == output


async def every(shop: Workshop, files: Files | bytes, **more: object) -> tuple[set[str], set[str]]:
    """Names of the gates up to `not flaky` that fail, and of those that are skipped, with all of them wanted."""
    gates = GATES[: NAMES.index("not flaky") + 1]
    found = outcomes(await run_gates(case_of(shop, files, **more), gates, all_gates=True))
    failing, skipped = ({name for name in found if found[name] is outcome} for outcome in (FAILED, SKIPPED))
    return failing, skipped


async def test_all_gates_go_on_with_what_earlier_ones_made(shop: Workshop) -> None:
    grams = read_grams(build_grams([HeldOutText((HELD_OUT,))]))
    files = greeting({"instruction.md": HELD_OUT, **HALF_DONE, "environment/files/more.txt": "x"})
    assert await every(shop, files, grams=grams) == ({"decontaminated", "no-op fails"}, set())
    assert await every(shop, greeting({"tests/test.sh": TWO_TESTS})) == ({"oracle passes"}, set())
    built = {"no leak", "oracle passes", "no-op fails", "not flaky"}
    assert await every(shop, greeting({"environment/Dockerfile": "FROM x\n"})) == ({"builds"}, built)
    assert await every(shop, b"no archive") == (
        {"well-formed"},
        built | {"decontaminated", "not a duplicate", "builds"},
    )
    mute = greeting({"tests/test.sh": "#!/bin/bash\n"})
    assert await every(shop, mute) == ({"oracle passes", "no-op fails"}, {"not flaky"})


@dataclass
class Step:
    """A gate of a test's own, which says when it runs."""

    name: str
    cost: Cost
    said: list[str]
    outcome: GateOutcome = GateOutcome.passed
    needs: tuple[Need, ...] = ()
    hidden: bool = False
    waits_for: asyncio.Event | None = None
    sets: asyncio.Event | None = None

    async def check(self, case: Case) -> Finding:
        self.said.append(f"{self.name} begins")
        spend(1.5)
        if self.sets is not None:
            self.sets.set()
        if self.waits_for is not None:
            await self.waits_for.wait()
        self.said.append(f"{self.name} ends")
        return Finding(self.outcome, observed={"own": self.name})


async def test_gates_of_one_class_run_together_and_are_told_in_their_order(shop: Workshop) -> None:
    said: list[str] = []
    met = asyncio.Event()
    first = Step("first", Cost.running, said, waits_for=met, outcome=FAILED)
    second, third = Step("second", Cost.running, said, sets=met), Step("third", Cost.repeating, said)
    told: list[str] = []
    report = await run_gates(
        case_of(shop, b""), [third, first, second], jobs=2, progress=lambda gate, _: told.append(gate.name)
    )
    assert said == ["first begins", "second begins", "second ends", "first ends"]
    assert told == [gate.name for gate, _ in report.findings] == ["first", "second", "third"]
    assert list(outcomes(report).values()) == [FAILED, PASSED, SKIPPED]


async def test_one_job_runs_a_class_to_its_end_one_by_one(shop: Workshop) -> None:
    said: list[str] = []
    steps = [Step("first", Cost.running, said, outcome=FAILED), Step("second", Cost.running, said)]
    report = await run_gates(case_of(shop, b""), steps, jobs=1)
    assert said == ["first begins", "first ends", "second begins", "second ends"]
    assert list(outcomes(report).values()) == [FAILED, PASSED]


async def test_what_a_gate_costs_is_observed_gate_by_gate(shop: Workshop) -> None:
    said: list[str] = []
    met = asyncio.Event()
    steps = [Step("a", Cost.running, said, waits_for=met), Step("b", Cost.running, said, sets=met)]
    report = await run_gates(case_of(shop, b""), steps, jobs=2)
    assert [found.observed["cpu_s"] for _, found in report.findings] == [1.5, 1.5]
    assert [found.observed["own"] for _, found in report.findings] == ["a", "b"]
    assert all(found.observed["wall_s"] >= 0 for _, found in report.findings)
    assert all(found.content_bytes() == b"{}" for _, found in report.findings)
    oracle = finding(await run_gates(case_of(shop, greeting()), DRAFT_GATES), "oracle passes")
    assert oracle.observed["cpu_s"] > 0


async def test_gates_that_leave_out_what_others_need_are_a_mistake(shop: Workshop) -> None:
    lonely = Step("lonely", Cost.running, [], needs=(Need.task, Need.image))
    with pytest.raises(ValueError, match="'lonely' needs task, image"):
        await run_gates(case_of(shop, greeting()), [lonely])


async def test_evidence_is_the_same_bytes_in_another_workshop(shop: Workshop, tmp_path: Path) -> None:
    cases = (
        composed("sort_numbers", "copy_file"),
        greeting({"environment/Dockerfile": DOCKERFILE + "RUN exit 7\n"}),
        greeting({"tests/test.sh": TWO_TESTS}),
        greeting({"tests/test.sh": only_where('[ "$(hostname)" = envwheel ]')}),
        greeting({"task.toml": TOML.replace("10.0", "nan")}),
    )
    async with open_shop(tmp_path) as other:
        for files in cases:
            one, two = [await run_gates(case_of(each, files, rules=FEW)) for each in (shop, other)]
            assert [(found.outcome, found.detail, found.content_bytes()) for _, found in one.findings] == [
                (found.outcome, found.detail, found.content_bytes()) for _, found in two.findings
            ]


async def test_trouble_of_the_machine_is_raised_and_is_no_verdict(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop:
        case = case_of(shop, greeting())
        await run_gates(case, GATES[:4])
        await shop.backend.close()
        for gate in GATES[5:7]:
            with pytest.raises(SandboxError):
                await gate.check(case)
        with pytest.raises(SandboxError):
            await run_gates(case_of(shop, greeting({"environment/Dockerfile": DOCKERFILE + "RUN true\n"})))


async def test_a_workshop_opens_on_the_base_of_the_run_alone(tmp_path: Path) -> None:
    with pytest.raises(WorkshopError, match=r"started on base 0{12}, this machine has [0-9a-f]{12} \(host\)"):
        await open_workshop("host", tmp_path, base_digest="0" * 64)
    opened = await open_workshop("host", tmp_path)
    try:
        report = await run_gates(case_of(opened, greeting()), GATES[:4])
        assert report.verdict is Verdict.valid
    finally:
        await opened.close()
