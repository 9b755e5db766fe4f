"""The grams of the decontamination gate: they find held-out text, and let honest tasks with the same wording pass."""

import json
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from services.cli.heldout import far_set, held_out, near_set
from services.kernel.heldout.collect import collect_grams
from services.kernel.heldout.grams import (
    COMMON_MIN,
    GRAM_WORDS,
    GramsError,
    HeldOutText,
    build_grams,
    open_grams,
    read_grams,
    shared_grams,
    words,
)
from services.kernel.skills.catalogue import SKILLS
from services.kernel.skills.compose import compose
from services.kernel.skills.lexicon import Names

LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def found(instruction: str, *sets: HeldOutText) -> list[str]:
    return shared_grams(instruction, read_grams(build_grams(sets)))


def test_words_are_lower_case_letters_and_digits() -> None:
    said = words("Sort `Plum.TXT` into A-9,\nthen ﬁle_x!")
    assert " ".join(said) == "sort plum txt into a 9 then file x"


def test_a_shared_13_gram_is_found_whatever_stands_around_it() -> None:
    held = HeldOutText((LONG,))
    assert len(LONG.split()) == GRAM_WORDS + 1
    assert found("Please: ONE, two three four five six seven eight nine ten eleven twelve thirteen.", held)
    assert len(found(f"before {LONG} after", held)) == 2
    assert found(LONG.replace("seven", "7"), held) == []


def test_a_short_instruction_counts_whole() -> None:
    held = HeldOutText(("Delete plum.txt now",))
    assert found("First, delete plum txt now, please.", held) == ["delete plum txt now"]
    assert found("Delete plum.txt later", held) == []


def test_wording_that_many_tasks_share_is_no_contamination() -> None:
    shared = "in this task you will find some files below the folder app and"
    tasks = tuple(f"{shared} must number {each} them" for each in range(COMMON_MIN))
    assert found(f"{shared} may delete them", HeldOutText(tasks)) == []
    assert found(f"{shared} may delete them", HeldOutText(tasks[: COMMON_MIN - 1])) != []


def test_template_text_without_an_own_word_is_removed() -> None:
    text = f"{LONG} walrus"
    assert found(LONG, HeldOutText((text,), own_words=frozenset({"walrus"}))) == []
    assert len(found(text, HeldOutText((text,), own_words=frozenset({"walrus"})))) == 1


def test_every_held_out_instruction_is_found_by_its_own_grams() -> None:
    grams = read_grams(held_out().grams)
    for tasks in (near_set(), far_set()):
        for slug, task in tasks.items():
            assert shared_grams(task["instruction.md"].content.decode(), grams), slug


def test_honest_tasks_of_the_same_templates_pass() -> None:
    grams = read_grams(held_out().grams)
    for seed in range(500):
        rng = Random(seed)
        skills = rng.sample(list(SKILLS), rng.randint(1, 4))
        instruction = compose(rng, skills, Names(rng), distractors=1).instruction
        assert shared_grams(instruction, grams) == [], instruction


def test_equal_sets_give_equal_bytes_and_garbage_is_refused() -> None:
    held = HeldOutText((LONG, "short one"))
    artifact = build_grams([held])
    assert artifact == build_grams([held])
    cut = "counts do not fit its size"
    for garbage, reason in (
        (b"", "not a set of grams"),
        (b"{}", "not a set of grams"),
        (b"\xff\n", "not a set of grams"),
        (artifact.replace(b'"version":2', b'"version":3'), "version 3"),
        (artifact[:-1], cut),
        (artifact + bytes(8), cut),
        (artifact.replace(b" \n", b"\n", 1), "filled to a multiple of 8"),
        (artifact[:-16] + artifact[-8:] + artifact[-16:-8], "not ascending"),
        (artifact[:-16] + 2 * artifact[-8:], "not ascending"),
    ):
        with pytest.raises(GramsError, match=reason):
            read_grams(garbage)


def test_the_file_is_as_its_description_says() -> None:
    said = ["one two", "delete plum txt now"]
    artifact = build_grams([HeldOutText(("One, two!", "Delete plum.txt now"))])
    header, _, rest = artifact.partition(b"\n")
    assert json.loads(header) == {"version": 2, "words": 13, "counts": {"2": 1, "4": 1}}
    assert len(artifact) % 8 == 0
    assert rest == b"".join(sha256(gram.encode()).digest()[:8][::-1] for gram in said)


def test_a_set_of_version_1_is_still_read() -> None:
    hex_ = sorted(sha256(gram.encode()).hexdigest()[:16] for gram in ("delete plum txt now", "delete plum txt later"))
    grams = read_grams(json.dumps({"version": 1, "words": 13, "grams": {"4": hex_}}).encode())
    assert shared_grams("Delete plum.txt later, or delete plum.txt now.", grams) == [
        "delete plum txt later",
        "delete plum txt now",
    ]
    assert shared_grams("Delete plum.txt soon.", grams) == []


def test_invisible_and_compatible_letters_hide_nothing() -> None:
    held = HeldOutText((LONG,))
    assert len(found(LONG.replace("five", "fi\u200bve").replace("two", "\uff54wo"), held)) == 2


def test_a_very_short_instruction_forbids_only_itself() -> None:
    held = HeldOutText(("Say hi",))
    assert found("First, say hi to all.", held) == []
    assert found("Say: hi!", held) == ["say hi"]


def test_a_task_in_three_versions_of_a_large_set_stays_protected() -> None:
    others = tuple(f"number {number} " + " ".join(f"w{number}x{place}" for place in range(12)) for number in range(400))
    assert len(found(LONG, HeldOutText((LONG, LONG, LONG, *others)))) == 2
    assert found(LONG, HeldOutText((LONG, LONG, LONG, *others[:100]))) == []


def test_sets_of_every_kind_are_collected_and_a_set_handed_out_as_grams_protects_as_well(tmp_path: Path) -> None:
    said = [f"{word} {LONG}" for word in ("alpha", "beta", "gamma", "delta", "epsilon")]
    for name, text in (("a/instruction.md", said[0]), ("deep/er/b/instruction.md", said[1]), ("a/notes.md", "no")):
        (tmp_path / "tasks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tasks" / name).write_text(text)
    (tmp_path / "lines.jsonl").write_text(json.dumps(said[2]) + "\n\n" + json.dumps({"instruction": said[3], "id": 1}))
    (tmp_path / "one.txt").write_text(said[4])
    kinds = [tmp_path / name for name in ("tasks", "lines.jsonl", "one.txt")]
    whole = collect_grams(kinds)
    for text in said:
        assert shared_grams(" ".join(text.split()[:13]), read_grams(whole))
    assert shared_grams("no", read_grams(whole)) == []
    (tmp_path / "handed.grams").write_bytes(collect_grams(kinds[:1]))
    assert collect_grams([tmp_path / "handed.grams", *kinds[1:]]) == whole
    mapped, read = open_grams(tmp_path / "handed.grams"), read_grams(collect_grams(kinds[:1]))
    assert [list(mapped[length].ascending) for length in mapped] == [list(read[length].ascending) for length in read]


def test_what_cannot_be_collected_says_where(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.jsonl").write_text('"fine"\n{"text": "x"}\n')
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    (tmp_path / "other.grams").write_bytes(build_grams([HeldOutText((LONG,))], gram_words=8))
    for name, reason in (
        ("empty", "holds no instruction"),
        ("bad.jsonl", r"bad\.jsonl:2: neither a string nor"),
        ("latin.txt", "not UTF-8"),
        ("other.grams", "8-grams cannot be joined to one of 13-grams"),
    ):
        with pytest.raises(GramsError, match=reason):
            collect_grams([tmp_path / name])
    with pytest.raises(FileNotFoundError):
        collect_grams([tmp_path / "missing"])


def test_grams_of_another_length_are_compared_at_that_length() -> None:
    grams = read_grams(build_grams([HeldOutText((LONG,))], gram_words=8))
    assert list(grams) == [8]
    assert shared_grams("one two three four five six seven", grams) == []
    assert shared_grams("one two three four five six seven eight", grams) == ["one two three four five six seven eight"]
