"""`mnspawn tail`: a run or files, and whose."""

import pytest

from mnspawn.cli.tail_files import followed_of, split
from mnspawn.errors import UsageError
from mnspawn.settings import table as settings


@pytest.mark.parametrize(
    ("word", "hosts", "pattern"),
    [
        ("a:/var/log/x.log", "a", "/var/log/x.log"),
        ("a,b:x*.log", "a,b", "x*.log"),
        ("gpu[01-16]:/l/[ab]:c", "gpu[01-16]", "/l/[ab]:c"),
        ("[fe80::1]:/x", "[fe80::1]", "/x"),
        ("@train:~/x:y", "@train", "~/x:y"),
    ],
)
def test_hosts_and_pattern(word: str, hosts: str, pattern: str) -> None:
    assert split(word) == (hosts, pattern)


@pytest.mark.parametrize("word", ["a", ":x", "a:", ":", "[fe80::1]"])
def test_what_names_no_files(word: str) -> None:
    with pytest.raises(UsageError, match=r"^PATTERN: expected HOSTS:PATTERN, found "):
        split(word)


def test_a_host_is_followed_once_with_all_its_patterns() -> None:
    followed = followed_of(settings.resolve({}, {"MNSPAWN_SETTINGS": ""}), ["a,b:x", "b:y", "b:x"])
    assert [(one.host.name, one.patterns) for one in followed] == [("a", ("x",)), ("b", ("x", "y"))]
