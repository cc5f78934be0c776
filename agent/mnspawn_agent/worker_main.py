"""Runs a function in a worker and writes its outcome to the rank's result file. Imports nothing of the agent.

It lies in the run's folder with `job.json`, `function.pickle`, `arrival.py` and `cloudpickle.zip`. With the argument
`fork` one interpreter becomes all workers of the host (posix/run/forkserver.py). The result file consists of records:

    kind (1 byte), length (4 bytes, big-endian), body

D: a piece of a pickle; R: the pickle so far is the result; N: the function returned and its result is not wanted;
E: it raised, the pickle so far (if any) is the exception's chain, the body is its text in JSON;
X: it raised SystemExit, the body is the status in JSON; C: the pickle so far is to be dropped.

Ranks that are forks of the caller itself (start method `fork`) use `run_rank` of the module that the caller has.
"""

import contextlib
import importlib
import json
import linecache
import os
import pickle
import struct
import sys
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

HEAD = struct.Struct(">cI")
PIECE = 1 << 28  # bytes; a record's length has 32 bits
CHAIN = 16  # exceptions of a chain of causes that go back as objects; the text has all
RESULT_FILE = "MNSPAWN_RESULT_FILE"
BY_VALUE = ("cloudpickle",)  # modules that pickle, each for what the one before can't
ARRIVAL = "_mnspawn_arrival"  # what loaded the function, where it was sent
PR_SET_PDEATHSIG = 1
ADOPTION_LIMIT = 10.0  # seconds for the agent to become our parent


class Results:
    """The rank's result file, as a file to pickle into and as records.

    Args:
        picklers: names of modules to pickle with.
    """

    def __init__(self, path: str, picklers: Tuple[str, ...] = BY_VALUE) -> None:
        self.picklers = picklers
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._owner = os.getpid()

    def dump(self, value: Any) -> None:
        """Send a pickle. Raises what the last of the picklers does; what was sent is dropped then."""
        for name in self.picklers:
            try:
                importlib.import_module(name).dump(value, self, protocol=pickle.HIGHEST_PROTOCOL)
                return
            except Exception:  # code of the value's classes, which may raise anything
                self.add(b"C")
                if name == self.picklers[-1]:
                    raise

    def write(self, piece: Any) -> int:
        """Called by picklers with a piece of a pickle."""
        with memoryview(piece) as view, view.cast("B") as octets:
            for start in range(0, len(octets), PIECE):
                part = octets[start : start + PIECE]
                self._write_all(HEAD.pack(b"D", len(part)))
                self._write_all(part)
            return len(octets)

    def add(self, kind: bytes, **fields: Any) -> None:
        body = json.dumps(fields).encode("ascii")
        self._write_all(HEAD.pack(kind, len(body)) + body)

    def _write_all(self, octets: Any) -> None:
        if os.getpid() != self._owner:
            return  # a child that the function forked has come here: it is no rank
        with memoryview(octets) as view:
            start = 0
            while start < len(view):
                start += os.write(self._fd, view[start:])


class Loaded:
    """The function with its arguments, or the error of loading them, which every rank raises as its own.

    Args:
        picklers: names of modules to pickle results with.
    """

    def __init__(
        self,
        job: Dict[str, Any],
        call: Tuple[Callable[..., Any], Tuple[Any, ...]],
        error: Optional[BaseException] = None,
        picklers: Tuple[str, ...] = BY_VALUE,
    ) -> None:
        self.job = job
        self.picklers = picklers
        self._call = call
        self._error = error

    def call(self, rank: int) -> Any:
        if self._error is not None:
            raise self._error
        function, args = self._call
        return function(rank, *args) if self.job["passes_rank"] else function(*args)


def load(folder: str, job: Dict[str, Any], arrival: Any) -> Loaded:
    """Read the function and its arguments."""
    sys.path.insert(0, os.path.join(folder, "cloudpickle.zip"))
    try:
        arrival.take_shared(job)
        with open(os.path.join(folder, "function.pickle"), "rb") as file:
            return Loaded(job, arrival.load(file, job))
    except BaseException as error:  # noqa: BLE001 - it is the ranks' to raise, not this process's
        return Loaded(job, (int, ()), error)


def main(argv: List[str]) -> None:
    """Run one rank, or fork all of them."""
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "job.json"), "rb") as file:
        job = json.loads(file.read().decode("utf-8"))
    arrival = importlib.import_module("arrival")  # beside us
    set_up(job)
    arrival.install(job)
    if argv == ["fork"]:
        fork_ranks(folder, job, arrival)
    else:
        loaded = load(folder, job, arrival)
        arrival.have_taken(1)
        run_rank(loaded)


def set_up(job: Dict[str, Any]) -> None:
    """Find modules where the caller finds them, as far as this host has these places."""
    del sys.path[0]  # the folder of this file
    here = [path for path in job["paths"] if os.path.exists(path)]
    sys.path[:0] = [path for path in here if path not in sys.path]
    try:
        workdir = os.getcwd()
    except OSError:
        workdir = ""  # it was removed meanwhile
    if workdir and workdir not in sys.path:
        sys.path.append(workdir)
    sys.argv = list(job["argv"])
    if job["authkey"]:  # of the caller, whose managers the arguments may lead to
        import multiprocessing

        multiprocessing.current_process().authkey = bytes.fromhex(job["authkey"])
    for name, text in job["sources"].items():  # for tracebacks and inspect
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)


# -- one rank ----------------------------------------------------------------------------------------------------------
def run_rank(loaded: Loaded) -> None:
    """Call the function and record its outcome; ends the interpreter unless that is a result."""
    results = Results(os.environ[RESULT_FILE], loaded.picklers)
    select_devices()
    try:
        outcome = loaded.call(int(os.environ["MNSPAWN_RANK"]))
    except SystemExit as error:
        results.add(b"X", status=as_status(error.code))
        raise
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        if ARRIVAL in sys.modules:
            sys.modules[ARRIVAL].explain(error)
        report(results, error)
        sys.exit(1)
    # the function may have closed it or set it to None; a full disk is reported at the exit
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stdout.flush()
    if loaded.job["wants_result"]:
        give_back(results, outcome)
    else:
        results.add(b"N")


def give_back(results: Results, outcome: Any) -> None:
    """Send a result; one that can't be pickled becomes an error."""
    try:
        results.dump(outcome)
    except Exception as error:  # noqa: BLE001 - pickling calls code of the result's classes, which may raise anything
        kind = type(outcome).__qualname__
        text = "the result, of type %s, can't be pickled: %s" % (kind, error)
        report(results, pickle.PicklingError(text))
        sys.exit(1)
    results.add(b"R")


def as_status(code: Any) -> int:
    """The exit status that SystemExit's argument stands for."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


# -- exceptions --------------------------------------------------------------------------------------------------------
def report(results: Results, error: BaseException) -> None:
    """Send an exception: its chain as objects where they can be pickled, and all of it as text."""
    text = "".join(traceback.format_exception(type(error), error, own_part(error)))
    try:
        results.dump(chain_of(error, results.picklers))
        is_pickled = True
    except Exception:  # noqa: BLE001 - a link's attributes may be anything; the text has to do
        is_pickled = False
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)
    results.add(b"E", type=name, text=text_of(error), traceback=text, is_pickled=is_pickled)


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error
        return "<no text: its __str__ raises>"


def own_part(error: BaseException) -> Any:
    """The traceback without our own frames at its top."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace if trace is not None else error.__traceback__


def chain_of(error: BaseException, picklers: Tuple[str, ...] = BY_VALUE) -> List[Dict[str, Any]]:
    """The exception, what it was raised from, and so on: each pickled by itself, so that one can fail alone."""
    links: List[Dict[str, Any]] = []
    current: Optional[BaseException] = error
    seen = set()
    while current is not None and len(links) < CHAIN and id(current) not in seen:
        seen.add(id(current))
        links.append(
            {
                "pickle": pickled(current, picklers),
                "type": type(current).__qualname__,
                "text": text_of(current),
                "is_cause": current.__cause__ is not None,
            }
        )
        if current.__cause__ is not None:
            current = current.__cause__
        else:
            current = None if current.__suppress_context__ else current.__context__
    return links


def pickled(error: BaseException, picklers: Tuple[str, ...]) -> Optional[bytes]:
    """One exception as bytes that can be read again; None when that can't be had."""
    contents = (pickled_by(importlib.import_module(name), error) for name in picklers)
    return next((content for content in contents if content is not None), None)


def pickled_by(pickler: Any, error: BaseException) -> Optional[bytes]:
    try:
        content = pickler.dumps(error, protocol=pickle.HIGHEST_PROTOCOL)
        pickle.loads(content)  # many a constructor takes other arguments than the exception keeps
    except Exception:  # noqa: BLE001 - code of the exception's class, which may raise anything
        return None
    return bytes(content)


# -- devices -----------------------------------------------------------------------------------------------------------
def select_devices() -> None:
    """Paddle reads FLAGS_selected_* when imported: set them where that came before the rank's environment."""
    paddle = sys.modules.get("paddle")
    flags = {name: value for name, value in os.environ.items() if name.startswith("FLAGS_selected_")}
    if paddle is None or not flags or not hasattr(paddle, "set_flags"):
        return
    for name, value in flags.items():
        with contextlib.suppress(ValueError):  # this build knows no such devices
            paddle.set_flags({name: value})


def has_device_context() -> bool:
    """Whether an accelerator is in use here: a forked child could not use it any more."""
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue  # the descriptor that listed the folder
        if target.startswith(("/dev/nvidia", "/dev/kfd", "/dev/xpu")):
            return True
    return False


# -- forks -------------------------------------------------------------------------------------------------------------
def fork_ranks(folder: str, job: Dict[str, Any], arrival: Any) -> None:
    """Import what the function needs, then become every rank in turn. Returns in the server only; see run_rank."""
    with open(0, closefd=False) as file:
        requests = json.loads(file.readline())
    with arrival.loading():
        for name in job["preload"]:
            # a module's own code may raise anything; perhaps the function expects it, or never imports it
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    loaded = load(folder, job, arrival)
    is_fresh = has_device_context()
    arrival.have_taken(0 if is_fresh else len(requests["workers"]))
    for request in requests["workers"]:
        if fork_rank(request, requests["parent"]):
            if is_fresh:  # a context can't be forked: this rank begins anew
                os.execv(sys.executable, [sys.executable, "-u", os.path.abspath(__file__)])
            run_rank(loaded)
            return


def fork_rank(request: Dict[str, Any], agent: int) -> bool:
    """Fork twice; True in the new rank, whose parent is the agent; the answer for the agent goes to stdin's file."""
    passage_in, passage_out = os.pipe()
    middle = os.fork()
    if middle:
        os.close(passage_in)
        os.close(passage_out)
        os.waitpid(middle, 0)
        return False
    rank = os.fork()
    if rank:
        os.write(0, ("%d %d\n" % (request["rank"], rank)).encode("ascii"))
        os._exit(0)
    os.close(passage_out)
    os.read(passage_in, 1)  # ends with the process between us and the server
    os.close(passage_in)
    os.setsid()
    wait_for_parent(agent)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for fd, path in ((1, request["stdout"]), (2, request["stderr"])):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.update(request["env"])
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # its queues and locks are to know that they were forked
        util._finalizer_registry.clear()
        util._run_after_forkers()
    return True


def wait_for_parent(agent: int) -> None:
    """Wait until the agent has adopted us, then die with it."""
    deadline = time.monotonic() + ADOPTION_LIMIT
    while os.getppid() != agent:
        if time.monotonic() > deadline:
            os._exit(128 + 9)  # it died
        time.sleep(0.0005)
    with contextlib.suppress(ImportError, OSError, AttributeError):  # else the guardian ends us
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(9), 0, 0, 0)
    if os.getppid() != agent:
        os._exit(128 + 9)


if __name__ == "__main__":
    main(sys.argv[1:])
