"""Completes the commands that messages suggest, so that they reach the same host: user, port, files. Pure."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from mnspawn.transport.base import SshOptions, Target
from mnspawn_inventory.names import FIRST_PORT, Endpoint, label_of

_TRUST = re.compile(r"(?<=mnspawn hosts trust )((?:--replace )?)(\S+)")
_SSH = re.compile(r"(?<=`ssh )((?:-v )?)([^\s`]+)(?=`)")


@dataclass(frozen=True, slots=True)
class Pasted:
    """Arguments that name one host.

    Attributes:
        options, address: for mnspawn's own commands.
        ssh: for `ssh`.
    """

    options: str
    address: str
    ssh: str

    @property
    def ours(self) -> str:
        return f"{self.address} {self.options}" if self.options else self.address


def pasted(target: Target, options: SshOptions) -> Pasted:
    """Return the arguments that name a target, with what the command line said of it."""
    words = [] if options.config is None else ["-F", str(options.config)]
    for option, given in (("-p", target.port), ("-i", target.identity), ("-J", target.jump)):
        words += [option, str(given)] if given is not None else []
    if target.address is not None:
        words += ["-o", f"HostName={target.address}"]
    if target.proxy_command is not None:
        words += ["-o", f"ProxyCommand={target.proxy_command}"]
    words.append(label_of(Endpoint(target.ssh_name, target.user)))
    return Pasted(options.said, _address(target), shlex.join(words))


def _address(target: Target) -> str:
    name = label_of(Endpoint(target.ssh_name, target.user, target.port))
    is_slots = target.port is not None and target.port < FIRST_PORT and target.user is None
    return f"ssh://{name}" if is_slots and not name.startswith("ssh://") else name


def whole(hint: str, ways: Mapping[str, Pasted]) -> str:
    """Complete the commands in a hint with all that reaches their hosts; `ways` has the arguments for each name."""
    hint = _TRUST.sub(lambda found: found[1] + (ways[found[2]].ours if found[2] in ways else found[2]), hint)
    return _SSH.sub(lambda found: found[1] + (ways[found[2]].ssh if found[2] in ways else found[2]), hint)
