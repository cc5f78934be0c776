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
