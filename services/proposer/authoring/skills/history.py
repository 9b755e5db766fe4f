"""The history of a git repository: old versions, who changed what when, files that are gone."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, both, lines, make_step, same
from services.kernel.skills.system import repository
from services.proposer.authoring.skills.derive import derived

FAMILY = "history"


def _head(folder: str, subject: str) -> str:
    return f'[ "$(git -C {folder} log -1 --format=%s)" = {subject} ]'


def version_save(rng: Random, names: Names) -> Step:
    folder, file, target = names.word(), names.file(), names.file()
    texts = names.words(4)
    subjects = names.words(3)
    later = [
        f"echo {text} > {file} && git commit -qam {subject}" for text, subject in zip(texts[1:], subjects, strict=True)
    ]
    place = rng.randrange(1, 3)
    return derived(
        rng,
        "version_save",
        FAMILY,
        (
            f"Save {file} as it was in the commit {subjects[place - 1]} of the git repository {folder} to {target}.",
            f"In the git repository {folder} find the commit with the message {subjects[place - 1]} and write its "
            f"version of {file} to {target} here.",
        ),
        files={f"{folder}/{file}": f"{texts[0]}\n"},
        build=[repository(folder, *later)],
        target=target,
        right=f"{texts[place]}\n",
        turns=[f"git -C {folder} show HEAD~{3 - place}:{file} > {target}"],
        novice=[f"git -C {folder} show HEAD:{file} > {target}"],
        kept=f"{_head(folder, subjects[-1])} && {same(f'{folder}/{file}', texts[-1])}",
    )


def commit_find(rng: Random, names: Names) -> Step:
    folder, file, target = names.word(), names.file(), names.file()
    words, subjects = names.words(4), names.words(3)
    later = [
        f"echo {word} >> {file} && git commit -qam {subject}" for word, subject in zip(words[1:], subjects, strict=True)
    ]
    place = rng.randrange(1, 3)
    return derived(
        rng,
        "commit_find",
        FAMILY,
        (
            f"Write the message of the commit that added the line {words[place]} to {file} in the git repository "
            f"{folder} to {target}.",
            f"Find the commit of the git repository {folder} in which {words[place]} came into {file} and save its "
            f"message to {target}.",
        ),
        files={f"{folder}/{file}": f"{words[0]}\n"},
        build=[repository(folder, *later)],
        target=target,
        right=f"{subjects[place - 1]}\n",
        turns=[f"git -C {folder} log --format=%s -S{words[place]} > {target}"],
        novice=[f"git -C {folder} log --format=%s > {target}"],
        kept=f"{_head(folder, subjects[-1])} && {same(f'{folder}/{file}', lines(words))}",
    )


def file_revive(rng: Random, names: Names) -> Step:
    folder, file, kept, subject = names.word(), names.file(), names.file(), names.word()
    text, other = lines(names.words(2)), lines(names.words(2))
    right = same(f"{folder}/{file}", text)
    return make_step(
        "file_revive",
        FAMILY,
        rng.choice(
            (
                f"Bring back {file}, which a commit deleted, in the git repository {folder}.",
                f"Restore the deleted file {file} of the git repository {folder} from its history.",
            )
        ),
        files={f"{folder}/{file}": text, f"{folder}/{kept}": other},
        build=[repository(folder, f"git rm -q {file}", f"git commit -q -m {subject}")],
        turns=[f"git -C {folder} checkout -q HEAD~1 -- {file}"],
        novice=[f"touch {folder}/{file}"],
        checks={
            "restored": right,
            "rest_kept": both(right, same(f"{folder}/{kept}", other)),
        },
    )


def authors_counted(rng: Random, names: Names) -> Step:
    folder, file, target = names.word(), names.file(), names.file()
    people = names.words(2)
    counts = dict(zip(sorted(people), rng.sample(range(2, 5), 2), strict=True))
    order = rng.sample([name for name, count in counts.items() for _ in range(count)], sum(counts.values()))
    commits = [
        f"git commit -q --allow-empty -m {name}{number} --author='{name} <{name}@example.com>'"
        for number, name in enumerate(order)
    ]
    text = lines(names.words(1))
    return derived(
        rng,
        "authors_counted",
        FAMILY,
        (
            f"Write the authors of the git repository {folder} besides dev and the number of commits of each, as "
            f"name=count lines sorted by name, to {target}.",
            f"Count the commits of each author but dev in the git repository {folder}; save sorted lines name=count "
            f"to {target}.",
        ),
        files={f"{folder}/{file}": text},
        build=[repository(folder, *commits)],
        target=target,
        right=lines([f"{name}={count}" for name, count in counts.items()]),
        turns=[
            f"git -C {folder} log --format=%an | grep -vx dev | sort | uniq -c | awk '{{print $2 \"=\" $1}}' > {target}"
        ],
        novice=[f"git -C {folder} log --format=%an | sort -u > {target}"],
        kept=f"{_head(folder, f'{order[-1]}{len(order) - 1}')} && {same(f'{folder}/{file}', text)}",
    )


SKILLS = (
    Skill("version_save", FAMILY, version_save, level=3),
    Skill("commit_find", FAMILY, commit_find, level=3),
    Skill("file_revive", FAMILY, file_revive, level=3),
    Skill("authors_counted", FAMILY, authors_counted, level=3),
)
