"""An author tries its draft on the current solver before it submits: over the log, with real gates and attempts."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from schemas.identity import derive_seed
from schemas.messages import EnvAbandoned, EnvProposed, RolloutRequested
from schemas.outcomes import Purpose
from services.kernel.archive import unpack
from services.kernel.delivery import read_event
from services.kernel.skills.step import FileSpec
from services.kernel.workshop import Workshop
from services.proposer.authoring.session import SessionFailedError
from services.proposer.authoring.shell_files import write_commands
from tests.support.harbor_tasks import greeting
from tests.support.proposing import RUN, Bench, beside, request
from tests.support.shop import open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

HI = "echo hi > hello.txt"
WRITES = [
    line
    for path, entry in greeting().items()
    for line in write_commands(f"task/{path}", FileSpec(entry.content, 0o755 if entry.executable else 0o644))
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    async with open_shop(tmp_path_factory.mktemp("tries")) as opened:
        yield opened


@pytest.fixture
def bench(shop: Workshop, tmp_path: Path) -> Bench:
    return Bench(shop, tmp_path)


@asynccontextmanager
async def answered(
    bench: Bench, *rows: list[str | bytes | tuple[int, ...] | None], broken: bool = False
) -> AsyncIterator[None]:
    await bench.publish()
    async with beside(bench.validate(), bench.solve(*rows, broken=broken)):
        yield


async def asked(bench: Bench) -> list[RolloutRequested]:
    bodies = [read_event(RUN, stored).body async for stored in bench.log.read()]
    return [body for body in bodies if isinstance(body, RolloutRequested)]


async def test_rewards_spread_and_what_the_verifier_printed_reach_the_author(bench: Bench) -> None:
    look = "cat tries/000/1.verifier.txt; cat tries/000/0.transcript.txt"
    commands = (*WRITES, "envwheel-draft try 2", "envwheel-draft check", "envwheel-draft try 2", look)
    async with answered(bench, [HI], ["echo no > hello.txt; cat hello.txt"]):
        said = await bench.handle(request(), bench.saying(*commands, "envwheel-draft submit"))
    assert isinstance(said, EnvProposed)
    unchecked, _, tried, shown = bench.heard[len(WRITES) :]
    assert (unchecked.exit_code, "passed its check" in unchecked.text) == (1, True)
    assert tried.exit_code == 0
    first, second, summary = map(json.loads, tried.text.splitlines())
    assert (first["reward"], first["outcome"], second["reward"]) == (1.0, "solved", 0.0)
    failed = next(name for name, passed in second["tests"].items() if not passed)
    assert summary == {"rewards": [1.0, 0.0], "mean": 0.5, "std": 0.5, "commonest_failure": failed, "tries_left": 3}
    assert f"$ {HI}" in shown.text
    (body,) = await asked(bench)
    assert (body.purpose, body.env, body.attempts, body.slot, body.revision) == (Purpose.draft, said.env, 2, 3, 0)
    assert unpack(bench.store.get(body.env)) == greeting()
    assert body.seed == derive_seed(11, "try", body.env, body.ordinal)


async def test_every_try_is_another_request_and_an_author_that_begins_anew_asks_for_the_same(bench: Bench) -> None:
    again = "for n in 2 2 2; do envwheel-draft try $n | tail -n 1; done"
    async with answered(bench, [HI], []):
        for _ in range(2):
            await bench.handle(request(), bench.saying(*WRITES, "envwheel-draft check", again))
    bodies = await asked(bench)
    assert len(bodies) == len({body.id for body in bodies}) == len({body.seed for body in bodies}) == 3
    (first, second) = (heard.text for heard in bench.heard if "tries_left" in heard.text)
    assert first == second
    assert [json.loads(line)["tries_left"] for line in first.splitlines()] == [3, 2, 1]


async def test_a_draft_that_cannot_be_graded_is_refused_and_says_so(
    bench: Bench,
) -> None:
    commands = (*WRITES, "envwheel-draft check", "envwheel-draft try 1")
    async with answered(bench, broken=True):
        said = await bench.handle(request(), bench.saying(*commands))
    assert isinstance(said, EnvAbandoned)
    assert (bench.heard[-1].exit_code, "cannot be graded" in bench.heard[-1].text) == (1, True)


async def test_without_a_checkpoint_in_the_log_the_try_fails_for_the_installation(bench: Bench) -> None:
    async with bench.validating():
        with pytest.raises(SessionFailedError, match="version 0 of the solver is not in the log"):
            await bench.handle(request(), bench.saying(*WRITES, "envwheel-draft check", "envwheel-draft try 1"))
