"""Which keys are offered to a server, in the order in which ssh offers them. Knows no library and asks no agent."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from mnspawn.transport.config.route import Hop
from mnspawn.transport.trust.keys import PUBLIC, KeyFile

from .refusals import Attempt, shown

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[K]):
    """One key.

    Attributes:
        path: its file; None for one that only the agent names.
        key: as the library has loaded it; None for one that the agent holds.
    """

    public: bytes
    source: str  # for messages
    path: Path | None = None
    key: K | None = None


def candidates(
    hop: Hop,
    attempt: Attempt,
    inspect: Callable[[Path], KeyFile],
    held: Mapping[bytes, str],
    load: Callable[[Path], tuple[K, bytes]],
    unloadable: tuple[type[Exception], ...],
) -> Iterator[Candidate[K]]:
    """Yield the keys for a host: its own that the agent holds, other keys of the agent, its own files.

    An identity that the inventory names comes before the agent's other keys.

    Args:
        attempt: receives the files, with their problems, and what the agent holds.
        held: the agent's keys and their comments.
        load: returns a private key and its public one.
        unloadable: what `load` raises for a file that can't be used.
    """
    files = [inspect(path) for path in hop.identities]
    attempt.files, attempt.in_agent = files, frozenset(held)
    for file in files:
        if file.public is not None and file.public in held:
            yield Candidate(file.public, shown(file.path), file.path)
    own = {file.public for file in files}
    others: list[Candidate[K]] = [
        Candidate(public, f"agent's {comment}")
        for public, comment in held.items()
        if public not in own and not hop.identities_only
    ]
    is_named = hop.origins.get("identityfile") == "inventory"
    if not is_named:
        yield from others
    for number, file in enumerate(files):
        if file.public in held or file.is_encrypted or file.problem:
            continue
        if not file.is_private:
            files[number] = replace(file, problem=PUBLIC)
            continue
        try:
            key, public = load(file.path)
        except unloadable as exc:
            files[number] = replace(file, problem=f"can't be used: {exc}")
            continue
        yield Candidate(file.public or public, shown(file.path), file.path, key)
    if is_named:
        yield from others
