"""Small Harbor tasks for tests: whole ones, and ones with a single fault."""

from collections.abc import Mapping

from services.kernel.archive import FileEntry

TOML = """schema_version = "1.4"
[task]
name = "tests/greeting"
[agent]
timeout_sec = 20.0
[verifier]
timeout_sec = 10.0
environment_mode = "shared"
[environment]
build_timeout_sec = 20.0
cpus = 1
memory_mb = 256
storage_mb = 64
network_mode = "no-network"
workdir = "/app"
"""
TEST_SH = """#!/bin/bash
pass() { [ "$(cat /app/hello.txt 2>/dev/null)" = hi ]; }
status=failed; reward=0
if pass; then status=passed; reward=1; fi
echo "says_hi: $status"
printf '{"results":{"tool":{"name":"t"},"summary":{},"tests":[{"name":"says_hi","status":"%s","duration":0}]}}' \
  "$status" > /logs/verifier/ctrf.json
echo "$reward" > /logs/verifier/reward.txt
"""


def greeting(changes: Mapping[str, str | bytes | None] | None = None) -> dict[str, FileEntry]:
    """A task that asks for /app/hello.txt to say `hi`, with files added, replaced or (None) left out."""
    texts: dict[str, str | bytes | None] = {
        "task.toml": TOML,
        "instruction.md": "Write the word hi into /app/hello.txt.\n",
        "environment/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\nCOPY files/ /app/\n",
        "environment/files/notes.txt": "kilo\nlima\n",
        "solution/solve.sh": "#!/bin/bash\nset -euo pipefail\ncd /app\necho hi > hello.txt\n",
        "tests/test.sh": TEST_SH,
        **(changes or {}),
    }
    return {
        name: FileEntry(text.encode() if isinstance(text, str) else text, name.endswith(".sh"))
        for name, text in texts.items()
        if text is not None
    }


_COLLECTS = """[[verifier.collect]]
command = "cp /app/hello.txt /logs/artifacts/hook.txt"
[[verifier.collect]]
command = "exit 3"
"""
_DECLARES = 'artifacts = ["/app/none.txt", {source = "/app/out", exclude = ["*.o"]}]\n'
SEPARATE: dict[str, str | bytes | None] = {
    "task.toml": _DECLARES + TOML.replace('"shared"', '"separate"') + _COLLECTS,
    "environment/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\nCOPY files/ /app/out/\n",
    "solution/solve.sh": "#!/bin/bash\nset -euo pipefail\nrm out/notes.txt\nmkdir -p out/d\necho hi > hello.txt\n"
    "cp hello.txt out/d/hello.txt\necho > out/a.o\nprintf '#!/bin/sh\\n' > out/run\nchmod +x out/run\n"
    "echo '#!/bin/sh' > /tests.sh\n",
    "tests/test.sh": "#!/bin/bash\ncd /app\nreward=0\n"
    '[ "$(cat out/d/hello.txt)" = hi ] && [ "$(cat /logs/artifacts/hook.txt)" = hi ] && [ -x out/run ] &&'
    " [ ! -e out/a.o ] && [ ! -e out/notes.txt ] && [ ! -e hello.txt ] && [ ! -e /tests.sh ] && reward=1\n"
    'echo "$reward" > /logs/verifier/reward.txt\n',
}
"""Changes to `greeting`: a verifier apart, which declared files and what a hook collects reach, and nothing else."""
SEPARATE_IMAGE: dict[str, str | bytes | None] = {
    **SEPARATE,
    "tests/Dockerfile": "FROM envwheel/base:1\nWORKDIR /app\nCOPY . /tests/\n",
}
"""The same with an image of the verifier's own."""
