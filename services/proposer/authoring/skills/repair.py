"""Mend what does almost the right thing: programs, scripts, documents."""

import json
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step
from services.proposer.authoring.skills.derive import shuffled

FAMILY = "repair"


def _prints(command: str, text: str | int) -> str:
    return f'[ "$(timeout 5 {command} < /dev/null)" = "{text}" ]'


def mend_range(rng: Random, names: Names) -> Step:
    program = names.file("py")
    first, small, large = rng.randint(2, 9), rng.randint(11, 19), rng.randint(40, 99)
    source = f"import sys\n\nlast = int(sys.argv[1])\nprint(sum(range({first}, last)))\n"
    run = f"python3 -I -S {program}"
    return make_step(
        "mend_range",
        FAMILY,
        rng.choice(
            (
                f"Mend {program} so that with a number as its argument it prints the sum of all whole numbers from "
                f"{first} up to and including that number.",
                f"Correct {program}: the sum that it prints has to run from {first} to its argument, the argument "
                "itself included.",
            )
        ),
        files={program: source},
        turns=[f"sed -i 's/, last)/, last + 1)/' {program}"],
        novice=[f"sed -i 's/({first}, last)/({first}, 100)/' {program}"],
        checks={
            "small_sum": _prints(f"{run} {small}", sum(range(first, small + 1))),
            "large_sum": _prints(f"{run} {large}", sum(range(first, large + 1))),
        },
    )


def mend_quotes(rng: Random, names: Names) -> Step:
    script = names.file("sh")
    words = names.words(4)
    shown = [f"{words[0]} {words[1]}.txt", f"{words[2]} {words[3]}.txt"]
    counts = rng.sample(range(2, 6), 2)
    texts = {name: lines(names.words(count)) for name, count in zip(shown, counts, strict=True)}
    return make_step(
        "mend_quotes",
        FAMILY,
        rng.choice(
            (
                f"Mend {script}, which prints the number of lines of the file that it is given, for names with blanks.",
                f"Correct {script} so that it counts the lines of its argument also when that file name has a blank.",
            )
        ),
        files={script: "#!/bin/bash\nwc -l < $1\n", **texts},
        turns=[f"""sed -i 's/\\$1/"$1"/' {script}"""],
        novice=[f"sed -i 's/\\$1/$*/' {script}"],
        checks={
            f"{which}_counted": _prints(f"bash {script} '{name}'", count)
            for which, name, count in zip(("one", "other"), shown, counts, strict=True)
        },
    )


def mend_limit(rng: Random, names: Names) -> Step:
    script, low, high = names.file("sh"), names.word(), names.word()
    limit = rng.randint(20, 80)
    source = f"#!/bin/bash\nif [ $1 -le {limit} ]; then\n  echo {low}\nelse\n  echo {high}\nfi\n"
    at = _prints(f"bash {script} {limit}", high)
    return make_step(
        "mend_limit",
        FAMILY,
        rng.choice(
            (
                f"Mend {script} so that it prints {low} only for a number below {limit} and {high} from {limit} on.",
                f"Correct {script}: from {limit} on it has to print {high}, below {limit} it has to print {low}.",
            )
        ),
        files={script: source},
        turns=[f"sed -i 's/-le/-lt/' {script}"],
        novice=[f"sed -i 's/-le/-eq/' {script}"],
        checks={
            "at_limit": at,
            "below": both(at, _prints(f"bash {script} {limit - 1}", low)),
            "far_off": both(at, f"{_prints(f'bash {script} 3', low)} && {_prints(f'bash {script} 99', high)}"),
        },
    )


def mend_json(rng: Random, names: Names) -> Step:
    target = names.file("json")
    values = {name: rng.randint(10, 99) for name in shuffled(rng, names.words(3))}
    entries = [f'  "{name}": {value},' for name, value in values.items()]
    last = list(values)[-1]
    right = json.dumps(values, separators=(",", ":"), sort_keys=True)
    read = f"python3 -I -S -m json.tool --compact --sort-keys {target}"
    some = next(iter(values))
    return make_step(
        "mend_json",
        FAMILY,
        rng.choice(
            (
                f"Make {target} valid JSON without changing any of its values.",
                f"Mend the syntax error in the JSON document {target} and keep all that it says.",
            )
        ),
        files={target: lines(["{", *entries, "}"])},
        turns=[f"""sed -i '/"{last}"/s/,$//' {target}"""],
        novice=[f"""sed -i '/"{last}"/d' {target}"""],
        checks={
            "keeps_an_entry": f"""{read} | grep -q '"{some}":{values[some]}'""",
            "all_values": f"[ \"$({read})\" = '{right}' ]",
        },
    )


def mend_shebang(rng: Random, names: Names) -> Step:
    script, word, count = names.file("sh"), names.word(), rng.randint(3, 9)
    body = f"for ((i = 0; i < {count}; i++)); do printf %s {word}; done\n"
    runs = _prints(f"./{script}", word * count)
    return make_step(
        "mend_shebang",
        FAMILY,
        rng.choice(
            (
                f"Change the first line of {script} so that it can be run as ./{script} with bash.",
                f"Make ./{script} run: its first line names an interpreter that is not there, and it needs bash.",
            )
        ),
        files={script: f"#!/bin/bsh\n{body}"},
        build=[f"chmod 755 {script}"],
        turns=[f"sed -i '1s,.*,#!/bin/bash,' {script}"],
        novice=[f"sed -i '1s,.*,#!/bin/sh,' {script}"],
        checks={"runs": runs, "rest_kept": both(runs, f'[ "$(tail -n +2 {script})" = "{body.rstrip()}" ]')},
    )


SKILLS = (
    Skill("mend_range", FAMILY, mend_range, level=3),
    Skill("mend_quotes", FAMILY, mend_quotes, level=3),
    Skill("mend_limit", FAMILY, mend_limit, level=2),
    Skill("mend_json", FAMILY, mend_json, level=2),
    Skill("mend_shebang", FAMILY, mend_shebang, level=2),
)
