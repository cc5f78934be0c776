"""What a secret is, the same everywhere, and what is told of one that stands in a file that others can read."""

from pathlib import Path

import pytest

from mnspawn.plan.launch_plan import HostContext, LaunchSpec, Program, build
from mnspawn.plan.layout import Site, assign
from mnspawn_inventory import Host, InventoryError, resolve
from mnspawn_inventory.assign import parse_settings
from mnspawn_inventory.exposed import notes_of
from mnspawn_inventory.secret_names import MASK, is_secret

SECRETS = [
    *[
        ("HF_TOKEN", "x"),
        ("hfToken", "x"),
        ("API_TOKENS", "a,b"),
        ("PGPASSWORD", "x"),
        ("SSHPASS", "x"),
        ("DB_PASS", "x"),
    ],
    *[("AWS_SECRET_ACCESS_KEY", "x"), ("WANDB_API_KEY", "x"), ("APIKEY", "x"), ("GITHUB_PAT", "x"), ("MYSQL_PWD", "x")],
    *[("SESSION_COOKIE", "x"), ("NPM_AUTH", "x"), ("SENTRY_DSN", "x"), ("KEY_PASSPHRASE", "x"), ("PASSWORD", "1234")],
    *[
        ("DATABASE_URL", "postgres://me:pw@db/x"),
        ("https_proxy", "http://me:pw@proxy:3128"),
        ("AZURE_CREDENTIALS", "x"),
    ],
]
PLAIN = [
    *[("TOKENIZERS_PARALLELISM", "false"), ("NCCL_IB_PKEY", "0x8001"), ("MAX_TOKENS", "4096"), ("PWD", "/x")],
    *[("KEYBOARD", "x"), ("AUTHOR", "me"), ("HF_TOKEN_PATH", "/x"), ("AWS_SHARED_CREDENTIALS_FILE", "/x")],
    *[("COMPASS_X", "1"), ("MONKEYS_EAT", "1"), ("PATH", "/bin"), ("http_proxy", "http://proxy:3128")],
]


def planned(name: str, value: str) -> str:
    """The value as --dry-run shows it."""
    spec = LaunchSpec("r1", Program("command", "true"), env=((name, value),), keep_proxy=True)
    plan = build(spec, assign([Site("h", "127.0.0.1", "", (1,))], 1, 2), [HostContext("python3", "/", "/")])
    shown = plan.describe(reveal=False)["pods"][0]["trainers"][0]["env"][name]
    assert isinstance(shown, str)
    return shown


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_a_secret_is_one_for_settings_and_plans_alike(name: str, value: str) -> None:
    assert is_secret(name, value)
    assert planned(name, value) == MASK
    with pytest.raises(InventoryError, match="secrets are referred to, not written down"):
        parse_settings([f"env.{name}={value}"])


@pytest.mark.parametrize(("name", "value"), PLAIN)
def test_what_is_no_secret_is_shown_and_may_be_set(name: str, value: str) -> None:
    assert not is_secret(name, value)
    assert planned(name, value) == value
    assert parse_settings([f"env.{name}={value}"]) == {f"env.{name}": value}


WRITTEN = {
    "i.toml": '[hosts.a]\nenv = { TOKEN = "hush", OTHER = "x" }\n',
    "i.json": '{"hosts": [{"name": "a",\n  "env": {"TOKEN": "hush"}}]}',
    "i.yml": "all:\n  hosts: {a: {mnspawn_env: {TOKEN: hush}}}\n",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_secret_in_a_file_that_others_can_read_is_told_with_its_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(WRITTEN[name])
    path.chmod(0o640)
    selection = resolve(inventory=name, environ={}, cwd=tmp_path)
    (note,) = selection.notes
    assert note.startswith(f"{name}:2:")
    assert 'a: TOKEN is a secret, and others can read this file: write { env = "TOKEN" } or' in note
    assert f"or chmod go= {name}" in note
    assert "hush" not in note
    assert dict(selection.hosts[0].env)["TOKEN"] == "hush"


def test_a_secret_in_a_file_of_ones_own_is_not_told_nor_one_that_is_referred_to(tmp_path: Path) -> None:
    path = tmp_path / "i.toml"
    path.write_text(WRITTEN["i.toml"])
    path.chmod(0o600)
    assert resolve(inventory="i.toml", environ={}, cwd=tmp_path).notes == ()
    path.write_text('[hosts.a]\nenv = { TOKEN = { env = "TOKEN" } }\n')
    path.chmod(0o644)
    assert resolve(inventory="i.toml", environ={}, cwd=tmp_path).notes == ()


def test_only_hosts_that_take_part_are_told(tmp_path: Path) -> None:
    (tmp_path / "mnspawn.toml").write_text('[hosts.a]\nenv = { TOKEN = "hush" }\n[hosts.b]\n')
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert resolve(hosts="b", environ=environ, cwd=tmp_path).notes == ()
    assert len(resolve(hosts="a", environ=environ, cwd=tmp_path).notes) == 1
    assert notes_of([Host("c", env=(("TOKEN", "x"),))]) == ()
