"""Pattern lists as OpenSSH has them: *, ? and !, where a negated one that matches decides. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache


def matches_any(text: str, patterns: Sequence[str], *, ignores_case: bool = False) -> bool:
    """Whether one of the patterns matches, and no negated one does.

    Args:
        ignores_case: so are names in known_hosts and `Match host`; `Host`, and users, are compared as they are.
    """
    found = False
    text = text.lower() if ignores_case else text
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        bare = bare.lower() if ignores_case else bare
        is_plain = "*" not in bare and "?" not in bare  # most are, and some files have thousands
        if bare == text if is_plain else _compiled(bare).fullmatch(text):
            if pattern.startswith("!"):
                return False
            found = True
    return found


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(char) or re.escape(char) for char in pattern), re.DOTALL)
