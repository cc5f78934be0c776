"""The model of an inventory: hosts in order, groups, and where each value was written. No I/O but secrets' files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mnspawn_inventory import names
from mnspawn_inventory.errors import InventoryError, Origin


@dataclass(frozen=True, slots=True)
class SecretRef:
    """A value that is kept elsewhere: in a variable of the controller's environment, or in a file on its machine.

    Exactly one of `variable` and `file` is set. Only `reveal` returns the value itself.
    """

    variable: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        return f"${self.variable}" if self.variable else f"file {self.file}"

    def reveal(self, environ: Mapping[str, str], place: Origin | None = None) -> str:
        """Look up the value.

        Args:
            environ: the controller's environment.
            place: where the reference is written, for errors.

        Raises:
            InventoryError: the variable is not set, or the file can't be read.
        """
        if self.variable is not None:
            if self.variable not in environ:
                raise InventoryError(
                    f"the environment variable {self.variable} is not set",
                    place=place,
                    hint=f"export {self.variable}=...",
                )
            return environ[self.variable]
        path = Path(self.file or "").expanduser()
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "not UTF-8 text"
            raise InventoryError(f"the secret's file {path} can't be read: {reason}", place=place) from exc


@dataclass(frozen=True, slots=True)
class Host:
    """One host. None means that the inventory has no value: ssh_config, the host itself or a default decides.

    Attributes:
        name: unique in its inventory: the name to look up in ssh_config; where several hosts share that name, with the
            user or port in which they differ (`alice@h`, `h:2201`, `[::1]:2201`).
        address: where SSH connects (control address).
        data_address: where workers on other hosts reach it.
        network: instead of `data_address`: the network (10.1.0.0/16) or interface (ib0) whose address to use.
        identity: private key file, as written (`~` allowed).
        jump: hosts to go through, as in `ssh -J`.
        proxy_command: instead of `jump`: a command that connects to the host, as ssh_config's ProxyCommand.
        transport: asyncssh, paramiko, openssh or local.
        slots: the number of workers.
        max_slots: the most workers that may run there.
        devices: the accelerators to use, as numbered by the host.
        python: interpreter of the workers.
        workdir: folder in which the workers start.
        env: variables for the workers, in the order in which they were written.
        secrets: variables for the workers whose values are kept elsewhere.
        prelude: shell lines to run before the workers (`module load cuda`).
        labels: the user's own notes.
        groups: all groups that the host is in, nested ones included, without `all`.
        origins: (field, place) pairs; variables are called `env.NAME`, labels `labels.NAME`.
        problem: why this host, unlike others of its inventory, can't be used; see `check_usable`.
    """

    name: str
    address: str | None = None
    data_address: str | None = None
    network: str | None = None
    user: str | None = None
    port: int | None = None
    identity: str | None = None
    jump: str | None = None
    proxy_command: str | None = None
    transport: str | None = None
    slots: int | None = None
    max_slots: int | None = None
    devices: tuple[int, ...] | None = None
    python: str | None = None
    workdir: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, SecretRef], ...] = ()
    prelude: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = ()
    origins: tuple[tuple[str, Origin], ...] = field(default=(), compare=False, repr=False)
    problem: InventoryError | None = field(default=None, compare=False, repr=False)

    def check_usable(self) -> None:
        """Raises InventoryError if one of its values could not be read."""
        if self.problem is not None:
            raise self.problem

    @property
    def ssh_name(self) -> str:
        """The name to look up in ssh_config, without user and port."""
        return names.endpoint_of(self.name).host

    @property
    def endpoint(self) -> names.Endpoint:
        """Name, user and port; two hosts with the same endpoint are one host."""
        return names.Endpoint(self.ssh_name, self.user, self.port)

    def origin(self, name: str) -> Origin | None:
        """Where a field (or `env.NAME`, `labels.NAME`) is written; for `name`, where the host is."""
        return dict(self.origins).get(name)

    def check_slots(self) -> None:
        """Raises InventoryError if `slots` is more than `max_slots`."""
        if self.slots is not None and self.max_slots is not None and self.slots > self.max_slots:
            raise InventoryError(
                f"more slots than {self.name} may have",
                place=self.origin("slots"),
                found=str(self.slots),
                expected=f"at most {self.most}",
            )

    @property
    def most(self) -> str:
        """`max_slots` with its place, for messages: "4 (max_slots in hosts:3:12)"."""
        place = self.origin("max_slots")
        return f"{self.max_slots} (max_slots)" if place is None else f"{self.max_slots} (max_slots in {place})"

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables, with secrets looked up in the controller's environment and files.

        Raises:
            InventoryError: a secret can't be looked up.
        """
        revealed = dict(self.env)
        for name, secret in self.secrets:
            revealed[name] = secret.reveal(environ, self.origin(f"env.{name}"))
        return revealed


@dataclass(frozen=True, slots=True)
class Group:
    """A named list of hosts. `hosts` has all members in inventory order, those of `children` included."""

    name: str
    hosts: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inventory:
    """Hosts in the order in which they were written, and groups.

    Attributes:
        source: the file, option or variable that it was read from.
        format: the name of the format.
        notes: what the user should know about how it was read, one line each.
    """

    hosts: tuple[Host, ...]
    groups: tuple[Group, ...] = ()
    source: str = ""
    format: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Selection:
    """The hosts of a run, in rank order.

    Attributes:
        hosts: empty only if nothing named any hosts.
        kind: hosts, ips, hostfile, inventory, slurm, pbs, lsf, paddle, or "none".
        source: the option, file or variable that the list came from, for messages.
        notes: what the user should know about the list, one line each.
    """

    hosts: tuple[Host, ...] = ()
    kind: str = "none"
    source: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)
