"""Dockerfiles within the subset parse to what Docker would do; everything else is refused with its line."""

import pytest

from services.kernel.harbor.dockerfile import (
    Copy,
    DockerfileError,
    Env,
    From,
    Instruction,
    NeedsDockerError,
    Run,
    User,
    Workdir,
    parse,
)

SH = ("/bin/sh", "-c")


def _one(line: str, before: str = "") -> Instruction:
    return parse(f"FROM b\n{before}{line}\n")[-1]


def test_a_whole_file_parses_in_order() -> None:
    text = """# syntax=docker/dockerfile:1
FROM envwheel/base:1 AS main

workdir /app
# a comment
COPY --chmod=0755 files/ a.txt /app/
ENV A=1 B="two words"
RUN echo one && \\
    # a comment between
    echo two
USER root"""
    assert parse(text) == (
        From("envwheel/base:1"),
        Workdir("/app"),
        Copy(("files", "a.txt"), "/app/", 0o755),
        Env((("A", "1"), ("B", "two words"))),
        Run((*SH, "echo one &&     echo two")),
        User("root"),
    )


@pytest.mark.parametrize(
    ("line", "instruction"),
    [
        ("RUN   echo  'a  b' \\\\ $HOME", Run((*SH, "echo  'a  b' \\\\ $HOME"))),
        ('RUN ["/bin/echo", "a b"]', Run(("/bin/echo", "a b"))),
        ("RUN [ -e /x ] || true", Run((*SH, "[ -e /x ] || true"))),
        ("RUN echo $((1<<4)) <<<x", Run((*SH, "echo $((1<<4)) <<<x"))),
        ("COPY . .", Copy(("",), ".")),
        ("COPY /../../etc/passwd x", Copy(("etc/passwd",), "x")),
        ('COPY ["a b.txt", "/app/"]', Copy(("a b.txt",), "/app/")),
        ("COPY 'a b.txt' /app/c\\ d", Copy(("a b.txt",), "/app/c d")),
        ("ENV KEY some  words", Env((("KEY", "some  words"),))),
        ('ENV A= B=x\\ y C=\'$A\' D="\\n\\$\\"q\\""', Env((("A", ""), ("B", "x y"), ("C", "$A"), ("D", '\\n$"q"')))),
        ("USER 1000", User("1000")),
    ],
)
def test_forms_of_the_instructions(line: str, instruction: Instruction) -> None:
    assert _one(line) == instruction


def test_variables_come_from_earlier_env_lines_alone() -> None:
    before = "ENV DIR=/srv X=1\n"
    assert _one("WORKDIR $DIR/${X}/${NONE:-d}/$HOME.", before) == Workdir("/srv/1/d/.")
    assert _one("ENV X=2 Y=$X", before) == Env((("X", "2"), ("Y", "1")))
    assert _one("COPY a '$DIR'", before) == Copy(("a",), "$DIR")
    assert _one("RUN echo $DIR", before) == Run((*SH, "echo $DIR"))


@pytest.mark.parametrize(
    "line",
    [
        "CMD true",
        "ENTRYPOINT /bin/false",
        "ARG A=1",
        "ADD https://x /",
        "VOLUME /x",
        'SHELL ["/bin/bash"]',
        "HEALTHCHECK NONE",
        "ONBUILD RUN x",
        "FROM other",
        "FROM $BASE",
        "RUN --mount=type=cache,target=/x true",
        "RUN cat <<EOF > /x",
        "COPY --from=build /a /b",
        "COPY --chown=1000 a b",
        "COPY *.txt /app/",
        "COPY <<EOF /app/x",
        "WORKDIR ${A:+x}",
    ],
)
def test_what_is_outside_the_subset_needs_the_docker_backend(line: str) -> None:
    with pytest.raises(NeedsDockerError, match=r"line 2: .*needs the docker backend"):
        _one(line)


@pytest.mark.parametrize("text", ["FROM --platform=linux/amd64 b", "# escape=`\nFROM b", "RUN true\nFROM b"])
def test_files_that_begin_outside_the_subset_need_the_docker_backend(text: str) -> None:
    with pytest.raises(NeedsDockerError, match="needs the docker backend"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no instruction"),
        ("# only\n\n", "no instruction"),
        ("FROM b\nCOPY a", "source and a target"),
        ("FROM b\nCOPY a b c", "ends with /"),
        ("FROM b\nENV A=1 B", "NAME=VALUE"),
        ("FROM b\nENV 1A=1", "variable name"),
        ("FROM b\nENV A='x", "quote is not closed"),
        ('FROM b\nWORKDIR "x', "quote is not closed"),
        ("FROM b\nRUN", "says nothing"),
        ('FROM b\nRUN ["echo", "\\ud800"]', "half a character"),
        ("FROM b\n" + "#" * 65_536, "longer than"),
    ],
)
def test_a_file_that_no_engine_could_build_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(DockerfileError, match=reason):
        parse(text)
