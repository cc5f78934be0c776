"""A whole run against a host that may say anything: it ends in words, and the other host is told to stop."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnspawn.api import runs as api
from mnspawn.engine.link import sites
from mnspawn.engine.request import RunRequest
from mnspawn.errors import HostsUnusable, PlanRefused
from mnspawn.plan.launch_plan import Program
from mnspawn.report import RunReport
from mnspawn_agent.protocol import messages
from mnspawn_agent.protocol.channel import Channel
from mnspawn_inventory import Host
from tests.support import PATIENCE
from tests.support.liar import Liar, exited, hello, prepared, started
from tests.support.memory_transport import MemoryTransport
from tests.unit.core.test_facts import odd
from tests.unit.core.test_message_check import mutated
from tests.unit.protocol.test_messages import GOOD

ASKED: dict[str, Any] = {"ranks": [1], "extra_ports": 0, "files": []}
HONEST = (hello(), prepared(ASKED), started(1), exited(1))
some = st.one_of(
    st.sampled_from(HONEST),
    st.sampled_from(HONEST).flatmap(
        lambda said: st.dictionaries(st.sampled_from(sorted(set(said) - {"type"})), odd, max_size=1).map(
            lambda change: {**said, **change}
        )
    ),
    st.sampled_from(sorted(set(GOOD) - {messages.DONE})).flatmap(mutated),  # with DONE it may end as it likes
)


@settings(max_examples=120, derandomize=True, database=None, deadline=None)
@given(st.sampled_from(["connect", messages.PREPARE, messages.START]), st.lists(some, max_size=6))
def test_whatever_one_host_says_the_run_ends_in_words_and_the_other_host_is_told(
    after: str, script: list[dict[str, Any]]
) -> None:
    def lie(channel: Channel) -> None:
        for message in [*script, {"type": "sing"}]:
            channel.send(message)

    honest, liar = Liar("nothing", lie), Liar(after, lie)
    hosts = {"honest": honest.host, "liar": liar.host}
    request = RunRequest(
        Program("command", "sleep", ("1000",)),
        (Host(name="honest"), Host(name="liar")),
        nproc=1,
        transport="memory",
        orphan_grace=1000.0,
    )

    async def execute() -> object:
        async with asyncio.timeout(PATIENCE):
            return await api.run(request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sites, "create", lambda name, options: MemoryTransport(options, hosts))
        try:
            report = asyncio.run(execute())
        except (HostsUnusable, PlanRefused):
            assert messages.START not in honest.heard
            return
    assert isinstance(report, RunReport)
    assert report.exit_status not in (0, 70)
    assert messages.STOP in honest.heard
    assert report.hosts[0].is_confirmed
