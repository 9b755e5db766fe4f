"""Checkpoints: deterministic bytes, and a clear refusal of everything else."""

import json
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch

from services.kernel.archive import FileEntry, pack
from services.kernel.models.checkpoint import Checkpoint, write_tensors
from services.kernel.models.config import NANO, ModelError, read_config, write_config
from services.kernel.models.llama import shapes
from tests.support.tiny_model import TINY, tiny_checkpoint


def with_file(name: str, content: bytes) -> Checkpoint:
    return Checkpoint(dict(tiny_checkpoint().files) | {name: content})


def with_config(**changes: object) -> bytes:
    return json.dumps(json.loads(write_config(TINY)) | changes).encode()


def test_archive_and_folder_give_the_same_checkpoint_back(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint()
    checkpoint.write_dir(tmp_path / "here")
    (tmp_path / "here" / "notes.json").write_text("{}")
    assert Checkpoint.from_dir(tmp_path / "here").digest == checkpoint.digest
    assert Checkpoint.from_archive(checkpoint.archive).files == checkpoint.files
    assert len(checkpoint.digest) == 64


def test_weights_written_again_have_the_same_bytes_in_any_order() -> None:
    checkpoint = tiny_checkpoint()
    weights = checkpoint.weights()
    backwards = dict(reversed(weights.items()))
    assert Checkpoint.of(checkpoint, backwards).digest == checkpoint.digest
    weights["model.norm.weight"] = weights["model.norm.weight"] * 2
    assert Checkpoint.of(checkpoint, weights).digest != checkpoint.digest


def test_nano_has_about_a_million_parameters() -> None:
    assert sum(torch.Size(shape).numel() for shape in shapes(NANO).values()) == 984_192


def test_config_reads_transformers_4_and_5() -> None:
    old = read_config(with_config(rope_theta=500.0))
    new = json.loads(write_config(TINY)) | {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
    del new["rope_theta"]
    assert read_config(json.dumps(new).encode()) == old
    assert read_config(write_config(TINY)) == TINY


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "only 'llama'"),
        ({"attention_bias": True}, "biases"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"rope_scaling": {"factor": 2}}, "rope_scaling"),
        ({"hidden_act": "gelu"}, "silu"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_attention_heads": 3}, "multiple"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"head_dim": 7}, "even"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"eos_token_id": []}, "eos_token_id"),
        ({"hidden_size": "32"}, "hidden_size"),
    ],
)
def test_a_config_that_we_cannot_compute_says_why(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_config(with_config(**changes))


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_config_that_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        read_config(raw)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, ("/tmp/envwheel-pickle-was-loaded",))


@pytest.mark.parametrize(
    "raw",
    [
        pickle.dumps(Trap()),
        b"",
        b"\xff" * 64,
        (2**60).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b'{"a": 1}}' + b"x" * 10,
    ],
    ids=["pickle", "empty", "noise", "endless header", "no tensors", "bad header"],
)
def test_hostile_weights_are_refused_and_never_run(raw: bytes) -> None:
    with pytest.raises(ModelError, match="safetensors"):
        with_file("model.safetensors", raw).weights()
    assert not Path("/tmp/envwheel-pickle-was-loaded").exists()


def test_weights_that_do_not_fit_the_config_are_named() -> None:
    weights = tiny_checkpoint().weights()
    norm = weights.pop("model.norm.weight")
    with pytest.raises(ModelError, match=r"model\.norm\.weight"):
        with_file("model.safetensors", write_tensors(weights)).weights()
    with pytest.raises(ModelError, match=r"model\.norm\.weight is \(31,\)"):
        with_file("model.safetensors", write_tensors(weights | {"model.norm.weight": norm[1:]})).weights()
    bad = norm.clone()
    bad[3] = float("nan")
    with pytest.raises(ModelError, match="not finite"):
        with_file("model.safetensors", write_tensors(weights | {"model.norm.weight": bad})).weights()
    integers = safetensors.torch.save(weights | {"model.norm.weight": norm.to(torch.int64)})
    with pytest.raises(ModelError, match="int64"):
        with_file("model.safetensors", integers).weights()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "template.json", "tokenizer.json"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    tiny_checkpoint().write_dir(tmp_path / "c")
    (tmp_path / "c" / name).unlink()
    with pytest.raises(ModelError, match=name):
        Checkpoint.from_dir(tmp_path / "c")


def test_a_link_in_the_folder_is_refused(tmp_path: Path) -> None:
    tiny_checkpoint().write_dir(tmp_path / "c")
    (tmp_path / "c" / "tokenizer.json").unlink()
    (tmp_path / "c" / "tokenizer.json").symlink_to("/etc/passwd")
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Checkpoint.from_dir(tmp_path / "c")


def test_an_archive_with_more_less_or_other_bytes_is_refused() -> None:
    checkpoint = tiny_checkpoint()
    entries = {name: FileEntry(content) for name, content in checkpoint.files.items()}
    for wrong in (
        checkpoint.archive[:-1],
        checkpoint.archive + b"\0",
        b"",
        pack(entries | {"modeling.py": FileEntry(b"")}),
        pack({name: entry for name, entry in entries.items() if name != "config.json"}),
        pack(entries | {"config.json": FileEntry(entries["config.json"].content, executable=True)}),
    ):
        with pytest.raises(ModelError, match="checkpoint"):
            Checkpoint.from_archive(wrong)


def test_a_tokenizer_larger_than_the_model_is_refused() -> None:
    smaller = with_config(vocab_size=200)
    with pytest.raises(ModelError, match="272 ids, the model 200"):
        _ = with_file("config.json", smaller).template
