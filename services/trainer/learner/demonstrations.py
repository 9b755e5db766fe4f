"""What the cold start is fed: transcripts of composed tasks, most with a beginner's mistake, in training words only.

The mistakes stand in for a base model that has read messy shell history: the right command is known, the habit is not.
"""

from dataclasses import dataclass
from random import Random

from services.kernel.agent.normaliser import show_v1
from services.kernel.models.template import Template
from services.kernel.models.trajectory import Segment
from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.compose import Task, compose
from services.kernel.skills.lexicon import RESERVED, TRAIN, Names
from services.kernel.skills.step import Turn

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS_OF_A_TASK = 40
SHOWN_BYTES_MAX = 400


@dataclass(frozen=True)
class Mix:
    """Shares of what is drawn."""

    novice_rate: float = 0.6
    """Of steps that carry the mistake."""
    invented_rate: float = 0.6
    """Of words that are in no lexicon, so that copying is learned and not the words."""
    letters_rate: float = 0.25
    """Of invented words that are plain letters; the others are halves of two training words."""
    steps_weights: tuple[float, ...] = (0.5, 0.35, 0.15)
    """Tasks of one step, of two, of three."""


def draw_task(rng: Random, mix: Mix) -> tuple[Task, tuple[bool, ...]]:
    """A task and, for each step, whether its demonstration makes the mistake."""
    count = rng.choices(range(1, len(mix.steps_weights) + 1), mix.steps_weights)[0]
    task = compose(rng, rng.sample(list(SKILLS), count), Names(rng, words(rng, mix)))
    return task, tuple(rng.random() < mix.novice_rate for _ in task.steps)


def words(rng: Random, mix: Mix) -> list[str]:
    """Distinct words, none inside another and none holding a reserved word."""
    found: list[str] = []
    while len(found) < WORDS_OF_A_TASK:
        word = invented(rng, mix.letters_rate) if rng.random() < mix.invented_rate else rng.choice(TRAIN)
        if not any(word in other or other in word for other in found):
            found.append(word)
    return found


def invented(rng: Random, letters_rate: float) -> str:
    """Plain letters, or halves of two training words joined; 3 to 8 letters."""
    while True:
        if rng.random() < letters_rate:
            word = "".join(rng.choices(LETTERS, k=rng.randint(3, 7)))
        else:
            front, back = rng.choice(TRAIN), rng.choice(TRAIN)
            word = front[: rng.randint(1, len(front) - 1)] + back[rng.randint(1, len(back) - 1) :]
        if 3 <= len(word) <= 8 and not any(reserved in word for reserved in RESERVED):
            return word


def segments(task: Task, mistaken: tuple[bool, ...], template: Template) -> list[Segment]:
    """The transcript as the harness would have recorded it; log-probabilities are 0, as of one who is sure."""
    found = [Segment(kind="prompt", token_ids=tuple(template.prompt(task.instruction)))]
    for turn in task.novice(mistaken):
        found.append(_sampled(template.command(turn.command)))
        shown = show_v1(turn.output.encode(), _exit_code(turn), SHOWN_BYTES_MAX)
        found.append(Segment(kind="observed", token_ids=tuple(template.observation(shown))))
    found.append(_sampled(template.submit()))
    return found


def _exit_code(turn: Turn) -> int:
    """Turns do not say; an error message begins with the program's name or with `error`."""
    program = turn.command.split()[0]
    return int(turn.output.startswith((f"{program}: ", "error: ")))


def _sampled(token_ids: list[int]) -> Segment:
    return Segment(kind="sampled", token_ids=tuple(token_ids), logprobs=(0.0,) * len(token_ids))
