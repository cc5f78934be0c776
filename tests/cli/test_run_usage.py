"""The real command line without hosts: version, help, completion, usage errors, what is imported for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import Controller

ENTRY = "import sys; from mnspawn.cli.main import main; sys.exit(main())"
HEAVY = {"typer", "pydantic", "rich", "asyncssh", "paramiko", "cryptography", "cloudpickle", "tomlkit"}


def modules_after(controller: Controller, *words: str) -> set[str]:
    """Top-level names of everything that a command line has imported when it ends."""
    code = (
        "import sys; from mnspawn.cli.main import main; status = main(sys.argv[1:]);"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr); sys.exit(status)"
    )
    finished = controller.run(sys.executable, "-c", code, *words)
    return set(finished.stderr.splitlines()[-1].split())


def test_version_imports_nothing_heavy(controller: Controller) -> None:
    finished = controller.mnspawn("--version")
    assert (finished.status, finished.stdout, finished.stderr) == (0, "mnspawn 0.1.0\n", "")
    assert modules_after(controller, "--version") & (HEAVY | {"asyncio", "mnspawn_inventory"}) == set()


def test_a_run_that_ends_before_it_dials_imports_nothing_heavy(controller: Controller) -> None:
    assert modules_after(controller, "--hosts", "", "train.py") & HEAVY == set()


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["-h"], ["--hosts", "a", "--help"]])
def test_help_answers_what_how_and_what_else(controller: Controller, words: list[str]) -> None:
    finished = controller.mnspawn(*words)
    assert finished.status == 0
    for expected in (
        "mnspawn [run]",
        "SCRIPT",
        "--nproc-per-node",
        "[host:rank]",
        "MNSPAWN_<OPTION>",
        "Exit status",
        "Ctrl-C",
    ):
        assert expected in finished.stdout
    assert finished.stderr == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "expected a script after the options, found nothing"),
        (["--hosts", "a"], "expected a script after the options, found nothing"),
        (["--nope", "train.py"], "--nope: expected an option of mnspawn, found an unknown one"),
        (["--hosts"], "--hosts: expected a value, found the end of the command line"),
        (["--hosts", "", "train.py"], "--hosts: "),
        (["--hosts", "a:0", "train.py"], "--hosts"),
        (["--hosts", "a:x", "train.py"], "--hosts"),
        (["--hosts", "a,a", "train.py"], "--hosts"),
        (["--hostfile", "nowhere", "train.py"], "nowhere"),
        (["--hosts", "a", "--nproc-per-node", "0", "train.py"], "--nproc-per-node: "),
        (["--hosts", "a", "--grace", "soon", "train.py"], "--grace: "),
        (["--hosts", "a", "--output", "loud", "train.py"], "--output: "),
        (["--hosts", "a", "--ranks", "3-1", "train.py"], "--ranks: "),
        (["--ips", "10.0.0.1", "--hostfile", "nowhere", "train.py"], "nowhere"),
        (["--hosts", "a", "--ips", "b", "train.py"], "--ips: expected one of these at most, found --hosts as well"),
        (["--hosts", "a", "--hostfile", "nowhere", "train.py"], "nowhere"),
        (["--sandbox", "2", "--include", "a", "train.py"], "--include: "),
        (["--hosts", "a", "--log-dir", "/dev/null/x", "train.py"], "--log-dir: /dev/null/x: Not a directory"),
        (["--sandbox", "0", "train.py"], "--sandbox: "),
        (["--hosts", "a", "--dry-run=yes", "train.py"], "--dry-run: expected no value, found 'yes'"),
        (["--hosts", "a", "--events", "/no/folder/e", "train.py"], "--events: /no/folder/e: No such file or directory"),
        (["train.py"], "expected hosts to run on, found none"),
        (["stats", "night"], "SCRIPT: expected a script or a command, found no file 'stats'"),
    ],
)
def test_what_cant_be_used_is_told_in_a_line_with_its_place(
    controller: Controller, words: list[str], said: str
) -> None:
    (controller.home / "train.py").write_text("raise SystemExit('this ran')")
    finished = controller.mnspawn(*words)
    first, *more = finished.stderr.splitlines()
    assert finished.status == 2
    assert first.startswith(f"mnspawn: {said}")
    assert all(line.startswith("  hint: ") for line in more)
    assert finished.stdout == ""


def test_a_bad_variable_is_told_by_its_name(controller: Controller) -> None:
    finished = controller.mnspawn("--hosts", "a", "x.py", env={"MNSPAWN_NPROC_PER_NODE": "many"})
    assert finished.status == 2
    assert finished.stderr.startswith("mnspawn: MNSPAWN_NPROC_PER_NODE: ")


def test_completion_knows_options_and_commands_in_every_place(controller: Controller) -> None:
    def complete(line: str) -> list[str]:
        variables = {"_MNSPAWN_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        return controller.mnspawn(env=variables).stdout.split()

    assert complete("mnspawn --hostf") == ["--hostfile"]
    assert complete("mnspawn --hosts a --nproc") == ["--nproc-per-node"]
    assert complete("mnspawn run --conn") == ["--connect-timeout"]
    assert complete("mnspawn ru") == ["run"]
    asked_from = f"{sys.executable} -c '{ENTRY}' --show-completion; true"  # its parent says for which shell
    assert "_MNSPAWN_COMPLETE" in controller.run("bash", "-c", asked_from).stdout


def test_closed_standard_streams_do_no_harm(controller: Controller) -> None:
    for closed in (">&-", "2>&-", "<&-", ">&- 2>&- <&-"):
        command = f"{sys.executable} -c '{ENTRY}' --hosts '' x.py {closed}"
        assert controller.run("sh", "-c", command).status == 2


def test_help_into_a_closed_pipe_is_no_traceback(controller: Controller) -> None:
    finished = controller.run("sh", "-c", f"{sys.executable} -c '{ENTRY}' --help | true")
    assert finished.stderr == ""


def test_a_command_line_may_have_bytes_that_are_no_text(controller: Controller, tmp_path: Path) -> None:
    raw = os.fsencode(str(tmp_path)) + b"/\xff\xfe.py"
    argv = [os.fsencode(sys.executable), b"-c", ENTRY.encode(), b"--hosts", b"a:0", raw, b"\xff"]
    finished = subprocess.run(argv, env=controller.environment(), cwd=tmp_path, capture_output=True, check=False)
    assert finished.returncode == 2
    assert b"Traceback" not in finished.stderr


def test_a_misspelt_command_is_no_script(controller: Controller) -> None:
    assert "  hint: did you mean mnspawn attach?\n" in controller.mnspawn("--hosts", "a", "atach", "night").stderr
    (controller.home / "stat").write_text("")
    assert "expected hosts" in controller.mnspawn("stat").stderr
