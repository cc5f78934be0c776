"""Host inventories: files of many formats read into one model, and expressions that choose hosts.

Depends on neither of the other packages.
"""

from mnspawn_inventory.errors import InventoryError, Origin
from mnspawn_inventory.formats import read_inventory
from mnspawn_inventory.model import Group, Host, Inventory, SecretRef, Selection
from mnspawn_inventory.nodeset import fold
from mnspawn_inventory.resolve import resolve

__all__ = [
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
