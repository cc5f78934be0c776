"""What Paddle's spawn promises, here and across hosts: calls, contexts, queues, texts, options."""

import pytest

from tests.spawn.conftest import Place

pytestmark = pytest.mark.full


@pytest.mark.essential
def test_functions_get_their_arguments_only_and_know_their_rank_from_the_environment(place: Place) -> None:
    program = """
def show(*args):
    names = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_DISTRI_BACKEND", "RANK", "WORLD_SIZE")
    endpoints = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
    mine = endpoints[int(os.environ["RANK"])] == os.environ["PADDLE_CURRENT_ENDPOINT"]
    return args, [os.environ[name] for name in names], len(set(endpoints)), mine
for result in mnspawn.spawn(show, ("a", 2), nprocs=NPROCS, hosts=HOSTS).results():
    print(result)
"""
    said = place.check(program, env={"http_proxy": "http://p", "PADDLE_TRAINERS_NUM": "7", "RANK": "5"}).splitlines()
    assert said == [f"(('a', 2), ['{rank}', '2', 'gloo', '{rank}', '2'], 2, True)" for rank in (0, 1)]


def test_the_rank_comes_first_when_it_is_asked_for(place: Place) -> None:
    program = "print(mnspawn.spawn(lambda *a: a, ('x',), nprocs=NPROCS, hosts=HOSTS, pass_rank=True).results())"
    assert place.check(program) == "[(0, 'x'), (1, 'x')]\n"


def test_the_context_comes_back_after_a_join_too_with_paddles_queues(place: Place) -> None:
    program = """
context = mnspawn.spawn(lambda: int(os.environ["RANK"]) * 10, nprocs=NPROCS, hosts=HOSTS)
print([queue.get() for queue in context.return_queues], [queue.empty() for queue in context.return_queues])
print(context.results(), [queue.empty() for queue in context.error_queues], context.join())
try:
    context.return_queues[0].get()
except EOFError as error:
    print(error)
"""
    assert place.check(program).splitlines() == [
        "[0, 10] [True, True]",
        "[0, 10] [True, True] True",
        "rank 0 sends nothing more",
    ]


def test_results_come_while_others_still_run(place: Place) -> None:
    program = """
def work(i):
    if i == 1:
        time.sleep(1000)
    return "x" * 1_000_000
context = mnspawn.spawn(work, nprocs=NPROCS, hosts=HOSTS, pass_rank=True, join=False)
print(len(context.return_queues[0].get()), context.processes[1].is_alive(), context.join(0))
context.join(timeout=5)
context.terminate()
try:
    context.results()
except mnspawn.ProcessExitedException as error:
    print(error)
"""
    assert place.check(program) == "1000000 True False\nProcess 1 terminated with signal SIGTERM.\n"


def test_texts_are_paddles(place: Place) -> None:
    program = """
def fail(how):
    if os.environ["RANK"] == "1":
        if how == "raise":
            raise KeyError("lost")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(how)
    time.sleep(1000)
for how in ("raise", "kill", 7, 0, None, "text"):
    try:
        mnspawn.spawn(fail, (how,), nprocs=NPROCS, hosts=HOSTS)
    except mnspawn.ProcessException as error:
        print(repr(str(error)), error.host == (HOSTS and "h2" or os.uname().nodename))
"""
    done = place.run(program).check()
    banner = "-" * 46
    lines = done.stdout.splitlines()
    start = f"'\\n\\n{banner}\\nProcess 1 terminated with the following error:\\n{banner}\\n\\nTraceback (most recent"
    assert lines[0].startswith((start, '"' + start[1:]))
    assert "raise KeyError" in lines[0]
    assert lines[1:] == [
        "'Process 1 terminated with signal SIGKILL.' True",
        "'Process 1 terminated with exit code 7.' True",
        "'Process 1 terminated with exit code 0 before it returned a result.' True",
        "'Process 1 terminated with exit code 0 before it returned a result.' True",
        "'Process 1 terminated with exit code 1.' True",
    ]
    assert "text" in done.stderr


def test_error_queues_have_the_traceback(here: Place) -> None:
    program = """
def fail():
    raise KeyError("lost")
context = mnspawn.spawn(fail, nprocs=1, join=False)
print(context.error_queues[0].get().splitlines()[-1], context.error_queues[0].empty())
try:
    context.return_queues[0].get()
except mnspawn.ProcessRaisedException as error:
    print(error.type_name, error.text)
"""
    assert here.check(program) == "KeyError: 'lost' True\nKeyError 'lost'\n"


def test_leaving_a_block_by_an_exception_ends_the_ranks(place: Place) -> None:
    program = """
try:
    with mnspawn.spawn(time.sleep, (1000,), nprocs=NPROCS, hosts=HOSTS, join=False) as context:
        raise KeyError("mine")
except KeyError:
    print([p.is_alive() for p in context.processes], [p.exitcode for p in context.processes])
with mnspawn.spawn(time.sleep, (0.1,), nprocs=NPROCS, hosts=HOSTS, join=False) as context:
    pass
print([p.exitcode for p in context.processes])
"""
    assert place.check(program) == "[False, False] [-15, -15]\n[0, 0]\n"


def test_ranks_that_ignore_sigterm_are_killed_after_the_grace(here: Place) -> None:
    program = """
def stubborn(i):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if i == 0:
        time.sleep(0.5)
        raise ValueError
    time.sleep(1000)
try:
    mnspawn.spawn(stubborn, nprocs=2, pass_rank=True, grace=1)
except mnspawn.ProcessRaisedException as error:
    print(error.error_index)
"""
    assert here.check(program) == "0\n"


def test_without_nprocs_there_is_one_rank_per_cpu(here: Place) -> None:
    program = "print(len(mnspawn.spawn(int).processes) == os.cpu_count())"
    assert here.check(program) == "True\n"


def test_ips_and_deprecated_options_mean_what_they_did(across: Place) -> None:
    program = """
import warnings
def show():
    return os.environ["PADDLE_CURRENT_ENDPOINT"], os.environ["MNSPAWN_HOST"]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(mnspawn.spawn(show, nprocs=1, cluster_node_ips=IPS, started_port=7070).results() ==
          [(f"{ip}:7070", ip) for ip in IPS.split(",")])
print(sorted(str(w.message).split()[3] for w in caught if w.category is DeprecationWarning))
print(mnspawn.spawn(show, nprocs=1, ips="127.0.0.1").results()[0][0].startswith("127.0.0.1:"))
"""
    cluster = across.controller
    ips = ",".join(cluster[name].address for name in ("h1", "h2"))  # type: ignore[index]
    assert across.check(f"IPS = {ips!r}\n{program}") == "True\n['(cluster_node_ips)', '(started_port)']\nTrue\n"


def test_a_script_is_told_of_deprecated_options_unasked(here: Place) -> None:
    program = """
import asyncio
mnspawn.spawn(int, nprocs=1, node_ip="127.0.0.1")
mp.spawn(abs, nprocs=1, node_ip="127.0.0.1")
mp.start_processes(abs, nprocs=1, node_ip="127.0.0.1")
async def call():
    await mnspawn.aspawn(int, nprocs=1, node_ip="127.0.0.1")
asyncio.run(call())
"""
    said = [line for line in here.run(program).check().stderr.splitlines() if "Warning" in line]
    assert ["program.py" in line and "DeprecationWarning" in line for line in said] == [True] * 4


def test_print_config_tells_every_decision(here: Place) -> None:
    said = here.check("mnspawn.spawn(int, nprocs=1, print_config=True, env={'TOKEN': 'hunter2'})").splitlines()
    assert said[0] == "-----------  Configuration Arguments -----------"
    assert said[-1] == "-" * 48
    assert said[1:-1] == sorted(said[1:-1])
    assert {"nprocs: 1", "backend: auto", "start_method: spawn"} <= set(said)
    assert "hunter2" not in "".join(said)


def test_too_few_devices_start_nothing(place: Place) -> None:
    program = """
for options in ({"backend": "nccl"}, {"backend": "bkcl"}, {"backend": "xccl"}, {"gpus": "0"}):
    try:
        mnspawn.spawn(print, ("started",), nprocs=1, hosts=HOSTS, **options)
    except (RuntimeError, ValueError) as error:
        print(type(error).__name__, error)
"""
    said = place.check(program)
    assert "started" not in said
    name = "h1" if place.hosts else ""
    nccl, bkcl, xccl, gpus = said.splitlines()
    assert f"DeviceError {name}" in nccl
    assert "the number of visible devices(0) is less than the number of spawn processes(1)" in nccl
    assert "`CUDA_VISIBLE_DEVICES`" in nccl
    assert "`XPU_VISIBLE_DEVICES`" in bkcl
    assert "custom device" in xccl
    assert "The selected gpu card 0 cannot found in CUDA_VISIBLE_DEVICES" in gpus


def test_a_warning_says_that_training_is_on_cpus(place: Place) -> None:
    program = """
import asyncio, types, warnings
def warned(spawn, *args, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        spawn(*args, nprocs=NPROCS, hosts=HOSTS, **options)
    return [(w.category.__name__, "CPUONLY" in str(w.message), os.path.basename(w.filename)) for w in caught]
print(warned(mnspawn.spawn, int, backend="gloo"))
async def awaited(*args, **options):
    await mnspawn.aspawn(*args, **options)
print(warned(lambda *args, **options: asyncio.run(awaited(*args, **options)), int, backend="gloo"))
print(warned(mnspawn.spawn, int), warned(mp.spawn, abs))
sys.modules["paddle"] = types.SimpleNamespace(device=types.SimpleNamespace(get_device=lambda: "cpu"))
print(len(warned(mnspawn.spawn, int)), len(warned(mp.spawn, abs)))
warnings.simplefilter("error")
try:
    mnspawn.spawn(print, ("started",), nprocs=NPROCS, hosts=HOSTS, backend="gloo")
except UserWarning as warning:
    print("nothing started")
"""
    said = place.check(program).splitlines()
    assert said[0] == said[1] == "[('UserWarning', True, 'program.py')]"
    assert said[2:] == ["[] []", "1 0" if place.hosts is None else "0 0", "nothing started"]
