"""What the command line costs before it does anything: `mnspawn --version` against `python -c "import typer"`.

And the inventory library alone against what it needs of the standard library.
"""

import sys

from bench.harness import Comparison, command, compare

ENTRY = "import sys; from mnspawn.cli.main import main; sys.exit(main())"


def run() -> list[Comparison]:
    python = [sys.executable, "-c"]
    typer = command(*python, "import typer")
    needed = "import dataclasses, re, pathlib, collections.abc, typing, os, stat"
    return [
        compare("mnspawn --version / python -c 'import typer'", command(*python, ENTRY, "--version"), typer),
        compare("mnspawn --help / python -c 'import typer'", command(*python, ENTRY, "--help"), typer),
        compare(
            "import mnspawn_inventory / what it needs",
            command(*python, "import mnspawn_inventory"),
            command(*python, needed),
        ),
    ]


if __name__ == "__main__":
    print(*run(), sep="\n")
