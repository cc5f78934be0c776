"""What is said of many hosts becomes one message, unless it is not the same."""

from mnspawn.cli.wording.folding import HostMessage, fold
from mnspawn.cli.wording.run import error_lines, fold_hosts
from mnspawn.errors import ConnectionRefused, ConnectTimeout, HostKeyChanged, HostKeyUnknown, HostsUnusable


def folded(*said: HostMessage) -> list[tuple[tuple[str, ...], str, str | None]]:
    return [(one.hosts, one.message, one.hint) for _, one, _ in fold([(None, told) for told in said], fold_hosts)]


def test_of_addresses_that_differ_the_first_few_are_shown() -> None:
    said = [HostMessage(f"gpu-{n:02}", f"connection refused at 10.0.0.{n} port 22") for n in range(1, 13)]
    hosts = tuple(f"gpu-{n:02}" for n in range(1, 13))
    assert folded(*said) == [(hosts, "connection refused at 10.0.0.1|10.0.0.2|10.0.0.3|... port 22", None)]


def test_what_a_sentence_puts_around_words_stands_around_all_of_them() -> None:
    said = [HostMessage(f"h{n}", f"found eth0 10.0.0.{n}, lo ::1 for ('n{n}'); no more of {n}.") for n in (1, 2)]
    [(_, message, _)] = folded(*said)
    assert message == "found eth0 10.0.0.1|10.0.0.2, lo ::1 for ('n1|n2'); no more of 1|2."
    assert folded(HostMessage("h1", "at 1, then"), HostMessage("h2", "at 2 then"))[0][1] == "at 1,|2 then"


def test_a_message_of_one_host_is_whole() -> None:
    assert folded(HostMessage("h1", "refused at 10.0.0.1", "try h1 10 times")) == [
        (("h1",), "refused at 10.0.0.1", "try h1 10 times")
    ]


def test_a_hint_that_names_its_host_names_all_of_them() -> None:
    said = [HostMessage(name, "unknown", f"mnspawn hosts trust {name} (or h10)") for name in ("h1", "h2")]
    assert folded(*said) == [(("h1", "h2"), "unknown", "mnspawn hosts trust h[1-2] (or h10)")]


def test_in_words_that_differ_each_host_has_its_own_name() -> None:
    said = [HostMessage("a", "tried /k1/id_rsa and a:22"), HostMessage("b", "tried /k1/b and b:23")]
    assert folded(*said) == [(("a", "b"), "tried /k1/id_rsa|/k1/b and a:22|b:23", None)]


def test_different_messages_stay_apart_and_in_order() -> None:
    said = [
        HostMessage("h1", "refused"),
        HostMessage("h2", "no route"),
        HostMessage("h3", "refused"),
        HostMessage("h4", "refused", "a hint"),
    ]
    assert folded(*said) == [
        (("h1", "h3"), "refused", None),
        (("h2",), "no route", None),
        (("h4",), "refused", "a hint"),
    ]


def test_a_name_inside_another_word_is_not_the_hosts() -> None:
    assert folded(HostMessage("a", "a bad name", "a-b a.c x@a"), HostMessage("b", "b bad name", "a-b a.c x@a")) == [
        (("a", "b"), "a,b bad name", "a-b a.c x@a")
    ]


def test_errors_of_many_hosts_are_a_line_and_a_hint() -> None:
    refused = [ConnectionRefused(f"connection refused at 10.0.0.{n} port 22", host=f"h{n}") for n in (1, 2)]
    unknown = [
        HostKeyUnknown(f"its key SHA256:{n} is not in known_hosts", host=f"h{n}", hint=f"mnspawn hosts trust h{n}")
        for n in (3, 4)
    ]
    assert error_lines(HostsUnusable([*refused, *unknown])) == [
        "mnspawn: 2 hosts: connection refused at 10.0.0.1|10.0.0.2 port 22: h[1-2]",
        "mnspawn: 2 hosts: its key SHA256:3|SHA256:4 is not in known_hosts: h[3-4]",
        "  hint: mnspawn hosts trust h[3-4]",
    ]


def test_the_hosts_of_a_command_are_all_named_so_that_it_can_be_pasted() -> None:
    def hint(*addresses: tuple[str, str]) -> str | None:
        said = [
            HostMessage(name, "unknown", f"compare: mnspawn hosts trust --ssh-config f {said}")
            for name, said in addresses
        ]
        return folded(*said)[0][2]

    ranged = [(f"h{number}", f"me@h{number}:2201") for number in (1, 2, 3, 4)]
    assert hint(*ranged) == "compare: mnspawn hosts trust --ssh-config f me@h[1-4]:2201"
    ports = [(f"10.0.0.5:4012{number}", f"root@10.0.0.5:4012{number}") for number in range(5)]
    assert hint(*ports) == "compare: mnspawn hosts trust --ssh-config f " + ",".join(said for _, said in ports)


def key(number: object) -> str:
    return f"SHA256:{str(number) * 20}"


def test_changed_keys_are_told_of_each_host_however_many() -> None:
    changed = [
        HostKeyChanged(
            f"its ssh-ed25519 key has changed: /root/.ssh/known_hosts:{n} has {key(n)}, the host shows {key(n + 1)}",
            host=f"h{n}",
            hint=f"if it was set up anew: mnspawn hosts trust --replace h{n}",
        )
        for n in range(1, 41)
    ]
    assert error_lines(HostsUnusable(changed)) == [
        "mnspawn: 40 hosts: its ssh-ed25519 key has changed: h[1-40]",
        *(
            f"    h{n}: its ssh-ed25519 key has changed: /root/.ssh/known_hosts:{n} has {key(n)}, "
            f"the host shows {key(n + 1)}"
            for n in range(1, 41)
        ),
        "  hint: if it was set up anew: mnspawn hosts trust --replace h[1-40]",
    ]


def test_several_changed_keys_of_each_host_have_a_line_each() -> None:
    changed = [
        HostKeyChanged(f"its host keys have changed\nssh-rsa: a:1 has {key(n)}\nssh-ed25519: a:2 has {key(n)}", host=n)
        for n in ("h1", "h2")
    ]
    assert error_lines(HostsUnusable(changed[:1])) == [
        "mnspawn: h1: its host keys have changed",
        f"    ssh-rsa: a:1 has {key('h1')}",
        f"    ssh-ed25519: a:2 has {key('h1')}",
    ]
    assert error_lines(HostsUnusable(changed)) == [
        "mnspawn: 2 hosts: its host keys have changed: h[1-2]",
        *(f"    {n}: {kind} has {key(n)}" for n in ("h1", "h2") for kind in ("ssh-rsa: a:1", "ssh-ed25519: a:2")),
    ]


def test_what_would_be_too_long_side_by_side_stands_below_for_the_first_hosts() -> None:
    said = [
        f"none of its 2 addresses can be used: the host does not answer (10.0.0.{n} port 22, 15 s); "
        f"no route to fd77::{n} port 22 (Network is unreachable)"
        for n in range(1, 31)
    ]
    lines = error_lines(HostsUnusable([ConnectTimeout(text, host=f"h{n}") for n, text in enumerate(said, 1)]))
    assert lines[0] == "mnspawn: 30 hosts: none of its 2 addresses can be used: the host does not answer: h[1-30]"
    assert lines[1:17] == [f"    h{n}: {said[n - 1]}" for n in range(1, 17)]
    assert lines[17:] == ["    and 14 more"]


def test_what_is_long_and_the_same_for_all_stands_once() -> None:
    said = [ConnectTimeout("x" * 300, host=f"h{n}") for n in (1, 2)]
    assert error_lines(HostsUnusable(said)) == [f"mnspawn: 2 hosts: {'x' * 300}: h[1-2]"]
