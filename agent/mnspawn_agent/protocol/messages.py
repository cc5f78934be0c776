"""The control messages: their names, their fields, and the check that both sides make of what arrives. Pure.

hello -> prepare (-> need, blobs) -> prepared | refused -> start -> started, exited .. -> done -> finish
"""

from typing import Any, Callable, Dict, List, Optional

Message = Dict[str, Any]

# agent to controller
HELLO = "hello"  # the agent is up; facts of the host
NEED = "need"  # the host lacks these files: send them as blobs
PREPARED = "prepared"  # everything is there, ports are held: START may come
REFUSED = "refused"  # the plan can't be run on this host
STARTED = "started"  # a trainer runs
NOT_STARTED = "not_started"  # a trainer could not be started
EXITED = "exited"  # a trainer ended; its streams have these sizes
DONE = "done"  # nothing of the pod is left, or these processes would not go
LEFT = "left"  # bytes of a stream that stay in their file, as SKIP asked
LOST_OUTPUT = "lost_output"  # bytes of a stream that nobody can have any more
STOPPING = "stopping"  # somebody on the host asked for the end: `mnspawn stop`, or a signal to the agent
LET_GO = "let_go"  # somebody asks the controller to detach: `mnspawn detach`
FROM = "from"  # a watcher's word: this stream begins here
CAUGHT_UP = "caught_up"  # a watcher's word: everything that was there is said
GONE = "gone"  # a watcher's word: the pod's agent died, nobody will say more
FILE = "file"  # a tailer's word: from this offset on, stream `number` is this file, read from `at`
NOTICE = "notice"  # one line for people
# controller to agent
PREPARE = "prepare"
START = "start"
STOP = "stop"  # TERM, grace, KILL; grace 0 kills
SIGNAL = "signal"  # pass a signal to trainers
SKIP = "skip"  # nobody reads these streams any more: leave them in their files
DETACH = "detach"  # go on without a controller, for as long as it takes
WATCH = "watch"  # to a watcher: which streams from where
TAIL = "tail"  # to a tailer: which files, and where to go on in those that were read before
FINISH = "finish"  # all is known: the agent may go

MAX_RANKS = 4096  # trainers on one host; more is a mistake
MAX_WORDS = 1 << 20  # of argv; execve takes no more in its 6 MiB
MAX_NAME = 255  # NAME_MAX of every file system that matters


def _is_str(value: Any) -> bool:
    return isinstance(value, str)


def _is_content(value: Any) -> bool:
    """Text that can be turned into bytes: lone surrogates only where they stand for a byte (PEP 383)."""
    try:
        return isinstance(value, str) and value.encode("utf-8", "surrogateescape") is not None
    except UnicodeEncodeError:
        return False


def _is_text(value: Any) -> bool:
    """Text that can stand in argv or an environment: no NUL."""
    return _is_content(value) and "\0" not in value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_port(value: Any) -> bool:
    return _is_count(value) and 0 < value < 65536


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _is_moment(value: Any) -> bool:
    """On the agent's monotonic clock: less than 0 is before the system was booted."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def is_token(value: Any) -> bool:
    """A name that is safe as a file name, an argument and a value: run ids."""
    allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    return isinstance(value, str) and 0 < len(value) <= 64 and all(c in allowed for c in value)


def is_file_name(value: Any) -> bool:
    """One component of a path, not hidden tricks like `..`."""
    return (
        _is_text(value)
        and value not in ("", ".", "..")
        and "/" not in value
        and len(value.encode("utf-8", "surrogateescape")) <= MAX_NAME
    )


def _list_of(check: Callable[[Any], bool], at_most: int = 1 << 16) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and len(value) <= at_most and all(check(item) for item in value)


def _pair_of(*checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list) and len(value) == len(checks) and all(c(v) for c, v in zip(checks, value))
    )


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _is_environment(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_text(name) and name and "=" not in name and _is_text(text) for name, text in value.items()
    )


def _is_file(value: Any) -> bool:
    """A file that the pod needs: taken from `path` where the host has it with this digest, else sent as a blob.

    Without a digest the host must have it.
    """
    return (
        isinstance(value, dict)
        and is_file_name(value.get("name"))
        and (value.get("path") is None or _is_text(value["path"]))
        and _is_str(value.get("digest"))
        and _is_count(value.get("size"))
        and _is_count(value.get("blob"))
    )


def _is_argv(value: Any) -> bool:
    return bool(value) and _list_of(_is_text, MAX_WORDS)(value)


def _is_trainer(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_count(value.get("rank"))
        and _is_count(value.get("local_rank"))
        and _is_environment(value.get("env"))
    )


_leftovers = _list_of(_pair_of(_is_count, _is_str))  # pid, what keeps it alive
_sizes = _list_of(_pair_of(_is_count, _is_count))

SHAPES: Dict[str, Dict[str, Callable[[Any], bool]]] = {
    HELLO: {"protocol": _is_int, "version": _is_str, "facts": _is_dict, "cached": _is_bool},
    NEED: {"blobs": _list_of(_is_count)},
    PREPARED: {
        "ports": _list_of(_is_port),
        "extra_ports": _list_of(_is_port),
        "run_dir": _is_str,
        "workdir": _is_str,
        "python": _is_str,
        "files": _list_of(_is_str),
        "reach": _list_of(_pair_of(_is_str, _is_str)),
        "at": _is_moment,
    },
    REFUSED: {"reasons": _list_of(_is_str)},
    STARTED: {"rank": _is_count, "pid": _is_count, "at": _is_moment},
    NOT_STARTED: {"rank": _is_count, "at": _is_moment, "error": _is_str},
    EXITED: {
        "rank": _is_count,
        "pid": _is_count,
        "code": _is_int,
        "at": _is_moment,
        "seconds": _is_seconds,
        "stopped": _is_bool,
        "killed": _is_bool,
        "outlived_term": _is_bool,
        "is_disk_full": _is_bool,
        "sizes": _sizes,
        "tail": _list_of(_is_str),
    },
    DONE: {
        "leftovers": _leftovers,
        "swept": _is_count,
        "sizes": _list_of(_pair_of(_is_count, _is_count, _is_count)),
        "at": _is_moment,
    },
    LOST_OUTPUT: {"rank": _is_count, "stream": _is_count, "offset": _is_count, "count": _is_count},
    STOPPING: {"reason": _is_str, "grace": _is_seconds, "is_orphaned": _is_bool},
    LET_GO: {},
    FROM: {"rank": _is_count, "stream": _is_count, "offset": _is_count},
    CAUGHT_UP: {},
    GONE: {"reason": _is_str, "leftovers": _leftovers},
    LEFT: {"rank": _is_count, "stream": _is_count, "offset": _is_count, "count": _is_count},
    FILE: {"number": _is_count, "path": _is_str, "inode": _is_count, "at": _is_count, "offset": _is_count},
    NOTICE: {"text": _is_str},
    PREPARE: {
        "run": is_token,
        "node_rank": _is_count,
        "ranks": _list_of(_is_count, MAX_RANKS),
        "python": _or_none(_is_text),
        "command": _or_none(_is_text),
        "files": _list_of(_is_file, 4096),
        "has_results": _is_bool,
        "workdir": _is_text,
        "is_workdir_required": _is_bool,
        "start_port": _or_none(_is_port),
        "master_port": _or_none(_is_port),
        "extra_ports": _is_count,
        "probes": _list_of(_pair_of(_is_text, _is_port), 256),
        "grace": _is_seconds,
        "orphan_grace": _or_none(_is_seconds),
        "log_cap": _or_none(_is_count),
        "python_version": _or_none(_list_of(_is_count)),
        "stops_on_failure": _is_bool,
        "about": _is_dict,
    },
    START: {
        "unset": _list_of(_is_text),
        "env": _is_environment,
        "files": _list_of(_pair_of(is_file_name, _is_content)),
        "argv": _is_argv,
        "trainers": _list_of(_is_trainer, MAX_RANKS),
        "is_forked": _is_bool,
    },
    STOP: {"grace": _is_seconds},
    SIGNAL: {"signal": _is_str, "ranks": _or_none(_list_of(_is_count))},
    SKIP: {"streams": _list_of(_is_count)},
    DETACH: {},
    WATCH: {
        "streams": _list_of(_is_count),
        "ranks": _or_none(_list_of(_is_count)),
        "offsets": _list_of(_pair_of(_is_count, _is_count, _is_count)),
        "tail": _or_none(_is_count),
        "since": _or_none(_is_seconds),
        "has_times": _is_bool,
        "is_following": _is_bool,
    },
    TAIL: {
        "patterns": _list_of(_is_text, 256),
        "lines": _or_none(_is_count),
        "resume": _list_of(_pair_of(_is_text, _is_count, _is_count)),
    },
    FINISH: {"keep": _is_bool},
}


def make(kind: str, **fields: Any) -> Message:
    """A message to send.

    Raises:
        ValueError: our own misuse.
    """
    message = dict(fields, type=kind)
    problem = problem_of(message)
    if problem:
        raise ValueError(problem)
    return message


def problem_of(message: Message) -> Optional[str]:
    """What is wrong with a message, or None."""
    kind = message.get("type")
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return "unknown message %r" % (kind,)
    wrong: List[str] = []
    for name, check in shape.items():
        if name not in message:
            wrong.append("%s is missing" % name)
        elif not check(message[name]):
            wrong.append("%s=%.80r" % (name, message[name]))
    return "%s: %s" % (kind, ", ".join(wrong)) if wrong else None
