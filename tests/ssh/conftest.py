"""Fixtures of the SSH tests."""

import pytest

SSH = ("asyncssh", "paramiko", "openssh")


@pytest.fixture(params=SSH)
def ssh_name(request: pytest.FixtureRequest) -> str:
    """Every transport that speaks SSH, one after the other."""
    return str(request.param)
