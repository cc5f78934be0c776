"""A text as lines whose numbers stay valid while lines are replaced, put in and taken away. Pure."""


class Lines:
    """Lines of a text; `text()` has all changes, numbers are those of `lines` until `renumber`."""

    def __init__(self, text: str) -> None:
        self.lines = text.removesuffix("\n").split("\n") if text else []
        self._new: dict[int, list[str]] = {}
        self._before: dict[int, list[str]] = {}
        self._behind: dict[int, list[str]] = {}

    def now(self, number: int) -> str:
        """The line as it is after what was changed so far; "" where it was taken away."""
        return next(iter(self._new.get(number, [self.lines[number]])), "")

    def replace(self, number: int, *lines: str) -> None:
        """Put lines in the place of one; none takes it away."""
        self._new[number] = list(lines)

    def before(self, number: int, *lines: str) -> None:
        """Put lines before one; the end of the text is behind its last line."""
        self._before.setdefault(number, []).extend(lines)

    def behind(self, number: int, *lines: str) -> None:
        """Put lines behind one."""
        self._behind.setdefault(number, []).extend(lines)

    def renumber(self) -> None:
        """Take all changes over."""
        made: list[str] = []
        for number, line in enumerate(self.lines):
            made += self._before.get(number, [])
            made += self._new.get(number, [line])
            made += self._behind.get(number, [])
        made += self._before.get(len(self.lines), [])
        self.lines = made
        self._new, self._before, self._behind = {}, {}, {}

    def text(self) -> str:
        """The text with all changes."""
        self.renumber()
        return "".join(f"{line}\n" for line in self.lines)
