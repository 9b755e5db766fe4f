"""Dockerfiles are said in the words of the engine's own builder, and mean the same there."""

import pytest

from services.kernel.archive import FileEntry
from services.kernel.harbor.classic import Member, translate
from services.kernel.harbor.dockerfile import DockerfileError
from services.kernel.harbor.recipe import UnavailableError

CONTEXT = {
    "Dockerfile": FileEntry(b"FROM b"),
    "a.txt": FileEntry(b"a"),
    "d/run.sh": FileEntry(b"r", executable=True),
}


def _line(text: str) -> str:
    return translate(f"FROM b\n{text}\n", CONTEXT, {}).text.removeprefix("FROM b\n").removesuffix("\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("RUN a \\\n  && b # c", "RUN a   && b # c"),
        ("COPY a.txt  'd' /app/", "COPY context/a.txt context/'d' /app/"),
        ('COPY ["a b", "/x y/"]', 'COPY ["context/a b", "/x y/"]'),
        ("COPY --chown=1:1 ./ $X", "COPY --chown=1:1 context/./ $X"),
        ("COPY --link a.txt /", "COPY context/a.txt /"),
        ("ADD https://x/y /z", "ADD https://x/y /z"),
        ("COPY --from=0 /a /b", "COPY --from=0 /a /b"),
        ("RUN --mount=type=cache,target=/c x", "RUN x"),
        ("RUN --network=none x", "RUN x"),
        ("RUN <<E\necho $A\nE", 'RUN ["/bin/sh", "-c", "echo $A\\n"]'),
        ('SHELL ["/bin/bash", "-c"]\nRUN <<E\nx\nE', 'SHELL ["/bin/bash", "-c"]\nRUN ["/bin/bash", "-c", "x\\n"]'),
        ("RUN python3 - <<E\nprint(1)\nE", 'RUN ["/bin/sh", "-c", "python3 - <<E\\nprint(1)\\nE"]'),
        ('CMD ["x"]', 'CMD ["x"]'),
    ],
)
def test_how_a_line_is_said(line: str, said: str) -> None:
    assert _line(line) == said


def test_what_is_sent_has_the_context_apart_and_files_of_their_own_mode_in_rooms() -> None:
    text = "FROM b\nENV W=kilo\nCOPY --chmod=600 . /all/\nCOPY <<A <<'B' /in/\n$W\nA\n$W\nB\nCOPY --chmod=0755 d* /d/\n"
    sent = translate(text, CONTEXT, {})
    rooms = {name: member for name, member in sent.members.items() if name.startswith("rooms/")}
    assert {name.split("/", 2)[2]: member for name, member in rooms.items()} == {
        **{name: Member(entry.content, 0o600) for name, entry in CONTEXT.items()},
        "A": Member(b"kilo\n", 0o644),
        "B": Member(b"$W\n", 0o644),
        **{"d/run.sh": Member(b"r", 0o755)},
    }
    assert sent.members["context/d/run.sh"] == Member(b"r", 0o755)
    assert sent.members["Dockerfile"].content.decode() == sent.text
    assert "rooms/3 /all/" in sent.text


def test_the_images_below_are_told_and_can_be_replaced() -> None:
    text = "ARG V=1\nFROM --platform=linux/amd64 x:$V AS one\nFROM scratch\nFROM one AS two\nFROM base\n"
    text += "COPY --from=y / /y\nCOPY --from=two --chown=0 / /z\nCOPY --from=base /a /b\n"
    sent = translate(text, {}, {"base": "envwheel/base:d"})
    assert sent.images == ("x:1", "envwheel/base:d", "y")
    assert "FROM envwheel/base:d\n" in sent.text
    assert "COPY --from=envwheel/base:d /a /b\n" in sent.text
    assert "FROM --platform=linux/amd64 x:1 AS one\n" in sent.text


@pytest.mark.parametrize(
    "line",
    ["RUN --mount=type=secret,id=x y", "RUN --security=insecure y", "COPY --parents a b", "COPY --chmod=u+x a b"],
)
def test_what_has_no_older_words_is_not_available_here(line: str) -> None:
    with pytest.raises(UnavailableError, match="needs BuildKit"):
        _line(line)


@pytest.mark.parametrize("line", ["RUN cat <<E\nx", "COPY 'a b"])
def test_what_has_no_end_is_the_dockerfiles_fault(line: str) -> None:
    with pytest.raises(DockerfileError, match="line 2: "):
        _line(line)
