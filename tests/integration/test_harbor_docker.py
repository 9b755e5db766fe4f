"""Tasks are built and graded in a Docker engine as they are without one, and what only an engine can build is built."""

import asyncio
import gzip
import io
import os
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from services.kernel.archive import digest
from services.kernel.harbor.docker_builder import DockerBuilder, base_reference
from services.kernel.harbor.dockerfile import DockerfileError
from services.kernel.harbor.grade import Grade
from services.kernel.harbor.recipe import BASE_NAMES, BuildFailedError, NetworkWantedError, UnavailableError
from services.kernel.harbor.task import read_task
from services.kernel.sandbox.base import Base
from services.kernel.sandbox.docker.backend import DockerBackend
from services.kernel.sandbox.docker.build import SOURCE_TIME_S
from services.kernel.sandbox.docker.engine import Engine
from services.kernel.sandbox.launch import uid_of
from tests.support.harbor_tasks import TOML, greeting
from tests.support.lab import Lab, open_lab

Files = dict[str, str | bytes | None]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with open_lab(tmp_path, tmp_path / "base", "docker") as made:
        yield made


def _task(dockerfile: str, **files: str | bytes | None) -> Files:
    return {"environment/Dockerfile": f"FROM envwheel/base:1\n{dockerfile}\n", **files}


async def test_a_task_is_built_solved_and_graded_and_an_idle_agent_earns_nothing(lab: Lab) -> None:
    task, image = await lab.task(greeting())
    run = await lab.grader.run_solution(task, image)
    assert isinstance(run.grade, Grade)
    assert (run.grade.reward, run.grade.tests, run.exit_code, run.left_processes) == (1.0, {"says_hi": True}, 0, ())
    idle = await lab.grader.run_noop(task, image)
    assert isinstance(idle, Grade)
    assert (idle.reward, idle.tests) == (0.0, {"says_hi": False})


@pytest.mark.parametrize(
    ("dockerfile", "user", "uid"),
    [
        ("WORKDIR /app\nENV A=b\nCOPY files/ /app/\nUSER nobody", "nobody", 65534),
        ("COPY passwd ../etc/", "kilo", 4321),
        ("WORKDIR /etc\nCOPY passwd ./", "kilo", 4321),
        ("COPY passwd /elsewhere\nWORKDIR /app\nRUN cp /elsewhere /etc/passwd", "kilo", 4321),
    ],
)
async def test_an_image_knows_its_users_whatever_its_build_did(lab: Lab, dockerfile: str, user: str, uid: int) -> None:
    passwd = f"root:x:0:0:root:/root:/bin/bash\n{user}:x:{uid}:{uid}::/:/bin/sh\n"
    _, image = await lab.task(greeting({**_task(f"{dockerfile}\nWORKDIR /app"), "environment/passwd": passwd}))
    assert uid_of(image, user) == uid
    assert image.workdir == "/app"


async def test_what_the_engines_builder_does_not_know_is_said_in_words_that_it_knows(lab: Lab) -> None:
    dockerfile = """# syntax=docker/dockerfile:1
ENTRYPOINT ["/bin/false"]
ARG WORD=kilo
ENV OTHER=lima
WORKDIR /srv/app
COPY --chown=1000:1000 --chmod=640 files/*.txt deep ./
COPY --link files /all/
COPY . /context
COPY --chmod=755 <<"RUN" <<NOTE /app/in/
#!/bin/bash
echo $HOME
RUN
$OTHER
NOTE
RUN --mount=type=cache,target=/root/.cache cat <<EOF > /said && echo end >> /said
$WORD $OTHER
EOF
RUN <<EOF
#!/usr/bin/env python3
print("python", file=open("/python", "w"))
EOF
USER agent"""
    files = _task(dockerfile, **{"environment/deep/d/e.txt": "x", "environment/not.log": "x"})
    look = (
        "find /srv/app /all /context /app -type f -printf '%p %m %U %Ts\\n' | sort; cat /said /python /app/in/NOTE; "
        "id -un; pwd; ls -d /context/rooms /rooms 2>&1 | wc -l"
    )
    files |= {"environment/.dockerignore": "*.log\n"}
    seen = await lab.look(greeting({**files, "task.toml": TOML.replace('workdir = "/app"', "")}), look)
    at = str(SOURCE_TIME_S)
    assert seen.output.decode().splitlines() == [
        f"/all/notes.txt 644 0 {at}",
        *(f"/app/in/{name} 755 0 {at}" for name in ("NOTE", "RUN")),
        *(f"/context/{name} 644 0 {at}" for name in (".dockerignore", "Dockerfile", "deep/d/e.txt", "files/notes.txt")),
        *(f"/srv/app/{name} 640 1000 {at}" for name in ("d/e.txt", "notes.txt")),
        *("kilo lima", "end", "python", "lima", "agent", "/srv/app", "2"),
    ]


async def test_stages_and_archives_are_the_engines_own(lab: Lab) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        member = tarfile.TarInfo("inner.txt")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"in"))
    text = """ARG BASE=envwheel/base:1
FROM ${BASE} AS made
RUN echo made > /made
FROM envwheel/base:1
WORKDIR /app
COPY --from=made --chown=root /made /app/made
COPY --from=envwheel/base:1 /etc/hostname /app/name
ADD a.tgz /app/
"""
    files: Files = {"environment/Dockerfile": text, "environment/a.tgz": gzip.compress(buffer.getvalue(), mtime=0)}
    seen = await lab.look(greeting(files), "cat made inner.txt; echo; ls")
    assert seen.output.decode().split() == ["made", "in", "inner.txt", "made", "name"]


async def test_a_second_build_finds_the_first_and_the_digest_follows_what_is_built(lab: Lab) -> None:
    files = _task("WORKDIR /app\nRUN date +%N > /app/when")
    changes: tuple[Files, ...] = (
        {},
        {"instruction.md": "Other words."},
        {"environment/new.txt": "x"},
        _task("WORKDIR /app\nRUN date +%s%N > /app/when"),
    )
    images = [(await lab.task(greeting({**files, **change})))[1] for change in changes]
    assert images[0] == images[1]
    assert len({image.digest for image in images}) == 3


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        (_task("RUN echo why >&2; exit 7"), BuildFailedError, r"^RUN echo why >&2; exit 7: exit code 7$"),
        (_task("COPY missing /app/"), BuildFailedError, "missing"),
        (_task("RUN curl -sS http://127.0.0.1:9/x"), NetworkWantedError, "build_network"),
        (_task("UNKNOWN x"), DockerfileError, "unknown instruction: UNKNOWN"),
        (_task("RUN cat <<EOF"), DockerfileError, "no end"),
        (_task("RUN --mount=type=secret,id=x true"), UnavailableError, "BuildKit"),
        (_task("COPY --from=other/none:1 /x /x"), UnavailableError, "`docker pull other/none:1`"),
        ({"environment/Dockerfile": "FROM other/none:1\n"}, UnavailableError, "`docker pull other/none:1`"),
        ({"environment/Dockerfile": b"FROM \xff\n"}, DockerfileError, "not UTF-8"),
        ({"task.toml": TOML.replace("/app", "/none")}, BuildFailedError, "/none is not a directory of the image"),
        ({"task.toml": TOML.replace("/app", "/etc/passwd")}, BuildFailedError, "not a directory of the image"),
    ],
)
async def test_what_cannot_be_built_says_why_and_whose_fault_it_is(
    lab: Lab, changes: Files, kind: type[Exception], reason: str
) -> None:
    with pytest.raises(kind, match=reason) as caught:
        await lab.task(greeting(changes))
    assert isinstance(caught.value, UnavailableError) == (kind in (NetworkWantedError, UnavailableError))
    if "why" in reason:
        assert isinstance(caught.value, BuildFailedError)
        assert caught.value.output == b"why\n"


async def test_a_build_that_hangs_is_given_up(lab: Lab) -> None:
    toml = TOML.replace("build_timeout_sec = 20.0", "build_timeout_sec = 0.5")
    began_s = time.monotonic()
    with pytest.raises(BuildFailedError, match=r"^RUN sleep 1000: the build took more than 1.5 s"):
        await lab.task(greeting({"task.toml": toml, **_task("RUN sleep 1000")}))
    assert time.monotonic() - began_s < 500


async def test_a_prebuilt_image_is_used_as_it_is_or_gets_the_loose_files(lab: Lab) -> None:
    toml = TOML.replace('workdir = "/app"', 'docker_image = "IMAGE"\nworkdir = "/app"')
    bare: Files = {"task.toml": toml.replace("IMAGE", "envwheel/base:1"), "environment/Dockerfile": None}
    seen = await lab.look(greeting(bare), "cat files/notes.txt")
    assert seen.output == b"kilo\nlima\n"
    seen = await lab.look(greeting({**bare, "environment/files/notes.txt": None}), "ls; pwd")
    assert seen.output == b"/app\n"
    both: Files = {"task.toml": toml.replace("IMAGE", "none/such:1")}
    assert (await lab.look(greeting(both), "cat notes.txt")).output == b"kilo\nlima\n"
    with pytest.raises(UnavailableError, match="`docker pull none/such:1`"):
        await lab.task(greeting({**both, **dict.fromkeys(("environment/Dockerfile", "environment/files/notes.txt"))}))


async def test_a_separate_verifier_gets_declared_outputs_alone(lab: Lab) -> None:
    toml = 'artifacts = ["/app/out"]\n' + TOML.replace('"shared"', '"separate"')
    files: Files = {
        "task.toml": toml + "[[verifier.collect]]\ncommand = 'cat /proc/$(cat /app/pid)/comm > /logs/artifacts/name'\n",
        "environment/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\nCOPY files/ /app/out/\n",
        "tests/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\nCOPY . /tests/\n",
        "tests/test.sh": "#!/bin/bash\nfind /app -type f | sort; cat /logs/artifacts/name\n"
        "[ -x /app/out/run ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "#!/bin/bash\nrm out/notes.txt; echo > out/run; chmod +x out/run; echo > stray\n"
        "ln -s /x out/link\nsleep 1000 &\necho $! > pid\n",
    }
    reading = read_task(greeting(files))
    assert reading.unsupported == ()
    task, image = await lab.task(greeting(files))
    run = await lab.grader.run_solution(task, image)
    assert isinstance(run.grade, Grade)
    assert (run.grade.reward, run.grade.output) == (1.0, b"/app/out/run\nsleep\n")
    assert (run.left_processes, run.warnings) == (("sleep",), ())
    idle = await lab.grader.run_noop(task, image)
    assert isinstance(idle, Grade)
    assert idle.reward == 0.0


async def test_a_built_base_becomes_an_image_owned_by_root_and_is_what_from_means(lab: Lab, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("etc", "tmp", "closed"):
        (root / folder).mkdir(parents=True)
    (root / "closed").chmod(0o700)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/bash\nkilo:x:7:7::/k:/bin/bash\n")
    (root / "closed/one").write_text("1")
    os.link(root / "closed/one", root / "two")
    (root / "link").symlink_to("/etc/passwd")
    base = Base("built", digest(str(time.time_ns()).encode()), root)
    backend = cast(DockerBackend, lab.backend)
    builder = DockerBuilder(backend, base, (*BASE_NAMES, "kilo/lima:1"))
    engine, made = Engine(backend.options.host), [base_reference(base)]
    try:
        image = await builder.base_image()
        assert (image.digest, uid_of(image, "kilo")) == (base.digest, 7)
        dockerfile = "FROM kilo/lima:1\nWORKDIR /app\nCOPY files/ /app/\n"
        reading = read_task(greeting({"environment/Dockerfile": dockerfile}))
        assert reading.task is not None
        built = await builder.build(reading.task)
        made.insert(0, str(built.engine_id))
        seen = await asyncio.to_thread(lambda: {file.path for file in backend.image_files(built)})
        assert seen >= {"/app/notes.txt", "/etc/passwd"}
        assert seen & {"/closed/one", "/two"}  # one file with two names comes under either
    finally:
        await builder.close()
        for name in made:
            engine.client.images.remove(name, force=True)
        engine.close()
