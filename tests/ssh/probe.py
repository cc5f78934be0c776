"""A program for where a cluster's controller stands: `probe TRANSPORT CONFIG TIMEOUT HOST...` says what became of each.

Prints one JSON object: host -> [what `echo` said on the host, "", ""] or [error class, message, hint].
"""

import asyncio
import json
import sys
from pathlib import Path

from mnspawn import transport
from mnspawn.engine.link.dial import dial
from mnspawn.errors import HostError
from mnspawn.transport import Connection, SshOptions, Target


async def ask(connection: Connection) -> str:
    process = await connection.run("echo $(id -un)@$(hostname)")
    await process.write_eof()
    said = b""
    while chunk := await process.read():
        said += chunk
    return said.decode().strip()


async def main(name: str, config: str, timeout: str, *hosts: str) -> dict[str, list[str]]:
    options = SshOptions(config=Path(config), connect_timeout=float(timeout))
    shared = transport.create(name, options)
    found: dict[str, list[str]] = {}
    try:
        targets = [Target(host) for host in hosts]
        async for index, answer in dial([shared] * len(targets), targets, connect_timeout=options.connect_timeout):
            if isinstance(answer, HostError):
                found[hosts[index]] = [type(answer).__name__, str(answer), answer.hint or ""]
            else:
                found[hosts[index]] = [await ask(answer), "", ""]
    finally:
        await shared.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
