import pickle

import pytest

from mnspawn.errors import (
    ArgumentTypeError,
    AuthRefused,
    HostsUnusable,
    MnspawnError,
    NameUnknown,
    OptionError,
    PlanRefused,
)
from mnspawn.spawning.errors import (
    DeviceError,
    NotPicklable,
    ProcessExitedException,
    ProcessRaisedException,
    ResultError,
    RunTimedOut,
)


def test_both_failures_of_a_process_survive_pickling() -> None:
    raised = ProcessRaisedException("text", 3, 42).at("h1", 1)
    raised.type_name, raised.text, raised.traceback = "ValueError", "bad", "Traceback ..."
    exited = ProcessExitedException("text", 3, 42, -9, "SIGKILL").at("h1", 1)
    for error in (raised, exited):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), vars(copy)) == (str(error), vars(error))
        assert (copy.error_index, copy.rank, copy.error_pid, copy.pid) == (3, 3, 42, 42)
        assert (copy.host, copy.local_rank) == ("h1", 1)
        assert copy.__notes__ == ["rank 3 (local rank 1) on h1, pid 42"]


@pytest.mark.parametrize(
    ("error", "bases"),
    [
        (OptionError("no", place="nprocs"), (ValueError, MnspawnError)),
        (ArgumentTypeError("no", place="hosts"), (TypeError, MnspawnError)),
        (DeviceError("no"), (RuntimeError, MnspawnError)),
        (NotPicklable("no", place="args"), (pickle.PicklingError, TypeError, MnspawnError)),
        (RunTimedOut("no"), (TimeoutError, MnspawnError)),
        (ResultError("no", host="h1"), (MnspawnError,)),
    ],
)
def test_errors_are_what_torch_and_paddle_raise_and_ours_and_can_be_pickled(
    error: MnspawnError, bases: tuple[type, ...]
) -> None:
    assert isinstance(error, bases)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


@pytest.mark.parametrize(
    "error",
    [
        HostsUnusable([NameUnknown("not known", host="a", hint="ask"), AuthRefused("no key", host="b")]),
        PlanRefused([("a", "port 80 is taken"), ("b", "no folder /x")], hint="choose another"),
    ],
)
def test_errors_of_many_hosts_come_out_of_a_pickle_as_they_were(error: MnspawnError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, copy.hint) == (type(error), error.args, error.hint)
    if isinstance(error, HostsUnusable):
        assert [(type(one), one.host, one.hint) for one in copy.errors] == [
            (NameUnknown, "a", "ask"),
            (AuthRefused, "b", None),
        ]
    else:
        assert copy.refusals == (("a", "port 80 is taken"), ("b", "no folder /x"))
