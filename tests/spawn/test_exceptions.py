"""Exceptions of every sort on their way from a rank to the caller."""

import pytest

from tests.spawn.conftest import Place

SHOW = """
def show(function, *args, **options):
    try:
        result = mnspawn.spawn(function, args, nprocs=NPROCS, hosts=HOSTS, **options).results()
    except BaseException as error:
        copy = pickle.loads(pickle.dumps(error))
        same = (str(copy), vars(copy)) == (str(error), vars(error))
        print(type(error).__name__, repr(error.__cause__), getattr(error, "type_name", None), same)
        return error
    print("returned", result)
"""
CASES = {
    "a class of the caller's own": (
        """
class Custom(Exception):
    def __init__(self, code, *, host):
        super().__init__(code)
        self.code, self.host = code, host
    def __reduce__(self):
        return make, (self.code, self.host)
def make(code, host):
    return Custom(code, host=host)
def fail():
    raise Custom(7, host="db")
error = show(fail)
print(type(error.__cause__) is Custom, vars(error.__cause__))
""",
        ["ProcessRaisedException Custom(7) __main__.Custom True", "True {'code': 7, 'host': 'db'}"],
    ),
    "one that can't be made again": (
        """
class Two(Exception):
    def __init__(self, a, b):
        super().__init__(a)
def fail():
    raise Two("first", "second")
error = show(fail)
print(error.text, error.traceback.splitlines()[-1])
""",
        ["ProcessRaisedException None __main__.Two True", "first Two: first"],
    ),
    "one that can't be pickled": (
        """
import threading
def fail():
    error = ValueError("held")
    error.lock = threading.Lock()
    raise error
error = show(fail)
print(error.type_name, error.text, error.rank in (0, 1), error.host is not None)
""",
        ["ProcessRaisedException None ValueError True", "ValueError held True True"],
    ),
    "causes, contexts and notes": (
        """
def fail():
    try:
        try:
            1 / 0
        except ZeroDivisionError as low:
            raise KeyError("middle") from low
    except KeyError:
        error = RuntimeError("top")
        error.add_note("a note")
        raise error
error = show(fail)
top = error.__cause__
print(top.__notes__, repr(top.__context__), repr(top.__context__.__cause__))
for text in ("ZeroDivisionError", "direct cause", "During handling", "a note"):
    assert text in str(error), text
""",
        [
            "ProcessRaisedException RuntimeError('top') RuntimeError True",
            "['a note'] KeyError('middle') ZeroDivisionError('division by zero')",
        ],
    ),
    "endless recursion": (
        """
def fail():
    return fail()
print("[Previous line repeated" in str(show(fail)))
""",
        [
            "ProcessRaisedException RecursionError('maximum recursion depth exceeded') RecursionError True",
            "True",
        ],
    ),
    "a group": (
        """
def fail():
    raise ExceptionGroup("several", [ValueError(1), TypeError(2)])
print(show(fail).__cause__.exceptions)
""",
        [
            "ProcessRaisedException ExceptionGroup('several', [ValueError(1), TypeError(2)]) ExceptionGroup True",
            "(ValueError(1), TypeError(2))",
        ],
    ),
    "KeyboardInterrupt in the rank": (
        """
def fail():
    raise KeyboardInterrupt
show(fail)
""",
        ["ProcessRaisedException KeyboardInterrupt() KeyboardInterrupt True"],
    ),
    "one whose text raises": (
        """
class Mute(Exception):
    def __str__(self):
        raise ValueError("no")
def fail():
    raise Mute
print(show(fail).text)
""",
        ["ProcessRaisedException Mute() __main__.Mute True", "<no text: its __str__ raises>"],
    ),
    "os._exit": (
        """
print(show(os._exit, 3).exit_code, show(os._exit, 0).exit_code)
""",
        ["ProcessExitedException None None True", "ProcessExitedException None None True", "3 0"],
    ),
    "SIGKILL": (
        """
print(show(lambda: os.kill(os.getpid(), 9)))
""",
        ["ProcessExitedException None None True", "signal SIGKILL"],
    ),
    "a result that can't be pickled": (
        """
error = show(lambda: (x for x in ()))
print(error.text)
""",
        [
            "_pickle.PicklingError True",
            "the result, of type generator, can't be pickled: cannot pickle 'generator' object",
        ],
    ),
    "a result that can't be read here": (
        """
HERE = os.getpid()
class Picky:
    def __init__(self): self.x = 1
    def __setstate__(self, state):
        import os
        if os.getpid() == HERE: raise ValueError("not here")
error = show(Picky)
print(error, repr(error.__cause__))
""",
        ["ResultError ValueError('not here')", "can't be read here: ValueError: not here ValueError('not here')"],
    ),
    "a failure after the result": (
        """
def fail():
    import atexit
    atexit.register(os._exit, 9)
    return 1
print(show(fail).exit_code)
""",
        ["ProcessExitedException None None True", "9"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_arrives(place: Place, name: str) -> None:
    program, expected = CASES[name]
    lines = place.check(SHOW + program).splitlines()
    assert len(lines) == len(expected)
    for line, part in zip(lines, expected, strict=True):
        assert part in line


def test_the_first_rank_that_fails_is_blamed(place: Place) -> None:
    program = """
def fail(rank):
    time.sleep(0.2 if rank == 1 else 1.5)
    raise ValueError(rank)
try:
    mnspawn.spawn(fail, nprocs=NPROCS, hosts=HOSTS, pass_rank=True, grace=5)
except mnspawn.ProcessRaisedException as error:
    print(error.rank, error.local_rank, error.host, error.__notes__)
"""
    said = place.check(program)
    host = "h2" if place.hosts else None
    assert said.startswith(f"1 {0 if host else 1} {host or ''}")
    assert "rank 1 (local rank" in said


def test_a_failure_is_told_at_once_whatever_is_waited_for(place: Place) -> None:
    program = """
def fail(rank):
    if rank == 1:
        raise ValueError(rank)
    time.sleep(1000)
context = mnspawn.spawn(fail, nprocs=NPROCS, hosts=HOSTS, pass_rank=True, join=False)
try:
    context.return_queues[0].get()
except mnspawn.ProcessRaisedException as error:
    print(error.rank)
"""
    assert place.check(program) == "1\n"


def test_what_hosts_lack_is_told_by_the_ranks(across: Place) -> None:
    program = """
import hatchling.build
try:
    mnspawn.spawn(lambda: hatchling.build, nprocs=1, hosts=HOSTS)
except mnspawn.ProcessRaisedException as error:
    print(error.text)
"""
    assert "No module named 'hatchling'" in across.check(program)


def test_results_and_exceptions_leave_the_callers_classes_as_they_are(place: Place, start_method: str) -> None:
    program = f"""
import enum
class Colour(enum.Enum):
    RED = 1
class Mine(Exception):
    count, log = 0, []
    def method(self):
        return "original"
def make(is_good):
    Mine.count += 1
    if not is_good:
        raise Mine("raised")
    return Mine("returned"), Colour.RED
good, bad = (
    mnspawn.spawn(make, (is_good,), NPROCS, hosts=HOSTS, join=False, start_method={start_method!r})
    for is_good in (True, False)
)
method, log = Mine.method, Mine.log
Mine.count, Mine.more = 7, True
log.append("kept")
result, colour = good.results()[0]
try:
    bad.results()
except mnspawn.ProcessRaisedException as error:
    print(type(result) is type(error.__cause__) is Mine, colour is Colour.RED, result.args, error.__cause__.args)
print(Mine.count, Mine.more, Mine.log is log, log, Mine.method is method)
"""
    assert place.check(program) == ("True True ('returned',) ('raised',)\n7 True True ['kept'] True\n")


def test_a_function_may_close_its_streams(place: Place, start_method: str) -> None:
    program = f"""
def close(how):
    if how == "close":
        sys.stdout.close()
        sys.stderr.close()
    elif how == "none":
        sys.stdout = sys.stderr = None
    else:
        os.close(1), os.close(2)
    return how
for how in ("close", "none", "descriptors"):
    print(mnspawn.spawn(close, (how,), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r}).results())
"""
    assert place.check(program) == "".join(f"{[how] * 2}\n" for how in ("close", "none", "descriptors"))
