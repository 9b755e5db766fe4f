"""Where a model is asked, and with which key. The key is never shown: not by repr, not in an error, not in a log."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.kernel.models.chat.errors import KeyMissingError

KEY_BYTES_MAX = 16 * 1024


class Secret:
    """A text that only `reveal` gives."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def hide_in(self, text: str) -> str:
        """`text` with the secret blotted out: a server may quote a key that it does not take."""
        return text.replace(self._text, "[key]") if self._text else text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret is not stored")


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible server."""

    name: str
    url: str
    """Up to and with the version, e.g. `http://127.0.0.1:8000/v1`."""
    key: Secret | None = None
    stream: bool = True
    silence_s: float = 300.0
    """Catches hangs: no byte for so long ends a try."""
    tries_max: int = 6
    pause_s: float = 0.5
    """Before the second try; doubled for each further one, at most a minute, or what the server asks for."""
    answer_bytes_max: int = 8 * 2**20
    headers: Mapping[str, str] = field(default_factory=dict)


def read_key(
    name: str, *, env: str | None, file: Path | None, environ: Mapping[str, str] | None = None
) -> Secret | None:
    """The key from an environment variable or a file; None where neither is named.

    Raises:
        KeyMissingError: the variable is not set, or the file cannot be read or is empty.
    """
    if env:
        text = (os.environ if environ is None else environ).get(env, "").strip()
        if not text:
            raise KeyMissingError(
                f"endpoint {name!r} takes its key from the environment variable {env}, which is not set"
            )
        return Secret(text)
    if file is None:
        return None
    try:
        with file.open("rb") as opened:
            text = opened.read(KEY_BYTES_MAX).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise KeyMissingError(f"endpoint {name!r} takes its key from {file}, which cannot be read") from error
    if not text:
        raise KeyMissingError(f"endpoint {name!r} takes its key from {file}, which is empty")
    return Secret(text)
