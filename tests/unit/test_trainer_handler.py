"""From an UpdatePlanned to the next checkpoint: what the plan and the rules say is what the learner is told."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.messages import CheckpointPublished, Message, RunStarted, UpdatePlanned
from schemas.outcomes import CheckpointReason, Role
from schemas.parts import PlannedGroup, RolloutRef
from schemas.science import TrainingRules
from services.kernel.agent.conversation import EndReason, Episode
from services.kernel.agent.transcript import encode
from services.kernel.artifacts import ArtifactStore
from services.kernel.errors import ArtifactCorrupt, ArtifactMissing, Unreadable
from services.kernel.models.checkpoint import Checkpoint
from services.kernel.models.trajectory import Group
from services.trainer.handler import TrainerHandler
from services.trainer.learner.step import Settings, update
from tests.support.feeding import as_event
from tests.support.tiny_model import tiny_checkpoint
from tests.support.wheel import opening
from tests.unit.test_trainer_step import sampled_group

RULES = TrainingRules(learning_rate=2e-3, minibatches=2, tv_max=0.05, grad_norm_max=0.5, objective="grpo")
SETTINGS = Settings(
    learning_rate=2e-3, minibatches=2, tv_max=0.05, grad_norm_max=0.5, objective="grpo", temperature=0.7, seed=5
)


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "artifacts").create()


def planned_group(store: ArtifactStore, group: Group) -> PlannedGroup:
    """The group as rollouts left it: a transcript each in the store, the rewards in the plan."""
    refs = []
    for number, row in enumerate(group.trajectories):
        episode = Episode(instruction="", turns=(), measured=(), segments=row.segments, ended=EndReason.submitted)
        refs.append(RolloutRef(id=f"{number:064x}", content=store.put(encode(episode)[0]), reward=row.reward))
    return PlannedGroup(env="0" * 64, request="1" * 64, rollouts=tuple(refs))


def plan(
    store: ArtifactStore, *groups: Group, seed: int = 5, state: str | None = None, start: Checkpoint | None = None
) -> UpdatePlanned:
    return UpdatePlanned(
        round=2,
        role=Role.solver,
        update=7,
        parent_version=6,
        checkpoint=store.put((start or tiny_checkpoint()).archive),
        state=state,
        groups=tuple(planned_group(store, group) for group in groups),
        dropped=(),
        seed=seed,
    )


async def published(store: ArtifactStore, work: Message, rules: TrainingRules = RULES) -> CheckpointPublished:
    (answer,) = await TrainerHandler(store, rules, temperature=0.7).handle(as_event(work), 1)
    assert answer.deterministic
    assert isinstance(answer.message, CheckpointPublished)
    return answer.message


def groups(*seeds: int) -> Sequence[Group]:
    return [sampled_group(tiny_checkpoint(), seed=seed) for seed in seeds]


async def test_the_learner_is_told_what_plan_and_rules_say_and_its_answer_is_stored(store: ArtifactStore) -> None:
    done = await published(store, plan(store, *groups(4, 9)))
    due = update(tiny_checkpoint(), None, groups(4, 9), SETTINGS)
    assert (done.checkpoint, done.reason) == (due.checkpoint.digest, CheckpointReason.update)
    assert (done.round, done.role, done.checkpoint_version) == (2, Role.solver, 7)
    assert done.parent == tiny_checkpoint().digest
    assert store.get(done.checkpoint) == due.checkpoint.archive
    assert store.get(done.state or "") == due.state
    assert done.metrics["reward_mean"] == 0.375
    assert done.metrics["loss"] == due.metrics.loss


async def test_each_setting_and_the_seed_of_the_plan_count(store: ArtifactStore) -> None:
    plain = (await published(store, plan(store, *groups(4)))).checkpoint
    assert plain == (await published(store, plan(store, *groups(4)))).checkpoint
    assert plain != (await published(store, plan(store, *groups(4), seed=6))).checkpoint
    for other in ({"learning_rate": 1e-3}, {"minibatches": 1}, {"objective": "dppo"}, {"grad_norm_max": 0.01}):
        rules = TrainingRules(**{**{name: getattr(RULES, name) for name in RULES.__struct_fields__}, **other})
        assert plain != (await published(store, plan(store, *groups(4)), rules)).checkpoint, other


async def test_an_update_goes_on_from_the_trainers_state(store: ArtifactStore) -> None:
    first = await published(store, plan(store, *groups(4)))
    after = Checkpoint.from_archive(store.get(first.checkpoint))
    second = await published(store, plan(store, *groups(9), state=first.state, start=after))
    due = update(after, store.get(first.state or ""), groups(9), SETTINGS)
    assert (second.checkpoint, store.get(second.state or "")) == (due.checkpoint.digest, due.state)
    fresh = await published(store, plan(store, *groups(9), start=after))
    assert fresh.checkpoint != second.checkpoint


async def test_without_signal_the_same_weights_and_state_are_published(store: ArtifactStore) -> None:
    state = store.put(b"state")
    flat = sampled_group(tiny_checkpoint(), (0.5, 0.5))
    for work in (plan(store, state=state), plan(store, flat)):
        done = await published(store, work)
        assert (done.checkpoint, done.state) == (work.checkpoint, work.state)
        assert (done.reason, done.metrics, done.checkpoint_version) == (CheckpointReason.no_signal, {}, 7)


async def test_gradients_that_are_not_finite_are_refused_and_the_log_says_so(store: ArtifactStore) -> None:
    weights = tiny_checkpoint().weights()
    weights["model.layers.1.mlp.up_proj.weight"] *= 1e38
    start = Checkpoint.of(tiny_checkpoint(), weights)
    done = await published(store, plan(store, *groups(4), start=start))
    assert (done.checkpoint, done.state, done.reason) == (start.digest, None, CheckpointReason.non_finite)
    assert done.metrics == {"optimiser_step": 0.0}


async def test_version_0_is_the_cold_start_of_the_run_and_it_must_be_there(store: ArtifactStore) -> None:
    began = opening()[0]
    assert isinstance(began, RunStarted)
    with pytest.raises(ArtifactMissing, match=began.checkpoint):
        await published(store, began)
    cold = store.put(tiny_checkpoint().archive)
    fields = {name: getattr(began, name) for name in began.__struct_fields__}
    done = await published(store, RunStarted(**{**fields, "checkpoint": cold}))
    assert (done.checkpoint, done.checkpoint_version, done.state, done.parent) == (cold, 0, None, None)
    assert (done.reason, done.recipe) == (CheckpointReason.cold_start, began.science.model)


async def test_a_rollout_that_is_damaged_or_gone_is_named_and_nothing_is_published(store: ArtifactStore) -> None:
    work = plan(store, *groups(4))
    content = work.groups[0].rollouts[1].content
    whole = store.get(content)
    store.path(content).write_bytes(whole[:-1] + b" ")
    with pytest.raises(ArtifactCorrupt, match=content):
        await published(store, work)
    store.path(content).unlink()
    with pytest.raises(ArtifactMissing, match=content):
        await published(store, work)


async def test_what_is_no_work_for_a_trainer_is_refused(store: ArtifactStore) -> None:
    with pytest.raises(Unreadable, match="roster_changed is no work for the trainer"):
        await published(store, opening()[1])
