"""Replaces pytest on hosts, for functions whose asserts pytest has rewritten. Travels by value.

Rewritten code calls these functions of `_pytest.assertion.rewrite`. Failures have pytest's text, without its plugins'.
"""

from collections.abc import Iterable, Sequence

MODULE = "_pytest.assertion.rewrite"


def _saferepr(value: object) -> str:
    import types

    if isinstance(value, types.MethodType):
        return value.__name__
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a class's own code; the failure is reported all the same
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    if len(text) > 240:
        text = f"{text[:118]}...{text[-118:]}"
    return text.replace("\n", "\\n")


def _format_assertmsg(message: object) -> str:
    if not isinstance(message, str):
        return _saferepr(message).replace("%", "%%").replace("\\n", "\n~")
    return message.replace("\n", "\n~").replace("%", "%%")


def _should_repr_global_name(value: object) -> bool:
    return not callable(value) and not hasattr(value, "__name__")


def _format_boolop(explanations: Iterable[str], is_or: bool) -> str:
    return f"({(' or ' if is_or else ' and ').join(explanations)})".replace("%", "%%")


def _call_reprcompare(ops: Sequence[str], results: Sequence[object], texts: Sequence[str], values: object) -> str:
    for result, text in zip(results, texts, strict=False):
        try:
            if not result:
                return text
        except Exception:  # noqa: BLE001 - the truth of an array raises; that comparison is the one to show
            return text
    return texts[-1]


def _call_assertion_pass(line: int, original: str, explanation: str) -> None:
    """Do nothing: no plugin asks for assertions that pass."""


def _check_if_assertion_pass_impl() -> bool:
    return False


def _format_explanation(explanation: str) -> str:
    """From pytest's notation, in which lines that begin with {, } and ~ nest, to indented lines."""
    lines: list[str] = []
    for line in (explanation or "").split("\n"):
        if not lines or line[:1] in ("{", "}", "~", ">"):
            lines.append(line)
        else:
            lines[-1] += "\\n" + line
    shown, open_at, counts = lines[:1], [0], [0]
    for line in lines[1:]:
        if line[0] == "{":
            word = "and   " if counts[-1] else "where "
            open_at.append(len(shown))
            counts[-1] += 1
            counts.append(0)
            shown.append(" +" + "  " * (len(open_at) - 1) + word + line[1:])
        elif line[0] == "}":
            open_at.pop()
            counts.pop()
            shown[open_at[-1]] += line[1:]
        else:
            open_at[-1] += 1
            shown.append("  " * (len(open_at) - (line[0] == ">")) + line[1:])
    return "\n".join(shown)


FUNCTIONS = {
    function.__name__: function
    for function in (
        _saferepr,
        _format_assertmsg,
        _should_repr_global_name,
        _format_boolop,
        _call_reprcompare,
        _call_assertion_pass,
        _check_if_assertion_pass_impl,
        _format_explanation,
    )
}
