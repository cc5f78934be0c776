"""Which folders count as ours alone, and that those that we make are."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mnspawn_agent import ours

NOBODY = 65534


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_every_level_that_is_made_is_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = ours.make(str(tmp_path / "a" / "b"), "c", "d")
        ours.make_missing(str(tmp_path / "x" / "y"))
    finally:
        os.umask(before)
    assert made == str(tmp_path / "a/b/c/d")
    assert {str(path.relative_to(tmp_path)): oct(mode(path)) for path in tmp_path.rglob("*")} == dict.fromkeys(
        ["a", "a/b", "a/b/c", "a/b/c/d", "x", "x/y"], "0o700"
    )


def test_a_file_system_that_takes_no_folders_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="/proc/missing"):  # as /proc answers
        ours.make_missing("/proc/missing/below")


def test_a_folder_that_others_can_only_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    (tmp_path / "a" / "b").mkdir()
    (tmp_path / "a" / "b").chmod(0o2750)
    assert ours.secure(str(tmp_path / "a"), "b") == str(tmp_path / "a" / "b")
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o2700)


def test_what_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ours.secure(str(tmp_path / "a"), "b")
    assert list(tmp_path.iterdir()) == []


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def a_folder_of_anothers(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


def group_may_write(path: Path) -> None:
    path.chmod(0o770)


def all_may_write(path: Path) -> None:
    path.chmod(0o777)


def all_may_write_and_remove_their_own(path: Path) -> None:
    path.chmod(0o1777)


WAYS = [
    (a_link, "is a symbolic link"),
    pytest.param(a_folder_of_anothers, f"belongs to uid {NOBODY}", marks=pytest.mark.netns),
    (group_may_write, r"can be written to by others \(mode 0770\)"),
    (all_may_write, r"can be written to by others \(mode 0777\)"),
    (all_may_write_and_remove_their_own, r"can be written to by others \(mode 1777\)"),
]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(("harm", "reason"), WAYS)
def test_one_level_that_is_not_ours_spoils_all_below(
    tmp_path: Path, harm: Callable[[Path], None], reason: str, level: int
) -> None:
    root, *below = str(tmp_path / "root"), "runs", "1a2b"
    ours.make(root, *below)
    place = Path(root, *below[:level])
    harm(place)
    for use in (ours.secure, ours.make):
        with pytest.raises(ours.NotOurs, match=reason) as caught:
            use(root, *below, "0")
        assert caught.value.filename == str(place)
    assert list(tmp_path.rglob("0")) == []


@pytest.mark.netns
@pytest.mark.parametrize(
    ("harm", "reason"),
    [(a_folder_of_anothers, "belongs to uid"), (all_may_write, r"lets others rename what is in it \(mode 0777\)")],
)
def test_nobody_else_may_be_able_to_rename_the_first_level(
    tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    above = tmp_path / "above" / "state"
    above.mkdir(parents=True)
    harm(above.parent)
    with pytest.raises(ours.NotOurs, match=reason) as caught:
        ours.make(str(above / "mnspawn"), "runs")
    assert caught.value.filename == str(above.parent)


def test_a_link_above_the_first_level_is_the_accounts_own_business(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "state").symlink_to("scratch")
    ours.make(str(tmp_path / "state" / "mnspawn"), "runs")
    assert (tmp_path / "scratch" / "mnspawn" / "runs").is_dir()


@pytest.mark.netns
@pytest.mark.parametrize("harm", [a_folder_of_anothers, all_may_write])
def test_nobody_else_may_be_able_to_rename_a_link_on_the_way(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Where it leads to is ours when we look. It need not be a moment later."""
    home, theirs, scratch = tmp_path / "home", tmp_path / "theirs", tmp_path / "scratch"
    for folder in (home, theirs, scratch):
        folder.mkdir()
    ours.make(str(scratch / "mnspawn"))
    (theirs / "way").symlink_to(scratch)
    (home / ".cache").symlink_to("../theirs/way")
    harm(theirs)
    for use in (ours.secure, ours.make):
        with pytest.raises(ours.NotOurs) as caught:
            use(str(home / ".cache" / "mnspawn"))
        assert caught.value.filename == str(theirs)


@pytest.mark.netns
def test_a_link_of_somebody_else_on_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    all_may_write_and_remove_their_own(tmp_path)
    (tmp_path / "way").symlink_to("scratch")
    os.chown(tmp_path / "way", NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(ours.NotOurs, match=f"way belongs to uid {NOBODY}"):
        ours.make(str(tmp_path / "way" / "mnspawn"))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_links_that_lead_nowhere_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("./a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        ours.make(str(tmp_path / "a" / "mnspawn"))


@pytest.mark.netns
def test_nothing_is_made_on_the_way_through_a_home_of_somebody_else(tmp_path: Path) -> None:
    """As root with the environment of the account that asked for it."""
    home, target = tmp_path / "home", tmp_path / "target"
    home.mkdir()
    target.mkdir()
    (home / ".cache").symlink_to(target)
    a_folder_of_anothers(home)
    for name in (".local", ".cache"):
        with pytest.raises(ours.NotOurs, match=f"home belongs to uid {NOBODY}"):
            ours.make(str(home / name / "state" / "mnspawn"))
    assert [path.name for path in home.iterdir()] == [".cache"]
    assert list(target.iterdir()) == []


@pytest.mark.netns
def test_the_places_of_all_users_are_good_enough_to_stand_in(tmp_path: Path) -> None:
    (tmp_path / "var-tmp").mkdir()
    all_may_write_and_remove_their_own(tmp_path / "var-tmp")
    assert ours.make(str(tmp_path / "var-tmp" / "mnspawn-0")) == str(tmp_path / "var-tmp" / "mnspawn-0")


@pytest.mark.netns
def test_nothing_is_made_in_a_folder_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "mnspawn-0").mkdir()
    a_folder_of_anothers(tmp_path / "mnspawn-0")
    with pytest.raises(ours.NotOurs):
        ours.make(str(tmp_path / "mnspawn-0"), "runs", "1a2b")
    assert list((tmp_path / "mnspawn-0").iterdir()) == []
