"""The hosts of a batch system's allocation, from the environment: Slurm, PBS, LSF, Paddle's cloud variables."""

import re
from collections.abc import Mapping
from pathlib import Path

from mnspawn_inventory import fields, names, nodeset
from mnspawn_inventory.draft import Draft
from mnspawn_inventory.errors import InventoryError, Origin, listed_twice
from mnspawn_inventory.model import Inventory

COUNT = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?", re.ASCII)
# variables that list hosts, and what each should contain
LISTING = {
    "SLURM_JOB_NODELIST": "nodes such as gpu[01-03]",
    "SLURM_NODELIST": "nodes such as gpu[01-03]",
    "LSB_DJOB_HOSTFILE": "a file with a line for each slot",
    "LSB_MCPU_HOSTS": "host N host N ...",
    "PBS_NODEFILE": "a file with a line for each slot",
}
# variables of batch systems that are not read, and a command that makes a hostfile of each
UNREAD = {
    "PE_HOSTFILE": 'awk \'{print $1 " slots=" $2}\' "$PE_HOSTFILE" > hosts',
    "COBALT_NODEFILE": 'cp "$COBALT_NODEFILE" hosts',
    "OAR_NODEFILE": 'sort -u "$OAR_NODEFILE" > hosts',
    "FLUX_JOB_ID": "flux hostlist -e -d '\n' local > hosts",
}
PADDLE_CLOUD = ("PADDLE_TRAINERS", "POD_IP", "PADDLE_TRAINER_ID", "TRAINER_PORTS_NUM")


def find_allocation(environ: Mapping[str, str]) -> Inventory | None:
    """The hosts of the allocation that mnspawn runs in, in its order; None outside of any.

    Raises:
        InventoryError: a variable or node file of the batch system can't be used.
    """
    for find in (_slurm, _lsf, _pbs, _paddle):
        draft = find(environ)
        if draft is not None:
            inventory = draft.finish()
            if not inventory.hosts:
                raise InventoryError("no hosts", place=Origin(draft.source), expected="at least one host")
            return inventory
    _refuse_empty(environ)
    return None


def _refuse_empty(environ: Mapping[str, str]) -> None:
    """Raises InventoryError for a variable that is set but empty: the user expects an allocation."""
    listing = dict(LISTING)
    if all(environ.get(name) for name in PADDLE_CLOUD if name != "PADDLE_TRAINERS"):
        listing["PADDLE_TRAINERS"] = "addresses, separated by commas"
    for name, expected in listing.items():
        if name in environ and not environ[name].strip():
            raise InventoryError(
                "the variable is set, but empty",
                place=Origin(name),
                expected=expected,
                hint=f"start mnspawn inside the job, or unset {name} and name the hosts with --hosts",
            )


def unread(environ: Mapping[str, str]) -> str | None:
    """How to use the hosts of a batch system whose variables are not read; None outside of one."""
    for name, command in UNREAD.items():
        if environ.get(name):
            return f"{name} is set, but not read: {command}; then --hostfile hosts"
    return None


def _slurm(environ: Mapping[str, str]) -> Draft | None:
    variable = next((name for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST") if environ.get(name, "").strip()), None)
    if variable is None:
        return None
    place = Origin(variable)
    if _number(environ, "SLURM_STEP_NUM_TASKS") > 1:
        raise InventoryError(
            "this is one task of a Slurm step with several",
            place=Origin("SLURM_STEP_NUM_TASKS"),
            found=environ["SLURM_STEP_NUM_TASKS"],
            expected="one mnspawn for the whole allocation",
            hint="start mnspawn from the batch script or salloc itself, or by srun --ntasks=1",
        )
    draft = Draft(variable, "slurm")
    hosts = nodelist(environ[variable], place)
    for name in hosts:
        if draft.has_host(name):
            raise listed_twice(name, place)
        draft.host(name, place)
    per_node = environ.get("SLURM_TASKS_PER_NODE")
    if per_node:
        tasks_place = Origin("SLURM_TASKS_PER_NODE")
        counts = tasks_per_node(per_node, tasks_place)
        if len(counts) != len(hosts):
            raise InventoryError(
                f"it counts {len(counts)} nodes, and {variable} has {len(hosts)}",
                place=tasks_place,
                found=per_node,
                expected=f"a count for each of {environ[variable]}",
                hint="one of the two is of another job: start mnspawn from the batch script or salloc itself",
            )
        for name, count in zip(hosts, counts, strict=True):
            draft.host(name, place).set("slots", count, tasks_place)
    return draft


def nodelist(text: str, place: Origin) -> list[str]:
    """Expand a Slurm node list (`gpu[01-03,7],login`) in its order, as `scontrol show hostnames` does."""
    found: list[str] = []
    start = depth = 0
    for index, char in enumerate(text + ","):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if char == "," and (depth <= 0 or index == len(text)):
            here = place.moved(start)
            found.extend(names.check_host(name, here) for name in nodeset.expand(text[start:index], here))
            start = index + 1
    return found


def tasks_per_node(text: str, place: Origin) -> list[int]:
    """Expand Slurm's `2(x3),1` to [2, 2, 2, 1]."""
    counts: list[int] = []
    for piece in text.split(","):
        match = COUNT.fullmatch(piece)
        repeat = match and fields.whole(match[2] or "1", 1, 100_000, "not a count", place)
        if not match or not repeat:
            raise InventoryError("not a count of tasks", place=place, found=piece, expected="N or N(xM), as in 2(x3),1")
        counts.extend([fields.slots(match[1], place)] * repeat)
    return counts


def _pbs(environ: Mapping[str, str]) -> Draft | None:
    path = environ.get("PBS_NODEFILE", "")
    if not path.strip():
        return None
    draft = Draft(f"PBS_NODEFILE ({path})", "pbs")
    _read_node_file(path, draft)
    return draft


def _lsf(environ: Mapping[str, str]) -> Draft | None:
    path = environ.get("LSB_DJOB_HOSTFILE", "")
    if path.strip():
        draft = Draft(f"LSB_DJOB_HOSTFILE ({path})", "lsf")
        _read_node_file(path, draft)
        return draft
    pairs = environ.get("LSB_MCPU_HOSTS", "")
    if not pairs.strip():
        return None
    place = Origin("LSB_MCPU_HOSTS")
    draft = Draft("LSB_MCPU_HOSTS", "lsf")
    words = pairs.split()
    if len(words) % 2:
        raise InventoryError(
            "a host without its number of slots",
            place=place,
            found=words[-1],
            expected=f"host N host N ..., not {len(words)} words",
        )
    for name, count in zip(words[::2], words[1::2], strict=True):
        values = draft.host(names.check_host(name, place), place)
        before = values.get("slots")
        values.set("slots", fields.slots(count, place) + (before if isinstance(before, int) else 0), place)
    return draft


def _read_node_file(path: str, draft: Draft) -> None:
    from mnspawn_inventory.formats import hostfile  # late: few runs have one
    from mnspawn_inventory.text import read_text

    variable = draft.source.partition(" ")[0]
    try:
        text = read_text(Path(path))
        hostfile.read_repeated(text, draft)
    except InventoryError as exc:
        exc.hint = exc.hint or f"{variable} names it"
        raise
    if not draft.has_hosts:
        raise InventoryError("the node file is empty", place=Origin(draft.source), expected=LISTING[variable])


def _paddle(environ: Mapping[str, str]) -> Draft | None:
    """Paddle's cloud: all four variables are set, and there is more than one trainer."""
    if any(not environ.get(name) for name in PADDLE_CLOUD) or environ.get("PADDLE_TRAINERS_NUM") == "1":
        return None
    if environ["PADDLE_TRAINER_ID"] != "0":
        raise InventoryError(
            "mnspawn starts every pod from the first one",
            place=Origin("PADDLE_TRAINER_ID"),
            found=environ["PADDLE_TRAINER_ID"],
            expected="0",
            hint="start mnspawn on the first pod only, or name the hosts with --hosts",
        )
    draft = Draft("PADDLE_TRAINERS", "paddle")
    add_addresses(environ["PADDLE_TRAINERS"], draft, Origin("PADDLE_TRAINERS"))
    return draft


def add_addresses(text: str, draft: Draft, place: Origin) -> None:
    """Read Paddle's list of addresses: separated by commas, perhaps with blanks, each once.

    They are data addresses: endpoints contain them literally.
    """
    shift = 0
    for piece in text.split(","):
        here = place.moved(shift + len(piece) - len(piece.lstrip()))
        shift += len(piece) + 1
        name = names.check_host(piece.strip(), here)
        if draft.has_host(name):
            raise listed_twice(name, here)
        draft.host(name, here).set("data_address", name, here)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
