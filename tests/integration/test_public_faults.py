"""Thirty-six faults that harnesses, tasks and trainers are known to have had, and that envwheel must not have.

Each row is a test named `test_row_NN_...` in one of the modules below, or a test elsewhere that is named here.
"""

import importlib
import re
from types import ModuleType

import pytest

from tests.integration import (
    test_public_faults_rewards,
    test_public_faults_sandbox,
    test_public_faults_tasks,
)

MODULES: tuple[ModuleType, ...] = (test_public_faults_rewards, test_public_faults_sandbox, test_public_faults_tasks)
ROWS = {
    1: "a reward file that the agent wrote is read after grading",
    2: "the agent's processes rewrite the reward after the verifier",
    3: "planted test files take part in grading",
    4: "the verifier uses an interpreter that the agent replaced",
    5: "a marker that the graded program prints is taken for the score",
    6: "reward.json and reward.txt have another precedence with each reader",
    7: "rewards that are no finite number in [0, 1] are taken",
    8: "tools installed while grading fail, and that is a zero",
    9: "a pinned package has left the index",
    10: "the verifier needs servers that are gone or silent",
    11: "tests ask for what the instruction does not say",
    12: "the solution lies in the image",
    13: "a build takes as many workers as the host has cores",
    14: "a test compares times on a shared machine",
    15: "a certificate or date runs out",
    16: "untouched run and solution share a container",
    17: "services started by the solution are gone when graded",
    18: "an output is not declared as an artifact",
    19: "containers beside the main one are gone when graded",
    20: "artifacts are too large or too many to be fetched",
    21: "special files abort the download of logs",
    22: "a link of the agent is resolved on the host",
    23: "a link in the task is resolved on the host",
    24: "a command that timed out goes on",
    25: "containers are left by a runner that failed or was killed",
    26: "containers are left by a cancelled start",
    27: "commands are answered by a container that is dead",
    28: "output without bound, or lost where a limit cuts it",
    29: "bytes that are no text end an episode",
    30: "a command waits for input for ever",
    31: "exit codes are read from the text",
    32: "a long command is refused or cut",
    33: "transfers change line ends, bytes, names or modes",
    34: "an image cannot stay up",
    35: "trouble of the machine is trained as a zero",
    36: "text is tokenised again between turns; a full context is taken for an error",
}
ELSEWHERE = {
    15: ("integration.test_corpus:test_a_fault_is_refused_by_the_gate_that_must_find_it",),
    25: (
        "contract.test_sandbox_bubblewrap:"
        "test_killing_the_owner_leaves_no_process_and_the_next_start_removes_its_files",
    ),
    26: ("contract.test_sandbox_bubblewrap:test_a_cancelled_start_leaves_nothing",),
    27: ("integration.test_agent_harness:test_a_sandbox_that_dies_ends_its_own_conversation_alone",),
    35: (
        "integration.test_solver_group:test_trouble_of_engine_sandbox_or_store_gives_no_fact_and_leaves_nothing",
        "integration.test_solver_group:test_a_sandbox_that_dies_under_one_attempt_is_no_zero_and_no_fact_of_any",
        "unit.test_policy_trainer:test_masked_members_are_left_out_of_a_group_that_is_used",
        "unit.test_policy_trainer:test_infra_failures_mark_the_round_as_degraded",
    ),
    36: (
        "integration.test_agent_harness:test_the_transcript_of_a_model_holds_what_was_sampled_and_what_was_heard",
        "integration.test_agent_harness:test_a_context_that_is_full_ends_the_conversation",
        "unit.test_models_template:test_special_tokens_in_text_are_plain_bytes",
    ),
}
"""Tests of a row that stand in other modules of `tests`."""
REASONS = {
    14: "a verdict on a comparison of times hangs itself on how busy the machine is: the gate `not flaky` repeats "
    "under load and may find it. An agent is limited by processor seconds, which no neighbour takes.",
}
"""Rows without a test, and why."""
MORE = {
    "one attempt changes what another sees": (
        "contract.test_sandbox:test_sandboxes_at_the_same_time_do_not_see_each_other"
    ),
    "variables of one command are gone in the next, unsaid": (
        "integration.test_agent_harness:test_hostile_commands_and_output_are_only_text"
    ),
    "an upload is put into itself": (
        "contract.test_sandbox_files:test_put_into_the_root_merges_and_a_file_replaces_a_file"
    ),
    "test files are edited while grading": (
        "integration.test_harbor_grading:test_test_files_are_the_same_before_and_after_grading"
    ),
    "siblings run on after one has failed": (
        "integration.test_solver_group:test_trouble_of_engine_sandbox_or_store_gives_no_fact_and_leaves_nothing"
    ),
    "tokens of a cut-off answer are not counted": (
        "integration.test_solver_group:test_what_was_cut_off_is_graded_and_says_so"
    ),
}
"""Faults beside the thirty-six. Two of that list cannot be here: no sandbox is ended for being idle, and no agent is
installed into one.
"""
PLACES = [*(place for places in ELSEWHERE.values() for place in places), *MORE.values()]


def rows_of(module: ModuleType) -> set[int]:
    return {int(match[1]) for name in vars(module) if (match := re.match(r"test_row_(\d\d)_", name))}


def test_every_row_has_a_test_or_a_reason() -> None:
    tested = set[int]().union(*map(rows_of, MODULES)) | ELSEWHERE.keys()
    assert sorted(tested | REASONS.keys()) == list(ROWS) == list(range(1, 37))
    assert not tested & REASONS.keys()


@pytest.mark.parametrize("place", PLACES)
def test_a_test_that_stands_elsewhere_is_there(place: str) -> None:
    module, _, name = place.partition(":")
    assert callable(getattr(importlib.import_module(f"tests.{module}"), name))
    assert name.startswith("test_")
