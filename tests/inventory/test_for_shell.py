"""Paths in commands that people paste."""

import subprocess
from pathlib import Path

import pytest

from mnspawn_inventory.errors import for_shell


@pytest.mark.parametrize("path", ["/a/b", "/a b/it's", "~/key", "~/my key", "~", "$x/`y`", "~user x", "a;b", "~/"])
def test_a_shell_reads_the_path_that_is_meant(path: str) -> None:
    words = f"printf %s {for_shell(path)}"
    said = subprocess.run(["sh", "-c", words], env={"HOME": "/h o"}, capture_output=True, check=True, text=True).stdout
    assert said == (f"/h o/{path[2:]}" if path.startswith("~/") else path)


def test_a_plain_path_stays_as_it_is() -> None:
    assert [for_shell("/a/b.toml"), for_shell(Path("x y"))] == ["/a/b.toml", "'x y'"]
