"""An inventory that was taken over from another tool, used for a run on real hosts."""

from pathlib import Path

from tests.support import Cluster

RING = Path(__file__).parents[2] / "examples" / "ring.py"


def test_a_group_of_an_imported_ansible_inventory_runs_a_program(cluster: Cluster, tmp_path: Path) -> None:
    inventory = tmp_path / "ansible.yml"
    inventory.write_text(
        "gpu:\n  hosts:\n    h2: {mnspawn_slots: 2}\n    h1: {mnspawn_slots: 1}\nidle:\n  hosts:\n    h3:\n"
    )
    cluster.mnspawn("inventory", "import", str(inventory)).check()
    plan = cluster.mnspawn("--hosts", "@gpu", "--dry-run", str(RING)).check()
    assert plan.stdout.index("h2") < plan.stdout.index("h1")
    done = cluster.mnspawn("--hosts", "@gpu", str(RING)).check()
    assert "3" in done.stdout, done
    cluster.mnspawn("inventory", "remove", "h1", "h2", "h3", "@gpu", "@idle").check()


def test_a_value_that_is_kept_elsewhere_reaches_ranks_and_no_eyes(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("hidden-7\n")
    inventory = tmp_path / "own.toml"
    inventory.write_text('[hosts.h1]\nslots = 1\nenv = { PLAIN = { file = "kept" } }\n')
    events = tmp_path / "events"
    command = ["-i", str(inventory), "--hosts", "h1", "--no-python", "sh", "-c", "echo ${#PLAIN}"]
    dry = cluster.mnspawn("--dry-run", *command).check()
    assert "PLAIN='***'" in dry.stdout
    done = cluster.mnspawn("--events", str(events), *command).check()
    assert done.stdout == "[h1:0] 8\n"
    assert "hidden-7" not in dry.stdout + events.read_text()
