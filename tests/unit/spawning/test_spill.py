import os
import pickle
import threading

import pytest

from mnspawn.spawning.results.spill import Spill


@pytest.mark.parametrize("in_memory", [0, 10, 1 << 20])
def test_every_rank_gets_its_own_bytes_back_in_order(in_memory: int) -> None:
    spill = Spill(in_memory)
    for number in range(100):
        for rank in range(3):
            spill.append(rank, f"{rank}:{number};".encode())
    for rank in range(3):
        expected = "".join(f"{rank}:{number};" for number in range(100)).encode()
        with spill.open(rank) as content:
            assert content.read() == expected
    assert spill.open(7).read() == b""
    spill.close()


def test_little_stays_in_memory_and_much_takes_one_file() -> None:
    before = len(os.listdir("/proc/self/fd"))
    spill = Spill(1000)
    for rank in range(1000):
        spill.append(rank, b"x")
    assert len(os.listdir("/proc/self/fd")) == before
    for rank in range(1000):
        spill.append(rank, b"y" * 10)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert spill.open(999).read() == b"x" + b"y" * 10
    spill.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_dropped_makes_room() -> None:
    spill = Spill(10)
    spill.append(0, b"x" * 10)
    spill.drop(0)
    spill.append(1, b"y" * 10)
    assert (spill.open(0).read(), spill.open(1).read(), spill._file) == (b"", b"y" * 10, None)


def test_pickles_are_read_from_it_while_others_arrive() -> None:
    spill = Spill(0)
    value = {"array": bytearray(os.urandom(3_000_000)), "text": "x" * 100_000}
    content = pickle.dumps(value, protocol=5)
    for start in range(0, len(content), 65536):
        spill.append(0, content[start : start + 65536])

    def append() -> None:
        for _ in range(2000):
            spill.append(1, b"z" * 1000)

    busy = threading.Thread(target=append)
    busy.start()
    with spill.open(0) as file:
        assert pickle.load(file) == value
    busy.join()
    assert spill.open(1).read() == b"z" * 2_000_000
    spill.close()
