"""A module is one in a rank, whether it came along with the function or is imported late."""

import pytest

from tests.spawn.conftest import Place
from tests.support import Cluster

FILES = {
    "helpers.py": """
import enum


class Mode(enum.Enum):
    TRAIN = 1


class Base:
    pass
""",
    "pkg/__init__.py": """
from .kinds import Kind

MARK = object()


def is_marked(value=MARK):
    return value is MARK
""",
    "pkg/kinds.py": """
import enum


class Kind(enum.IntFlag):
    A = 1


class Refused(Exception):
    def __init__(self, left, right):
        super().__init__(f"{left} {right}")
""",
    "pkg/sub/__init__.py": "",
    "pkg/sub/state.py": """
import dataclasses
import functools

from ..kinds import Kind

RATE = 1
TABLE = {"a": 1}


class Settings:
    width = 1


@dataclasses.dataclass
class Point:
    x: int
    kind: Kind = Kind.A


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


@logged
def rate():
    return RATE, dict(TABLE), Settings.width


def grow():
    global RATE
    RATE += 1
""",
    "plain/module.py": "class InNamespace:\n    pass\n",  # a package without __init__.py
    "needs.py": """
import enum
import mnspawn  # hosts do not have it


class Flag(enum.Enum):
    ON = 1


def unused():
    return mnspawn
""",
}


def write(place: Place) -> None:
    for name, text in FILES.items():
        path = place.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.essential
def test_what_came_along_is_what_a_late_import_finds(place: Place, start_method: str) -> None:
    write(place)
    program = f"""
from helpers import Base, Mode
class Net(Base):
    pass
def work(mode, net):
    from helpers import Base as late, Mode as kinds
    return mode == kinds.TRAIN, isinstance(net, late), kinds.TRAIN, type(net).__mro__[1] is late
results = mnspawn.spawn(
    work, (Mode.TRAIN, Net()), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r}
).results()
print(set(results) == {{(True, True, Mode.TRAIN, True)}} or results)
"""
    assert place.check(program) == "True\n"


def test_packages_and_submodules_are_one_too_and_have_the_callers_values(place: Place, start_method: str) -> None:
    write(place)
    program = f"""
import pkg, pkg.sub.state as state
from pkg import Kind
from pkg.kinds import Refused
from pkg.sub.state import Point, grow, rate
from plain.module import InNamespace
def work(kind, point, named, function):
    import pkg as late, pkg.sub.state
    from pkg.sub import state as same
    from pkg.kinds import Kind as kinds, Refused as refused
    from plain.module import InNamespace as names
    seen = [kind is kinds.A, point == same.Point(3), isinstance(named, names), function is same.rate]
    seen += [same is pkg.sub.state, late.is_marked(), late.is_marked(late.MARK), Refused is refused]
    seen.append(rate() == (5, {{"a": 1, "b": 2}}, 7))
    grow()
    seen.append(same.RATE == 6)
    return seen, same.Point(9), kinds.A, same.rate
state.RATE = 5
state.TABLE["b"] = 2
state.Settings.width = 7
args = Kind.A, Point(3), InNamespace(), rate
for seen, *back in mnspawn.spawn(work, args, nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r}).results():
    print(all(seen) or seen, back == [Point(9), Kind.A, rate])
"""
    assert place.check(program) == "True True\n" * 2


def test_a_module_that_hosts_can_not_import_is_made_of_what_came_along(place: Place, start_method: str) -> None:
    write(place)
    program = f"""
from needs import Flag
def work(flag):
    from needs import Flag as late
    return flag is late.ON, flag
def lack(flag):
    from needs import unused
    return unused.__name__
def spawn(function):
    return mnspawn.spawn(function, (Flag.ON,), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r}).results()
print(spawn(work))
try:
    print(spawn(lack))
except mnspawn.ProcessRaisedException as error:
    print(error)
"""
    said = place.check(program)
    assert said.startswith("[(True, <Flag.ON: 1>), (True, <Flag.ON: 1>)]\n")
    if place.hosts is None:
        assert said.endswith("['unused', 'unused']\n")
    else:
        assert "ImportError: cannot import name 'unused' from 'needs'" in said
        assert "No module named 'mnspawn'" in said


@pytest.mark.parametrize("transport", ["asyncssh", "openssh", "paramiko"])
def test_hosts_with_another_version_of_a_module_run_the_callers(
    cluster: Cluster, across: Place, transport: str
) -> None:
    write(across)
    for name in ("h1", "h2"):
        cluster[name].write(f"{across.folder}/helpers.py", "raise RuntimeError('the version of the host')\n")
    program = f"""
from helpers import Mode
def work(mode):
    import helpers
    return mode is helpers.Mode.TRAIN
options = {{"transport": {transport!r}, "ssh_config": {str(cluster.ssh_config)!r}}}
print(mnspawn.spawn(work, (Mode.TRAIN,), nprocs=1, hosts=HOSTS, **options).results())
"""
    assert across.check(program) == "[True, True]\n"


def test_the_main_module_of_a_rank_has_what_came_from_the_callers(place: Place, start_method: str) -> None:
    program = f"""
import enum
class Color(enum.Enum):
    RED = 1
def helper():
    return Color.RED
def work(color):
    import __main__
    copies = [pickle.loads(pickle.dumps(each)) for each in (color, helper, work)]
    return color is __main__.Color.RED, copies == [color, helper, work], helper is __main__.helper, color
print(mnspawn.spawn(work, (Color.RED,), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r}).results())
"""
    assert place.check(program) == f"{[(True, True, True)] * 2}\n".replace("True)", "True, <Color.RED: 1>)")


def test_a_module_that_spawns_when_it_is_imported_does_so_once(here: Place) -> None:
    (here.folder / "eager.py").write_text(
        "import mnspawn\ndef work():\n    return 7\nprint(mnspawn.spawn(work, nprocs=1).results())\n"
    )
    assert here.check("import eager\n") == "[7]\n"


NEIGHBOURS = """
import mnspawn
from .sub.state import Point
def work(point):
    from .kinds import Kind
    from .sub import state
    return point == state.Point(3, Kind.A)
print(mnspawn.spawn(work, (Point(3),), nprocs={nprocs}, hosts={hosts!r}, start_method={method!r}).results())
"""


def test_a_main_module_of_a_package_finds_its_neighbours(place: Place, start_method: str) -> None:
    write(place)
    text = NEIGHBOURS.format(nprocs=1 if place.hosts else 2, hosts=place.hosts, method=start_method)
    (place.folder / "pkg" / "main.py").write_text(text)
    assert place.check("sys.exit(subprocess.call([sys.executable, '-m', 'pkg.main']))") == "[True, True]\n"


def test_modules_too_large_to_be_sent_are_taken_from_hosts_that_have_them(cluster: Cluster, across: Place) -> None:
    text = f"class Large:\n    pass\nTEXT = '{'x' * 5_000_000}'\n"
    (across.folder / "large.py").write_text(text)
    cluster["h1"].write(f"{across.folder}/large.py", text)
    program = """
from large import Large
def work(given):
    import large as late
    return isinstance(given, late.Large), hasattr(late, "TEXT")
print(mnspawn.spawn(work, (Large(),), nprocs=1, hosts=HOSTS).results())
"""
    assert across.check(program) == "[(True, True), (True, False)]\n"


HOLDS = """
import functools
import threading

lock = threading.Lock()


class Counter:
    def __init__(self):
        self.count = 0


@functools.singledispatch
def kind(value):
    return "any"


@kind.register
def _(value: int):
    return "int"


def add(counter):
    with lock:
        counter.count += 1
    return kind(1), counter
"""


def test_modules_that_hold_what_can_not_be_pickled_are_imported_by_ranks(place: Place, start_method: str) -> None:
    (place.folder / "holds.py").write_text(HOLDS)
    program = f"""
from holds import Counter, add
def work(counter, function):
    import holds
    return (*holds.add(counter), isinstance(counter, holds.Counter), function is holds.add)
counter = Counter()
for call, args in ((add, ()), (work, (add,))):
    results = mnspawn.spawn(
        call, (counter, *args), nprocs=NPROCS, hosts=HOSTS, start_method={start_method!r}
    ).results()
    print([(said, type(counter) is Counter and counter.count, *seen) for said, counter, *seen in results])
"""
    assert place.check(program).splitlines() == [str([("int", 1)] * 2), str([("int", 1, True, True)] * 2)]


def test_processes_that_a_rank_starts_can_import_its_main_module(here: Place) -> None:
    program = """
import multiprocessing
def double(number):
    return 2 * number
def work():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(double, [1, 2])
if __name__ == "__main__":
    print(mnspawn.spawn(work, nprocs=1).results())
"""
    assert here.check(program) == "[[2, 4]]\n"


ASSERTS = """
import types
import pytest
import mnspawn

LIMIT = 3

class Box:
    def size(self):
        return 4

def check(n):
    box = Box()
    assert n + 1 == 6, "first"
    assert box.size() < LIMIT or n in [1, "%s"], f"n is {n}"
    return n

def test_it():
    context = mnspawn.spawn(lambda: check(1), nprocs=1, hosts=@HOSTS@, join=False)
    with pytest.raises(mnspawn.ProcessRaisedException) as first:
        context.results()
    assert type(first.value.__cause__) is AssertionError
    assert "assert (1 + 1) == 6" in str(first.value)
    assert "AssertionError: first" in str(first.value)
    with pytest.raises(mnspawn.ProcessRaisedException) as second:
        mnspawn.spawn(check, (5,), nprocs=1, hosts=@HOSTS@)
    assert "AssertionError: n is 5" in str(second.value)
    assert "assert (4 < 3 or 5 in [1, '%s'])" in str(second.value)
    assert " +  where 4 = size()" in str(second.value)
"""


def test_asserts_that_pytest_has_rewritten_work_on_hosts_without_pytest(place: Place) -> None:
    path = place.folder / "test_rewritten.py"
    path.write_text(ASSERTS.replace("@HOSTS@", repr(place.hosts)))
    program = (
        f"sys.exit(subprocess.call([sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', {str(path)!r}]))"
    )
    done = place.run(program)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
