"""A checkpoint: four files in HF layout, named by the digest of their archive. Reading one never runs code."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from services.kernel.archive import ArchiveError, FileEntry, digest, pack, read_tree, unpack, write_tree
from services.kernel.models.config import LlamaConfig, ModelError, read_config
from services.kernel.models.engine import TorchEngine
from services.kernel.models.llama import Llama, shapes
from services.kernel.models.template import Template

FILES = ("config.json", "model.safetensors", "template.json", "tokenizer.json")
BYTES_MAX = 2 * 2**30


@dataclass(frozen=True)
class Checkpoint:
    """The bytes of the files. Equal bytes, equal digest."""

    files: Mapping[str, bytes]

    @classmethod
    def from_archive(cls, raw: bytes) -> "Checkpoint":
        """Raises ModelError for anything but a canonical archive of exactly the four files."""
        try:
            return cls._of(unpack(raw, files_max=len(FILES), bytes_max=BYTES_MAX))
        except ArchiveError as error:
            raise ModelError(f"checkpoint archive: {error}") from error

    @classmethod
    def from_dir(cls, root: Path) -> "Checkpoint":
        """Reads the four files of a folder; other files in it are not part of the checkpoint. Raises ModelError."""
        missing = [name for name in FILES if not (root / name).is_file()]
        if missing:
            raise ModelError(f"{root} is no checkpoint: {', '.join(missing)} missing")
        try:
            found = read_tree(root, files_max=64, bytes_max=BYTES_MAX)
        except ArchiveError as error:
            raise ModelError(f"checkpoint {root}: {error}") from error
        return cls._of({name: found[name] for name in FILES})

    @classmethod
    def of(cls, like: "Checkpoint", weights: Mapping[str, Tensor]) -> "Checkpoint":
        """The same model and tokenizer with other weights."""
        return cls(dict(like.files) | {"model.safetensors": write_tensors(weights)})

    @classmethod
    def _of(cls, entries: Mapping[str, FileEntry]) -> "Checkpoint":
        if sorted(entries) != list(FILES) or any(entry.executable for entry in entries.values()):
            raise ModelError(f"a checkpoint is {', '.join(FILES)}, none executable; found {', '.join(sorted(entries))}")
        return cls({name: entry.content for name, entry in entries.items()})

    @cached_property
    def archive(self) -> bytes:
        return pack({name: FileEntry(content) for name, content in self.files.items()})

    @cached_property
    def digest(self) -> str:
        return digest(self.archive)

    def write_dir(self, root: Path) -> None:
        write_tree({name: FileEntry(content) for name, content in self.files.items()}, root)

    @cached_property
    def config(self) -> LlamaConfig:
        return read_config(self.files["config.json"])

    @cached_property
    def template(self) -> Template:
        template = Template.read(self.files)
        if template.tokenizer.size > self.config.vocab_size:
            raise ModelError(f"tokenizer.json has {template.tokenizer.size} ids, the model {self.config.vocab_size}")
        return template

    def weights(self) -> dict[str, Tensor]:
        """float32 tensors of the layout, checked by name, shape and finiteness. Raises ModelError."""
        found = read_tensors(self.files["model.safetensors"])
        wanted = shapes(self.config)
        if found.keys() != wanted.keys():
            odd = sorted(found.keys() ^ wanted.keys())[:3]
            raise ModelError(f"model.safetensors: missing or unexpected tensors, among them {', '.join(odd)}")
        for name, tensor in found.items():
            if tuple(tensor.shape) != wanted[name]:
                raise ModelError(f"model.safetensors: {name} is {tuple(tensor.shape)}, the config says {wanted[name]}")
        return found

    def engine(self) -> TorchEngine:
        model = Llama(self.config, self.weights())
        return TorchEngine(model, checkpoint=self.digest, stop_ids=self.template.stop_ids)


def write_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Deterministic safetensors bytes of float32 tensors."""
    plain = {name: tensor.detach().to(torch.float32).contiguous() for name, tensor in sorted(tensors.items())}
    return safetensors.torch.save(plain, metadata={"format": "pt"})


def read_tensors(raw: bytes) -> dict[str, Tensor]:
    """Raises ModelError for bytes that are no safetensors, or values that are no finite floats."""
    try:
        found = safetensors.torch.load(raw)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ModelError(f"safetensors: {error}") from error
    for name, tensor in found.items():
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise ModelError(f"safetensors: {name} is {tensor.dtype}, not a float of 16 or 32 bits")
        if not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"safetensors: {name} holds a value that is not finite")
    # Names come in random order, memory as the file had it; sums depend on both, so both are made regular.
    return {name: found[name].to(torch.float32, copy=True) for name in sorted(found)}
