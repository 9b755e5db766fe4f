"""The wheel with rechecks: order decides nothing, and what rotted is in no later pool."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.envelope import Event
from schemas.messages import EnvRechecked, EnvRecheckRequested, PoolChanged, RoundClosed
from schemas.outcomes import Retired, Verdict
from schemas.science import PoolRules
from services.validator import policy
from tests.support.wheel import Wheel, opening, small_science

seeds = st.integers(min_value=0, max_value=2**32)
RULES = PoolRules(
    target=12, admit_per_round=4, waves_max=2, review_every_updates=2, review_attempts=4, recheck_every_rounds=1
)


def history(seed: int, order_seed: int) -> list[Event]:
    return Wheel(order_seed=order_seed).turn(opening(seed, small_science(rounds=4, pool=RULES)))


@settings(max_examples=20, deadline=None)
@given(seed=seeds, orders=st.tuples(seeds, seeds))
def test_rechecks_leave_rounds_independent_of_the_order_of_delivery(seed: int, orders: tuple[int, int]) -> None:
    one, other = (history(seed, order) for order in orders)
    assert sum(isinstance(event.body, RoundClosed) for event in one) == 4
    assert {e.id: e.body_digest for e in one} == {e.id: e.body_digest for e in other}


@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_every_recheck_is_answered_before_the_pool_and_decides_who_stays(seed: int) -> None:
    events = history(seed, seed)
    asked = {(e.body.env, e.body.ordinal): e.seq for e in events if isinstance(e.body, EnvRecheckRequested)}
    verdicts = {(e.body.env, e.body.ordinal): e for e in events if isinstance(e.body, EnvRechecked)}
    pools = {e.body.round: e for e in events if isinstance(e.body, PoolChanged)}
    assert asked.keys() == verdicts.keys()
    rotten: set[str] = set()
    for round_, pool in sorted(pools.items()):
        assert isinstance(pool.body, PoolChanged)
        due = {env: verdicts[env, ordinal] for env, ordinal in asked if ordinal == round_}
        assert all(asked[env, round_] < answer.seq < pool.seq for env, answer in due.items())
        failed = {env for env, answer in due.items() if answer.body.verdict is Verdict.invalid}  # type: ignore[attr-defined] # an EnvRechecked
        assert {each.env for each in pool.body.retired if each.reason is Retired.rotted} == failed
        rotten |= failed
        assert rotten.isdisjoint(pool.body.members)


def test_some_history_has_all_three_endings() -> None:
    verdicts = {
        event.body.verdict for seed in range(8) for event in history(seed, 0) if isinstance(event.body, EnvRechecked)
    }
    assert verdicts == set(Verdict)


def test_deciding_again_over_the_log_gives_every_recheck() -> None:
    events = history(7, 3)
    view, said = policy.initial(), []
    for event in events:
        view = policy.fold(view, event)
        said += policy.decide(view, event)
    recorded = {event.id: event.body for event in events}
    again = {message.id: message for message in said}
    assert again.items() <= recorded.items()
    assert sum(isinstance(message, EnvRecheckRequested) for message in again.values()) >= 4
