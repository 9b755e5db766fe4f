"""Run small Python programs and scripts, keep what they say, mend them."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, make_step, mistake, same

FAMILY = "programs"


def run_program(rng: Random, names: Names) -> Step:
    program, target, word = names.file("py"), names.file(), names.word()
    left, right = rng.randint(3, 9), rng.randint(11, 19)
    source = f'print("{word}", {left} * {right})\n'
    said = f"{word} {left * right}\n"
    return make_step(
        "run_program",
        FAMILY,
        rng.choice((f"Run {program} and save its output to {target}.", f"Save what {program} prints to {target}.")),
        files={program: source},
        turns=[f"python3 {program} > {target}"],
        novice=mistake(rng, [(f"python3 {program}", said)], [f"cp {program} {target}"]),
        checks={"right": same(target, said), "program_kept": both(f"[ -s {target} ]", same(program, source))},
    )


def run_with_word(rng: Random, names: Names) -> Step:
    program, target, word = names.file("py"), names.file(), names.word()
    factor = rng.randint(11, 19)
    source = f"import sys\nprint(*sys.argv[1:], len(sys.argv[-1]) * {factor})\n"
    said = f"{word} {len(word) * factor}\n"
    return make_step(
        "run_with_word",
        FAMILY,
        rng.choice(
            (
                f"Run {program} with the word {word} and save its output to {target}.",
                f"Save what {program} prints for the word {word} to {target}.",
            )
        ),
        files={program: source},
        turns=[f"python3 {program} {word} > {target}"],
        novice=[f"python3 {program} > {target}"],
        checks={"right": same(target, said), "program_kept": both(f"[ -s {target} ]", same(program, source))},
    )


def run_script(rng: Random, names: Names) -> Step:
    script, target, word = names.file("sh"), names.file(), names.word()
    times = rng.randint(11, 19)
    source = f"echo {word} $(({times} * 3)) > {target}\n"
    return make_step(
        "run_script",
        FAMILY,
        rng.choice((f"Run the script {script} with bash.", f"Use bash to run {script}.")),
        files={script: source},
        turns=[f"bash {script}"],
        novice=mistake(rng, [(f"cat {script}", source)], [f"chmod +x {script}"]),
        checks={"made": f"[ -s {target} ]", "right": same(target, f"{word} {times * 3}")},
    )


def mend_program(rng: Random, names: Names) -> Step:
    program, wrong, right, other = names.file("py"), names.word(), names.word(), names.word()
    source = f'print("{other}")\nprint("{wrong}")\n'
    return make_step(
        "mend_program",
        FAMILY,
        rng.choice(
            (
                f"Change {program} so that it prints {right} instead of {wrong}.",
                f"Mend {program} to print {right} and not {wrong}.",
            )
        ),
        files={program: source},
        turns=[f"sed -i s/{wrong}/{right}/ {program}"],
        novice=mistake(
            rng,
            [(f"sed s/{wrong}/{right}/ {program}", source.replace(wrong, right))],
            [f"echo {right} > {program}"],
        ),
        checks={
            "wrong_gone": f"[ -s {program} ] && ! grep -q {wrong} {program}",
            "prints_right": f"[ \"$(timeout 5 python3 {program})\" = $'{other}\\n{right}' ]",
        },
    )


SKILLS = (
    Skill("run_program", FAMILY, run_program),
    Skill("run_with_word", FAMILY, run_with_word, level=2),
    Skill("run_script", FAMILY, run_script),
    Skill("mend_program", FAMILY, mend_program, level=2),
)
