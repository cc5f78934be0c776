"""What the command line costs before it does anything: `mnspawn --version` against `python -c "import typer"`."""

import sys

from bench.harness import Comparison, command, compare

ENTRY = "import sys; from mnspawn.cli.main import main; sys.exit(main())"


def run() -> list[Comparison]:
    python = [sys.executable, "-c"]
    typer = command(*python, "import typer")
    return [
        compare("mnspawn --version / python -c 'import typer'", command(*python, ENTRY, "--version"), typer),
        compare("mnspawn --help / python -c 'import typer'", command(*python, ENTRY, "--help"), typer),
    ]


if __name__ == "__main__":
    print(*run(), sep="\n")
