"""Faults that reading finds: well-formed, decontaminated, not a duplicate."""

import io
import tarfile
from collections.abc import Iterator

from tests.support.corpus_known import Known, archive_of, changed
from tests.support.corpus_shapes import DOCKERFILE, SOLVE, TOML, Text, apart, but, letter, swap, tally

BOM = "\ufeff"
TOML_FAULTS: dict[str, tuple[str, str, str, str]] = {
    # what: old, wrong, right, where
    "no time for the agent": ("timeout_sec = 20.0", "timeout_sec = 0", "timeout_sec = 15", "agent.timeout_sec"),
    "time below zero": ("timeout_sec = 20.0", "timeout_sec = -5", "timeout_sec = 5", "agent.timeout_sec"),
    "time is not a number": ("timeout_sec = 20.0", "timeout_sec = nan", "timeout_sec = 1e1", "agent.timeout_sec"),
    "endless grading": ("timeout_sec = 10.0", "timeout_sec = inf", "timeout_sec = 600.0", "verifier.timeout_sec"),
    "time as text": ("timeout_sec = 10.0", 'timeout_sec = "60"', "timeout_sec = 60", "verifier.timeout_sec"),
    "endless build": ("_sec = 20.0\ncpus", "_sec = inf\ncpus", "_sec = 60.0\ncpus", "build_timeout_sec"),
    "no processor": ("cpus = 1", "cpus = 0", "cpus = 0.5", "environment.cpus"),
    "processors below zero": ("cpus = 1", "cpus = -1", "cpus = 2", "environment.cpus"),
    "no memory": ("memory_mb = 256", "memory_mb = 0", "memory_mb = 300", "environment.memory_mb"),
    "memory below zero": ("memory_mb = 256", "memory_mb = -1", "memory_mb = 128", "environment.memory_mb"),
    "memory in other units": ("memory_mb = 256", 'memory = "2GiB"', 'memory = "1G"', "environment.memory"),
    "no disk": ("storage_mb = 64", "storage_mb = 0", "storage_mb = 32", "environment.storage_mb"),
    "misspelt section": ("[verifier]", "[verifer]\n[verifier]", "[metadata]\n[verifier]", "verifer"),
    "misspelt key": ("cpus = 1", "cpu = 1", "cpus = 1.0", "environment.cpu"),
    "key given twice": ("cpus = 1", "cpus = 1\ncpus = 2", "cpus = 1 # not 2", "task.toml"),
    "version as a number": ('schema_version = "1.4"', "version = 1.0", 'version = "1.0"', "schema_version"),
    "unknown version": ('schema_version = "1.4"', 'schema_version = "9.9"', 'schema_version = "1.3"', "schema_version"),
    "two words on network": (
        *('network_mode = "no-network"', 'allow_internet = false\nnetwork_mode = "public"'),
        *("allow_internet = false", "environment.allow_internet"),
    ),
    "allowlist of nobody": (
        *('network_mode = "no-network"', 'network_mode = "allowlist"'),
        *('network_mode = "no-network"\nallowed_hosts = []', "environment.allowed_hosts"),
    ),
    "user is a command": (
        "20.0\n[verifier]",
        '20.0\nuser = "x; id"\n[verifier]',
        '20.0\nuser = "root"\n[verifier]',
        "agent.user",
    ),
    "relative work directory": (
        'workdir = "/app"',
        'workdir = "app"',
        'workdir = "/app" # absolute',
        "environment.workdir",
    ),
    "work directory that climbs": (
        'workdir = "/app"',
        'workdir = "/app/../etc"',
        'workdir="/app"',
        "environment.workdir",
    ),
    "artifact outside": (
        "[task]",
        'artifacts = ["../../etc"]\n[task]',
        'artifacts = ["/app/letter.txt"]\n[task]',
        "artifacts",
    ),
    "destination outside": (
        *("[task]", 'artifacts = [{source = "/app/letter.txt", destination = "../../x"}]\n[task]'),
        *('artifacts = [{source = "/app/letter.txt", destination = "x"}]\n[task]', "artifacts"),
    ),
    "name that climbs": ('"corpus/task"', '"corpus/.."', '"corpus/a.b"', "task.name"),
    "name too long": ('"corpus/task"', f'"corpus/{"n" * 250}"', f'"corpus/{"n" * 200}"', "task.name"),
    "shared and separate": (
        "[environment]",
        "[verifier.environment]\n[environment]",
        "\n[environment]",
        "verifier.environment",
    ),
    "secret of the host": (
        *('workdir = "/app"', 'workdir = "/app"\nenv = {KEY = "${SECRET}"}'),
        *('workdir = "/app"\nenv = {KEY = "${SECRET:-none}"}', "environment.env"),
    ),
    "Windows": ("cpus = 1", 'cpus = 1\nos = "windows"', 'cpus = 1\nos = "linux"', "environment.os"),
    "a graphics card": ("cpus = 1", "cpus = 1\ngpus = 1", "cpus = 1\ngpus = 0", "environment.gpus"),
    "two steps of one name": (
        *("[agent]", '[[steps]]\nname = "A"\n[[steps]]\nname = "a"\n[agent]'),
        *("[agent]", "steps"),
    ),
    "step that climbs": ("[agent]", '[[steps]]\nname = "../x"\n[agent]', "[agent] # one step", "steps"),
    "half a table": ("[task]", "[task", "[task] # whole", "task.toml"),
    "settings without end": (
        "[task]",
        f"source = '{'s' * 70_000}'\n[task]",
        f"source = '{'s' * 700}'\n[task]",
        "task.toml",
    ),
}
FILE_FAULTS: dict[str, tuple[dict[str, Text | None], dict[str, Text | None], str]] = {
    # what: wrong, right, where
    "no settings": ({"task.toml": None}, {}, "missing_file: task.toml"),
    "no instruction": ({"instruction.md": None}, {}, "missing_file: instruction.md"),
    "no verifier": ({"tests/test.sh": None}, {}, "missing_file: tests/test.sh"),
    "no solution": ({"solution/solve.sh": None}, {}, "missing_file: solution/solve.sh"),
    "no environment": (
        {"environment/Dockerfile": None, "environment/files/notes.txt": None},
        {"environment/more.txt": "unused\n"},
        "missing_file: environment/Dockerfile",
    ),
    "carriage returns in the verifier": (
        {"tests/test.sh": swap(str(letter()["tests/test.sh"]), "\n", "\r\n")},
        {"tests/dos.txt": "a\r\nb\r\n"},
        "carriage_return: tests/test.sh",
    ),
    "carriage returns in the solution": (
        {"solution/solve.sh": SOLVE + "echo 'signed, sealed' > letter.txt\r\n"},
        {"instruction.md": swap(str(letter()["instruction.md"]), "\n", "\r\n")},
        "carriage_return: solution/solve.sh",
    ),
    "carriage returns in the Dockerfile": (
        {"environment/Dockerfile": swap(DOCKERFILE, "\n", "\r\n")},
        {"environment/files/broken.sh": "#!/bin/bash\r\n"},
        "carriage_return: environment/Dockerfile",
    ),
    "byte order mark in the settings": ({"task.toml": BOM + TOML}, {"task.toml": TOML + "# größer\n"}, "task.toml"),
    "byte order mark in the verifier": (
        {"tests/test.sh": BOM + str(letter()["tests/test.sh"])},
        {"tests/marked.txt": BOM + "text\n"},
        "byte_order_mark: tests/test.sh",
    ),
    "byte order mark in the instruction": (
        {"instruction.md": BOM + str(letter()["instruction.md"])},
        {"instruction.md": "Größe: " + str(letter()["instruction.md"])},
        "byte order mark",
    ),
    "instruction in another encoding": (
        {"instruction.md": "Schreib größer: signed, sealed\n".encode("latin-1")},
        {"instruction.md": "Schreib größer: `signed, sealed` into /app/letter.txt\n"},
        "not UTF-8",
    ),
    "settings in another encoding": ({"task.toml": f"# größer\n{TOML}".encode("latin-1")}, {}, "UTF-8"),
    "nothing asked": (
        {"instruction.md": " \n\t\n"},
        {"instruction.md": "Write: signed, sealed (letter.txt)"},
        "is empty",
    ),
    "an instruction that paints the screen": (
        {"instruction.md": "\x1b[2J" + str(letter()["instruction.md"])},
        {"instruction.md": "\t" + str(letter()["instruction.md"])},
        "control characters 0x1b",
    ),
    "an instruction without end": ({"instruction.md": "Write it. " * 7000}, {}, "instruction.md: 70000 bytes"),
    "a binary solution": (
        {"solution/solve.sh": b"#!/bin/bash\n\0"},
        {"solution/table.bin": bytes(range(256))},
        "nul: solution/solve.sh",
    ),
    "too many files": (
        {f"tests/data/{number}": "" for number in range(2000)},
        {f"tests/data/{number}": "" for number in range(20)},
        "more than 2000 files",
    ),
    "too many bytes": ({"tests/large": bytes(65 * 2**20)}, {"tests/large": bytes(2**20)}, "bytes"),
    "a compose file": ({"environment/docker-compose.yaml": "services: {}\n"}, {}, "environment/docker-compose.yaml"),
}


def _tar(*members: tuple[str, bytes, str], form: int = tarfile.USTAR_FORMAT) -> bytes:
    """An archive of (name, type, link target): what no tree of regular files packs to."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, kind, target in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            archive.addfile(member)
    return buffer.getvalue()


def archives() -> dict[str, tuple[bytes, str]]:
    """Hostile archives, and what the gate says of each."""
    whole = archive_of(letter())
    regular, link = tarfile.REGTYPE, tarfile.SYMTYPE
    return {
        "an archive of nothing": (b"", "middle of a header"),
        "a zip": (b"PK\x03\x04" + bytes(1020), "archive:"),
        "an archive cut off": (whole[:-700], "archive:"),
        "an archive with more behind it": (whole + b"more", "trailing"),
        "a link to a host file": (_tar(("instruction.md", link, "/etc/hostname")), "a symbolic link"),
        "a link out of the task": (_tar(("tests/data", link, "../../..")), "a symbolic link"),
        "a dangling link": (_tar(("tests/gone", link, "nowhere")), "a symbolic link"),
        "a hard link": (_tar(("environment/shadow", tarfile.LNKTYPE, "/etc/shadow")), "a hard link"),
        "a FIFO": (_tar(("tests/pipe", tarfile.FIFOTYPE, "")), "a FIFO"),
        "a device": (_tar(("environment/disk", tarfile.BLKTYPE, "")), "a block device"),
        "an absolute name": (_tar(("/etc/passwd", regular, "")), "absolute"),
        "a name that climbs out": (_tar(("../../x", regular, "")), "'..'"),
        "a name of two lines": (_tar(("tests/a\nb", regular, "")), "control"),
        "a name with a hidden letter": (_tar(("tests/a\u202eb", regular, ""), form=tarfile.PAX_FORMAT), "invisible"),
        "a name that is not UTF-8": (whole.replace(b"instruction.md", b"instruction\xff\xfed", 1), "not UTF-8"),
        "one name twice": (_tar(("a", regular, ""), ("a", regular, "")), "archive:"),
        "a file where a directory is": (_tar(("tests", regular, ""), ("tests/test.sh", regular, "")), "archive:"),
    }


def malformed() -> Iterator[Known]:
    for name, (old, wrong, right, where) in TOML_FAULTS.items():
        faulty, healthy = ({"task.toml": swap(TOML, old, new)} for new in (wrong, right))
        yield changed("well-formed", name, letter(), faulty, healthy, where)
    for name, (wrong_files, right_files, where) in FILE_FAULTS.items():
        yield changed("well-formed", name, letter(), wrong_files, right_files, where)
    outputs = str(apart()["task.toml"])
    of_etc, of_log = (
        {"task.toml": swap(outputs, '"/app/out"', f'"/app/out", "{each}"')} for each in ("/etc", "/srv/log")
    )
    yield changed("well-formed", "an artifact that holds programs", apart(), of_etc, of_log, "artifacts")
    for name, (archive, where) in archives().items():
        yield Known("well-formed", name, archive, letter(), where)


HELD_OUT = "Copy every ledger of the harbour office into the blue folder and then sort them all by tonnage, please."
_ASK = "Write the two words `signed, sealed` into /app/letter.txt. "


def contaminated() -> Iterator[Known]:
    said = HELD_OUT.split()
    thirteen, twelve = " ".join(said[2:15]), " ".join(said[2:14])
    ways = {
        "all of a held-out instruction": (HELD_OUT, "Copy no ledger; sort by nothing, please."),
        "thirteen words of one": (thirteen, twelve),
        "thirteen words in capitals": (thirteen.upper(), twelve.upper()),
        "thirteen words over many lines": (thirteen.replace(" ", "\n- "), twelve.replace(" ", "\n- ")),
        "thirteen words with other marks": (thirteen.replace(" ", "; ") + "!", twelve.replace(" ", "; ") + "!"),
        "thirteen words in wide letters": (_widened(thirteen), _widened(twelve)),
    }
    for name, (wrong, right) in ways.items():
        wrong_task, right_task = (but(letter(), {"instruction.md": f"{_ASK}{text}\n"}) for text in (wrong, right))
        yield Known("decontaminated", name, wrong_task, right_task, "held-out", held_out=(HELD_OUT,))


def _widened(text: str) -> str:
    """The same words to a reader, other code points."""
    return "".join(chr(ord(letter) + 0xFEE0) if letter.isalpha() else letter for letter in text)


def duplicates() -> Iterator[Known]:
    asked = str(tally()["instruction.md"])
    ways: dict[str, dict[str, Text | None]] = {
        "the same task": {},
        "the same but for a thank-you": {"instruction.md": asked + "\nThank you.\n"},
        "the same but for its name": {"task.toml": swap(TOML, "corpus/task", "corpus/another")},
        "the same but for its verifier": {"tests/test.sh": str(tally()["tests/test.sh"]) + "# more\n"},
        "the same in capitals": {"instruction.md": asked.replace("Write three reports", "WRITE THREE REPORTS")},
        "the same with a file moved": {
            "environment/files/orders.csv": None,
            "environment/files/data/orders.csv": tally()["environment/files/orders.csv"],
            "environment/Dockerfile": DOCKERFILE + "RUN mv data/orders.csv .\n",
        },
    }
    for name, changes in ways.items():
        wrong = but(tally(), changes)
        yield Known("not a duplicate", name, wrong, wrong, "pool", pool=(tally(),), twin_pool=(letter(),))
