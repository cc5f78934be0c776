"""Asks hosts about runs and orders their agents: one short command on each host, all at once."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mnspawn.core import pods
from mnspawn.engine.link import join
from mnspawn.engine.link.sites import Reached
from mnspawn.errors import BootstrapError, HostError
from mnspawn.transport.base import Connection

ANSWER_LIMIT = 64 << 20  # a host with thousands of old runs answers with some MiB


@dataclass(frozen=True, slots=True)
class Answer:
    """What one host answered, or why there is no answer."""

    index: int
    host: str
    content: Any
    error: HostError | None


async def ask_on(connection: Connection, host: str, words: tuple[str, ...], python: str | None, timeout: float) -> Any:
    """Put one question over a connection that stands; return its answer as `core.pods` reads it.

    Raises:
        HostError: there is no answer, or none that makes sense.
    """
    wire = await join.join(connection, host, words, python, timeout)
    try:
        async with asyncio.timeout(timeout):
            line = await wire.read_line(ANSWER_LIMIT)
        return pods.read(words[0], json.loads(line))
    except TimeoutError:
        raise BootstrapError(f"no answer within {timeout:g} s", host=host) from None
    except (ValueError, RecursionError) as exc:  # Nonsense, or no JSON
        raise BootstrapError(f"an answer that makes no sense: {exc}", host=host) from exc
    finally:
        await wire.close()


async def ask_all(reached: Reached, words: Sequence[tuple[str, ...]], timeout: float) -> list[Answer]:
    """Put the same kind of question to every host; `words` has each host's. Errors are answers, too."""
    answers: list[Answer] = []

    async def one(index: int, outcome: Connection | HostError) -> None:
        name = reached.hosts[index].name
        if isinstance(outcome, HostError):
            answers.append(Answer(index, name, None, outcome))
            return
        try:
            content = await ask_on(outcome, name, words[index], reached.hosts[index].python, timeout)
            answers.append(Answer(index, name, content, None))
        except HostError as exc:
            answers.append(Answer(index, name, None, exc))
        finally:
            await outcome.close()

    async with asyncio.TaskGroup() as group:
        async for index, outcome in reached.dial(timeout):
            group.create_task(one(index, outcome), name=f"ask {reached.hosts[index].name}")
    return sorted(answers, key=lambda answer: answer.index)
