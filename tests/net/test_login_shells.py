"""Accounts whose login shell runs no command of ours: what it said is quoted, and the file to look at is named."""

from collections.abc import Callable

import pytest

from tests.support import Cluster, Finished

SSH = ("asyncssh", "paramiko", "openssh")
SHORT = 6.0  # seconds after which a shell that hangs is given up; one that ends has to end before
LONG = 45.0  # not reached by a shell that ends
PLEASE = 'Please login as the user "ubuntu" rather than the user "root".'


@pytest.fixture
def host(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster(1)


def start(host: Cluster, seconds: float, transport: str = "asyncssh", *options: str) -> Finished:
    options = (
        "--connect-timeout",
        str(seconds),
        "--transport",
        transport,
        "--ssh-config",
        str(host.ssh_config),
        *options,
    )
    done = host.mnspawn("--hosts", "h1", "--nproc-per-node", "1", *options, "--no-python", "true")
    assert done.status == 3, done
    assert "Traceback" not in done.stderr
    return done


def force(host: Cluster, command: str) -> None:
    keys = host["h1"].path("/etc/ssh/authorized_keys")
    keys.write_text(f'no-port-forwarding,command="{command}" {keys.read_text()}')


@pytest.mark.parametrize("transport", SSH)
@pytest.mark.parametrize("then", ["sleep 600", "exit 142"])
def test_the_words_of_a_cloud_image_are_quoted(host: Cluster, transport: str, then: str) -> None:
    force(host, f"echo '{PLEASE.replace(chr(34), chr(92) + chr(34))}';echo;{then}")
    done = start(host, SHORT if then.startswith("sleep") else LONG, transport)
    assert PLEASE in done.stderr
    assert "hint: use that account: ubuntu@HOST" in done.stderr


@pytest.mark.parametrize("transport", SSH)
def test_what_comes_on_stderr_before_a_shell_hangs_is_quoted_without_what_a_terminal_obeys(
    host: Cluster, transport: str
) -> None:
    host["h1"].write(
        "/root/.bashrc", "printf 'no \\033[31mquota\\033[0m \\007left\\n' >&2\necho maintenance\nsleep 600\n"
    )
    done = start(host, SHORT, transport)
    assert "ran no command within 6 s; it said 'maintenance | no quota left'" in done.stderr
    assert "~/.bashrc (bash)" in done.stderr


@pytest.mark.parametrize(
    ("shell", "file", "text", "named"),
    [
        ("/bin/bash", "/root/.bashrc", "exit", "~/.bashrc (bash)"),
        ("/bin/bash", "/root/.bashrc", "exec false", "~/.bashrc (bash)"),
        ("/bin/bash", "/root/.bashrc", "no-such-command\nexit 1", "/root/.bashrc"),
        ("/usr/bin/zsh", "/root/.zshenv", "exit", "~/.zshenv (zsh)"),
        ("/usr/bin/zsh", "/root/.zshenv", "no-such-command\nexit 1", "/root/.zshenv"),
        ("/bin/tcsh", "/root/.tcshrc", "exec false", "~/.tcshrc or ~/.cshrc (tcsh)"),
        ("/usr/bin/fish", "/root/.config/fish/config.fish", "exec false", "~/.config/fish/config.fish (fish)"),
        ("/usr/bin/fish", "/root/.config/fish/config.fish", "no-such-command\nexec false", "config.fish"),
        ("/bin/false", "/root/.bashrc", "", "nologin"),
    ],
)
def test_a_login_shell_that_ends_early_is_told_with_the_file_to_look_at(
    host: Cluster, shell: str, file: str, text: str, named: str
) -> None:
    host["h1"].set_shell(shell)
    host["h1"].write(file, text + "\n")
    done = start(host, LONG)
    assert "the login shell ran no command (status" in done.stderr
    assert named in done.stderr


@pytest.mark.parametrize("text", ["exec cat", "read answer", "exec sh", "sleep 600"])
def test_a_start_file_that_waits_or_starts_another_shell_is_named(host: Cluster, text: str) -> None:
    host["h1"].write("/root/.bashrc", f"{text}\n")
    done = start(host, SHORT)
    assert "its login shell ran no command within 6 s" in done.stderr
    assert "starts another shell (`exec`) in ~/.bashrc (bash)" in done.stderr


def test_nologin_is_quoted(host: Cluster) -> None:
    host["h1"].set_shell("/usr/sbin/nologin")
    assert "ran no command (status 1): This account is currently not available." in start(host, LONG).stderr


def test_a_shell_that_ends_early_is_not_taken_for_a_missing_python(host: Cluster) -> None:
    host["h1"].write("/root/.bashrc", "exit 3\n")
    assert "the login shell ran no command (status 3)" in start(host, LONG, "asyncssh", "--python", "/opt/py").stderr
