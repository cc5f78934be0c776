"""Time in which this process did not run is told as that, by a clock that goes on while the machine sleeps."""

from mnspawn.core.agent_events import LinkLost
from mnspawn.engine.link.suspension import SuspensionDetector


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_who_looks_every_second_sees_no_suspension() -> None:
    detector = SuspensionDetector(20.0, clock := Clock())
    for second in range(50):
        clock.now = 100.0 + 1.5 * second
        assert not detector.look()
    lost = LinkLost("silence", "no heartbeat for 10 s", 90.0)
    assert detector.last() is None
    assert detector.explain(lost) == lost
    assert detector.reason_of_stop("the controller was lost on h1", True) == "the controller was lost on h1"


def test_links_that_are_lost_right_after_a_suspension_are_lost_because_of_it() -> None:
    detector = SuspensionDetector(20.0, clock := Clock())
    clock.now = 700.0
    told = "mnspawn itself was stopped for 600 s (Ctrl-Z, or this machine slept)"
    assert detector.explain(LinkLost("eof", "closed", 90.0)) == LinkLost("eof", told, 90.0)  # nobody has looked before
    clock.now = 703.0
    assert detector.explain(LinkLost("silence", "no heartbeat", 90.0)).detail == told
    for kind in ("nonsense", "garbage", "stuck"):
        assert detector.explain(LinkLost(kind, "odd", 90.0)).detail == "odd"
    for second in range(704, 716):
        clock.now = float(second)
        detector.look()
    clock.now = 716.0
    assert detector.explain(LinkLost("silence", "no heartbeat", 90.0)).detail == "no heartbeat"


def test_only_ranks_that_were_stopped_because_nobody_was_there_were_stopped_by_a_suspension() -> None:
    detector = SuspensionDetector(20.0, clock := Clock())
    clock.now = 200.0
    assert detector.reason_of_stop("signal on h1", False) == "signal on h1"
    assert detector.reason_of_stop("the controller was lost on h1", True) == (
        "mnspawn itself was stopped for 100 s (Ctrl-Z, or this machine slept), longer than hosts wait for it"
        " (--orphan-grace 20)"
    )
