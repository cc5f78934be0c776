"""Fixtures for every test, described in tests/support. Decides what can run here and checks what tests leave."""

import functools
import os
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.support import (
    Cluster,
    Controller,
    HostProcess,
    LocalSshd,
    VirtualHost,
    frameworks,
    local_sshd,
    pythons,
    tiers,
    wait_until,
)
from tests.support import leaks as leak_checks
from tests.support.controller import PACKAGE_FOLDERS, REPOSITORY

# the same examples on every machine, and as much time for each as it takes
hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")

IN_CI = os.environ.get("CI") == "true"
TOOLS = ("ip", "nsenter", "unshare", "setpriv", "sshd", "ssh", "ssh-keygen")
_PLACES = pytest.StashKey[Path]()
_OF_THE_FULL_TIER = pytest.StashKey[int]()


# -- a HOME and a TMPDIR of our own, so that no test depends on the real ones or writes there


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "quick: leave out the full tier (tests/support/tiers.py), unless paths, -k, -m or the like choose tests"
    parser.addoption("--tier", choices=("quick", "all"), default="all", help=words)


def pytest_configure(config: pytest.Config) -> None:
    if tiers.are_chosen(config):
        config.option.tier = "all"  # whoever names tests wants them
    # a job in the background ignores them, and its children would too
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    pythons.agent_pythons()  # looked for before HOME changes
    outside = os.environ.setdefault("TESTS_OUTSIDE_TMPDIR", tempfile.gettempdir())  # also for the workers of xdist
    places = Path(tempfile.mkdtemp(prefix="mnspawn-", dir=outside))  # short: Unix sockets have 107 characters
    config.stash[_PLACES] = places
    for name in ("home", "tmp"):
        (places / name).mkdir()
    if config.option.basetemp is None:
        config.option.basetemp = str(places / "t")
    shims = str(pythons.pyenv_versions().with_name("shims"))
    for name in [name for name in os.environ if name.startswith(("MNSPAWN_", "XDG_", "SSH_", "PYTEST_ADDOPTS"))]:
        if name != "MNSPAWN_FRAMEWORKS":
            del os.environ[name]
    os.environ["PYTHONPATH"] = ":".join(str(REPOSITORY / folder) for folder in PACKAGE_FOLDERS)  # for subprocesses
    os.environ["HOME"] = str(places / "home")
    os.environ["TMPDIR"] = tempfile.tempdir = str(places / "tmp")
    os.environ["PATH"] = ":".join(
        folder for folder in [*os.environ["PATH"].split(":"), "/usr/sbin", "/sbin"] if folder != shims
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_PLACES], ignore_errors=True)


# -- what can run here


def _missing_for_hosts() -> str | None:
    if os.geteuid() != 0:
        return "need root (virtual hosts)"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"need {', '.join(missing)}"
    probe = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    return "need to make namespaces (a container would have to be privileged)" if probe.returncode else None


def _missing_frameworks() -> str | None:
    missing = [name for name in frameworks.FRAMEWORKS if not frameworks.is_installed(name)]
    return f"need {', '.join(missing)} in environments of their own" if missing else None


HOW = {
    "netns": "run `make test` as root on Debian or Ubuntu",
    "frameworks": "run `make frameworks` first",
    "sshd": "install openssh-server",
}


@functools.cache
def _lacks() -> dict[str, str]:
    """What can't run here, by marker, as the sentence that says so."""
    found = {
        "netns": _missing_for_hosts(),
        "frameworks": _missing_frameworks(),
        "sshd": None if local_sshd.is_installed() else "need sshd",
    }
    return {name: f"{lack}: {HOW[name]}" for name, lack in found.items() if lack is not None}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & tiers.EXPENSIVE:
            item.add_marker("netns")
        if "framework_cluster" in fixtures:
            item.add_marker("frameworks")
        if "local_sshd" in fixtures:
            item.add_marker("sshd")
    if config.option.tier == "quick":
        left_out = [item for item in items if not tiers.is_quick(item)]
        config.stash[_OF_THE_FULL_TIER] = len(left_out)
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if tiers.is_quick(item)]


# xdist's workers select, and their controller tells


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["full tier"] = session.config.stash.get(_OF_THE_FULL_TIER, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_OF_THE_FULL_TIER] = getattr(node, "workeroutput", {}).get("full tier", 0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, lack in _lacks().items():
        if item.get_closest_marker(name) is not None:
            if IN_CI:
                pytest.fail(f"nothing is left out in CI, and this would be among the tests that {lack}", pytrace=False)
            pytest.skip(lack)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each reason why tests were left out, and how to run them."""
    if count := terminalreporter.config.stash.get(_OF_THE_FULL_TIER, 0):
        terminalreporter.write_line(f"left out: {count} tests of the full tier: run `make test-all`")
    skipped = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    for lack in _lacks().values():
        if skipped[lack]:
            terminalreporter.write_line(f"left out: {skipped[lack]} tests that {lack}")


# -- what a test leaves behind


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves processes, threads, open files, files in HOME or TMPDIR, or a changed environment."""
    places = request.config.stash[_PLACES]
    folders = (places / "home", places / "tmp")
    before = leak_checks.Snapshot.take(folders)
    yield
    left = leak_checks.what_is_left(before, folders)
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


# -- places to run in


@pytest.fixture(scope="session")
def shared_hosts() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_hosts: Cluster) -> Iterator[Cluster]:
    """Three hosts that the session shares. A test leaves them up, connected, and without processes of its own."""
    known = {host.name: {process.pid for process in host.processes()} for host in shared_hosts}
    yield shared_hosts
    left: list[str] = []
    for host in shared_hosts:
        assert host.is_on, f"{host.name} was switched off: use make_cluster"
        try:
            wait_until(partial(_is_quiet, host, known))
        except AssertionError:
            left += [f"{host.name}: {' '.join(stranger.argv)}" for stranger in _strangers(host, known)]
            for stranger in _strangers(host, known):
                host.run("kill", "-KILL", str(stranger.pid))
    if left:
        pytest.fail("left running on hosts: " + "; ".join(left), pytrace=False)


def _is_quiet(host: VirtualHost, known: dict[str, set[int]]) -> bool:
    return not _strangers(host, known)


def _strangers(host: VirtualHost, known: dict[str, set[int]]) -> list[HostProcess]:
    return [process for process in host.processes() if process.pid not in known[host.name]]


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that the test may break: `make_cluster(2, delay=0.02, sshd_config=..., share=..., see=...)`."""
    with ExitStack() as clusters:
        yield lambda *args, **options: clusters.enter_context(Cluster(*args, **options))


@pytest.fixture(scope="session")
def _framework_hosts() -> Iterator[Cluster]:
    with Cluster(2, see=frameworks.seen_by_hosts()) as cluster:
        yield cluster


@pytest.fixture
def framework_cluster(_framework_hosts: Cluster) -> Cluster:
    """Two hosts that see the environments of the frameworks, each at `frameworks.python(name)`."""
    return _framework_hosts


@pytest.fixture
def controller(tmp_path_factory: pytest.TempPathFactory) -> Controller:
    """The command line with a HOME of its own on this machine; needs no privileges."""
    return Controller(tmp_path_factory.mktemp("c"))


@pytest.fixture(name="local_sshd")
def start_local_sshd() -> Iterator[LocalSshd]:
    """A real sshd of the current user on a loopback port."""
    with LocalSshd() as server:
        yield server


@pytest.fixture(params=list(pythons.agent_pythons()))
def agent_python(request: pytest.FixtureRequest) -> Path:
    """Every CPython from 3.6 on that this machine has, one after the other."""
    return pythons.agent_pythons()[request.param]
