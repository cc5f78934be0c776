"""Editors of the two kinds of files that are edited in place, TOML and hostfiles: text in, text out. No I/O."""

from mnspawn_inventory.editors.document import Document, Settings
from mnspawn_inventory.formats import OWN
from mnspawn_inventory.formats.hostfile import DIALECTS

__all__ = ["EDITED", "Document", "Settings", "open_document"]

REPEATED = ("pbs", "lsf")
EDITED = (OWN, *DIALECTS, *REPEATED)


def open_document(text: str, source: str, format_name: str) -> Document:
    """The editor of a format, one of EDITED, with a text in it.

    Raises:
        InventoryError: the text is not of the format.
    """
    if format_name == OWN:
        from mnspawn_inventory.editors.toml import TomlDocument  # late: imports tomlkit

        return TomlDocument(text, source, format_name)
    from mnspawn_inventory.editors.hostfile import HostfileDocument, NodeFileDocument

    return (NodeFileDocument if format_name in REPEATED else HostfileDocument)(text, source, format_name)
