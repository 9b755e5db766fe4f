"""Crontabs: what runs when, in which order, and at another time."""

from random import Random

from services.kernel.skills.lexicon import Names
from services.kernel.skills.step import Skill, Step, lines
from services.proposer.authoring.skills.derive import changed, derived

FAMILY = "schedules"


def _jobs(rng: Random, names: Names, count: int) -> list[tuple[int, int, str]]:
    """Minute, hour and command of daily jobs; no two at the same time, and not in order of it."""
    times = rng.sample(range(1, 24), count)
    if times == sorted(times):
        times.reverse()
    return [(rng.randint(0, 59), hour, names.word()) for hour in times]


def _crontab(jobs: list[tuple[int, int, str]]) -> str:
    return lines([f"{minute} {hour} * * * {command}" for minute, hour, command in jobs])


def cron_hour(rng: Random, names: Names) -> Step:
    source, target = names.file("cron"), names.file()
    jobs = _jobs(rng, names, 4)
    hour = rng.randint(1, 23)
    for place in rng.sample(range(4), 2):
        jobs[place] = (rng.randint(24, 59), hour, jobs[place][2])
    jobs.append((hour, 0, names.word()))
    return derived(
        rng,
        "cron_hour",
        FAMILY,
        (
            f"Write the commands that the crontab {source} runs in hour {hour} of the day to {target}, one a line.",
            f"Find the jobs of the crontab {source} with {hour} as their hour and save their commands to {target}.",
        ),
        files={source: _crontab(jobs)},
        target=target,
        right=lines([command for _, at, command in jobs if at == hour]),
        turns=[f"awk '$2 == {hour} {{print $6}}' {source} > {target}"],
        novice=[f"grep -w {hour} {source} | cut -d' ' -f6 > {target}"],
    )


def cron_order(rng: Random, names: Names) -> Step:
    source, target = names.file("cron"), names.file()
    jobs = _jobs(rng, names, 4)
    minute, hour, _ = jobs[0]
    jobs.append(((minute + rng.randint(1, 40)) % 60, hour, names.word()))
    rng.shuffle(jobs)
    right = sorted(jobs, key=lambda job: (job[1], job[0]))
    if jobs == right:
        jobs.reverse()
    return derived(
        rng,
        "cron_order",
        FAMILY,
        (
            f"List the commands of the crontab {source} in the order in which they run in a day in {target}.",
            f"Write to {target} the commands of the crontab {source}, the earliest of the day first.",
        ),
        files={source: _crontab(jobs)},
        target=target,
        right=lines([command for _, _, command in right]),
        turns=[f"sort -n -k2,2 -k1,1 {source} | awk '{{print $6}}' > {target}"],
        novice=[f"sort -n {source} | awk '{{print $6}}' > {target}"],
    )


def cron_move(rng: Random, names: Names) -> Step:
    target = names.file("cron")
    jobs = _jobs(rng, names, 3)
    place, later, hour = rng.randrange(3), rng.randint(10, 59), rng.randint(1, 23)
    minute, command = (jobs[place][0] + later) % 60, jobs[place][2]
    moved = [*jobs[:place], (minute, hour, command), *jobs[place + 1 :]]
    return changed(
        rng,
        "cron_move",
        FAMILY,
        (
            f"Change the crontab {target} so that {command} runs at {hour}:{minute:02} every day.",
            f"Move the job {command} in the crontab {target} to {hour}:{minute:02} and leave the others.",
        ),
        files={target: _crontab(jobs)},
        target=target,
        right=_crontab(moved),
        part=("moved", rf"grep -Eqx '0*{minute} 0?{hour} \* \* \* {command}' {target}"),
        turns=[f"sed -i 's/.* {command}$/{minute} {hour} * * * {command}/' {target}"],
        novice=[f"echo '{hour} {minute} * * * {command}' >> {target}"],
    )


SKILLS = (
    Skill("cron_hour", FAMILY, cron_hour, level=2),
    Skill("cron_order", FAMILY, cron_order, level=3),
    Skill("cron_move", FAMILY, cron_move, level=2),
)
