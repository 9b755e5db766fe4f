"""What an access log tells: who came most, what failed, what was slow, how often each answer was given."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import derived

FAMILY = "analysis"


@dataclass(frozen=True)
class _Visit:
    client: str
    path: str
    status: int
    took_ms: int

    def line(self) -> str:
        return f"{self.client} {self.path} {self.status} {self.took_ms}"


def _log(rng: Random, names: Names) -> list[_Visit]:
    """Eight visits: one client comes four times, another three times; 500, 404 and 200 occur; no two take as long."""
    clients = [f"10.0.{rng.randint(0, 99)}.{number}" for number in rng.sample(range(1, 250), 3)]
    paths = [f"/{name}" for name in names.words(4)]
    statuses = [500, 500, 500, 404, 404, 200, 200, rng.choice((200, 404))]
    times = rng.sample(range(5, 1500), 8)
    who = rng.sample([clients[0]] * 4 + [clients[1]] * 3 + [clients[2]], 8)
    where = rng.sample([paths[0], paths[1], paths[0], *rng.choices(paths, k=5)], 8)
    where[:3] = [paths[2], paths[1], paths[2]]
    visits = [_Visit(*row) for row in zip(who, where, statuses, times, strict=True)]
    return rng.sample(visits, 8)


def _said(log: Sequence[_Visit]) -> str:
    return lines([visit.line() for visit in log])


def top_client(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    log = _log(rng, names)
    most = Counter(visit.client for visit in log).most_common(1)[0][0]
    other = next(visit.client for visit in log if visit.client != most)
    return derived(
        rng,
        "top_client",
        FAMILY,
        (
            f"Write the address, in the first column, with the most lines in the access log {source} to {target}.",
            f"Find out which client address occurs most often in {source} and save it alone to {target}.",
        ),
        files={source: _said(log)},
        target=target,
        right=f"{most}\n",
        turns=[
            f"cut -d' ' -f1 {source} | sort | uniq -c | sort -rn | awk 'NR == 1 {{print $2}}' > {target}",
        ],
        novice=[f"echo {other} > {target}"],
    )


def failed_paths(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    log = _log(rng, names)
    return derived(
        rng,
        "failed_paths",
        FAMILY,
        (
            f"Write the paths that were answered with 500 in the access log {source}, each once and sorted, to "
            f"{target}; a line has client, path, status and milliseconds.",
            f"From {source}, whose columns are client, path, status and time, save the paths with status 500, sorted "
            f"and without repeats, to {target}.",
        ),
        files={source: _said(log)},
        target=target,
        right=lines(sorted({visit.path for visit in log if visit.status == 500})),
        turns=[f"awk '$3 == 500 {{print $2}}' {source} | sort -u > {target}"],
        novice=[f"awk '$3 >= 404 {{print $2}}' {source} > {target}"],
    )


def slowest_visits(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    log = _log(rng, names)
    ranked = sorted(log, key=lambda visit: -visit.took_ms)[:3]
    return derived(
        rng,
        "slowest_visits",
        FAMILY,
        (
            f"Save the three lines of {source} with the largest number in the last column, largest first, to {target}.",
            f"Write the three slowest visits of the access log {source}, whose last column is milliseconds, to "
            f"{target}, the slowest first.",
        ),
        files={source: _said(log)},
        target=target,
        right=_said(ranked),
        turns=[f"sort -k4,4nr {source} | head -n 3 > {target}"],
        novice=[f"sort -k4,4n {source} | head -n 3 > {target}"],
    )


def status_counts(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    log = _log(rng, names)
    counts = Counter(visit.status for visit in log)
    return derived(
        rng,
        "status_counts",
        FAMILY,
        (
            f"Count how often each status, the third column, occurs in {source} and write lines such as 200 3, sorted "
            f"by status, to {target}.",
            f"Save for every status in the third column of {source} the status and its number of lines, parted by a "
            f"blank and sorted by status, to {target}.",
        ),
        files={source: _said(log)},
        target=target,
        right=lines([f"{status} {counts[status]}" for status in sorted(counts)]),
        turns=[f"cut -d' ' -f3 {source} | sort | uniq -c | awk '{{print $2, $1}}' > {target}"],
        novice=[f"cut -d' ' -f3 {source} | sort | uniq -c > {target}"],
    )


def time_by_path(rng: Random, names: Names) -> Step:
    source, target = names.file("log"), names.file()
    log = _log(rng, names)
    spent: Counter[str] = Counter()
    for visit in log:
        spent[visit.path] += visit.took_ms
    return derived(
        rng,
        "time_by_path",
        FAMILY,
        (
            f"Sum the last column of {source} for each path, the second column, and write path and sum, parted by a "
            f"blank and sorted by path, to {target}.",
            f"Save how many milliseconds, the last column, each path of the access log {source} took in all to "
            f"{target}: lines of path and sum, sorted by path.",
        ),
        files={source: _said(log)},
        target=target,
        right=lines([f"{path} {spent[path]}" for path in sorted(spent)]),
        turns=[f"awk '{{s[$2] += $4}} END {{for (k in s) print k, s[k]}}' {source} | sort > {target}"],
        novice=[f"awk '{{print $2, $4}}' {source} | sort > {target}"],
    )


SKILLS = (
    Skill("top_client", FAMILY, top_client, level=3),
    Skill("failed_paths", FAMILY, failed_paths, level=3),
    Skill("slowest_visits", FAMILY, slowest_visits, level=2),
    Skill("status_counts", FAMILY, status_counts, level=3),
    Skill("time_by_path", FAMILY, time_by_path, level=4),
)
