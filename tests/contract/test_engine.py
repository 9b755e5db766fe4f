"""What every deterministic engine must hold; here the torch engine, on a tiny and on the shipped model's shape."""

import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch

from services.kernel.models.engine import TorchEngine
from services.kernel.models.llama import Llama, Rotation
from services.kernel.models.protocol import Engine, Sampled
from tests.support.tiny_model import tiny_checkpoint

Result = TypeVar("Result")

PROMPT = [0, 70, 71, 72, 73, 1]


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return tiny_checkpoint().engine()


def group(
    engine: Engine,
    prompts: list[list[int]],
    *,
    seed: int = 5,
    new: int = 12,
    context: int = 96,
    temperature: float = 1.0,
) -> list[list[Sampled | None]]:
    session = engine.open(prompts, seed=seed, temperature=temperature, new_tokens_max=new, context_max=context)
    first = session.generate(0)
    session.extend([[3, 80 + i, 1] for i in range(len(prompts))])
    return [first, session.generate(1)]


def test_the_same_group_gives_the_same_tokens_and_logprobs(engine: TorchEngine) -> None:
    assert group(engine, [PROMPT] * 8) == group(engine, [PROMPT] * 8)
    assert group(engine, [PROMPT] * 8) != group(engine, [PROMPT] * 8, seed=6)


def test_rows_of_a_group_differ_and_turns_draw_anew(engine: TorchEngine) -> None:
    first, second = group(engine, [PROMPT] * 8)
    assert len({row.token_ids for row in first if row}) > 1
    assert [row.token_ids for row in first if row] != [row.token_ids for row in second if row]


def test_no_row_sees_the_content_of_another(engine: TorchEngine) -> None:
    kept, other = [PROMPT, [*PROMPT, 90], PROMPT], [PROMPT, [0, 99, 98, 1], [0] + [60] * 50]
    assert [turn[0] for turn in group(engine, kept)] == [turn[0] for turn in group(engine, other)]


def test_sessions_of_one_engine_may_interleave(engine: TorchEngine) -> None:
    alone = group(engine, [PROMPT] * 2)
    a = engine.open([PROMPT] * 2, seed=5, temperature=1.0, new_tokens_max=12, context_max=96)
    b = engine.open([[0, 99, 1]] * 3, seed=9, temperature=1.0, new_tokens_max=12, context_max=96)
    b.generate(0)
    first = a.generate(0)
    b.extend([[3, 66, 1]] * 3)
    a.extend([[3, 80, 1], [3, 81, 1]])
    b.generate(1)
    assert [first, a.generate(1)] == alone


def test_any_thread_gives_the_same_tokens(engine: TorchEngine) -> None:
    """Each step of a session in a thread of its own, as a pool may do it."""

    def in_thread(call: Callable[[], Result]) -> Result:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(call).result()

    session = in_thread(lambda: engine.open([PROMPT] * 2, seed=5, temperature=1.0, new_tokens_max=12, context_max=96))
    first = in_thread(lambda: session.generate(0))
    in_thread(lambda: session.extend([[3, 80, 1], [3, 81, 1]]))
    second = in_thread(lambda: session.generate(1))
    assert [first, second] == group(engine, [PROMPT] * 2)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_a_plain_forward_pass(engine: TorchEngine, temperature: float) -> None:
    prompts = [PROMPT, [*PROMPT, *range(100, 140)]]
    first, second = group(engine, prompts, temperature=temperature)
    model = engine.model
    for i, prompt in enumerate(prompts):
        one, two = first[i], second[i]
        assert one is not None
        assert two is not None
        row = [*prompt, *one.token_ids, 3, 80 + i, 1, *two.token_ids]
        hidden = model.causal(torch.tensor([row]), Rotation.of(model.config, 128))
        scores = torch.log_softmax(model.logits(hidden)[0] / temperature, -1)
        start = len(prompt)
        for answer in (one, two):
            for j, (token, logprob) in enumerate(zip(answer.token_ids, answer.logprobs, strict=True)):
                assert float(scores[start + j - 1, token]) == pytest.approx(logprob, abs=2e-5)
            start += len(answer.token_ids) + 3


def test_logprobs_are_exact_float32(engine: TorchEngine) -> None:
    for turn in group(engine, [PROMPT] * 4):
        for row in turn:
            assert row is not None
            assert all(struct.unpack("f", struct.pack("f", value))[0] == value <= 0 for value in row.logprobs)


def test_sampling_follows_the_distribution(engine: TorchEngine) -> None:
    """5000 first tokens against the model's own probabilities: chi-square of 60 bins, 99.9% point about 99."""
    rows = 5000
    session = engine.open([PROMPT] * rows, seed=3, temperature=1.0, new_tokens_max=1, context_max=16)
    counts = torch.zeros(engine.model.config.vocab_size, dtype=torch.float64)
    for row in session.generate(0):
        assert row is not None
        counts[row.token_ids[0]] += 1
    hidden = engine.model.causal(torch.tensor([PROMPT]), Rotation.of(engine.model.config, 16))
    expected = torch.softmax(engine.model.logits(hidden)[0, -1].double(), -1) * rows
    order = expected.argsort(descending=True)
    counts, expected = counts[order], expected[order]
    big = 59
    bins = torch.cat((counts[:big], counts[big:].sum().unsqueeze(0)))
    mean = torch.cat((expected[:big], expected[big:].sum().unsqueeze(0)))
    assert float(((bins - mean) ** 2 / mean).sum()) < 99


def test_an_answer_ends_with_a_stop_token_or_is_not_finished() -> None:
    checkpoint = tiny_checkpoint()
    always = TorchEngine(
        Llama(checkpoint.config, checkpoint.weights()),
        checkpoint="x",
        stop_ids=frozenset(range(checkpoint.config.vocab_size)),
    )
    never = TorchEngine(always.model, checkpoint="x", stop_ids=frozenset())
    for row in group(always, [PROMPT] * 2)[0]:
        assert row is not None
        assert (len(row.token_ids), row.finished, row.overflow) == (1, True, False)
    for row in group(never, [PROMPT] * 2)[0]:
        assert row is not None
        assert (len(row.token_ids), row.finished, row.overflow) == (12, False, False)


def test_a_full_context_is_reported_and_nothing_more_is_sampled() -> None:
    checkpoint = tiny_checkpoint()
    never = TorchEngine(Llama(checkpoint.config, checkpoint.weights()), checkpoint="x", stop_ids=frozenset())
    session = never.open([PROMPT, [0, 1]], seed=1, temperature=1.0, new_tokens_max=8, context_max=len(PROMPT) + 5)
    first = session.generate(0)
    assert [row and (len(row.token_ids), row.overflow) for row in first] == [(5, True), (8, False)]
    session.extend([[3, 1], [3, 60, 61, 1]])
    second = session.generate(1)
    assert [row and (row.token_ids, row.finished, row.overflow) for row in second] == [((), False, True)] * 2


def test_a_prompt_longer_than_the_context_is_reported(engine: TorchEngine) -> None:
    session = engine.open([PROMPT * 5, PROMPT], seed=1, temperature=1.0, new_tokens_max=8, context_max=20)
    long, short = session.generate(0)
    assert long == Sampled((), (), finished=False, overflow=True)
    assert short is not None
    assert short.token_ids


def test_a_row_that_hears_nothing_has_left_for_good(engine: TorchEngine) -> None:
    session = engine.open([PROMPT] * 3, seed=5, temperature=1.0, new_tokens_max=12, context_max=96)
    session.generate(0)
    session.extend([[3, 80, 1], [], [3, 82, 1]])
    second = session.generate(1)
    session.extend([[3, 80, 1], [3, 81, 1], []])
    third = session.generate(2)
    assert [row is None for row in second] == [False, True, False]
    assert [row is None for row in third] == [False, True, True]
    assert second[0] == group(engine, [PROMPT] * 3)[1][0]


@pytest.mark.parametrize(
    ("prompts", "changes", "message"),
    [
        ([], {}, "at least one token"),
        ([[]], {}, "at least one token"),
        ([[272]], {}, "outside 0..271"),
        ([[-1]], {}, "outside 0..271"),
        ([[1]], {"temperature": 0.0}, "temperature"),
        ([[1]], {"temperature": float("nan")}, "temperature"),
        ([[1]], {"new_tokens_max": 0}, "new_tokens_max"),
        ([[1]], {"seed": -1}, "seed"),
        ([[1]], {"context_max": 257}, "1..256"),
    ],
)
def test_an_impossible_request_says_why(
    engine: TorchEngine, prompts: list[list[int]], changes: dict[str, float], message: str
) -> None:
    request = {"seed": 1, "temperature": 1.0, "new_tokens_max": 4, "context_max": 32} | changes
    with pytest.raises(ValueError, match=message):
        engine.open(prompts, **request)  # type: ignore[arg-type]
