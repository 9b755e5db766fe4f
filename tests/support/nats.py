"""A real nats-server for one test, on a port and a store of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from services.kernel.nats_server import NatsServer, NatsUser


@contextmanager
def nats_server(users: Sequence[NatsUser] = ()) -> Iterator[NatsServer]:
    """Killed at the end, not stopped: no test needs its last words, and a kill takes no time."""
    with TemporaryDirectory(prefix="envwheel-nats-") as store:
        server = NatsServer(Path(store), users=users)
        server.start()
        try:
            yield server
        finally:
            server.kill()
