"""A home for every test, and the interpreter that most tests do with."""

from pathlib import Path

import pytest

from tests.agent.live import Account
from tests.support import pythons


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the agents of this session keep their archive: compiling it costs more than most tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def account(tmp_path: Path, warm_cache: Path) -> Account:
    """An account whose python is the newest of this machine, on a host that has seen an agent before."""
    newest = list(pythons.agent_pythons().values())[-1]
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return Account(home, python=newest, env={"XDG_CACHE_HOME": str(warm_cache)})
