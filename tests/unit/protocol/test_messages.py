import copy
from typing import Any

import pytest

from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.checks import is_file_name, is_token
from mnspawn_agent.protocol.messages import ADDED, SHAPES, make, problem_of, up_to_date

PREPARE: dict[str, Any] = {
    "run": "r-1_A",
    "node_rank": 0,
    "ranks": [0, 1],
    "python": None,
    "command": None,
    "prelude": "source ~/venv/bin/activate\n",
    "unset": ["http_proxy", "MNSPAWN_*"],
    "env": {"A": "b"},
    "argument_bytes": 20,
    "files": [{"name": "train.py", "path": "/src/train.py", "digest": "ab", "size": 3, "blob": 0}],
    "has_results": False,
    "workdir": "/home/a",
    "is_workdir_required": False,
    "start_port": None,
    "master_port": 29500,
    "extra_ports": 2,
    "probes": [["10.0.0.2", 6070]],
    "grace": 10.0,
    "orphan_grace": 20,
    "silence_limit": 10,
    "log_cap": None,
    "python_version": [3, 11],
    "stops_on_failure": True,
    "about": {},
}
START: dict[str, Any] = {
    "unset": ["http_proxy", "MNSPAWN_*"],
    "env": {"A": "größer\n", "B": ""},
    "files": [["notes.json", "{}"]],
    "argv": ["python3", "train.py"],
    "workers": [{"rank": 0, "local_rank": 0, "env": {"RANK": "0"}}],
    "is_forked": False,
}
EXITED: dict[str, Any] = {
    "rank": 0, "pid": 42, "code": -9, "at": 5.5, "seconds": 1, "stopped": False, "killed": True, "is_disk_full": False,
    "outlived_term": True, "sizes": [[1, 100], [2, 0]], "tail": ["Traceback"], "raised": "E: no",
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    messages.HELLO: {"protocol": 1, "version": "0.1", "facts": {"cpus": 2}, "cached": True},
    messages.NEED: {"blobs": [0, 3]},
    messages.PREPARED: {
        "ports": [6070], "extra_ports": [], "run_dir": "/r", "workdir": "/w", "python": "/p", "files": ["/f"],
        "reach": [["10.0.0.2", ""]], "at": 5.5,
    },
    messages.REFUSED: {"reasons": ["no script /x"]},
    messages.STARTED: {"rank": 0, "pid": 42, "at": 5.5},
    messages.NOT_STARTED: {"rank": 0, "at": 5.5, "error": "no such file"},
    messages.EXITED: EXITED,
    messages.DONE: {"leftovers": [[7, "hangs"]], "swept": 0, "sizes": [[0, 1, 100]], "at": 5.5},
    messages.LOST_OUTPUT: {"rank": 0, "stream": 1, "offset": 0, "count": 10},
    messages.STOPPING: {"reason": "SIGTERM", "grace": 10.0, "is_orphaned": False},
    messages.LET_GO: {},
    messages.LEFT: {"rank": 0, "stream": 1, "offset": 5, "count": 10},
    messages.FILE: {"number": 0, "path": "/var/log/x", "inode": 7, "at": 0, "offset": 5},
    messages.FROM: {"rank": 0, "stream": 1, "offset": 5},
    messages.CAUGHT_UP: {},
    messages.GONE: {"reason": "killed", "leftovers": [[7, ""]]},
    messages.NOTICE: {"text": "the disk is full"},
    messages.PREPARE: PREPARE,
    messages.START: START,
    messages.STOP: {"grace": 0},
    messages.SIGNAL: {"signal": "SIGUSR1", "ranks": None},
    messages.SKIP: {"streams": [1, 2]},
    messages.DETACH: {},
    messages.WATCH: {
        "streams": [1, 2], "ranks": [0], "offsets": [[0, 1, 5]], "tail": 10, "since": None, "has_times": True,
        "is_following": True,
    },
    messages.TAIL: {"patterns": ["/var/log/*.log"], "lines": 10, "resume": [["/var/log/x", 7, 5]]},
    messages.FINISH: {"keep": True},
}  # fmt: skip
FIELDS = [(kind, field) for kind, shape in sorted(SHAPES.items()) for field in shape]


def test_every_message_has_an_example_here() -> None:
    assert set(GOOD) == set(SHAPES)


@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_a_good_message_is_taken(kind: str) -> None:
    message = make(kind, **GOOD[kind])
    assert message["type"] == kind
    assert problem_of(message) is None


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_message_without_one_of_its_fields_is_refused_by_name(kind: str, field: str) -> None:
    message = {name: value for name, value in GOOD[kind].items() if name != field}
    assert problem_of({**message, "type": kind}) == f"{kind}: {field} is missing"


@pytest.mark.parametrize(("kind", "field"), sorted(ADDED))
def test_a_field_that_older_versions_did_not_write_is_added(kind: str, field: str) -> None:
    message = {name: value for name, value in GOOD[kind].items() if name != field}
    assert up_to_date({**message, "type": kind})[field] == ADDED[kind, field]
    assert problem_of(up_to_date({**message, "type": kind})) is None


@pytest.mark.parametrize("kind", sorted(SHAPES))
def test_a_message_of_this_version_is_up_to_date(kind: str) -> None:
    assert up_to_date(make(kind, **GOOD[kind])) == make(kind, **GOOD[kind])


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_a_field_of_a_kind_that_it_never_has_is_refused_by_name(kind: str, field: str) -> None:
    for value in (object(), b"bytes", [object()], [[[]]], 1j):
        problem = problem_of({**GOOD[kind], "type": kind, field: value})
        assert problem is not None
        assert problem.startswith(f"{kind}: {field}=")


@pytest.mark.parametrize("kind", [None, 7, [], {}, "", "hello ", "exit"])
def test_an_unknown_kind_is_refused(kind: Any) -> None:
    assert problem_of({"type": kind}) == f"unknown message {kind!r}"
    assert problem_of({}) == "unknown message None"


def test_a_tailer_may_number_more_files_than_it_follows_at_a_time() -> None:
    assert problem_of(make(messages.FILE, **{**GOOD[messages.FILE], "number": 100_000})) is None


def test_what_a_newer_peer_adds_is_ignored() -> None:
    assert problem_of({"type": messages.STOP, "grace": 1.0, "mood": "calm"}) is None


def test_our_own_mistakes_raise() -> None:
    with pytest.raises(ValueError, match=r"stop: grace=-1"):
        make(messages.STOP, grace=-1)
    with pytest.raises(ValueError, match="unknown message"):
        make("halt")


BAD_VALUES: list[tuple[str, str, Any]] = [
    (messages.STOP, "grace", -0.1),
    (messages.STOP, "grace", True),
    (messages.STOP, "grace", float("nan")),
    (messages.STOP, "grace", float("inf")),
    (messages.STOP, "grace", "10"),
    (messages.HELLO, "protocol", True),
    (messages.HELLO, "cached", 1),
    (messages.STARTED, "rank", -1),
    (messages.STARTED, "pid", 4.0),
    (messages.PREPARED, "ports", [0]),
    (messages.PREPARED, "ports", [65536]),
    (messages.PREPARED, "reach", [["10.0.0.2"]]),
    (messages.PREPARED, "reach", [["10.0.0.2", "", ""]]),
    (messages.PREPARE, "run", "../r"),
    (messages.PREPARE, "run", ""),
    (messages.PREPARE, "ranks", [-1]),
    (messages.PREPARE, "ranks", [0] * 4097),
    (messages.PREPARE, "workdir", "/home\0"),
    (messages.PREPARE, "start_port", 0),
    (messages.PREPARE, "prelude", "true\0"),
    (messages.PREPARE, "env", {"": "x"}),
    (messages.PREPARE, "argument_bytes", -1),
    (messages.PREPARE, "probes", [["10.0.0.2", 0]]),
    (messages.START, "argv", []),
    (messages.START, "argv", ["a\0b"]),
    (messages.START, "argv", ["\ud800"]),
    (messages.START, "argv", "python3"),
    (messages.START, "env", {"A=B": "x"}),
    (messages.START, "env", {"": "x"}),
    (messages.START, "env", {"A": "x\0"}),
    (messages.START, "env", {"A": 1}),
    (messages.START, "env", {"A": "\ud800"}),
    (messages.START, "files", [["../x", ""]]),
    (messages.START, "files", [["x", "\ud800"]]),
]


@pytest.mark.parametrize(("kind", "field", "value"), BAD_VALUES, ids=[f"{k}.{f}={v!r:.20}" for k, f, v in BAD_VALUES])
def test_values_out_of_their_range_are_refused(kind: str, field: str, value: Any) -> None:
    problem = problem_of({**GOOD[kind], "type": kind, field: value})
    assert problem is not None
    assert problem.startswith(f"{kind}: {field}=")
    assert len(problem) < 150


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("env", {"": ""}), ("env", []), ("rank", -1), ("local_rank", None),
    ],
)  # fmt: skip
def test_a_worker_that_can_not_be_started_is_refused(field: str, value: Any) -> None:
    message = copy.deepcopy({**START, "type": messages.START})
    message["workers"][0][field] = value
    assert problem_of(message) is not None


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", "a/b"), ("name", ".."), ("path", 7), ("path", "/a\0"), ("digest", None), ("size", -1), ("blob", "0")],
)
def test_a_file_that_can_not_be_kept_is_refused(field: str, value: Any) -> None:
    message = copy.deepcopy({**PREPARE, "type": messages.PREPARE})
    message["files"][0][field] = value
    assert problem_of(message) is not None


def test_bytes_that_are_no_utf_8_can_be_arguments_and_values() -> None:
    message = copy.deepcopy({**START, "type": messages.START})
    message["env"]["A"] = message["argv"][0] = "caf\udce9"
    assert problem_of(message) is None


def test_run_ids_are_words_that_are_safe_anywhere() -> None:
    assert all(is_token(token) for token in ("a", "A-1_b", "x" * 64))
    assert not any(is_token(token) for token in ("", "x" * 65, "a b", "a/b", "..", "a.b", "ä", "a\n", None, 7))


def test_file_names_are_one_component_of_a_path() -> None:
    assert all(is_file_name(name) for name in ("a", "a b", ".hidden", "ä" * 127, "caf\udce9", "a\nb"))
    wrong = ("", ".", "..", "a/b", "/a", "a\0", "x" * 256, "ä" * 128, "\ud800", None, 7)
    assert not any(is_file_name(name) for name in wrong)
