"""Dockerfiles of the subset become images that hold what Docker would put there; layers are made once."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.kernel.harbor.copying import SOURCE_TIME_S
from services.kernel.harbor.dockerfile import DockerfileError, NeedsDockerError
from services.kernel.harbor.recipe import BuildFailedError, NetworkWantedError
from tests.support.harbor_tasks import TOML, greeting
from tests.support.lab import Lab, open_lab


@pytest.fixture
async def lab(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    async with open_lab(tmp_path, tmp_path_factory.getbasetemp() / "base") as made:
        yield made


ADDED = "FROM envwheel/base:1\nADD a.tgz /app/\n"


def _task(dockerfile: str, **files: str) -> dict[str, str | bytes | None]:
    return {"environment/Dockerfile": f"FROM envwheel/base:1\n{dockerfile}\n", **files}


async def test_copied_files_have_fixed_times_and_modes(lab: Lab) -> None:
    files = greeting({"environment/files/run.sh": "#!/bin/bash\n"})
    seen = await lab.look(files, "stat -c '%n %a %Y %U' /app /app/notes.txt /app/run.sh && cat notes.txt && pwd")
    assert seen.output.decode() == (
        f"/app 755 {SOURCE_TIME_S} root\n/app/notes.txt 644 {SOURCE_TIME_S} root\n"
        f"/app/run.sh 755 {SOURCE_TIME_S} root\nkilo\nlima\n/app\n"
    )


async def test_copy_places_files_and_folders_as_docker_does(lab: Lab) -> None:
    dockerfile = """WORKDIR /app
COPY files/notes.txt /app/renamed
COPY files/notes.txt /app
COPY files /app/new
COPY files/notes.txt Dockerfile deep/er/
COPY --chmod=600 files/notes.txt /tmp/
COPY files/notes.txt /app/new/../up.txt
COPY . /ctx"""
    listing = "find /app /ctx -type f | sort; stat -c %a /tmp /tmp/notes.txt"
    seen = await lab.look(greeting(_task(dockerfile)), listing)
    assert seen.output.decode().split() == [
        *("/app/deep/er/Dockerfile", "/app/deep/er/notes.txt", "/app/new/notes.txt", "/app/notes.txt", "/app/renamed"),
        *("/app/up.txt", "/ctx/Dockerfile", "/ctx/files/notes.txt", "1777", "600"),
    ]


async def test_copy_follows_links_of_the_image_inside_the_image_alone(lab: Lab) -> None:
    dockerfile = """WORKDIR /app
RUN mkdir /data && ln -s /data /app/abs && ln -s ../data /app/rel && ln -s /etc/hostname /app/file
COPY files/notes.txt abs/a.txt
COPY files/notes.txt rel/
COPY files/notes.txt file"""
    seen = await lab.look(greeting(_task(dockerfile)), "ls /data; readlink abs rel; cat file")
    assert seen.output.decode().split() == ["a.txt", "notes.txt", "/data", "../data", "kilo", "lima"]


async def test_run_lines_see_env_user_and_workdir_and_what_they_write_stays(lab: Lab) -> None:
    dockerfile = """ENV WORD=kilo
WORKDIR /srv/a
RUN echo $WORD > one && rm -f /etc/shells && mkdir -p /opt/x && echo 1 > /opt/x/y
WORKDIR b
ENV WORD=lima
RUN ["/bin/bash", "-c", "echo $WORD-$PWD > two"]
RUN rm -r /opt/x && mkdir /opt/x && touch -d '2027-03-01 00:20:00 UTC' late"""
    seen = await lab.look(
        greeting(_task(dockerfile)),
        "cat /srv/a/one /srv/a/b/two; ls /opt/x /etc/shells 2>&1; stat -c %Y /srv/a/b/late /srv/a/one; echo $WORD",
    )
    assert seen.output.decode().splitlines() == [
        *("kilo", "lima-/srv/a/b", "ls: cannot access '/etc/shells': No such file or directory", "/opt/x:"),
        *("1803860400", str(SOURCE_TIME_S), "lima"),
    ]


async def test_a_folder_put_before_the_path_leaves_the_programs_of_the_base_there(lab: Lab) -> None:
    dockerfile = 'ENV PATH="/opt/venv/bin:$PATH"\nRUN mkdir -p /opt/made'
    seen = await lab.look(greeting(_task(dockerfile)), "ls -d /opt/made; echo $PATH")
    made, path = seen.output.decode().split()
    assert made == "/opt/made"
    assert path == "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def test_the_work_directory_and_env_of_the_config_go_first(lab: Lab) -> None:
    toml = TOML.replace('workdir = "/app"', 'workdir = "/srv"\nenv = {A = "${NO_SUCH:-x}"}')
    files = greeting({"task.toml": toml, **_task("WORKDIR /app\nENV A=1")})
    assert (await lab.look(files, "pwd; echo $A")).output == b"/srv\nx\n"


async def test_a_second_build_runs_nothing_and_gives_the_same_image(lab: Lab, tmp_path: Path) -> None:
    files = greeting(_task("WORKDIR /app\nRUN date +%N > /app/when"))
    first = await lab.task(files)
    second = await lab.task(files)
    assert first[1] == second[1]
    assert len(list((tmp_path / "layers/layers").iterdir())) == 2
    assert list((tmp_path / "layers/making").iterdir()) == []


async def test_the_digest_follows_every_step_and_every_copied_byte_and_nothing_else(lab: Lab) -> None:
    same = [greeting(), greeting({"instruction.md": "Other words.", "environment/unused.txt": "x"})]
    other = [
        greeting({"environment/files/notes.txt": "kilo\n"}),
        greeting(_task("WORKDIR /app\nCOPY files/ /app/\nENV A=1")),
        greeting(_task("WORKDIR /app\nCOPY files/ /app/\nUSER root")),
    ]
    digests = [(await lab.task(files))[1].digest for files in [*same, *other]]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("RUN echo no >&2; exit 7", r"RUN echo no >&2; exit 7: exit code 7"),
        ("RUN false", "exit code 1"),
        ("RUN while :; do :; done", "stopped by its cpu_limit"),
        ("COPY missing /app/", "no such file"),
        ("COPY ../../../etc/passwd /app/", "no such file"),
        ("COPY files /etc/passwd", "is a file"),
        ("COPY files/notes.txt /etc/passwd/x", "not a directory"),
        ("WORKDIR /etc/passwd", "is a file"),
        ("COPY files/notes.txt /usr/bin/tool", "base = "),
        ("COPY files/notes.txt /bin/tool", "base = "),
        ("RUN ln -s loop /loop\nCOPY files /loop/", "links"),
        ("COPY files/notes.txt /app/" + "x" * 256, "at most 255 bytes"),
        ("WORKDIR /none/" + "x" * 256, "at most 255 bytes"),
        ("RUN rm /lib64 /bin", "no sandbox starts from what it leaves"),
    ],
)
async def test_a_build_that_cannot_succeed_says_which_step_and_why(lab: Lab, dockerfile: str, reason: str) -> None:
    toml = TOML.replace("build_timeout_sec = 20.0", "build_timeout_sec = 1.0")
    with pytest.raises(BuildFailedError, match=reason):
        await lab.task(greeting({"task.toml": toml, **_task(dockerfile)}))


async def test_a_work_directory_that_leads_through_a_file_fails_the_build(lab: Lab) -> None:
    toml = TOML.replace('workdir = "/app"', 'workdir = "/etc/passwd/x"')
    with pytest.raises(BuildFailedError, match="/etc/passwd/x is not a directory of the image"):
        await lab.task(greeting({"task.toml": toml}))


async def test_a_failed_run_keeps_its_output_and_leaves_no_layer(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(BuildFailedError) as caught:
        await lab.task(greeting(_task("RUN echo why; exit 1")))
    assert caught.value.output == b"why\n"
    assert list((tmp_path / "layers/layers").iterdir()) == []


async def test_an_unknown_base_or_step_needs_the_docker_backend(lab: Lab) -> None:
    archive = gzip.compress(b"x", mtime=0)
    for text in ("FROM ubuntu:24.04\n", "FROM envwheel/base:1\nRUN --mount=type=tmpfs true\n", ADDED):
        with pytest.raises(NeedsDockerError, match="needs the docker backend"):
            await lab.task(greeting({"environment/Dockerfile": text, "environment/a.tgz": archive}))
    with pytest.raises(DockerfileError, match="not UTF-8"):
        await lab.task(greeting({"environment/Dockerfile": b"FROM \xff\n"}))


async def test_a_step_that_wants_the_network_is_told_from_other_failures(lab: Lab) -> None:
    with pytest.raises(NetworkWantedError, match=r"exit code .*; the build asks for the network.*build_network"):
        await lab.task(greeting(_task("RUN pip install no-such-package")))


async def test_patterns_inline_files_owners_and_ignore_rules_do_what_docker_does(lab: Lab) -> None:
    dockerfile = """WORKDIR /app
COPY --chown=agent:agent d*/*.txt files/ /app/
COPY [^x]/*.md one.md
ADD files/notes.txt /srv/
COPY <<"A" <<B /app/in/
kept $HOME
A
home $HOME
B
"""
    names = ("d1/a.txt", "d1/b.md", "d2/c.txt", "e/f.md", "files/no.txt", "x/f.md")
    task = _task(dockerfile, **{f"environment/{name}": "x" for name in names})
    task |= {"environment/.dockerignore": "# rules\n**/*.txt\n!/d1\n!files/notes.txt\n"}
    seen = await lab.look(greeting(task), "find /app /srv -type f | sort; cat /app/in/*")
    assert seen.output.decode().split("\n") == [
        *("/app/a.txt", "/app/in/A", "/app/in/B", "/app/notes.txt", "/app/one.md", "/srv/notes.txt"),
        *("kept $HOME", "home ", ""),
    ]


async def test_arguments_and_shells_reach_the_commands_of_a_build_and_no_later_one(lab: Lab) -> None:
    dockerfile = """ARG LATE
ARG WORD=kilo
SHELL ["/bin/bash", "-c"]
RUN echo "$WORD ${LATE-unset} ${BASH_VERSION:+bash}" > /said
RUN <<'EOF'
printf '%s\\n' "$WORD" >> /said
EOF
"""
    seen = await lab.look(greeting(_task(dockerfile)), "cat /said; echo ${WORD-unset}")
    assert seen.output.decode().splitlines() == ["kilo unset bash", "kilo", "unset"]


async def test_a_prebuilt_image_gets_the_loose_files_in_its_work_directory(lab: Lab) -> None:
    toml = TOML.replace('workdir = "/app"', 'docker_image = "envwheel/base:1"\nworkdir = "/app"')
    files = greeting({"task.toml": toml, "environment/Dockerfile": None})
    assert (await lab.look(files, "cat /app/files/notes.txt")).output == b"kilo\nlima\n"


async def test_run_has_no_network(lab: Lab) -> None:
    seen = "RUN cat /proc/net/dev | grep -c : > /app/devices; true"
    assert (await lab.look(greeting(_task(f"WORKDIR /app\n{seen}")), "cat devices")).output == b"1\n"
