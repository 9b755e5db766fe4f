"""The mesh as data: who says which message, whose decider reads it, and whose workers it is work for."""

from dataclasses import dataclass

from schemas.messages import MESSAGES, Message
from schemas.outcomes import Nature, Purpose, Role
from schemas.subjects import pattern

P, V, S, T = Role.proposer, Role.validator, Role.solver, Role.trainer
X, SEALER = Role.operator, Role.observer
DECIDERS = (P, V, S, T)


@dataclass(frozen=True, slots=True)
class Edge:
    said_by: tuple[Role, ...]
    work_for: tuple[Role, ...] = ()
    """Roles whose workers share a durable consumer on it. `work_resolved` is work for the role that it names."""


EDGES: dict[str, Edge] = {
    "run_started": Edge((X,), (T,)),
    "roster_changed": Edge((X,)),
    "work_resolved": Edge((X,), (P, V, S, T)),
    "round_planned": Edge((P,)),
    "env_requested": Edge((P,), (P,)),
    "draft_check_requested": Edge((P,), (V,)),
    "draft_checked": Edge((V,)),
    "env_proposed": Edge((P,), (V,)),
    "env_abandoned": Edge((P,)),
    "env_validated": Edge((V,)),
    "env_calibrated": Edge((V,)),
    "pool_changed": Edge((V,)),
    "rollout_requested": Edge((P, V, T), (S,)),
    "rollout_completed": Edge((S,)),
    "update_planned": Edge((T,), (T,)),
    "checkpoint_published": Edge((T,)),
    "round_closed": Edge((T,)),
    "run_finished": Edge((T, X)),
    "env_imported": Edge((X,), (V,)),
    "env_recalled": Edge((X,)),
    "env_recheck_requested": Edge((V,), (V,)),
    "env_rechecked": Edge((V,)),
    "work_started": Edge((P, V, S, T)),
    "work_failed": Edge((P, V, S, T)),
    "work_parked": Edge((P, V, S, T)),
    "segment_sealed": Edge((SEALER,)),
}

PURPOSES_BY_SAYER: dict[Role, tuple[Purpose, ...]] = {
    P: (Purpose.draft,),
    V: (Purpose.calibrate, Purpose.review, Purpose.diagnose),
    T: (Purpose.train, Purpose.evaluate),
}
"""Who may ask for rollouts of which purpose."""

HIDDEN_FROM_PROPOSER = ("evaluate",)
"""Lanes of rollout messages that the proposer has no right to."""


def work_patterns(run: str, role: Role) -> tuple[str, ...]:
    """Subjects that the durable consumer of a role's workers is filtered to."""
    patterns = [
        pattern(run, name, lane=role.value if name == "work_resolved" else "*")
        for name, edge in EDGES.items()
        if role in edge.work_for
    ]
    return tuple(patterns)


def decider_patterns(run: str, role: Role) -> tuple[str, ...]:
    """Subjects that the decider of a role reads: the whole stream, but for the lanes that are hidden from it.

    Filters go by lane and not by message, so that a message of an unknown type is seen too.
    """
    if role is not Role.proposer:
        return (f"{run}.>",)
    lanes = ["-", *(role.value for role in Role), *(purpose.value for purpose in Purpose)]
    return tuple(f"{run}.*.*.{lane}.*" for lane in lanes if lane not in HIDDEN_FROM_PROPOSER)


def counts_for_digest(message: Message) -> bool:
    """Is the body part of the round digest? Requests, decisions and facts are; RoundClosed itself is not."""
    return message.nature in (Nature.request, Nature.decision, Nature.fact) and message.name not in (
        "round_closed",
        "run_finished",
    )


def mermaid() -> str:
    """The diagram of docs/ARCHITECTURE.md: whose workers answer whose messages."""
    titles = {message.name: message.__name__ for message in MESSAGES}
    labels: dict[tuple[Role, Role], list[str]] = {}
    for name, edge in EDGES.items():
        for sayer in edge.said_by:
            for worker in edge.work_for if sayer is not X else ():
                labels.setdefault((sayer, worker), []).append(titles[name])
    arrows = [f'    {sayer} -- "{", ".join(names)}" --> {worker}' for (sayer, worker), names in labels.items()]
    answers = [
        f'    {sayer} -. "{", ".join(titles[name] for name in names)}" .-> log[(log)]'
        for sayer, names in _answers().items()
    ]
    return "\n".join(["flowchart LR", *arrows, *answers])


def _answers() -> dict[Role, list[str]]:
    """What each service says that is nobody's work: facts and decisions that deciders fold."""
    notes = {message.name for message in MESSAGES if message.nature is Nature.note}
    said: dict[Role, list[str]] = {}
    for name, edge in EDGES.items():
        if not edge.work_for and name not in notes:
            for sayer in edge.said_by:
                if sayer is not X:
                    said.setdefault(sayer, []).append(name)
    return said
