"""Finds unusable key and known_hosts files before any host is contacted, where no other file could help."""

from functools import cache

from mnspawn.errors import UsageError
from mnspawn.transport.config.route import Hop

from . import keys
from .host_keys import HostKeys


class Inputs:
    """One per transport; inspects each file once. Thread-safe."""

    def __init__(self, host_keys: HostKeys) -> None:
        self._host_keys = host_keys
        self._inspect = cache(keys.inspect)

    def check(self, hop: Hop) -> None:
        """Check the files that the settings of a host and its jump hosts name.

        Like ssh, ignores a broken file unless nothing else can prove who the host is, or who we are.

        Raises:
            UsageError: one is broken; `place` is file:line.
        """
        self.check_known_hosts(hop)
        self.check_identities(hop)

    def check_known_hosts(self, hop: Hop) -> None:
        """See `check`."""
        if hop.jump is not None:
            self.check_known_hosts(hop.jump)
        self._host_keys.check_files(hop)

    def check_identities(self, hop: Hop) -> None:
        """See `check`."""
        if hop.jump is not None:
            self.check_identities(hop.jump)
        files = [self._inspect(path) for path in hop.identities]
        broken = next((file for file in files if file.broken_line), None)
        if broken is None or any(not file.is_missing and not file.broken_line for file in files):
            return
        if not keys.agent_has_keys(hop.agent):
            place = f"{broken.path}:{broken.broken_line}"
            reason = f"expected a private key, and there is no other one for {hop.name}"
            raise UsageError(reason, place=place, hint="mend the key file, or name another one")
