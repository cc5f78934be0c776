"""Draws docs/images/run.svg: a real run on two virtual hosts, recorded in a terminal. `make picture`; needs root.

Lines appear at the times at which they came. A viewer without animations shows all of them at once.
"""

import html
import os
import pty
import re
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support import Cluster

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "run.svg"
WORDS = ("--hosts", "gpu-01,gpu-02", "--nproc-per-node", "2", "train.py")
SCRIPT = """import os, time

rank = int(os.environ["RANK"])
for step in range(1, 100):
    time.sleep(0.7 + 0.02 * rank)
    print(f"step {step}  loss {2.5 / step:.3f}", flush=True)
    if step == 2 and rank == 3:
        raise RuntimeError("loss is not a number")
"""
COLUMNS, ROW, CHARACTER, MARGIN = 92, 19, 8.4, 16
COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#56d4dd", 90: "#8b949e"}
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the terminal, with its colours still in it, and the second at which it was whole."""

    text: str
    at: float


def record(cluster: Cluster, folder: Path) -> tuple[list[Line], int]:
    """Run mnspawn in a terminal.

    Returns:
        Its lines and its exit status.
    """
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (40, COLUMNS))
    begun = time.monotonic()
    lines, rest = [], b""
    with cluster.start_mnspawn(*WORDS, stdin=its, stdout=its, stderr=its, env={"TERM": "xterm"}, cwd=folder) as run:
        os.close(its)
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # EIO: the last process on it has ended
                break
            *whole, rest = (rest + chunk).split(b"\n")
            lines += [Line(line.decode(), time.monotonic() - begun) for line in whole]
        os.close(ours)
        return lines, run.wait().status


def spans(text: str) -> str:
    """What the terminal shows of a line in the end, as SVG's tspans."""
    text = text.rstrip("\r").rpartition("\x1b[K")[2].rpartition("\r")[2]
    out, colour, position = [], "", 0
    for match in _SEQUENCE.finditer(text + "\x1b[m"):
        part = html.escape(text[position : match.start()])
        out.append(f'<tspan fill="{colour}">{part}</tspan>' if colour and part else part)
        position = match.end()
        if match[2] == "m":
            codes = [int(code or 0) for code in match[1].split(";")]
            colour = next((COLOURS[code] for code in codes if code in COLOURS), "")
    return "".join(out)


def draw(lines: list[Line]) -> str:
    """The picture; the first line is the command."""
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), ROW * len(lines) + 2 * MARGIN
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + ROW * (number + 0.75):.0f}" style="animation-delay:{line.at:.2f}s">'
        f"{spans(line.text)}</text>"
        for number, line in enumerate(lines)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 {width} {height}" role="img">
<title>A run on two hosts: one rank fails, the others are stopped, and the summary says why</title>
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e6edf3; white-space: pre;
  animation: appear 1ms backwards }}
@keyframes appear {{ from {{ opacity: 0 }} }}
@media (prefers-reduced-motion) {{ text {{ animation: none }} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
{rows}
</svg>
"""


def main() -> int:
    with Cluster(2, names=("gpu-01", "gpu-02")) as cluster:
        folder = cluster.folder / "work"
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(SCRIPT)
        lines, status = record(cluster, folder)
    lines = [Line(line.text.replace(str(folder), "~"), line.at) for line in lines]
    prompt = "\x1b[90m$\x1b[m "
    shown = [
        Line(f"{prompt}mnspawn {' '.join(WORDS)}", 0.0),
        *(Line(line.text, line.at + 1) for line in lines),
        Line(f"{prompt}echo $?", lines[-1].at + 2),
        Line(str(status), lines[-1].at + 2.2),
    ]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw(shown))
    print(f"{TARGET}: {len(shown)} lines, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
