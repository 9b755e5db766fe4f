"""The terminal as a model sees it, and the tokenizer that never lets text pose as structure.

A conversation is `<bos> instruction <cmd>`, then by turns what the model samples (`command <end>`, or `<done>` to
submit) and what it hears (`<out> output <cmd>`). Special tokens in an instruction, an output or a command are
plain bytes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from services.kernel.models.config import ModelError

VERSION = "terminal-1"
REPLACEMENT = "\ufffd"
_NEEDED_BYTES = frozenset({*range(0x20, 0x7F), *b"\n\t", *REPLACEMENT.encode()})


class TemplateNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`template.json`: which special tokens of the vocabulary play which part."""

    version: str = VERSION
    bos: str = "<|bos|>"
    command: str = "<|cmd|>"
    end: str = "<|end|>"
    output: str = "<|out|>"
    done: str = "<|done|>"

    @property
    def specials(self) -> tuple[str, ...]:
        return (self.bos, self.command, self.end, self.output, self.done)


@dataclass(frozen=True)
class Answer:
    """What a model's tokens mean."""

    command: str | None
    """A command line; None: submit, or nothing because the answer was cut off."""
    truncated: bool


class Tokenizer:
    """Byte-level BPE from a `tokenizer.json`: every byte string has an encoding, and decoding gives it back.

    A vocabulary may lack tokens for bytes that are no printable ASCII (SmolLM2 lacks 21); what needs them reads U+FFFD.
    """

    def __init__(self, raw: bytes) -> None:
        from tokenizers import Tokenizer as FastTokenizer  # heavy to import, and not needed by every command

        try:
            self._fast = FastTokenizer.from_str(raw.decode())
        except Exception as error:
            # The library raises bare Exception for a bad file.
            raise ModelError(f"tokenizer.json: {error}") from error
        self._fast.encode_special_tokens = True
        self._fast.no_padding()
        self._fast.no_truncation()
        vocabulary: dict[str, int] = self._fast.get_vocab(with_added_tokens=True)
        self.special_ids = {token.content: i for i, token in self._fast.get_added_tokens_decoder().items()}
        self.size = max(vocabulary.values(), default=-1) + 1
        byte_of = {char: byte for byte, char in enumerate(_byte_chars())}
        self._bytes_of: dict[int, bytes] = {}
        for token, i in vocabulary.items():
            if token in self.special_ids:
                continue
            if not set(token) <= byte_of.keys():
                raise ModelError(f"tokenizer.json: token {token!r} is not byte-level")
            self._bytes_of[i] = bytes(byte_of[char] for char in token)
        self._id_of_byte = {spelled[0]: i for i, spelled in self._bytes_of.items() if len(spelled) == 1}
        self._missing = set(range(256)) - self._id_of_byte.keys()
        if needed := sorted(self._missing & _NEEDED_BYTES):
            raise ModelError(f"tokenizer.json: no token for the bytes {bytes(needed)!r}")

    def encode(self, text: str | bytes) -> list[int]:
        """Token ids; never a special one."""
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        text = raw.decode("utf-8", "surrogateescape")
        if self._missing:
            text = "".join(REPLACEMENT if self._missing & set(_bytes(char)) else char for char in text)
        ids: list[int] = []
        # Splitting with a group puts the escaped bytes that are not UTF-8 at the odd places.
        for i, part in enumerate(re.split("([\udc80-\udcff]+)", text)):
            if i % 2:
                ids += [self._id_of_byte[ord(char) - 0xDC00] for char in part]
            elif part:
                ids += self._fast.encode(part, add_special_tokens=False).ids
        return ids

    def decode(self, ids: tuple[int, ...] | list[int]) -> bytes:
        """The bytes of plain tokens; special and unknown ones give nothing."""
        return b"".join(self._bytes_of.get(i, b"") for i in ids)


@dataclass(frozen=True)
class Template:
    """Turns instructions and outputs into tokens, and sampled tokens into commands."""

    tokenizer: Tokenizer
    names: TemplateNames

    @classmethod
    def read(cls, files: Mapping[str, bytes]) -> "Template":
        """From `tokenizer.json` and `template.json`. Raises ModelError."""
        for name in ("tokenizer.json", "template.json"):
            if name not in files:
                raise ModelError(f"{name} is missing")
        try:
            names = msgspec.json.decode(files["template.json"], type=TemplateNames)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ModelError(f"template.json: {error}") from error
        if names.version != VERSION:
            raise ModelError(f"template.json: version {names.version!r} is unknown; this code knows {VERSION!r}")
        template = cls(Tokenizer(files["tokenizer.json"]), names)
        missing = [name for name in names.specials if name not in template.tokenizer.special_ids]
        if missing or len(set(names.specials)) != len(names.specials):
            raise ModelError(f"template.json: specials must be distinct and in tokenizer.json; missing: {missing}")
        return template

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Ids of bos, command, end, output, done."""
        return tuple(self.tokenizer.special_ids[name] for name in self.names.specials)

    @property
    def stop_ids(self) -> frozenset[int]:
        _, _, end, _, done = self.ids
        return frozenset((end, done))

    def prompt(self, instruction: str | bytes) -> list[int]:
        bos, command, _, _, _ = self.ids
        return [bos, *self.tokenizer.encode(instruction), command]

    def observation(self, output: str | bytes) -> list[int]:
        _, command, _, out, _ = self.ids
        return [out, *self.tokenizer.encode(output), command]

    def command(self, line: str | bytes) -> list[int]:
        """An answer as the model would sample it."""
        return [*self.tokenizer.encode(line), self.ids[2]]

    def submit(self) -> list[int]:
        return [self.ids[4]]

    def answer(self, token_ids: tuple[int, ...]) -> Answer:
        """Reads sampled tokens. Bytes that are no UTF-8, and NUL, which no shell can take, become U+FFFD."""
        _, _, end, _, done = self.ids
        last = token_ids[-1] if token_ids else None
        if last == done:
            return Answer(None, truncated=False)
        if last != end:
            return Answer(None, truncated=True)
        line = self.tokenizer.decode(token_ids).decode("utf-8", "replace")
        return Answer(line.replace("\0", REPLACEMENT), truncated=False)


def _bytes(char: str) -> bytes:
    return char.encode("utf-8", "surrogateescape")


def _byte_chars() -> list[str]:
    """GPT-2's spelling of the 256 bytes: printable Latin-1 as itself, the others shifted above U+0100 in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]
