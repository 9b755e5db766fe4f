"""How a run begins: what it rests on goes into the artifact store, then RunStarted and a roster, as one batch."""

from importlib import import_module
from pathlib import Path

from schemas.identity import digest_of
from schemas.messages import MESSAGES, RosterChanged, RunStarted
from schemas.outcomes import Role
from schemas.parts import RosterEntry
from schemas.topology import DECIDERS
from services.cli.code_version import code_version
from services.cli.connect import entry
from services.cli.heldout import held_out
from services.cli.outcome import CliError
from services.cli.replaying import engine_here
from services.kernel import models
from services.kernel.archive import ArchiveError, pack, read_tree
from services.kernel.artifacts import ArtifactStore
from services.kernel.log import EventLog
from services.kernel.models.shipped import BUILT, read_built
from services.kernel.runfile import RunFile
from services.kernel.sandbox.base import Base

FIRST_PROPOSER = RosterEntry(name="procedural", model="procedural")
CHECKPOINT_FILES = ("config.json", "model.safetensors", "template.json", "tokenizer.json")
"""As in services.kernel.models.checkpoint, which needs torch."""
CHECKPOINT_FILES_MAX = 64
CHECKPOINT_BYTES_MAX = 2 * 2**30
SHIPPED_MODELS = Path(models.__file__).parent
LOCAL_MODELS = Path("models")


async def begin(log: EventLog, artifacts: ArtifactStore, file: RunFile, base: Base) -> None:
    """Durable artifacts first, then the records that name them. Raises LogConflict where another run began there."""
    checkpoint = checkpoint_archive(file.science.model)
    sets = held_out(file.science.gates.ngram_words)
    digests = artifacts.put_many([checkpoint, sets.grams, *sets.archives])
    artifacts.put_file(base.manifest)
    started = RunStarted(
        seed=file.seed,
        science=file.science,
        checkpoint=digests[0],
        code_version=code_version(),
        policies={role.value: import_module(f"services.{role.value}.policy").VERSION for role in DECIDERS},
        messages={message.name: message.version for message in MESSAGES},
        base_digest=base.digest,
        base_kind=base.kind,
        heldout=sets.sets,
        heldout_grams=digests[1],
    )
    roster = RosterChanged(ordinal=0, role=Role.proposer, entries=(FIRST_PROPOSER,))
    name = file.deployment.name
    await log.append([entry(name, started, engine=engine_here()), entry(name, roster)])


def model_folder(name: str) -> Path:
    """The shipped checkpoint of that name, or the one built or pulled into ./models."""
    for folder in (SHIPPED_MODELS / name, LOCAL_MODELS / name):
        if (folder / "config.json").is_file():
            return folder
    raise CliError(f"no model {name!r}: not shipped, and ./{LOCAL_MODELS / name} is no checkpoint; see `models list`")


def checkpoint_archive(name: str) -> bytes:
    """The canonical archive whose digest names the checkpoint."""
    folder = model_folder(name)
    try:
        found = read_tree(folder, files_max=CHECKPOINT_FILES_MAX, bytes_max=CHECKPOINT_BYTES_MAX)
        archive = pack({file: found[file] for file in CHECKPOINT_FILES})
    except KeyError as error:
        raise CliError(f"{folder} is no checkpoint: it lacks {error}") from error
    except ArchiveError as error:
        raise CliError(f"{folder} is no checkpoint: {error}") from error
    if (folder / BUILT).is_file() and (built := read_built(folder)).digest != digest_of(archive):
        raise CliError(f"{folder} has digest {digest_of(archive)}, its {BUILT} says {built.digest}: build it again")
    return archive
