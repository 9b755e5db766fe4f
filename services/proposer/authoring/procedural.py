"""The built-in brains: they write environments through a terminal, without a model, from what their commands print."""

import json
import shlex
from collections.abc import Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

from schemas.parts import Arm
from services.kernel.agent.conversation import Observation
from services.kernel.skills.compose import Task, compose
from services.kernel.skills.harbor_files import harbor_files
from services.kernel.skills.lexicon import Names
from services.proposer.authoring.order import Order, OrderError, Record, read_notes, read_order, read_skills, read_tally
from services.proposer.authoring.plan import Plan, Style, Trouble, plan_task, random_of
from services.proposer.authoring.shell_files import write_commands
from services.proposer.authoring.skills.catalogue import WIDE, Catalogue

MENDS_MAX = 3
COMMANDS_MAX = 56
"""Of writing and checking drafts: with what comes before and after, a session stays within 64 turns."""
_LESSONS_SHOWN = 60
_TALLY = """python3 - <<'END'
import json
tally = {}
for rollout in json.load(open("rollouts/index.json")):
    for name, passed in rollout["tests"].items():
        count = tally.setdefault(name, [0, 0])
        count[0] += passed
        count[1] += 1
print(json.dumps(tally, sort_keys=True))
END"""


class Brain(Protocol):
    """Starts one session. Yields shell command lines for a workspace and takes in what they print."""

    def __call__(self, arm: Arm = "terminal") -> Generator[str, Observation, None]: ...


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        style.name: style
        for style in (
            Style("procedural", steps_new=(1, 1, 2), distractors_max=2, same_family=False, focus_first=True),
            Style("procedural-b", steps_new=(1, 2, 2), distractors_max=4, same_family=True, focus_first=False),
            Style(
                "procedural-wide",
                steps_new=(1, 1, 2),
                distractors_max=2,
                same_family=False,
                focus_first=True,
                catalogue=WIDE,
            ),
        )
    }
)


def procedural(style: str, arm: Arm = "terminal") -> Generator[str, Observation, None]:
    """In the arm `prompt` drafts are not checked, and only in `terminal` notes are left.

    Ends when it has submitted; without that when the assignment is unreadable or the channel for drafts is down.
    """
    chosen = STYLES[style]
    try:
        order = read_order((yield "cat assignment.json").text, chosen.catalogue)
    except OrderError:
        return
    record = yield from _read_record(order, chosen.catalogue)
    trouble, spent = Trouble(), 0
    plan, commands = _draft(order, record, chosen, trouble)
    while True:
        for command in commands:  # noqa: UP028 - a list cannot be sent what the terminal answers
            yield command
        if arm == "prompt":
            break
        answer = yield "envwheel-draft check"
        spent += len(commands) + 1
        if answer.exit_code == 0 or trouble.tries == MENDS_MAX:
            break
        if (failed := failed_gate(answer.text)) is None:
            return
        trouble = trouble.after(failed, plan, order.focus)
        mended = _draft(order, record, chosen, trouble)
        if spent + len(mended[1]) >= COMMANDS_MAX:
            break
        plan, commands = mended
    if arm == "terminal":
        yield from _remember(order, record, plan)
    yield "envwheel-draft submit"


def draw(order: Order, plan: Plan, style: Style, trouble: Trouble) -> Task:
    rng = random_of(order, style, trouble)
    known = style.catalogue.skills
    return compose(rng, plan.skills, Names(rng), distractors=plan.distractors, catalogue=known)


def failed_gate(answer: str) -> str | None:
    """Name of the first gate that failed, or None when the answer holds no failed gate."""
    for line in answer.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("outcome") == "failed":
            return str(said.get("gate"))
    return None


def lesson(order: Order, record: Record, plan: Plan) -> str:
    """One line: what was written, and what the solver's record taught."""
    learned = []
    if order.evidence_kind == "calibration" and record.previous and order.evidence_detail:
        learned.append(f"{'+'.join(record.previous)} {order.evidence_detail.split()[0]}")
    if order.revision == 0:
        learned += [f"{skill} solved" for skill in sorted(record.solved)]
        learned += [f"{skill} unsolved" for skill in sorted(record.unsolved)]
    told = "".join(f"; learned {item}" for item in learned)
    where = f"round {order.round}, slot {order.slot}, revision {order.revision}"
    return f"- {where}: wrote {'+'.join(plan.skills)} ({order.direction}){told}"


def _read_record(order: Order, known: Catalogue) -> Generator[str, Observation, Record]:
    parent: tuple[str, ...] = ()
    tested: tuple[str, ...] = ()
    solved = unsolved = frozenset[str]()
    if order.parent is not None:
        parent = read_skills((yield "cat parent/task.toml").text, known)
        tested, solved, unsolved = read_tally((yield _TALLY).text, known)
    previous = read_skills((yield "cat previous/task.toml").text, known) if order.revision else ()
    lessons = (yield f"cat memory/lessons/*.md 2>/dev/null | tail -n {_LESSONS_SHOWN}").text
    return Record(parent or tested[:4], previous, solved, unsolved, read_notes(lessons))


def _draft(order: Order, record: Record, style: Style, trouble: Trouble) -> tuple[Plan, list[str]]:
    """What to write, and the command lines that write it."""
    plan = plan_task(order, record, style, trouble)
    files = harbor_files(draw(order, plan, style, trouble)).items()
    writes = [command for path, spec in files for command in write_commands(f"task/{path}", spec)]
    return plan, ["rm -rf task && mkdir task", *writes]


def _remember(order: Order, record: Record, plan: Plan) -> Generator[str, Observation, None]:
    """A file of its own for every slot: lessons written side by side must not overwrite each other."""
    file = f"memory/lessons/{order.round:04}-{order.slot:04}.md"
    yield f"mkdir -p memory/lessons && echo {shlex.quote(lesson(order, record, plan))} >> {file}"


BRAINS: Mapping[str, Brain] = MappingProxyType({name: partial(procedural, name) for name in STYLES})
"""Built-in brains by roster name."""
