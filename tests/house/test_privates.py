"""Private names of libraries: no more of them are used than are listed here, for SSH in one module alone."""

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
SPAWNING = "orchestrator/mnspawn/spawning/"
OF_SPAWNING = {
    SPAWNING + "start.py": {"_inheriting"},  # multiprocessing
    SPAWNING + "forking/child.py": {
        *("_clear", "_run_exitfuncs"),  # atexit
        *("_bootstrap", "_exit_function"),  # multiprocessing
    },
    SPAWNING + "results/loading.py": {
        *("_make_skeleton_class", "_make_skeleton_enum", "_class_setstate"),  # in cloudpickle's pickles
        "_DYNAMIC_CLASS_TRACKER_BY_ID",
    },
    SPAWNING + "sending/arrival.py": {
        *("_make_function", "_function_setstate"),  # in cloudpickle's pickles
        *("_make_skeleton_class", "_make_skeleton_enum", "_class_setstate"),
        *("_forkserver", "_inherited_fds", "_resource_tracker", "_fd"),  # multiprocessing
    },
    SPAWNING + "sending/pickling.py": {  # cloudpickle
        *("_make_function", "_make_skeleton_class", "_make_skeleton_enum", "_dynamic_function_reduce"),
    },
    SPAWNING + "sending/sharing.py": {
        *("_extra_reducers", "_DupFd", "_resource_tracker", "_fd", "_ConnectionBase"),  # multiprocessing
    },
    "agent/mnspawn_agent/worker_main.py": {"_finalizer_registry", "_run_after_forkers"},  # multiprocessing
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


def library_names(node: ast.AST) -> Iterator[str]:
    """Private names of others, whether read, inherited or written as text: in a pickle they are texts."""
    yield from foreign_names(node)
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and is_self(part.value) and is_private(part.attr):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and is_private(part.value):
            yield part.value


def test_private_names_of_libraries_in_spawning_are_no_more_than_are_listed() -> None:
    used = {}
    for path in [*modules(CONTROLLER / "spawning"), REPOSITORY / "agent/mnspawn_agent/worker_main.py"]:
        node = tree(path)
        names = {*library_names(node)} - {*own_names(node)} - {"_exit"}  # os._exit is documented
        if names := {name for name in names if not name.startswith("_mnspawn")}:
            used[shown(path)] = names
    assert used == OF_SPAWNING
