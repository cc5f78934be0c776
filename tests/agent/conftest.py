"""A home for every test, and the interpreter that most tests do with."""

from pathlib import Path

import pytest

from tests.agent.live import Account
from tests.support import pythons


@pytest.fixture
def account(tmp_path: Path) -> Account:
    """An account whose python3 is the newest of this machine."""
    newest = list(pythons.agent_pythons().values())[-1]
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Account(home, python=newest)
