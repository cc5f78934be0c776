"""`mnspawn inventory` as people and scripts use it."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mnspawn.cli.main import main
from mnspawn_inventory.fields import MAX_SLOTS
from tests.support.work import calls

SAMPLES = Path(__file__).parents[2] / "inventory" / "samples"


class Ran(NamedTuple):
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `mnspawn inventory WORDS` in an empty folder, with a configuration folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def run(*words: str) -> Ran:
        status = main(["inventory", *words])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "config" / "mnspawn" / "inventory.toml"


def test_list_shows_a_table_and_json_with_null_where_nothing_is_said(run: Run) -> None:
    sample = str(SAMPLES / "mnspawn.toml")
    ran = run("list", "-i", sample)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.splitlines()[0].split() == ["NAME", "ADDRESS", "USER", "PORT", "SLOTS", "GROUPS"]
    assert ran.out.splitlines()[3].split() == ["gpu03", "10.0.0.13", "train", "2222", "4", "cluster,gpu"]
    hosts = run("list", "-i", sample, "--json").json["hosts"]
    assert [host["name"] for host in hosts] == ["gpu01", "gpu02", "gpu03", "login"]
    assert list(hosts[0])[:6] == ["name", "address", "user", "port", "slots", "groups"]
    assert hosts[0]["port"] is None
    assert hosts[0]["groups"] == ["cluster", "gpu"]


@pytest.mark.parametrize("option", ["-i", "--inventory", "--hostfile"])
def test_every_option_takes_files_of_every_format(option: str, run: Run) -> None:
    for sample in sorted(SAMPLES.iterdir()):
        if sample.suffix != ".env":
            ran = run("list", option, str(sample), "--names")
            assert (ran.status, ran.out) == (0, "gpu01\ngpu02\ngpu03\nlogin\n")


def test_options_may_stand_before_the_command(run: Run) -> None:
    assert run("-i", str(SAMPLES / "hostfile"), "list", "--names").out == "gpu01\ngpu02\ngpu03\nlogin\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["@gpu!gpu02"], "gpu[01,03]"),
        (["gpu0?", "login"], "gpu[01-03],login"),
        (["--exclude", "@gpu"], "login"),
        (["--include", "gpu01:0-3", "--limit", "@cluster"], "gpu01"),
        (["@gpu", "--limit", "gpu[02-03]"], "gpu[02-03]"),
    ],
)
def test_list_chooses_and_folds(words: list[str], expected: str, run: Run) -> None:
    assert run("list", "-i", str(SAMPLES / "ansible.ini"), "--fold", *words).out == f"{expected}\n"


def test_show_tells_where_every_value_is_written(run: Run) -> None:
    sample = str(SAMPLES / "ansible.ini")
    ran = run("show", "gpu03", "-i", sample)
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["port", "=", "2222", f"{sample}:5:43"] in lines
    assert ["user", "=", "train", f"{sample}:8:14"] in lines
    assert run("show", "gpu03", "-i", sample, "--json").json["hosts"][0]["origins"]["user"] == f"{sample}:8:14"


def test_a_life_of_an_inventory(run: Run, own: Path) -> None:
    assert run("add", "gpu[01-03]", "address=10.0.0.[1-3]", "slots=8", "-g", "gpu").status == 0
    assert run("add", "login", "--address", "10.0.0.9", "--user", "admin").out == f"{own}: added login\n"
    own.write_text(own.read_text() + "\n# kept\n[other]\nkey = 1\n")
    assert run("set", "gpu02", "slots=4", "labels.rack=r2", "--json").json == {"path": str(own), "set": ["gpu02"]}
    assert run("set", "@gpu", "user=train").status == 0
    assert run("remove", "gpu03").out == f"{own}: removed gpu03\n"
    hosts = run("list", "--json").json["hosts"]
    assert [(host["name"], host["address"], host["user"], host["slots"]) for host in hosts] == [
        ("gpu01", "10.0.0.1", "train", 8),
        ("gpu02", "10.0.0.2", "train", 4),
        ("login", "10.0.0.9", "admin", None),
    ]
    assert own.read_text().endswith("\n# kept\n[other]\nkey = 1\n")
    assert run("groups", "--json").json == {"groups": [{"name": "gpu", "hosts": ["gpu01", "gpu02"], "children": []}]}
    assert run("path").out == f"{own}\n"
    assert run("validate").out == f"{own}: toml, 3 hosts, 1 groups\n"


def test_edits_go_to_the_projects_file_when_it_has_hosts(run: Run, own: Path) -> None:
    project = Path("mnspawn.toml")
    project.write_text("[run]\nnproc_per_node = 2\n")
    run("add", "a")
    project.write_text(project.read_text() + "[hosts.b]\n")
    run("add", "c")
    run("set", "a", "port=1")
    run("set", "b", "port=2")
    assert own.read_text() == "[hosts.a]\nport = 1\n"
    assert project.read_text() == "[run]\nnproc_per_node = 2\n[hosts.b]\nport = 2\n\n[hosts.c]\n"
    assert run("list", "--names").out == "a\nb\nc\n"


def test_an_unknown_key_is_refused_when_reading_and_kept_when_editing(run: Run, own: Path) -> None:
    own.parent.mkdir(parents=True)
    own.write_text('[hosts.a]\ncolour = "red"  # mine\n')
    ran = run("list")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"mnspawn: {own}:2:1: unknown key: found 'colour', expected one of address, ")
    assert run("set", "a", "port=1").status == 0
    assert own.read_text() == '[hosts.a]\ncolour = "red"  # mine\nport = 1\n'


@pytest.mark.parametrize("name", ["ansible.yml", "ansible.ini", "ssh_config", "hostfile", "pbs.nodefile"])
def test_import_takes_a_file_over_and_may_be_repeated(name: str, run: Run) -> None:
    assert run("import", str(SAMPLES / name)).status == 0
    there = run("list", "--json").json["hosts"]
    assert there == run("list", "-i", str(SAMPLES / name), "--json").json["hosts"]
    assert run("import", str(SAMPLES / name)).status == 0
    assert run("list", "--json").json["hosts"] == there


def test_import_does_not_overwrite_unless_asked(run: Run, own: Path) -> None:
    run("add", "gpu01", "address=1.2.3.4", "workdir=/mine")
    before = own.read_text()
    ran = run("import", str(SAMPLES / "ansible.yml"))
    assert ran.status == 2
    assert "gpu01 already exists with another address" in ran.err
    assert "hint: --update" in ran.err
    assert own.read_text() == before
    assert run("import", str(SAMPLES / "ansible.yml"), "--update").status == 0
    host = run("list", "gpu01", "--json").json["hosts"][0]
    assert (host["address"], host["workdir"]) == ("10.0.0.11", "/mine")


@pytest.mark.parametrize("to", ["toml", "hostfile", "ansible-yaml", "ssh-config", "json"])
def test_what_is_exported_is_read_back(to: str, run: Run) -> None:
    ran = run("export", "-i", str(SAMPLES / "ansible.ini"), "--to", to, "-o", "exported")
    assert ran.status == 0
    source = {host["name"]: host for host in run("list", "-i", str(SAMPLES / "ansible.ini"), "--json").json["hosts"]}
    back = run("list", "-i", "exported", "--json").json["hosts"]
    held = {"hostfile": ["user", "port", "slots"], "ssh-config": ["address", "user", "port"]}.get(to, list(back[0]))
    assert [host["name"] for host in back] == list(source)
    for host in back:
        assert {key: host[key] for key in held} == {key: source[host["name"]][key] for key in held}
    lost = [line for line in ran.err.splitlines() if "can't hold" in line]
    assert bool(lost) == (to in ("hostfile", "ssh-config"))


def test_export_of_some_hosts(run: Run) -> None:
    ran = run("export", "@gpu", "-i", str(SAMPLES / "ansible.ini"), "--to", "hostfile")
    assert ran.out == "train@gpu01 slots=8\ntrain@gpu02 slots=8\nssh://train@gpu03:2222 slots=4\n"


def test_validate_tells_about_every_file(run: Run) -> None:
    Path("bad").write_text("a slots=4x\n")
    ran = run("validate", str(SAMPLES / "hostfile"), "bad", "missing")
    assert ran.status == 2
    assert ran.out == f"{SAMPLES / 'hostfile'}: hostfile, 4 hosts\n"
    assert ran.err.splitlines() == [
        f"mnspawn: bad:1:9: not a number of slots: found '4x', expected a whole number from 1 to {MAX_SLOTS}",
        "mnspawn: missing: there is no such file",
    ]
    ran = run("validate", "bad", "--json")
    assert ran.status == 2
    error = ran.json["files"][0]["error"]
    assert (error["file"], error["line"], error["column"], error["found"]) == ("bad", 1, 9, "4x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list"], "there is no inventory"),
        (["list", "-i", "nope"], "nope: there is no such file"),
        (["list", "-i", ""], "--inventory: no file name"),
        (["list", "-i", "x", "--hostfile", "y"], "--hostfile: --inventory and --hostfile both"),
        (["list", "-i", str(SAMPLES / "hostfile"), "--format", "tomll"], "--format: no such format: found 'tomll'"),
        (["list", "-i", str(SAMPLES / "hostfile"), "nope"], "HOSTS: no such host in"),
        (["list", "-i", str(SAMPLES / "hostfile"), "--limit", "@x"], "--limit: no such group"),
        (["export", "-i", str(SAMPLES / "hostfile"), "--to", "xml"], "no such export: found 'xml'"),
        (["export", "-i", str(SAMPLES / "hostfile"), "-o", "no/such"], "--output: there is no such folder: found 'no'"),
        (["export", "-i", str(SAMPLES / "hostfile"), "-o", "/dev/full"], "no space left on device"),
        (["add", "slots=4"], "no hosts"),
        (["add", "a b"], "HOSTS: a blank inside a host name"),
        (["add", "a", "slots=x"], "slots: not a number of slots: found 'x'"),
        (["add", "a!b"], "HOSTS: not a plain list of hosts"),
        (["set", "a"], "nothing to set"),
        (["set", "a", "slots=1"], "there is no such file"),
        (["remove", "a"], "there is no such file"),
        (["import", "nope"], "nope: there is no such file"),
        (["add", "-i", str(SAMPLES / "ansible-dynamic.sh"), "x"], "a program makes this inventory"),
        (["add", "-i", "-", "x"], "--inventory: stdin is read, not edited"),
        (["add", "-i", str(SAMPLES), "x"], "a folder is read, not edited"),
        (["add", "-i", str(SAMPLES / "ssh_config"), "x"], "files in the format ssh-config are read, not edited"),
        (["add", "-i", "x.slurm", "--format", "slurm", "x"], "files in the format slurm are read, not edited"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_what_cannot_be_is_told_in_a_line_with_status_2(words: list[str], message: str, run: Run) -> None:
    ran = run(*words)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) <= 2


def test_a_hostfile_is_edited_too(run: Run) -> None:
    Path("hosts").write_text("# mine\na slots=4 # first\n")
    assert run("add", "b", "slots=2", "--hostfile", "hosts").status == 0
    assert run("set", "a", "slots=8", "--hostfile", "hosts").status == 0
    assert Path("hosts").read_text() == "# mine\na slots=8 # first\nb slots=2\n"
    assert run("add", "c", "--hostfile", "new").status == 0
    assert Path("new").read_text() == "c\n"


def test_edit_checks_what_the_editor_wrote(
    run: Run, own: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    run("add", "a")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf '[hosts.b]\\n' >> \"$1\"\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    assert run("edit").out == f"{own}: edited\n"
    assert own.read_text() == "[hosts.a]\n[hosts.b]\n"
    ran = run("edit")  # the table is there twice now
    assert ran.status == 2
    assert "not valid TOML" in ran.err
    kept = Path(ran.err.split("your text is in ")[1].strip())
    assert kept.read_text() == "[hosts.a]\n[hosts.b]\n[hosts.b]\n"
    kept.unlink()
    kept.parent.rmdir()
    assert own.read_text() == "[hosts.a]\n[hosts.b]\n"
    monkeypatch.setenv("EDITOR", "false")
    assert run("edit").status == 2


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the editor a shell script, whose "$2" is the file; the first is an argument of its own."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.delenv("VISUAL", raising=False)

    def editor(script: str) -> None:
        path = tmp_path / "my editor"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("EDITOR", f"'{path}' --wait")

    return editor


@pytest.mark.parametrize(
    "name", ["ansible.ini", "ansible.yml", "ansible.json", "ssh_config", "hostfile", "pbs.nodefile", "mnspawn.toml"]
)
def test_files_of_every_format_are_edited_by_hand(name: str, run: Run, editor: Callable[[str], None]) -> None:
    Path(name).write_bytes((SAMPLES / name).read_bytes().replace(b"\n", b"\r\n", 1))  # line ends of two kinds, too
    editor('[ "$1" = --wait ] && sed -i s/login/loginx/g "$2"')
    assert run("edit", "-i", name).out == f"{name}: edited\n"
    assert "loginx" in run("list", "-i", name, "--names").out.split()


@pytest.mark.parametrize(
    ("script", "message", "keeps"),
    [
        ("exit 3", "the editor ended with status 3", False),
        ("kill -9 $$", "the editor ended by signal 9", False),
        ('rm "$2"', "the editor removed the file", False),
        ("printf 'a\\377\\n' > \"$2\"", "hosts:1:2: not UTF-8 text", True),
        ("echo 'a slots=x' > \"$2\"", "hosts:1:9: not a number of slots", True),
    ],
)
def test_an_editor_that_fails_changes_nothing(
    script: str, message: str, keeps: bool, run: Run, editor: Callable[[str], None], tmp_path: Path
) -> None:
    Path("hosts").write_text("a\n")
    editor(script)
    ran = run("edit", "--hostfile", "hosts")
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert Path("hosts").read_text() == "a\n"
    kept = ran.err.partition("your text is in ")[2].strip()
    assert bool(kept) == keeps
    if kept:
        Path(kept).unlink()
        Path(kept).parent.rmdir()


def test_a_secret_that_somebody_wrote_down_is_not_shown(run: Run) -> None:
    Path("i.toml").write_text('[hosts.a]\nenv = { HF_TOKEN = "hf_abc", OTHER = "x", T = { env = "T" } }\n')
    for words in (["list", "--json"], ["show", "a"], ["show", "a", "--json"]):
        ran = run(*words, "-i", "i.toml")
        assert "hf_abc" not in ran.out + ran.err
        assert "i.toml:2:21: a: HF_TOKEN is a secret, and others can read this file" in ran.err
    assert run("list", "--json", "-i", "i.toml").json["hosts"][0]["env"] == {
        "HF_TOKEN": "***",
        "OTHER": "x",
        "T": {"env": "T"},
    }


def test_stdin_is_an_inventory_too(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mnspawn.cli.main", "inventory", "list", "-i", "-", "--names"],
        input="b slots=1\na\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "b\na\n", "")


def test_additions_at_once_lose_nothing(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}

    def add(number: int) -> int:
        argv = [sys.executable, "-m", "mnspawn.cli.main", "inventory", "add", f"h{number}", "-g", "g"]
        return subprocess.run(argv, env=environ, cwd=tmp_path, capture_output=True, check=False, timeout=100).returncode

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(add, range(8))) == {0}
    listed = subprocess.run(
        [sys.executable, "-m", "mnspawn.cli.main", "inventory", "list", "@g", "--fold"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert listed.stdout == "h[0-7]\n"


@pytest.mark.full
def test_many_hosts_are_listed_chosen_and_folded_with_as_much_more_work(run: Run) -> None:
    """No two of them share a range; four times the hosts are four times the calls beyond those for one host."""
    for count in (1, 500, 2_000):
        Path(f"{count}").write_text("".join(f"n{i}x{i * 7 % 10007} slots=8\n" for i in range(count)))
        Path(f"{count}.toml").write_text(
            "".join(f'[hosts.n{i}x]\naddress = "10.{i >> 8}.{i & 255}.1"\nslots = 8\n' for i in range(count))
        )

    def work(name: str, *words: str) -> int:
        run("list", "-i", name, *words)  # what is imported on the way is not counted
        return calls(run, "list", "-i", name, *words)

    for suffix, words in (("", ()), ("", ("--fold",)), ("", ("n*", "--exclude", "n[1-50]x*")), (".toml", ("--json",))):
        one, few, many = (work(f"{count}{suffix}", *words) for count in (1, 500, 2_000))
        assert many - one < 4.5 * (few - one), (suffix, words)


def test_show_without_hosts_shows_all(run: Run) -> None:
    Path("hosts").write_text("a slots=2\nb\n")
    ran = run("show", "--hostfile", "hosts")
    assert (ran.status, [line.split()[0] for line in ran.out.splitlines() if line]) == (0, ["a", "slots", "b"])
    assert [host["name"] for host in run("show", "--hostfile", "hosts", "--json").json["hosts"]] == ["a", "b"]


FOREIGN = {
    "ansible.ini": "ansible-ini",
    "ansible.yml": "ansible-yaml",
    "ansible.json": "json",
    "ansible-dynamic.sh": "a program makes this inventory, and only it can change that",
    "ssh_config": "ssh-config",
    "own.json": "json",
    "nodes.slurm": "slurm",
    "nodes.ips": "ips",
    "folder": "a folder is read, not edited",
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("words", [["add", "x"], ["set", "gpu01", "port=1"], ["remove", "gpu01"]], ids=lambda it: it[0])
def test_a_foreign_file_is_not_edited_and_the_hint_makes_toml_of_it(words: list[str], name: str, run: Run) -> None:
    path = Path(f"my {name}")
    if name == "own.json":
        path.write_text(run("export", "-i", str(SAMPLES / "mnspawn.toml"), "--to", "json").out)
    elif name == "folder":
        path.mkdir()
        (path / "hosts").write_text("gpu01\ngpu02\n")
    elif name in ("nodes.slurm", "nodes.ips"):
        path.write_text("gpu[01-02]\n" if name == "nodes.slurm" else "10.0.0.1,10.0.0.2\n")
        words = [*words, "--format", name.partition(".")[2]]
    else:
        path.write_bytes((SAMPLES / name).read_bytes())
        path.chmod((SAMPLES / name).stat().st_mode)
    before = path.read_bytes() if path.is_file() else None
    ran = run(*words, "-i", str(path))
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"mnspawn: {path}: ")
    assert f"{FOREIGN[name]} are read, not edited" in ran.err or f": {FOREIGN[name]}" in ran.err
    assert before is None or path.read_bytes() == before
    command = shlex.split(ran.err.partition("hint: ")[2].partition(" takes its hosts")[0])
    assert command[:3] == ["mnspawn", "inventory", "import"]
    options = command[4:]
    assert run(*command[2:]).status == 0
    assert run("list", "--json").json == run("list", "-i", str(path), *options, "--json").json
    if name != "nodes.ips":
        edit = words if "--format" not in words else words[:-2]
        assert run(*edit).status == 0


def test_a_new_file_of_a_foreign_format_is_not_begun(run: Run) -> None:
    ran = run("add", "a", "-i", "new.yml")
    assert (ran.status, Path("new.yml").exists()) == (2, False)
    assert "new.yml: files in the format ansible-yaml are read, not edited" in ran.err
    assert "hint: give a new inventory a name that ends in .toml" in ran.err


def test_the_hint_about_what_a_hostfile_cannot_hold_makes_toml_of_it(run: Run) -> None:
    Path("my hosts").write_text("a slots=2\nb\n")
    ran = run("set", "a", "address=10.0.0.1", "--hostfile", "my hosts")
    assert (
        "my hosts: a file in the format hostfile can't hold address: expected slots, max_slots, user, port" in ran.err
    )
    command = shlex.split(ran.err.partition("hint: ")[2].partition(" takes its hosts")[0])
    assert run(*command[2:]).status == 0
    assert run("set", "a", "address=10.0.0.1").status == 0
    assert [host["address"] for host in run("list", "--json").json["hosts"]] == ["10.0.0.1", None]
