"""Conversations in real sandboxes: commands run, output comes back, and counted limits decide the end."""

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import msgspec
import pytest

from services.kernel.agent.conversation import EndReason, Episode, HarnessLimits, Observation
from services.kernel.agent.harness import run_group
from services.kernel.agent.model_brain import ModelBrain
from services.kernel.agent.scripted import ScriptedBrain
from services.kernel.agent.transcript import encode
from services.kernel.sandbox.protocol import Ended, Limits, Sandbox
from tests.support.harbor_tasks import greeting
from tests.support.lab import Lab, open_lab
from tests.support.tiny_model import tiny_checkpoint

LIMITS = HarnessLimits(turns_max=8, shown_bytes_max=400, exec=Limits(cpu_s=5.0, wall_s=50.0))


@pytest.fixture
async def lab(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    async with open_lab(tmp_path, tmp_path_factory.getbasetemp() / "base") as made:
        yield made


async def _sandboxes(lab: Lab, count: int) -> list[Sandbox]:
    task, image = await lab.task(greeting())
    return [await lab.start(task, image) for _ in range(count)]


async def _say(lab: Lab, *commands: str, limits: HarnessLimits = LIMITS) -> Episode:
    """One conversation that says these commands and submits."""

    def script(_: str) -> Generator[str, Observation, None]:
        for command in commands:  # noqa: UP028 a tuple has no `send` for the answers
            yield command

    (sandbox,) = await _sandboxes(lab, 1)
    try:
        return (await run_group(ScriptedBrain(script), ["Do it."], [sandbox], limits))[0]
    finally:
        await sandbox.close()


async def test_a_script_hears_what_its_commands_print_and_submits(lab: Lab) -> None:
    heard: list[Observation] = []

    def script(instruction: str) -> Generator[str, Observation, None]:
        heard.append((yield f"echo {instruction} > a; cat a notes.txt"))
        heard.append((yield "cat a; ls none; exit 3"))

    (sandbox,) = await _sandboxes(lab, 1)
    (episode,) = await run_group(ScriptedBrain(script), ["word"], [sandbox], LIMITS)
    await sandbox.close()
    missing = "ls: cannot access 'none': No such file or directory"
    assert heard == [Observation("word\nkilo\nlima", 0), Observation(f"word\n{missing}\n[exit 3]", 3)]
    assert (episode.ended, episode.volatile, len(episode.turns)) == (EndReason.submitted, False, 2)
    assert [turn.shown for turn in episode.turns] == [observation.text for observation in heard]
    assert episode.measured[0].output == b"word\nkilo\nlima\n"
    assert episode.cpu_s > 0


async def test_all_conversations_end_once_the_host_says_that_it_is_over(lab: Lab) -> None:
    def script(instruction: str) -> Generator[str, Observation, None]:
        while True:
            yield f"sleep {instruction}"

    asked = iter([False, True])
    sandboxes = await _sandboxes(lab, 2)
    limits = msgspec.structs.replace(LIMITS, exec=Limits(cpu_s=5.0, wall_s=1.0))
    episodes = await run_group(ScriptedBrain(script), ["0", "60"], sandboxes, limits, over=lambda: next(asked))
    for sandbox in sandboxes:
        await sandbox.close()
    assert [(episode.ended, len(episode.turns)) for episode in episodes] == [
        (EndReason.submitted, 2),
        (EndReason.hung, 1),
    ]


async def test_conversations_of_a_group_end_each_by_itself(lab: Lab) -> None:
    def script(instruction: str) -> Generator[str, Observation, None]:
        for turn in range(int(instruction)):
            yield f"echo {turn} >> log; cat log"

    sandboxes = await _sandboxes(lab, 3)
    episodes = await run_group(
        ScriptedBrain(script), ["0", "2", "9"], sandboxes, msgspec.structs.replace(LIMITS, turns_max=3)
    )
    for sandbox in sandboxes:
        await sandbox.close()
    assert [episode.ended for episode in episodes] == [EndReason.submitted, EndReason.submitted, EndReason.turns_max]
    assert [len(episode.turns) for episode in episodes] == [0, 2, 3]
    assert episodes[2].turns[2].shown == "0\n1\n2"


async def test_cpu_seconds_are_counted_over_all_commands_and_make_a_conversation_volatile(lab: Lab) -> None:
    limits = msgspec.structs.replace(LIMITS, exec=Limits(cpu_s=0.8, wall_s=50.0))
    burn = "python3 -c 'import time\nwhile time.process_time() < 0.5: pass'"
    episode = await _say(lab, burn, burn, "echo never", limits=limits)
    assert (episode.ended, episode.volatile, len(episode.turns)) == (EndReason.cpu_limit, True, 2)
    assert episode.turns[1].shown == "[stopped: cpu_limit]"
    assert episode.turns[1].ended is Ended.cpu_limit


async def test_waiting_for_ever_is_the_agents_doing_and_a_busy_wall_limit_is_not(lab: Lab) -> None:
    limits = msgspec.structs.replace(LIMITS, exec=Limits(cpu_s=50.0, wall_s=0.5))
    idle = await _say(lab, "sleep 1000", "echo never", limits=limits)
    assert (idle.ended, idle.volatile, len(idle.turns)) == (EndReason.hung, True, 1)
    busy = await _say(lab, "while :; do :; done", limits=limits)
    assert (busy.ended, busy.turns) == (EndReason.infra_failed, ())
    assert "too slow" in busy.failure


async def test_a_sandbox_that_dies_ends_its_own_conversation_alone(lab: Lab) -> None:
    def script(_: str) -> Generator[str, Observation, None]:
        yield "echo 1"

    sandboxes = await _sandboxes(lab, 2)
    await sandboxes[0].close()
    episodes = await run_group(ScriptedBrain(script), ["a", "b"], sandboxes, LIMITS)
    await sandboxes[1].close()
    assert [episode.ended for episode in episodes] == [EndReason.infra_failed, EndReason.submitted]
    assert episodes[0].failure != ""


HOSTILE = [
    ("printf '\\xff\\xfe\\x00\\x1b[2J\\x1b]0;t\\x07\\r\\n\\xf0\\x9f'", "\ufffd\ufffd\n\ufffd"),
    ("printf '\\xed\\xa0\\x80'", "\ufffd\ufffd\ufffd"),
    ("cat > f; cat f", ""),
    ("read x; echo got $?", "got 1"),
    ("python3 -i < /dev/null 2> /dev/null", ""),
    ("PS1=x; set -e; false; echo no", "[exit 1]"),
    ("trap 'exit 3' DEBUG; true", "[exit 3]"),
    ("cat <<EOF\n$((1+1))\nEOF\necho done", "2\ndone"),
    ("exec bash -c 'echo inner'", "inner"),
    ("kill -9 $$", "[exit 137]"),
    ("sleep 30 & echo left", "left"),
    ("cd /tmp; export A=1; pwd", "/tmp"),
    ("pwd; echo -$A-", "/app\n--"),
    ("", ""),
]


async def test_hostile_commands_and_output_are_only_text(lab: Lab) -> None:
    episode = await _say(
        lab, *(command for command, _ in HOSTILE), limits=msgspec.structs.replace(LIMITS, turns_max=len(HOSTILE) + 1)
    )
    assert [turn.shown for turn in episode.turns] == [shown for _, shown in HOSTILE]
    assert episode.ended is EndReason.submitted


async def test_floods_are_cut_and_counted(lab: Lab) -> None:
    bounds = Limits(cpu_s=5.0, wall_s=50.0, output_bytes_max=4096)
    episode = await _say(lab, "head -c 20000000 /dev/zero | tr '\\0' x; echo end", limits=_bounded(bounds))
    (measured,) = episode.measured
    assert (len(measured.output), measured.output_bytes) == (4096, 20_000_004)
    shown = episode.turns[0].shown
    assert shown.startswith("x" * 200 + "\n[")
    assert shown.endswith("xxxend")
    assert len(shown) < 450


def _bounded(bounds: Limits) -> HarnessLimits:
    return msgspec.structs.replace(LIMITS, exec=bounds)


async def test_commands_that_no_shell_takes_are_answered_not_run(lab: Lab) -> None:
    limits = msgspec.structs.replace(LIMITS, command_bytes_max=200_000)
    long = "echo " + "a" * 140_000 + " | wc -c"
    episode = await _say(lab, "echo a\0b\ud800", long, "x" * 200_001, limits=limits)
    assert [turn.command for turn in episode.turns[:2]] == ["echo a\ufffdb\ufffd", long]
    assert [turn.shown for turn in episode.turns] == [
        "a\ufffdb\ufffd",
        "140001",
        "the command has 200001 bytes, 200000 are allowed\n[exit 126]",
    ]


async def _sampled(lab: Lab, *, rows: int = 3, context_max: int = 256) -> list[Episode]:
    checkpoint = tiny_checkpoint()
    brain = ModelBrain(
        checkpoint.engine(), checkpoint.template, seed=3, temperature=1.0, new_tokens_max=100, context_max=context_max
    )
    sandboxes = await _sandboxes(lab, rows)
    limits = msgspec.structs.replace(LIMITS, turns_max=3, shown_bytes_max=64)
    episodes = await run_group(brain, ["Write hi."] * rows, sandboxes, limits)
    for sandbox in sandboxes:
        await sandbox.close()
    return episodes


async def test_a_model_speaks_through_the_harness_the_same_way_twice(lab: Lab) -> None:
    first, second = await _sampled(lab), await _sampled(lab)
    assert [encode(episode)[0] for episode in first] == [encode(episode)[0] for episode in second]


async def test_the_transcript_of_a_model_holds_what_was_sampled_and_what_was_heard(lab: Lab) -> None:
    template = tiny_checkpoint().template
    episodes = await _sampled(lab, rows=8)
    assert len({encode(episode)[0] for episode in episodes}) > 1
    assert any(episode.turns for episode in episodes)
    for episode in episodes:
        kinds = [segment.kind for segment in episode.segments]
        sampled = [segment for segment in episode.segments if segment.kind == "sampled"]
        assert kinds[:2] == ["prompt", "sampled"]
        assert list(episode.segments[0].token_ids) == template.prompt("Write hi.")
        commands = [template.answer(segment.token_ids).command for segment in sampled if not segment.truncated]
        assert [command for command in commands if command is not None] == [turn.command for turn in episode.turns]
        heard = [segment.token_ids for segment in episode.segments if segment.kind == "observed"]
        assert heard == [tuple(template.observation(turn.shown)) for turn in episode.turns]
        cut = [segment.truncated for segment in sampled]
        assert cut == [False] * (len(cut) - 1) + [episode.ended is EndReason.truncated_answer]


async def test_a_context_that_is_full_ends_the_conversation(lab: Lab) -> None:
    prompt = len(tiny_checkpoint().template.prompt("Write hi."))
    episodes = await _sampled(lab, context_max=prompt + 2)
    assert {episode.ended for episode in episodes} == {EndReason.context_overflow}
    no_room = await _sampled(lab, context_max=prompt)
    assert {episode.ended for episode in no_room} == {EndReason.context_overflow}
    assert [segment.kind for segment in no_room[0].segments] == ["prompt"]
