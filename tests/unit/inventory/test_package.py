"""The package as others see it."""

import mnspawn_inventory


def test_the_public_names_are_these() -> None:
    assert sorted(mnspawn_inventory.__all__) == [
        "Group",
        "Host",
        "Inventory",
        "InventoryError",
        "Origin",
        "SecretRef",
        "Selection",
        "fold",
        "read_inventory",
        "resolve",
    ]
