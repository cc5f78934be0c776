"""Private names of asyncssh and paramiko: used in one module alone, and no more than are listed here."""

import ast
from collections.abc import Iterator

from tests.support.controller import REPOSITORY
from tests.support.source import CONTROLLER, modules, shown, tree

BY_NAME = ("getattr", "setattr", "hasattr", "delattr")
INTERNALS = "orchestrator/mnspawn/transport/ssh/internals.py"
OF_LIBRARIES = {
    INTERNALS: {
        *("_auth_methods", "_auth", "_choose_signature_alg"),  # asyncssh
        *("_channel_handler_table", "_key_info", "_kex_info", "_cipher_info", "_mac_info", "_handle_request"),
        *("_connect", "_close"),  # paramiko
    },
    "orchestrator/mnspawn/transport/paramiko/process.py": {"_log"},  # overrides it; where there is none nobody calls it
}


def own_names(node: ast.AST) -> Iterator[str]:
    """Private names that a module of ours gives to something of its own."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield part.name
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and is_self(part.value):
            yield part.attr


def is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name.isidentifier()


def foreign_names(node: ast.AST) -> Iterator[str]:
    """Private names that are read of something else, or named for getattr and the like."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and not is_self(part.value) and is_private(part.attr):
            yield part.attr
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in BY_NAME:
            words = [word.value for word in part.args[1:2] if isinstance(word, ast.Constant)]
            yield from (str(word) for word in words if is_private(word))


def test_private_names_of_ssh_libraries_are_used_in_one_module_alone() -> None:
    used = {}
    for path in [*modules(CONTROLLER / "transport"), *CONTROLLER.glob("sandbox*.py")]:
        node = tree(path)
        if (names := {*foreign_names(node)} - {*own_names(node)}) and shown(path) != INTERNALS:
            used[shown(path)] = names
    assert {path: names - OF_LIBRARIES.get(path, set()) for path, names in used.items() if names} == {
        path: set() for path in used
    }


def test_the_module_names_no_more_than_is_listed() -> None:
    named = {
        word.value
        for word in ast.walk(tree(REPOSITORY / INTERNALS))
        if isinstance(word, ast.Constant) and is_private(word.value)
    }
    assert named == OF_LIBRARIES[INTERNALS]
