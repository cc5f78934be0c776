"""Guesses from a login shell's output which startup file keeps it from running a command. Pure."""

import re

# what a shell reads before the command that sshd gives it: no login shell in its own sense, and not interactive
FILES = {
    "bash": "~/.bashrc",
    "zsh": "~/.zshenv",
    "tcsh": "~/.tcshrc or ~/.cshrc",
    "csh": "~/.cshrc",
    "fish": "~/.config/fish/config.fish",
}
_SHOWN = ("bash", "zsh", "tcsh", "fish")
# a startup file that a shell names in an error
_NAMED = re.compile(
    r"[^\s'\"`(]*/(?:\.bashrc|\.bash_profile|\.bash_login|\.profile|\.zshenv|\.zprofile|\.zshrc|\.tcshrc|\.cshrc|\.login"
    r"|\.kshrc|config\.fish|conf\.d/[\w.+-]+\.fish|\.ssh/rc|sshrc|bash\.bashrc|bashrc|zshenv|csh\.cshrc|profile"
    r"|profile\.d/[\w.+-]+)(?![\w.-])"
)
_SPEAKS = re.compile(r"(?:^|[\s|/-])(bash|zsh|tcsh|csh|fish)(?:\[\d+\])?: ")
_OTHER_USER = re.compile(r"login as the user [\"']?([A-Za-z_][\w.-]*)")


def likely_file(printed: str) -> str:
    """Return the file, or the candidates if the output names none.

    Args:
        printed: all output before the shell hung or ended.
    """
    if named := _NAMED.search(printed):
        return named.group()
    if speaks := _SPEAKS.search(printed):
        return FILES[speaks.group(1)]
    return f"{', '.join(f'{FILES[shell]} ({shell})' for shell in _SHOWN)}, or a file that it reads, such as ~/.profile"


def hint_for(printed: str, has_ended: bool) -> str:
    """Return what to look at after a login shell ran no command of ours."""
    if user := _OTHER_USER.search(printed):
        return f"use that account: {user.group(1)}@HOST, or User {user.group(1)} in ssh_config"
    if has_ended:
        return (
            "check that `ssh HOST true` works for this account; if not: `exit` or `exec` in "
            f"{likely_file(printed)}? or its shell is nologin, or authorized_keys gives it a command"
        )
    return (
        f"something waits, reads input or starts another shell (`exec`) in {likely_file(printed)}; or authorized_keys "
        "gives the account a command"
    )
