"""The command line `envwheel`. Every command is imported only when it is called."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code (see `services.cli.outcome.Exit`)."""
    from services.cli.entry import run

    return run(argv)
