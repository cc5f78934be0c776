"""A misspelt keyword of an ssh_config is an error, one that we don't know yet is none."""

from pathlib import Path

import pytest

from mnspawn.errors import UsageError
from mnspawn.transport import create
from mnspawn.transport.base import SshOptions, Target
from mnspawn.transport.config.lines import misspelt
from mnspawn_inventory.formats.ssh_keywords import KEYWORDS


@pytest.mark.parametrize(
    ("found", "meant"),
    [("prot", "port"), ("hostnmae", "hostname"), ("identityfiles", "identityfile"), ("proxyjmp", "proxyjump")],
)
def test_what_is_nearly_a_keyword_is_misspelt(found: str, meant: str) -> None:
    assert misspelt(found, ()) == meant


@pytest.mark.parametrize("found", [*sorted(KEYWORDS), "quantumteleport", "xyzzy"])
def test_a_keyword_and_what_is_like_none_are_not(found: str) -> None:
    assert misspelt(found, ()) is None


def test_ignore_unknown_takes_patterns() -> None:
    assert misspelt("prot", ["pro*"]) is None
    assert misspelt("prot", ["Prot"]) is None
    assert misspelt("prot", ["x*"]) == "port"


@pytest.mark.parametrize("name", ["asyncssh", "paramiko"])
async def test_a_misspelt_keyword_is_told_with_file_and_line(name: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host h1\n  HostName 127.0.0.1\n  Prot 22\n")
    with pytest.raises(UsageError, match=r"config:3: expected a keyword such as port, found Prot"):
        await create(name, SshOptions(config=config)).connect(Target("h1"))
