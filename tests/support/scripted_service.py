"""`python -m tests.support.scripted_service ROLE OPTIONS.json`: a real service process whose workers answer by script.

Log, loops, policies and notes are the real ones; only the work is short. Each answer takes a drawn time, so that a kill
finds work in flight.
"""

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from schemas.envelope import Event
from schemas.outcomes import Role
from schemas.parts import Usage
from services.kernel import service
from services.kernel.delivery import Answer
from services.kernel.options import ServiceOptions
from services.kernel.spool import count_tokens
from tests.support.script import Script, chance
from tests.support.wheel import POLICIES

SHORTEST_S, LONGEST_S = 0.05, 0.15


class ScriptedHandler:
    async def handle(self, event: Event, try_: int) -> Sequence[Answer]:
        answers = Script().answer(event.body)
        for message in answers:
            usage = getattr(message, "usage", Usage())
            count_tokens(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)
        await asyncio.sleep(SHORTEST_S + (LONGEST_S - SHORTEST_S) * chance("time", event.id, try_))
        return [Answer(message) for message in answers]


async def main(role: Role, options: ServiceOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def build(context: service.Context) -> ScriptedHandler:
        return ScriptedHandler()

    await service.serve(role, POLICIES[role], build, options, stop)


def path_hook(kind: type, value: object) -> object:
    return Path(str(value))


if __name__ == "__main__":
    read = msgspec.json.decode(Path(sys.argv[2]).read_bytes())
    asyncio.run(main(Role(sys.argv[1]), msgspec.convert(read, ServiceOptions, dec_hook=path_hook)))
