"""Which tests are quick (`make test`) and which only `make test-all` runs. CONTRIBUTING.md has the rule."""

import pytest

EXPENSIVE = {"cluster", "make_cluster", "framework_cluster"}  # fixtures: virtual hosts


def is_quick(item: pytest.Item) -> bool:
    """A test says so itself (`essential`, `full`), or it is quick when it needs neither hosts nor frameworks."""
    if item.get_closest_marker("essential"):
        return True
    needs_hosts = EXPENSIVE.intersection(getattr(item, "fixturenames", ()))
    return not (needs_hosts or item.get_closest_marker("full") or item.get_closest_marker("frameworks"))


def are_chosen(config: pytest.Config) -> bool:
    """Whether the command line names tests: by path, by name, by marker, or as those that failed before."""
    option = config.option
    by_path = config.args_source is pytest.Config.ArgsSource.ARGS
    return bool(by_path or option.keyword or option.markexpr or getattr(option, "lf", False))
