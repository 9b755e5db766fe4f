"""The gate `isolated verifier`: an agent leaves processes and planted files behind, and a probe in the verifier's place
tells what of it is there during grading, beside what it tells of an untouched environment.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath
from shlex import quote

from msgspec.structs import replace as with_fields

from schemas.outcomes import GateOutcome
from services.kernel.archive import FileEntry
from services.kernel.harbor.config import Artifact
from services.kernel.harbor.grade import EnvironmentBroken, Grade
from services.kernel.harbor.task import HarborTask
from services.kernel.sandbox.protocol import SandboxError, SandboxRefusedError
from services.validator.gates.attacks import Attack, script_of
from services.validator.gates.attacks_planted import PLANTED
from services.validator.gates.attacks_remnants import REMNANTS
from services.validator.gates.gate import Case, Cost, Finding, Need, failed

PROBE_TIMEOUT_S = 60.0
SHOWN_MAX = 5
SENTINEL = ".envwheel-sentinel"
NEVER = ("/usr/local/bin", "/usr/lib", "/logs/verifier", "/tests")
"""Where nothing of an agent may be seen during grading, in either mode."""
SHARED = ("/root", "/home/agent", "/tmp", "/var/tmp", "/opt", "/srv", "/etc", "/logs/agent", "/logs/artifacts")  # noqa: S108 - of a sandbox
"""Where a shared verifier sees what the agent left, beside the working directory; a separate one must not."""
MODES = {
    False: "shared: the agent's processes gone, programs and start-up files of the image",
    True: "separate: declared artifacts only",
}
_LOOK = """for place in /proc/[0-9]*; do
  [ "$place" = /proc/$$ ] || { read -r name < $place/comm && echo "process $name"; } 2> /dev/null
done
"""
_PROBE = f"""#!/bin/sh
{_LOOK}for file in /logs/verifier/* /logs/verifier/.[!.]* /tests/* /tests/.[!.]*; do
  [ -e "$file" ] && echo "file $file"
done
set --
for tool in sh bash dash python3 pytest cat cmp diff test grep sed awk git env; do
  path=$(command -v $tool) && case $path in /*) set -- "$@" "$path" ;; esac
  echo "tool $tool $path"
done
for file in /etc/ld.so.*; do [ -f "$file" ] && set -- "$@" "$file"; done
sha256sum "$@" 2> /dev/null | while read -r line; do echo "digest $line"; done
env | while read -r line; do case $line in _=* | PWD=* | OLDPWD=* | SHLVL=*) ;; *) echo "variable $line" ;; esac; done
command -v python3 > /dev/null && python3 -c '
import os, sys
print("python path", sys.path)
for name in ("sitecustomize", "usercustomize", "envwheel_forge"):
    print("python module", name, getattr(sys.modules.get(name), "__file__", None))
for folder in sys.path[1:]:
    if os.path.isdir(folder):
        print("python folder", folder, sorted(os.listdir(folder)))
'
for place in PLACES; do [ -e "$place/SENTINEL" ] && echo "reached $place"; done
rm -f /logs/verifier/reward.json; echo 0 > /logs/verifier/reward.txt
"""
_LEFT = {"processes that write the reward", "a reward written at exit"}
_PLANTED = {
    "start-up files of shells",
    "start-up modules of python",
    "start-up files of the loader",
    "replaced programs",
}


class IsolatedVerifier:
    """Grading runs where the agent's processes and files do not reach it, beyond what it was to leave."""

    name = "isolated verifier"
    cost = Cost.repeating
    hidden = False
    needs = (Need.image, Need.noop)

    async def check(self, case: Case) -> Finding:
        grader, image = case.workshop.grader, case.known_image()
        task = _patient(case.known_task())
        places = dict.fromkeys((*NEVER, *SHARED, image.workdir))
        tests = {"test.sh": FileEntry(_probe(tuple(places)).encode(), executable=True)}
        solution = {"solve.sh": FileEntry(_agent(tuple(places)).encode(), executable=True)}
        try:
            untouched = await grader.run_noop(task, image, tests=tests)
            async with grader.solved(task, image, solution=solution) as solved:
                touched = await grader.grade(task, image, solved.snapshot, tests=tests)
        except SandboxRefusedError as error:
            return failed(f"refused by the sandbox: {error}")
        if isinstance(untouched, EnvironmentBroken):
            return failed(f"a probe in the verifier's place cannot report: {untouched.reason}")
        if isinstance(touched, EnvironmentBroken):
            raise SandboxError(f"an untouched environment was graded before, and now is not: {touched.reason}")
        return _judge(task, untouched, touched, solved.result.output)


def _judge(task: HarborTask, untouched: Grade, touched: Grade, said: bytes) -> Finding:
    mode = MODES[task.separate]
    before, after = sorted(_text(untouched.output)), sorted(_text(touched.output))
    reached = [line.removeprefix("reached ") for line in after if line.startswith("reached ")]
    allowed = _declared(task) if task.separate else (*SHARED, "/")
    beyond = [place for place in reached if place in NEVER or not _within(place, allowed)]
    changed = sorted(line for line in set(before) ^ set(after) if not line.startswith("reached "))
    content = {"mode": mode, "reached": reached, "beyond": beyond, "changed": changed}
    observed = {"left_processes": sorted({line[8:] for line in _text(said) if line.startswith("process ")})}
    if touched.broken_by_agent:
        reason = f"an agent keeps a probe in the verifier's place from reporting: {touched.broken_by_agent}"
        return Finding(GateOutcome.failed, reason, content, observed)
    if beyond or changed:
        seen = [f"files of the agent in {place}" for place in beyond]
        seen += [f"{'more' if line in after else 'less'}: {line[:160]}" for line in changed]
        told = "; ".join(seen[:SHOWN_MAX]) + ("" if len(seen) <= SHOWN_MAX else f"; {len(seen) - SHOWN_MAX} more")
        return Finding(GateOutcome.failed, f"the verifier is not isolated: {told}", content, observed)
    return Finding(GateOutcome.passed, mode, content, observed)


def _text(output: bytes) -> list[str]:
    return output.decode(errors="replace").splitlines()


def _declared(task: HarborTask) -> tuple[str, ...]:
    sources = [each.source if isinstance(each, Artifact) else each for each in task.config.artifacts]
    return ("/logs/artifacts", *sources)


def _within(place: str, allowed: Sequence[str]) -> bool:
    return any(PurePosixPath(place, SENTINEL).is_relative_to(root) for root in allowed)


def _patient(task: HarborTask) -> HarborTask:
    """The same task, with time for the probe."""
    verifier = task.config.verifier
    patient = with_fields(verifier, timeout_sec=max(verifier.timeout_sec, PROBE_TIMEOUT_S))
    return with_fields(task, config=with_fields(task.config, verifier=patient))


def _probe(places: Sequence[str]) -> str:
    return _PROBE.replace("PLACES", " ".join(map(quote, places))).replace("SENTINEL", SENTINEL)


def _agent(places: Sequence[str]) -> str:
    """Leaves every kind of process, a sentinel in every place, and what might be run instead of the image's files."""
    sentinels = "".join(f"put {quote(f'{place}/{SENTINEL}')} x\n" for place in places)
    marks, look = Attack("sentinels", "", None, sentinels, ""), Attack("what lives", "", None, _LOOK, "")
    left = [attack for attack in REMNANTS if attack.name in _LEFT]
    return script_of([marks, *left, look, *(attack for attack in PLANTED if attack.name in _PLANTED)], ())
