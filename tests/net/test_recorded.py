"""A rank's exception, as torch's `record` leaves it, in the summary, the report and the events. No torch needed."""

import json
from pathlib import Path

import pytest

from tests.support import Cluster, Controller

RECORD = """
import json, os, sys, time
def record(text):
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": {"message": text, "extraInfo": {"py_callstack": "", "timestamp": "1"}}}, file)
"""


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_exception_and_message_are_in_summary_report_and_events(cluster: Cluster, transport: str) -> None:
    script = cluster.home / "train.py"
    script.write_text(
        f"{RECORD}if os.environ['RANK'] != '1': time.sleep(600)\nrecord('ValueError: no luck')\nsys.exit(3)\n"
    )
    events = cluster.home / "events"
    where = (
        "--hosts",
        cluster.hosts_option,
        "--nproc-per-node",
        "1",
        "--transport",
        transport,
        "--ssh-config",
        str(cluster.ssh_config),
    )
    done = cluster.mnspawn(*where, "--events", str(events), "--name", transport, str(script))
    assert done.status == 3
    assert "\n  torch recorded its error: ValueError: no luck\n" in done.stderr
    told = json.loads(cluster.mnspawn("report", transport, "--json").check().stdout)["report"]
    assert told["first_failure"]["raised"] == "ValueError: no luck"
    assert [rank["raised"] for rank in told["ranks"]] == [None, "ValueError: no luck", None]
    exits = [e for e in map(json.loads, events.read_text().splitlines()) if e["event"] == "trainer_exited"]
    assert [e["raised"] for e in exits if e["rank"] == 1] == ["ValueError: no luck"]


def launch(controller: Controller, source: str, *options: str) -> str:
    """What the summary of a rank that ends badly says."""
    script = controller.home / "train.py"
    script.write_text(f"{RECORD}{source}\nsys.exit(1)\n")
    done = controller.mnspawn("--sandbox", "1", "--nproc-per-node", "1", *options, str(script))
    assert done.status == 1, done
    return done.stderr


def test_a_message_can_not_steer_the_terminal(controller: Controller) -> None:
    said = launch(controller, "record('E: \\x1b[2Jgone\\r\\n' + 'line\\n' * 20)")
    assert "  torch recorded its error: E: \\x1b[2Jgone\n" in said
    assert said.count("\n    line") == 5
    assert "\n    ... (15 more lines)\n" in said


def test_what_can_not_be_used_is_told_and_the_rest_as_ever(controller: Controller) -> None:
    said = launch(controller, "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{')")
    assert "rank 0: the error that torch recorded can't be used: " in said
    assert "error.0.json: it is not the JSON that torch writes\n" in said
    assert "mnspawn: rank 0 failed: exit status 1" in said


def test_a_rank_that_ends_well_has_recorded_nothing_that_counts(controller: Controller) -> None:
    script = controller.home / "train.py"
    script.write_text(f"{RECORD}record('E: handled')\n")
    done = controller.mnspawn("--sandbox", "1", "--nproc-per-node", "1", "--events", "-", str(script))
    assert (done.status, done.stderr) == (0, "")
    assert [event.get("raised") for event in map(json.loads, done.stdout.splitlines())][-2:] == [None, None]


def test_a_file_of_the_users_own_is_left_to_the_user(controller: Controller, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    said = launch(controller, "record('E: mine')", "-x", f"TORCHELASTIC_ERROR_FILE={mine}")
    assert "torch recorded" not in said
    assert json.loads(mine.read_text())["message"]["message"] == "E: mine"
