"""endpoints.toml: where a model is asked; what is missing is said, and no key is ever shown."""

from pathlib import Path

import pytest

from services.kernel.models.chat.endpoints import EndpointsFileError, key_variables, read_endpoint
from services.kernel.models.chat.errors import KeyMissingError

TABLE = '[local]\nurl = "http://127.0.0.1:8000/v1"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "endpoints.toml"
    file.write_text(text)
    return file


def test_an_endpoint_is_read_anew_each_time_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, TABLE + "silence_s = 5.0\nstream = false\n")
    endpoint = read_endpoint(file, "local")
    assert (endpoint.url, endpoint.key, endpoint.silence_s) == ("http://127.0.0.1:8000/v1", None, 5.0)
    assert endpoint.stream is False
    (tmp_path / "secret").write_text("from-file\n")
    written(tmp_path, TABLE + 'key_file = "secret"\n')
    key = read_endpoint(file, "local").key
    assert key is not None
    assert key.reveal() == "from-file"
    monkeypatch.setenv("SOME_KEY", "from-variable")
    written(tmp_path, TABLE + 'key_env = "SOME_KEY"\n')
    endpoint = read_endpoint(file, "local")
    assert endpoint.key is not None
    assert endpoint.key.reveal() == "from-variable"
    assert "from-variable" not in repr(endpoint)
    assert key_variables(file) == {"SOME_KEY"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has no table \[local\] with a url; endpoints there: none"),
        ('[other]\nurl = "http://x/v1"\n', "endpoints there: other"),
        ('[local]\nurl = "ftp://x"\n', "regex"),
        ("[local]\nkey = 1\nurl = 'http://x'", "unknown field `key`"),
        ("[local", "endpoints.toml: "),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(EndpointsFileError, match=message):
        read_endpoint(written(tmp_path, text), "local")


def test_missing_files_and_keys_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(EndpointsFileError, match="without --endpoints FILE"):
        read_endpoint(None, "local")
    with pytest.raises(EndpointsFileError, match="write a table"):
        read_endpoint(tmp_path / "none.toml", "local")
    assert key_variables(tmp_path / "none.toml") == frozenset()
    with pytest.raises(KeyMissingError, match="NO_SUCH_KEY, which is not set"):
        read_endpoint(written(tmp_path, TABLE + 'key_env = "NO_SUCH_KEY"\n'), "local")
    with pytest.raises(KeyMissingError, match="cannot be read"):
        read_endpoint(written(tmp_path, TABLE + 'key_file = "none"\n'), "local")
