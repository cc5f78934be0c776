"""What is said of many hosts becomes one message, unless it is not the same."""

from mnspawn.cli.folding import Told, fold
from mnspawn.cli.words import error_lines, fold_hosts
from mnspawn.errors import ConnectionRefused, HostKeyUnknown, HostsUnusable


def folded(*said: Told) -> list[tuple[tuple[str, ...], str, str | None]]:
    return [(one.hosts, one.message, one.hint) for _, one, _ in fold([(None, told) for told in said], fold_hosts)]


def test_of_addresses_that_differ_the_first_few_are_shown() -> None:
    said = [Told(f"gpu-{n:02}", f"connection refused at 10.0.0.{n} port 22") for n in range(1, 13)]
    hosts = tuple(f"gpu-{n:02}" for n in range(1, 13))
    assert folded(*said) == [(hosts, "connection refused at 10.0.0.1|10.0.0.2|10.0.0.3|... port 22", None)]


def test_what_a_sentence_puts_around_words_stands_around_all_of_them() -> None:
    said = [Told(f"h{n}", f"found eth0 10.0.0.{n}, lo ::1 for ('n{n}'); no more of {n}.") for n in (1, 2)]
    [(_, message, _)] = folded(*said)
    assert message == "found eth0 10.0.0.1|10.0.0.2, lo ::1 for ('n1|n2'); no more of 1|2."
    assert folded(Told("h1", "at 1, then"), Told("h2", "at 2 then"))[0][1] == "at 1,|2 then"


def test_a_message_of_one_host_is_whole() -> None:
    assert folded(Told("h1", "refused at 10.0.0.1", "try h1 10 times")) == [
        (("h1",), "refused at 10.0.0.1", "try h1 10 times")
    ]


def test_a_hint_that_names_its_host_names_all_of_them() -> None:
    said = [Told(name, "unknown", f"mnspawn hosts trust {name} (or h10)") for name in ("h1", "h2")]
    assert folded(*said) == [(("h1", "h2"), "unknown", "mnspawn hosts trust h[1-2] (or h10)")]


def test_in_words_that_differ_each_host_has_its_own_name() -> None:
    said = [Told("a", "tried /k1/id_rsa and a:22"), Told("b", "tried /k1/b and b:23")]
    assert folded(*said) == [(("a", "b"), "tried /k1/id_rsa|/k1/b and a:22|b:23", None)]


def test_different_messages_stay_apart_and_in_order() -> None:
    said = [Told("h1", "refused"), Told("h2", "no route"), Told("h3", "refused"), Told("h4", "refused", "a hint")]
    assert folded(*said) == [
        (("h1", "h3"), "refused", None),
        (("h2",), "no route", None),
        (("h4",), "refused", "a hint"),
    ]


def test_a_name_inside_another_word_is_not_the_hosts() -> None:
    assert folded(Told("a", "a bad name", "a-b a.c x@a"), Told("b", "b bad name", "a-b a.c x@a")) == [
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
            Told(name, "unknown", f"compare: mnspawn hosts trust --ssh-config f {said}") for name, said in addresses
        ]
        return folded(*said)[0][2]

    ranged = [(f"h{number}", f"me@h{number}:2201") for number in (1, 2, 3, 4)]
    assert hint(*ranged) == "compare: mnspawn hosts trust --ssh-config f me@h[1-4]:2201"
    ports = [(f"10.0.0.5:4012{number}", f"root@10.0.0.5:4012{number}") for number in range(5)]
    assert hint(*ports) == "compare: mnspawn hosts trust --ssh-config f " + ",".join(said for _, said in ports)
