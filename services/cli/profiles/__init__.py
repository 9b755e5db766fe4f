"""The shipped profiles: `[science]` and `[deployment]` tables that a run.toml may build on."""

from importlib.resources import files


def profile_names() -> list[str]:
    return sorted(path.name.removesuffix(".toml") for path in files(__name__).iterdir() if path.name.endswith(".toml"))


def profile_text(name: str) -> str:
    """Raises KeyError, with the known names, for a profile that is not shipped."""
    if name not in profile_names():
        raise KeyError(f"shipped: {', '.join(profile_names())}")
    return files(__name__).joinpath(f"{name}.toml").read_text()
