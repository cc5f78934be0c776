"""The control messages: their names, their fields, and the check that both sides make of what arrives. Pure.

hello -> prepare (-> need, blobs) -> prepared | refused -> start -> started, exited .. -> done -> finish
"""

from typing import Any, Dict, List, Optional, Tuple

from . import checks
from .checks import Check, dict_of, list_of, or_none, pair_of, shown

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
LOST_OUTPUT = "lost_output"  # bytes of a stream that are gone
STOPPING = "stopping"  # somebody on the host asked for the end: `mnspawn stop`, or a signal to the agent
LET_GO = "let_go"  # somebody asks the controller to detach: `mnspawn detach`
FROM = "from"  # from a watcher: this stream begins here
CAUGHT_UP = "caught_up"  # from a watcher: everything that existed has been sent
GONE = "gone"  # from a watcher: the pod's agent died, nothing more will come
FILE = "file"  # from a tailer: from this offset on, stream `number` is this file, read from `at`
NOTICE = "notice"  # one line for people
# controller to agent
PREPARE = "prepare"
START = "start"
STOP = "stop"  # TERM, grace, KILL; grace 0 kills
SIGNAL = "signal"  # pass a signal to workers
SKIP = "skip"  # leave these streams in their files: the controller no longer reads them
DETACH = "detach"  # go on without a controller, for as long as it takes
WATCH = "watch"  # to a watcher: which streams from where
TAIL = "tail"  # to a tailer: which files, and where to go on in those that were read before
FINISH = "finish"  # all is known: the agent may go

MAX_RUN_FILES = 4096  # that a run brings along
MAX_PROBES = 1 << 14  # addresses that one host tries: of a large run the first tries four of every other


# A file that the pod needs: taken from `path` where the host has it with this digest, else sent as a blob. Without a
# digest the host must have it.
_is_file = dict_of(
    name=checks.is_file_name,
    path=or_none(checks.is_text),
    digest=checks.is_str,
    size=checks.is_count,
    blob=checks.is_count,
)
_is_worker = dict_of(rank=checks.is_count, local_rank=checks.is_count, env=checks.is_environment)
_is_argv = list_of(checks.is_text, checks.MAX_WORDS, at_least=1)
_leftovers = list_of(pair_of(checks.is_pid, checks.is_line))  # pid, what keeps it alive
_sizes = list_of(pair_of(checks.is_stream, checks.is_count), len(checks.STREAMS))
ADDED: Dict[Tuple[str, str], Any] = {(EXITED, "raised"): None}  # what stands for fields that older journals lack
_piece: Dict[str, Check] = {
    "rank": checks.is_rank,
    "stream": checks.is_stream,
    "offset": checks.is_count,
    "count": checks.is_count,
}

OPTIONS: Dict[str, Check] = {  # of a run, used by agents alone: settings marked `for_agents`
    "log_cap": or_none(checks.is_count),
}

SHAPES: Dict[str, Dict[str, Check]] = {
    HELLO: {"protocol": checks.is_int, "version": checks.is_str, "facts": checks.is_dict, "cached": checks.is_bool},
    NEED: {"blobs": list_of(checks.is_count, MAX_RUN_FILES)},
    PREPARED: {
        "ports": list_of(checks.is_port, checks.MAX_RANKS),
        "extra_ports": list_of(checks.is_port, checks.MAX_RANKS),
        "run_dir": checks.is_path,
        "workdir": checks.is_path,
        "python": checks.is_path,
        "files": list_of(checks.is_path, MAX_RUN_FILES),
        "reach": list_of(pair_of(checks.is_line, checks.is_line), MAX_PROBES),
        "at": checks.is_moment,
    },
    REFUSED: {"reasons": list_of(checks.is_str, checks.MAX_REASONS)},
    STARTED: {"rank": checks.is_rank, "pid": checks.is_pid, "at": checks.is_moment},
    NOT_STARTED: {"rank": checks.is_rank, "at": checks.is_moment, "error": checks.is_str},
    EXITED: {
        "rank": checks.is_rank,
        "pid": checks.is_pid,
        "code": checks.is_code,
        "at": checks.is_moment,
        "seconds": checks.is_seconds,
        "stopped": checks.is_bool,
        "killed": checks.is_bool,
        "outlived_term": checks.is_bool,
        "is_disk_full": checks.is_bool,
        "sizes": _sizes,
        "tail": list_of(checks.is_line, checks.MAX_TAIL),
        "raised": or_none(checks.is_line),  # what torch recorded of its exception
    },
    DONE: {
        "leftovers": _leftovers,
        "swept": checks.is_count,
        "sizes": list_of(
            pair_of(checks.is_rank, checks.is_stream, checks.is_count), checks.MAX_RANKS * len(checks.STREAMS)
        ),
        "at": checks.is_moment,
    },
    LOST_OUTPUT: _piece,
    STOPPING: {"reason": checks.is_str, "grace": checks.is_seconds, "is_orphaned": checks.is_bool},
    LET_GO: {},
    FROM: {"rank": checks.is_rank, "stream": checks.is_stream, "offset": checks.is_count},
    CAUGHT_UP: {},
    GONE: {"reason": checks.is_str, "leftovers": _leftovers},
    LEFT: _piece,
    FILE: {
        "number": checks.is_file_number,
        "path": checks.is_path,
        "inode": checks.is_inode,
        "at": checks.is_count,
        "offset": checks.is_count,
    },
    NOTICE: {"text": checks.is_str},
    PREPARE: {
        "run": checks.is_token,
        "node_rank": checks.is_count,
        "ranks": list_of(checks.is_count, checks.MAX_RANKS),
        "python": or_none(checks.is_text),
        "command": or_none(checks.is_text),
        "prelude": or_none(checks.is_text),
        "unset": list_of(checks.is_text),
        "env": checks.is_environment,
        "argument_bytes": checks.is_count,
        "files": list_of(_is_file, MAX_RUN_FILES),
        "has_results": checks.is_bool,
        "workdir": checks.is_text,
        "is_workdir_required": checks.is_bool,
        "start_port": or_none(checks.is_port),
        "master_port": or_none(checks.is_port),
        "extra_ports": checks.is_count,
        "probes": list_of(pair_of(checks.is_text, checks.is_port), MAX_PROBES),
        "grace": checks.is_seconds,
        "orphan_grace": or_none(checks.is_seconds),
        "silence_limit": or_none(checks.is_seconds),  # None: only the end of the link means that the controller is gone
        "python_version": or_none(list_of(checks.is_count)),
        "stops_on_failure": checks.is_bool,
        "about": checks.is_dict,
        **OPTIONS,
    },
    START: {
        "unset": list_of(checks.is_text),
        "env": checks.is_environment,
        "files": list_of(pair_of(checks.is_file_name, checks.is_content)),
        "argv": _is_argv,
        "workers": list_of(_is_worker, checks.MAX_RANKS),
        "is_forked": checks.is_bool,
    },
    STOP: {"grace": checks.is_seconds},
    SIGNAL: {"signal": checks.is_str, "ranks": or_none(list_of(checks.is_count))},
    SKIP: {"streams": list_of(checks.is_count)},
    DETACH: {},
    WATCH: {
        "streams": list_of(checks.is_count),
        "ranks": or_none(list_of(checks.is_count)),
        "offsets": list_of(pair_of(checks.is_count, checks.is_count, checks.is_count)),
        "tail": or_none(checks.is_count),
        "since": or_none(checks.is_time),
        "has_times": checks.is_bool,
        "is_following": checks.is_bool,
    },
    TAIL: {
        "patterns": list_of(checks.is_text, 256),
        "lines": or_none(checks.is_count),
        "resume": list_of(pair_of(checks.is_text, checks.is_inode, checks.is_count)),
    },
    FINISH: {"keep": checks.is_bool},
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
        message["leftovers"] = [[pid, "outlived KILL"] if checks.is_pid(pid) else pid for pid in leftovers]
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
