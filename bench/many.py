"""What many hosts cost against few: ten thousand listed against two, 64 sandbox hosts checked against 8.

Both sides are ours: the tests count the work, this says what it takes on this machine.
"""

import sys
import tempfile
from pathlib import Path

from bench.cli_import import ENTRY
from bench.harness import Comparison, command, compare

MANY = 10_000
LISTINGS = (("many",), ("many", "--fold"), ("many", "n*", "--exclude", "n[1-500]x*"), ("many.toml", "--json"))


def run() -> list[Comparison]:
    mnspawn = [sys.executable, "-c", ENTRY]
    comparisons = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name, count in (("two", 2), ("many", MANY)):  # no two of them share a range
            lines = "".join(f"n{i}x{i * 7 % 10007} slots=8\n" for i in range(count))
            tables = "".join(f'[hosts.n{i}x]\naddress = "10.{i >> 8}.{i & 255}.1"\nslots = 8\n' for i in range(count))
            Path(folder, name).write_text(lines)
            Path(folder, f"{name}.toml").write_text(tables)
        for file, *words in LISTINGS:
            listing = [*mnspawn, "inventory", "list", "-i"]
            many = command(*listing, f"{folder}/{file}", *words)
            two = command(*listing, f"{folder}/{file.replace('many', 'two')}", *words)
            comparisons.append(compare(f"inventory list {' '.join([file, *words])} / two hosts", many, two))
    check = [*mnspawn, "hosts", "check", "--sandbox"]
    comparisons.append(compare("hosts check --sandbox 64 / --sandbox 8", command(*check, "64"), command(*check, "8")))
    return comparisons


if __name__ == "__main__":
    print(*run(), sep="\n")
