import os
import subprocess
import zlib
from pathlib import Path

import pytest

from mnspawn._version import __version__
from mnspawn.bootstrap import bundle, stub
from mnspawn_agent import unpack
from tests.agent.live import Account, Live

DIGEST = bundle.build().digest

# a mount namespace with a /tmp, /var/tmp and /dev/shm of its own, where the account's home is /mnt
APART = (
    'mount --bind "$HOME" /mnt; export HOME=/mnt; for d in /tmp /var/tmp /dev/shm; do mount -t tmpfs none $d; done; '
)


@pytest.fixture(name="account")
def account_without_cache(account: Account) -> Account:
    account.env.clear()
    return account


def apart(account: Account, setup: str = "", command: str = 'exec "$@"') -> Account:
    """The account on a host where it finds nothing of others; `setup` changes that host."""
    account.inside = ("unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c", APART + setup + command, "sh")
    return account


def greet(account: Account) -> str:
    """Bring an agent up and let it go; gives whether its host had the archive."""
    with Live(account) as agent:
        agent.hello()
        assert agent.finish(keep=False) == 0
    assert agent.handshake.answer is not None
    return agent.handshake.answer


def run_something(account: Account) -> dict[str, object]:
    """A whole run; gives the facts of HELLO."""
    with Live(account) as agent:
        facts = agent.hello()
        agent.begin("/bin/sh", "-c", "echo fine")
        assert agent.until_drained(0) == {0: 0}
        assert agent.text() == b"fine\n"
        assert agent.finish() == 0
    return dict(facts)


def files_in(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


# -- warm and cold


def test_a_cold_host_needs_the_archive_once(account: Account) -> None:
    assert [greet(account), greet(account)] == ["need", "have"]
    records = dict(unpack.read_records(zlib.decompress(bundle.build().content)))
    assert files_in(account.cache) == {"agent.z", *records}


def test_the_interpreter_keeps_its_byte_code(account: Account) -> None:
    greet(account)
    compiled = {path.stat().st_ino for path in account.cache.rglob("*.pyc")}
    assert compiled
    greet(account)
    assert compiled <= {path.stat().st_ino for path in account.cache.rglob("*.pyc")}


def test_the_cache_is_for_its_owner_alone(account: Account) -> None:
    greet(account)
    folders = [account.cache, account.cache.parent, account.cache / "mnspawn_agent"]
    assert [folder.stat().st_mode & 0o077 for folder in folders] == [0, 0, 0]


def test_xdg_folders_are_used(account: Account, tmp_path: Path) -> None:
    account.env = {"XDG_CACHE_HOME": str(tmp_path / "c"), "XDG_STATE_HOME": str(tmp_path / "s")}
    assert run_something(account)["root"] == str(tmp_path / "s" / "mnspawn")
    assert (tmp_path / "c" / "mnspawn" / DIGEST / "agent.z").is_file()
    assert list(account.home.iterdir()) == []


# -- damage


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def damage_archive(folder: Path) -> None:
    (folder / "agent.z").write_bytes(damaged(bundle.build().content))


def cut_archive(folder: Path) -> None:
    (folder / "agent.z").write_bytes(bundle.build().content[:1000])


def empty_archive(folder: Path) -> None:
    (folder / "agent.z").write_bytes(b"")


def damage_a_module(folder: Path) -> None:
    (folder / "mnspawn_agent" / "posix" / "link" / "agent.py").write_text("raise SystemExit('damaged')")


def remove_a_module(folder: Path) -> None:
    (folder / "mnspawn_agent" / "core" / "pod.py").unlink()


@pytest.mark.parametrize(
    ("harm", "answer"),
    [
        (damage_archive, "need"), (cut_archive, "need"), (empty_archive, "need"), (damage_a_module, "have"),
        (remove_a_module, "have"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
def test_a_damaged_cache_is_repaired(account: Account, harm: object, answer: str) -> None:
    greet(account)
    assert callable(harm)
    harm(account.cache)
    assert greet(account) == answer
    assert greet(account) == "have"
    assert (account.cache / "agent.z").read_bytes() == bundle.build().content
    assert sorted(path.name for path in account.cache.parent.iterdir()) == [DIGEST]


# -- several agents, several versions


def test_agents_that_start_at_once_on_a_cold_cache_do_not_harm_each_other(account: Account) -> None:
    first, second, third = [Live(account, gives_archive=False) for _ in range(3)]
    with first, second, third:
        assert [agent.handshake.answer for agent in (first, second, third)] == ["need", "need", "need"]
        for agent in (first, second, third):
            agent.give_archive()
        for agent in (second, third, first):
            agent.hello()
            assert agent.finish(keep=False) == 0
    assert sorted(path.name for path in account.cache.parent.iterdir()) == [DIGEST]
    assert greet(account) == "have"


def test_the_four_newest_archives_of_other_versions_stay(account: Account) -> None:
    parent = account.cache.parent
    for age in range(7):
        (parent / f"version-{age}").mkdir(parents=True)
        os.utime(parent / f"version-{age}", (1000 - age, 1000 - age))
    parent.chmod(0o700)
    greet(account)
    assert sorted(path.name for path in parent.iterdir()) == sorted(
        [DIGEST, "version-0", "version-1", "version-2", "version-3"]
    )


def test_what_another_agent_is_storing_stays_and_what_one_gave_up_goes(account: Account) -> None:
    parent = account.cache.parent
    for n in range(6):
        (parent / f".new-{n}").mkdir(parents=True)
    os.utime(parent / ".new-0", (1000, 1000))
    parent.chmod(0o700)
    greet(account)
    assert sorted(path.name for path in parent.iterdir()) == sorted([DIGEST, *(f".new-{n}" for n in range(1, 6))])


# -- nowhere to keep it


def a_file_in_the_way(account: Account) -> None:
    (account.home / ".cache").write_text("")


def a_folder_that_others_can_write(account: Account) -> None:
    account.cache.parent.mkdir(parents=True)
    account.cache.parent.chmod(0o777)


@pytest.mark.netns
@pytest.mark.parametrize("hinder", [a_file_in_the_way, a_folder_that_others_can_write])
def test_the_archive_falls_back_to_another_folder(account: Account, hinder: object) -> None:
    assert callable(hinder)
    hinder(account)
    run_something(apart(account, command='"$@"; ls /var/tmp/mnspawn-$(id -u) >"$HOME/seen"'))
    assert (account.home / "seen").read_text() == f"{DIGEST}\n"


@pytest.mark.netns
def test_a_read_only_home_needs_no_other_help(account: Account) -> None:
    facts = run_something(apart(account, "mount -o remount,ro,bind /mnt; "))
    assert facts["root"] == f"/var/tmp/mnspawn-{os.getuid()}"
    assert list(account.home.iterdir()) == []


@pytest.mark.netns
def test_a_full_home_needs_no_other_help(account: Account) -> None:
    fill = 'mount -t tmpfs -o size=64k none "$HOME"; head -c 65536 /dev/zero >"$HOME/full"; '
    facts = run_something(apart(account, fill))
    assert facts["root"] == f"/var/tmp/mnspawn-{os.getuid()}"


@pytest.mark.netns
def test_a_home_that_has_room_for_an_archive_but_not_for_a_run_is_half_used(account: Account) -> None:
    fill = 'mount -t tmpfs -o size=2m none "$HOME"; mkdir -p "$HOME/.local"; touch "$HOME/.local/state"; '
    assert run_something(apart(account, fill))["root"] == f"/var/tmp/mnspawn-{os.getuid()}"


@pytest.mark.netns
def test_an_agent_runs_from_memory_where_nothing_can_be_kept(account: Account, agent_python: Path) -> None:
    account.python = agent_python
    no_cache = 'touch "$HOME/.cache"; mount -o remount,ro /var/tmp; '
    with Live(apart(account, no_cache)) as agent:
        assert agent.hello()["root"] == "/mnt/.local/state/mnspawn"
        agent.begin("/bin/sh", "-c", "echo fine")
        assert agent.until_drained(0) == {0: 0}
        assert agent.finish() == 0
    assert agent.handshake.answer == "need"


@pytest.mark.netns
def test_a_host_on_which_nothing_is_writable_says_what_was_tried(account: Account) -> None:
    lock = "for d in /tmp /var/tmp /dev/shm; do mount -o remount,ro $d; done; "
    with Live(apart(account, lock + "mount -o remount,ro,bind /mnt; ")) as agent:
        facts = agent.hello()
        assert facts["root"] == ""
        problem = str(facts["root_problem"])
        assert "/mnt/.local/state/mnspawn: Read-only file system" in problem
        assert "/dev/shm/mnspawn-0: Read-only file system" in problem
        assert agent.finish(keep=False) == 0


@pytest.mark.netns
def test_tmp_may_be_mounted_noexec(account: Account) -> None:
    run_something(
        apart(account, "mount -o remount,noexec /tmp; mount -o remount,noexec /var/tmp; touch $HOME/.cache; ")
    )


def test_an_archive_that_is_cut_short_on_the_way_runs_nothing(account: Account) -> None:
    nonce = stub.make_nonce()
    line = stub.command_line(bundle.build(), nonce, __version__, ("serve",), str(account.python))
    for content, words in (
        (bundle.build().content[:-1], [b"shell", b"need"]),
        (damaged(bundle.build().content), [b"shell", b"need", b"damaged"]),
    ):
        done = subprocess.run(
            ["/bin/sh", "-c", line], input=content, env=account.environment(), capture_output=True, check=False
        )
        assert done.returncode == 1
        assert done.stdout.split() == [part for word in words for part in (b"MNSPAWN", nonce.encode(), word)]
        assert list(account.home.iterdir()) == []


def test_modules_in_the_folder_where_an_agent_starts_are_not_its_own(account: Account, agent_python: Path) -> None:
    """sshd starts it in the home, which can be a place for everybody, such as /tmp."""
    account.python = agent_python
    account.inside = ("/bin/sh", "-c", 'cd "$HOME" && exec "$@"', "sh")
    names = ["binascii", "hashlib", "json", "random", "resource", "selectors", "socket", "subprocess", "zlib"]
    for name in names:
        (account.home / f"{name}.py").write_text("raise SystemExit('executed')")
    run_something(account)
