"""CUDA_VISIBLE_DEVICES as torch reads it: a table, which tests/contract compares with torch itself."""

import pytest

from mnspawn.core import visible

UUIDS = ("GPU-1", "GPU-2", "GPU-3", "GPU-4")  # as the stub of the driver's library has them
TABLE: dict[str, tuple[int, ...]] = {  # value: the devices that remain of four
    "": (), " ": (), "-1": (), "NoDevFiles": (), "none": (), "junk": (), "all": (), ",0": (), "-": (), "+": (),
    "0": (0,), "0,1,2,3": (0, 1, 2, 3), "3,1": (3, 1), " 1 , 2 ": (1, 2), "0,1,": (0, 1), "0,,1": (0,), "+1": (1,),
    "-0": (0,), "00,01": (0, 1), "0,-1": (0,), "0,-1,1": (0,), "0,-1,0": (0,), "-1,0": (), "0,x,1": (0,),
    "1gpu2,2ampere": (1, 2), "1.5": (1,), "0x1": (0,), "1 2": (1,), "0;1": (0,), "0:1": (0,),
    "0,0": (), "1,2,1": (), "0,00": (), "0,9,0": (), "9,9": (), "1,+1": (),
    "4": (), "0,4": (0,), "0,4,1": (0,), "7,0": (), "99999999999999999999,0": (), "0,1,9,2": (0, 1),
    "GPU-1": (0,), "GPU-3,GPU-1": (2, 0), "GPU-1,GPU-1": (), "GPU-": (), "GPU-9": (), "GPU-1,GPU-9,GPU-2": (0,),
    "GPU-1, GPU-2": (0,), "GPU-1,1": (0,), "GPU-1,MIG-77": (0,), "GPU-9,GPU-9": (), "GPU-1,": (0,), "gpu-1": (),
    " GPU-1": (), "0,GPU-2": (0,),
}  # fmt: skip


@pytest.mark.parametrize("value", TABLE)
def test_a_list_leaves_the_devices_that_cuda_sees(value: str) -> None:
    assert visible.read(value, UUIDS).devices == TABLE[value]


@pytest.mark.parametrize(
    ("value", "devices"),
    [
        ("GPU-8932f9", (0,)),
        ("GPU-8932f937", (0,)),
        ("GPU-89", ()),  # of two
        ("GPU-8932f9,GPU-8932f937-d72c", ()),  # the same one twice
        ("GPU-8a,GPU-8932", (1, 0)),
        ("MIG-5a,MIG-6b", (-1, -1)),
        ("MIG-5a,MIG-5a", ()),
        ("MIG-5a,GPU-8a", (-1,)),
        ("MIG-GPU-8932f937-d72c/1/0", (-1,)),
    ],
)
def test_names_may_be_shortened_as_long_as_they_mean_one_device(value: str, devices: tuple[int, ...]) -> None:
    uuids = ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-8a1b", "GPU-8901")
    assert visible.read(value, uuids).devices == devices


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("0,9", "there is no device 9, only 0 to 3: CUDA stops there"),
        ("1,2,1", "device 1 is listed twice, which hides all devices"),
        ("GPU-1,GPU-1", "GPU-1 is listed twice, which hides all devices"),
        ("GPU-9", "GPU-9 is no device of this host: CUDA stops there"),
        ("GPU-", "GPU- is the beginning of several devices of this host: CUDA stops there"),
        ("GPU-1,1", "'1' does not begin with GPU-: CUDA stops there"),
        ("0,x,1", "'x' is no device: CUDA stops there"),
        ("0,-1,1", "'-1' is no device: CUDA stops there"),
        ("all", "'all' is no device: CUDA stops there"),
        ("0,-1", ""),
        ("0,1,", ""),
        ("1gpu2", ""),
    ],
)
def test_a_list_that_means_less_than_it_says_is_told(value: str, problem: str) -> None:
    reading = visible.read(value, UUIDS)
    assert (reading.problem, reading.hides_all) == (problem, False)


@pytest.mark.parametrize("value", ["", " ", "-1", "-1,0", "NoDevFiles", "none", "void"])
def test_who_wants_no_device_makes_no_mistake(value: str) -> None:
    assert visible.read(value, UUIDS) == visible.Reading((), "", hides_all=True)
