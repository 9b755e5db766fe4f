"""`endpoints.toml`: where models are asked and where their keys lie. Deployment, so it is never in a log.

    [local]
    url = "http://127.0.0.1:8000/v1"
    key_env = "LOCAL_KEY"     # or key_file, from this file's folder; without either no key is sent
    stream = true
    silence_s = 300.0
    tries_max = 6

It is read for each session anew: a changed file needs no restart.
"""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec

from schemas.science import Count, Positive, Section
from services.kernel.models.chat.endpoint import Endpoint, read_key
from services.kernel.models.chat.errors import EndpointError

FILE_NAME = "endpoints.toml"


class EndpointsFileError(EndpointError):
    """The file is missing, no TOML, or lacks what is asked for; says what to write."""


class EndpointTable(Section, frozen=True, kw_only=True):
    url: Annotated[str, msgspec.Meta(pattern="^https?://")]
    key_env: str | None = None
    key_file: str | None = None
    stream: bool = True
    silence_s: Positive = 300.0
    tries_max: Count = 6


def read_endpoint(file: Path | None, name: str) -> Endpoint:
    """The endpoint of that name, with its key.

    Raises:
        EndpointsFileError: there is no such file or table, or it cannot be used.
        KeyMissingError: its key is not where the file says.
    """
    if file is None:
        raise EndpointsFileError(f"endpoint {name!r}: this service was started without --endpoints FILE")
    tables = _read(file)
    if name not in tables:
        known = ", ".join(sorted(tables)) or "none"
        raise EndpointsFileError(f"{file} has no table [{name}] with a url; endpoints there: {known}")
    table = tables[name]
    return Endpoint(
        name,
        table.url,
        key=read_key(name, env=table.key_env, file=file.parent / table.key_file if table.key_file else None),
        stream=table.stream,
        silence_s=table.silence_s,
        tries_max=table.tries_max,
    )


def key_variables(file: Path) -> frozenset[str]:
    """Environment variables that hold keys; none where the file is not there or cannot be used."""
    try:
        return frozenset(table.key_env for table in _read(file).values() if table.key_env)
    except EndpointsFileError:
        return frozenset()


def _read(file: Path) -> dict[str, EndpointTable]:
    try:
        return msgspec.convert(tomllib.loads(file.read_text()), dict[str, EndpointTable])
    except OSError as error:
        raise EndpointsFileError(
            f"{file} cannot be read ({error.strerror}): write a table [NAME] with a url"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise EndpointsFileError(f"{file}: {error}") from error
