"""What a run begins with: its checkpoint and held-out sets are the same wherever they are put together."""

import json
from pathlib import Path

import pytest

from schemas.identity import digest_of, list_digest
from services.cli import genesis
from services.cli.code_version import code_version
from services.cli.genesis import CHECKPOINT_FILES, checkpoint_archive
from services.cli.heldout import far_set, held_out, near_set, near_words
from services.cli.outcome import CliError
from services.kernel.harbor.task import read_task
from services.kernel.models.checkpoint import FILES
from services.kernel.skills.lexicon import TRAIN
from tests.support.tiny_model import tiny_checkpoint


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_checkpoint_is_named_as_the_model_code_names_it(here: Path) -> None:
    tiny_checkpoint().write_dir(here / "models" / "tiny")
    (here / "models" / "tiny" / "notes.txt").write_text("not part of it")
    assert digest_of(checkpoint_archive("tiny")) == tiny_checkpoint().digest
    assert tuple(sorted(CHECKPOINT_FILES)) == tuple(sorted(FILES))


def test_a_checkpoint_that_is_not_what_was_built_is_refused(here: Path) -> None:
    folder = here / "models" / "tiny"
    tiny_checkpoint().write_dir(folder)
    built = {"digest": "0" * 64, "torch": "2", "cpu_capability": "AVX2", "threads": 1, "demonstrations": "0" * 64}
    (folder / "built.json").write_text(json.dumps(built))
    with pytest.raises(CliError, match="says 0000"):
        checkpoint_archive("tiny")


def test_an_unknown_model_is_named_with_what_to_do(here: Path) -> None:
    with pytest.raises(CliError, match=r"no model 'huge': not shipped, and ./models/huge is no checkpoint"):
        checkpoint_archive("huge")
    (here / "models" / "half").mkdir(parents=True)
    (here / "models" / "half" / "config.json").write_text("{}")
    with pytest.raises(CliError, match=r"lacks 'model\.safetensors'"):
        checkpoint_archive("half")


def test_held_out_sets_are_whole_valid_and_always_the_same() -> None:
    one, other = held_out(), held_out()
    assert one == other
    near, far = one.sets
    assert (near.name, len(near.envs), far.name) == ("near", 128, "far")
    assert len(far.envs) >= 64
    assert near.digest == list_digest(near.envs)
    assert {digest_of(archive) for archive in one.archives} == {*near.envs, *far.envs}
    for tasks in (near_set(), far_set()):
        for slug, files in tasks.items():
            assert read_task(files).problems == (), slug


def test_the_words_of_near_are_none_of_those_that_are_trained_on() -> None:
    assert len(near_words()) > 30
    assert near_words().isdisjoint(TRAIN)


def test_the_code_version_follows_from_the_source() -> None:
    version = code_version()
    assert version == code_version()
    release, _, digest = version.partition("+")
    assert release.count(".") == 2
    assert len(digest) == 16
    assert Path(genesis.__file__).is_file()
