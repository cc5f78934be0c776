import pytest

from mnspawn.core.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(1000.0, first=0.1, longest=0.5)
    assert [backoff.next_pause(0.0, chance=1.0) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]


def test_chance_shortens_a_pause_to_its_half_at_most() -> None:
    assert Backoff(1000.0, first=1.0).next_pause(0.0, chance=0.0) == 0.5
    assert Backoff(1000.0, first=1.0).next_pause(0.0, chance=0.5) == 0.75


@pytest.mark.parametrize(("now", "pause"), [(8.9, 1.0), (9.0, None), (20.0, None)])
def test_there_is_no_pause_that_would_end_at_the_deadline_or_later(now: float, pause: float | None) -> None:
    assert Backoff(10.0, first=1.0).next_pause(now, chance=1.0) == pause


def test_after_a_success_pauses_begin_small_again() -> None:
    backoff = Backoff(first=0.1, longest=0.5)
    for _ in range(3):
        backoff.next_pause(0.0, chance=1.0)
    backoff.reset()
    assert backoff.next_pause(0.0, chance=1.0) == 0.1
