"""What hosts answer before the start, and the one error that tells it."""

from mnspawn.engine.run.answers import Answers
from mnspawn.errors import HostError, HostsUnusable, PlanRefused, UsageError


def test_bad_hosts_are_told_once_all_have_answered_in_the_order_of_the_hosts() -> None:
    answers = Answers(["a", "b", "c"], "train.py")
    answers.failed(2, HostError("no answer", host="c"))
    answers.failed(2, HostError("something later", host="c"))
    answers.usable(1)
    assert not answers.are_unusable
    answers.failed(0, HostError("no python", host="a"))
    assert answers.are_unusable
    error = answers.unusable()
    assert isinstance(error, HostsUnusable)
    assert [(one.host, one.message) for one in error.errors] == [("a", "no python"), ("c", "no answer")]


def test_hosts_that_all_can_be_used_are_no_error() -> None:
    answers = Answers(["a"], "train.py")
    answers.usable(0)
    answers.taken(0)
    assert (answers.are_unusable, answers.unusable()) == (False, None)
    assert (answers.are_refusals, answers.refusal()) == (False, None)


def test_refusals_are_told_once_all_have_decided() -> None:
    answers = Answers(["a", "b"], "train.py")
    answers.refused(1, ("no folder /x", "no python"))
    assert not answers.are_refusals
    answers.taken(0)
    assert answers.are_refusals
    error = answers.refusal()
    assert isinstance(error, PlanRefused)
    assert error.refusals == (("b", "no folder /x"), ("b", "no python"))


def test_a_script_that_nobody_has_is_the_users_mistake() -> None:
    answers = Answers(["a"], "train.py")
    answers.refused(0, ("no script /x/train.py",))
    error = answers.refusal()
    assert isinstance(error, UsageError)
    assert str(error) == "SCRIPT: expected a script, found no file 'train.py' here or on a host"
