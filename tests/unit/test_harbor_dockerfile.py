"""Dockerfiles within the subset parse to what Docker would do; everything else is refused with its line."""

import pytest

from services.kernel.harbor.dockerfile import (
    Arg,
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
PRINT = "#!/usr/bin/env python3\nprint(1)\n"


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
        ("COPY --chown=1000:1000 --chmod=600 --link a b", Copy(("a",), "b", 0o600)),
        ("COPY ./d/*.txt /app/", Copy(("./d/*.txt",), "/app/")),
        ("ADD a.txt /app/", Copy(("a.txt",), "/app/", unpacks=True)),
        ("ARG A=1", Arg("A", "1")),
        ("WORKDIR /a${B:+x}", Workdir("/a")),
        ("RUN <<EOF\necho one\n\necho $TWO\nEOF", Run((*SH, "echo one\n\necho $TWO\n"))),
        ("RUN <<-'E'\n\techo one\n\tE", Run((*SH, "echo one\n"))),
        ("RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF", Run(("/usr/bin/env", "python3", "-c", PRINT))),
        ("RUN cat <<EOF > /x && true\n# kept\nEOF", Run((*SH, "cat <<EOF > /x && true\n# kept\nEOF"))),
        ("COPY <<EOF a.txt /app/\nx $NONE.\nEOF", Copy(("a.txt",), "/app/", inline=(("EOF", "x .\n"),))),
        ("COPY <<'EOF' /app/x\n$KEPT\nEOF", Copy((), "/app/x", inline=(("EOF", "$KEPT\n"),))),
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


def test_the_variables_of_the_base_can_be_added_to() -> None:
    found = parse('FROM x\nENV PATH="/opt/venv/bin:$PATH"\nENV PATH=/srv:$PATH\n', {"PATH": "/usr/bin"})
    assert found[1:] == (Env((("PATH", "/opt/venv/bin:/usr/bin"),)), Env((("PATH", "/srv:/opt/venv/bin:/usr/bin"),)))


def test_arguments_are_seen_by_later_lines_and_give_way_to_env() -> None:
    assert _one("WORKDIR /$A", "ARG A=1\n") == Workdir("/1")
    assert _one("WORKDIR /$A", "ENV A=2\nARG A=1\n") == Workdir("/2")
    assert parse("ARG BASE=b:1\nFROM ${BASE} AS x\nARG BASE\nWORKDIR /$BASE") == (
        From("b:1"),
        Arg("BASE", "b:1"),
        Workdir("/b:1"),
    )
    assert parse("FROM b\nARG NONE\n") == (From("b"),)


def test_a_shell_line_changes_how_later_lines_run() -> None:
    assert parse('FROM b\nSHELL ["/bin/bash", "-ec"]\nRUN a\nRUN ["b"]') == (
        From("b"),
        Run(("/bin/bash", "-ec", "a")),
        Run(("b",)),
    )


@pytest.mark.parametrize(
    "line",
    ["CMD true", "ENTRYPOINT /bin/false", "HEALTHCHECK NONE", "VOLUME /x", "ONBUILD RUN x", "LABEL a=b", "EXPOSE 80"],
)
def test_lines_that_say_nothing_of_files_or_commands_are_passed_over(line: str) -> None:
    assert parse(f"FROM --platform=linux/amd64 b\n{line}\n") == (From("b"),)


@pytest.mark.parametrize(
    "line",
    [
        "ADD https://x /",
        "ADD git@host:x /",
        "FROM other",
        "ARG A=1 B=2",
        "RUN --mount=type=cache,target=/x true",
        "RUN <<EOF\n#!/usr/bin/perl\nEOF",
        "COPY --from=build /a /b",
        "COPY --parents a b",
        "WORKDIR ${A:?x}",
        "UNKNOWN x",
    ],
)
def test_what_is_outside_the_subset_needs_the_docker_backend(line: str) -> None:
    with pytest.raises(NeedsDockerError, match=r"line 2: .*needs the docker backend"):
        _one(line)


@pytest.mark.parametrize("text", ["RUN true\nFROM b", "FROM $NONE", "FROM a b"])
def test_files_that_begin_outside_the_subset_need_the_docker_backend(text: str) -> None:
    with pytest.raises(NeedsDockerError, match="needs the docker backend"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no instruction"),
        ("# only\n\n", "no instruction"),
        ("# escape=`\nFROM b", "escape character"),
        ("FROM b\nCOPY a", "source and a target"),
        ("FROM b\nCOPY a b c", "ends with /"),
        ("FROM b\nENV A=1 B", "NAME=VALUE"),
        ("FROM b\nENV 1A=1", "variable name"),
        ("FROM b\nENV A='x", "quote is not closed"),
        ('FROM b\nWORKDIR "x', "quote is not closed"),
        ("FROM b\nRUN", "says nothing"),
        ("FROM b\nRUN cat <<A <<B\nx\nA\ny\n", "here-document B has no end"),
        ("FROM b\nSHELL /bin/bash", "JSON array"),
        ('FROM b\nRUN ["echo", "\\ud800"]', "half a character"),
        ("FROM b\n" + "#" * 65_536, "longer than"),
    ],
)
def test_a_file_that_no_engine_could_build_is_an_error(text: str, reason: str) -> None:
    with pytest.raises(DockerfileError, match=reason):
        parse(text)
