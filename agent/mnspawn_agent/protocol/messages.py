"""The control messages: their names, their fields, and the check that both sides make of what arrives. Pure.

hello -> prepare (-> need, blobs) -> prepared | refused -> start -> started, exited .. -> done -> finish
"""

from typing import Any, Dict, List, Optional, Tuple

from .checks import (
    MAX_RANKS,
    MAX_REASONS,
    MAX_TAIL,
    MAX_WORDS,
    STREAMS,
    Check,
    is_bool,
    is_code,
    is_content,
    is_count,
    is_dict,
    is_environment,
    is_file_name,
    is_file_number,
    is_inode,
    is_int,
    is_line,
    is_moment,
    is_path,
    is_pid,
    is_port,
    is_rank,
    is_seconds,
    is_str,
    is_stream,
    is_text,
    is_time,
    is_token,
    list_of,
    or_none,
    pair_of,
    shown,
)

__all__ = ["MAX_RANKS", "SHAPES", "is_file_name", "is_token", "make", "problem_of"]

Message = Dict[str, Any]

# agent to controller
HELLO = "hello"  # the agent is up; facts of the host
NEED = "need"  # the host lacks these files: send them as blobs
PREPARED = "prepared"  # everything is there, ports are held: START may come
REFUSED = "refused"  # the plan can't be run on this host
STARTED = "started"  # a worker runs
NOT_STARTED = "not_started"  # a worker could not be started
EXITED = "exited"  # a worker ended; its streams have these sizes
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
SIGNAL = "signal"  # pass a signal to workers
SKIP = "skip"  # nobody reads these streams any more: leave them in their files
DETACH = "detach"  # go on without a controller, for as long as it takes
WATCH = "watch"  # to a watcher: which streams from where
TAIL = "tail"  # to a tailer: which files, and where to go on in those that were read before
FINISH = "finish"  # all is known: the agent may go

MAX_CARGO = 4096  # files that go along
MAX_PROBES = 1 << 14  # addresses that one host tries: of a large run the first tries four of every other


def _is_file(value: Any) -> bool:
    """A file that the pod needs: taken from `path` where the host has it with this digest, else sent as a blob.

    Without a digest the host must have it.
    """
    return (
        isinstance(value, dict)
        and is_file_name(value.get("name"))
        and (value.get("path") is None or is_text(value["path"]))
        and is_str(value.get("digest"))
        and is_count(value.get("size"))
        and is_count(value.get("blob"))
    )


def _is_argv(value: Any) -> bool:
    return bool(value) and list_of(is_text, MAX_WORDS)(value)


def _is_worker(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and is_count(value.get("rank"))
        and is_count(value.get("local_rank"))
        and is_environment(value.get("env"))
    )


_leftovers = list_of(pair_of(is_pid, is_line))  # pid, what keeps it alive
_sizes = list_of(pair_of(is_stream, is_count), len(STREAMS))
ADDED: Dict[Tuple[str, str], Any] = {(EXITED, "raised"): None}  # what stands for fields that older journals lack
_piece: Dict[str, Check] = {"rank": is_rank, "stream": is_stream, "offset": is_count, "count": is_count}

OPTIONS: Dict[str, Check] = {  # of a run, used by agents alone: settings marked `for_agents`
    "log_cap": or_none(is_count),
}

SHAPES: Dict[str, Dict[str, Check]] = {
    HELLO: {"protocol": is_int, "version": is_str, "facts": is_dict, "cached": is_bool},
    NEED: {"blobs": list_of(is_count, MAX_CARGO)},
    PREPARED: {
        "ports": list_of(is_port, MAX_RANKS),
        "extra_ports": list_of(is_port, MAX_RANKS),
        "run_dir": is_path,
        "workdir": is_path,
        "python": is_path,
        "files": list_of(is_path, MAX_CARGO),
        "reach": list_of(pair_of(is_line, is_line), MAX_PROBES),
        "at": is_moment,
    },
    REFUSED: {"reasons": list_of(is_str, MAX_REASONS)},
    STARTED: {"rank": is_rank, "pid": is_pid, "at": is_moment},
    NOT_STARTED: {"rank": is_rank, "at": is_moment, "error": is_str},
    EXITED: {
        "rank": is_rank,
        "pid": is_pid,
        "code": is_code,
        "at": is_moment,
        "seconds": is_seconds,
        "stopped": is_bool,
        "killed": is_bool,
        "outlived_term": is_bool,
        "is_disk_full": is_bool,
        "sizes": _sizes,
        "tail": list_of(is_line, MAX_TAIL),
        "raised": or_none(is_line),  # what torch recorded of its exception
    },
    DONE: {
        "leftovers": _leftovers,
        "swept": is_count,
        "sizes": list_of(pair_of(is_rank, is_stream, is_count), MAX_RANKS * len(STREAMS)),
        "at": is_moment,
    },
    LOST_OUTPUT: _piece,
    STOPPING: {"reason": is_str, "grace": is_seconds, "is_orphaned": is_bool},
    LET_GO: {},
    FROM: {"rank": is_rank, "stream": is_stream, "offset": is_count},
    CAUGHT_UP: {},
    GONE: {"reason": is_str, "leftovers": _leftovers},
    LEFT: _piece,
    FILE: {"number": is_file_number, "path": is_path, "inode": is_inode, "at": is_count, "offset": is_count},
    NOTICE: {"text": is_str},
    PREPARE: {
        "run": is_token,
        "node_rank": is_count,
        "ranks": list_of(is_count, MAX_RANKS),
        "python": or_none(is_text),
        "command": or_none(is_text),
        "prelude": or_none(is_text),
        "unset": list_of(is_text),
        "env": is_environment,
        "argument_bytes": is_count,
        "files": list_of(_is_file, MAX_CARGO),
        "has_results": is_bool,
        "workdir": is_text,
        "is_workdir_required": is_bool,
        "start_port": or_none(is_port),
        "master_port": or_none(is_port),
        "extra_ports": is_count,
        "probes": list_of(pair_of(is_text, is_port), MAX_PROBES),
        "grace": is_seconds,
        "orphan_grace": or_none(is_seconds),
        "silence_limit": or_none(is_seconds),  # None: only the end of the link means that the controller is gone
        "python_version": or_none(list_of(is_count)),
        "stops_on_failure": is_bool,
        "about": is_dict,
        **OPTIONS,
    },
    START: {
        "unset": list_of(is_text),
        "env": is_environment,
        "files": list_of(pair_of(is_file_name, is_content)),
        "argv": _is_argv,
        "workers": list_of(_is_worker, MAX_RANKS),
        "is_forked": is_bool,
    },
    STOP: {"grace": is_seconds},
    SIGNAL: {"signal": is_str, "ranks": or_none(list_of(is_count))},
    SKIP: {"streams": list_of(is_count)},
    DETACH: {},
    WATCH: {
        "streams": list_of(is_count),
        "ranks": or_none(list_of(is_count)),
        "offsets": list_of(pair_of(is_count, is_count, is_count)),
        "tail": or_none(is_count),
        "since": or_none(is_time),
        "has_times": is_bool,
        "is_following": is_bool,
    },
    TAIL: {
        "patterns": list_of(is_text, 256),
        "lines": or_none(is_count),
        "resume": list_of(pair_of(is_text, is_inode, is_count)),
    },
    FINISH: {"keep": is_bool},
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


def up_to_date(message: Message) -> Message:
    """A message from a journal, which an older version may have written, with the fields of this version."""
    for (kind, name), value in ADDED.items():
        if message.get("type") == kind:
            message.setdefault(name, value)
    leftovers = message.get("leftovers")
    if message.get("type") == DONE and isinstance(leftovers, list):  # 0.1.0 wrote pids without reasons
        message["leftovers"] = [[pid, "outlived KILL"] if is_pid(pid) else pid for pid in leftovers]
    return message


def problem_of(message: Message) -> Optional[str]:
    """What is wrong with a message, or None."""
    kind = message.get("type")
    shape = SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return "unknown message %s" % shown(kind)
    wrong: List[str] = []
    for name, check in shape.items():
        if name not in message:
            wrong.append("%s is missing" % name)
        elif not check(message[name]):
            wrong.append("%s=%s" % (name, shown(message[name])))
    return "%s: %s" % (kind, ", ".join(wrong)) if wrong else None
