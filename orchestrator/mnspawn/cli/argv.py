"""Splits a command line into the command, its options, and the program's words, which it never reads. Pure."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mnspawn.errors import UsageError

# What people know from other launchers, and what to do about it here.
FOREIGN = {
    "--nnodes": "it follows from the hosts",
    "--node-rank": "it follows from the order of the hosts; run mnspawn once, on one machine",
    "--rdzv-endpoint": "the first host is the rendezvous; its port is --master-port",
    "--rdzv-backend": "no rendezvous service is needed",
    "--rdzv-id": "every run has an id of its own",
    "--master-addr": "the first host is the rendezvous; its port is --master-port",
    "--standalone": "use --sandbox N for throw-away hosts on this machine",
    "--nproc": "did you mean --nproc-per-node?",
    "--np": "did you mean --nproc-per-node?",
    "-np": "did you mean --nproc-per-node?",
    "-n": "did you mean --nproc-per-node?",
    "--host": "did you mean --hosts?",
    "--machinefile": "did you mean --hostfile?",
    "--devices": "did you mean --nproc-per-node? devices are a matter of the inventory",
}


class Option(Protocol):
    """What must be known of an option."""

    @property
    def name(self) -> str: ...

    @property
    def is_flag(self) -> bool: ...

    @property
    def is_repeatable(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line taken apart.

    Attributes:
        command: the first word that names one; "run" when none does.
        options: those before the command's name (of `run`: all of them), each with its value.
        words: what follows: of `run` SCRIPT and ARGS, byte for byte; else the command's own words.
    """

    command: str
    options: tuple[str, ...]
    words: tuple[str, ...]


def split(argv: Sequence[str], takes_value: Mapping[str, bool], commands: Collection[str]) -> CommandLine:
    """Take `mnspawn [run] [OPTIONS] SCRIPT [ARGS...]` or `mnspawn [OPTIONS] COMMAND [WORDS...]` apart.

    Arguments:
        takes_value: every option of `run`, and whether a value follows it.
        commands: the other commands' names.

    Raises:
        UsageError: an unknown option, or one whose value is missing.
    """
    options: list[str] = []
    is_run = False
    position = 0
    while position < len(argv):
        word = argv[position]
        if word == "--":  # what follows is SCRIPT, whatever it looks like
            return CommandLine("run", tuple(options), tuple(argv[position + 1 :]))
        if is_option(word):
            taken, count = take_option(argv, position, takes_value)
            options += taken
            position += count
        elif is_run or (word != "run" and word not in commands):
            return CommandLine("run", tuple(options), tuple(argv[position:]))
        elif word == "run":
            is_run = True
            position += 1
        else:
            return CommandLine(word, tuple(options), tuple(argv[position + 1 :]))
    return CommandLine("run", tuple(options), ())


def is_option(word: str) -> bool:
    """`-` alone is a word like any other."""
    return word.startswith("-") and word != "-"


def take_option(argv: Sequence[str], position: int, takes_value: Mapping[str, bool]) -> tuple[list[str], int]:
    """The option at a position in a form that needs no table to read, and how many words it took.

    Raises:
        UsageError: it is unknown, or its value is missing or too much.
    """
    word = argv[position]
    following = argv[position + 1 : position + 2]
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")  # torchrun takes both spellings
        if name not in takes_value:
            raise _unknown(name, takes_value)
        if not takes_value[name]:
            if equals:
                raise UsageError(f"expected no value, found {value!r}", place=name)
            return [name], 1
        if equals:
            return [f"{name}={value}"], 1
        return [f"{name}={_value_of(name, following)}"], 2
    taken: list[str] = []
    for index, letter in enumerate(word[1:], start=2):
        name = f"-{letter}"
        if name not in takes_value:
            raise _unknown(word if index == 2 else name, takes_value)
        taken.append(name)
        if takes_value[name]:
            attached = word[index:]
            taken.append(attached or _value_of(name, following))
            return taken, 1 if attached else 2
    return taken, 1


def read(options: Sequence[str], option_of: Mapping[str, Option]) -> dict[str, object]:
    """The values of options that `split` has taken, by name: as settings.resolve takes them."""
    arguments: dict[str, object] = {}
    tokens = iter(options)
    for token in tokens:
        flag, equals, value = token.partition("=")
        option = option_of[flag]
        if option.is_flag:
            count = arguments.get(option.name, 0)
            arguments[option.name] = count + 1 if option.is_repeatable and isinstance(count, int) else True
            continue
        value = value if equals else next(tokens)
        if option.is_repeatable:
            earlier = arguments.get(option.name, ())
            arguments[option.name] = (*earlier, value) if isinstance(earlier, tuple) else (value,)
        else:
            arguments[option.name] = value
    return arguments


def _value_of(name: str, following: Sequence[str]) -> str:
    if not following:
        raise UsageError("expected a value, found the end of the command line", place=name)
    return following[0]


def _unknown(name: str, takes_value: Mapping[str, bool]) -> UsageError:
    near = difflib.get_close_matches(name, takes_value, n=1)
    hint = FOREIGN.get(name) or (f"did you mean {near[0]}?" if near else "mnspawn --help lists the options")
    return UsageError("expected an option of mnspawn, found an unknown one", place=name, hint=hint)
