"""The NVIDIA devices that this host's driver lists, and what is wrong with those that can't be used."""

import glob
import os
from typing import Any, Dict, List, Tuple

from ..streams import first_line

LIBRARY = "libnvidia-ml.so.1"
NODES = "/dev/nvidia[0-9]*"
DRIVER_GPUS = "/proc/driver/nvidia/gpus/*"
PCI_DEVICES = "/sys/bus/pci/devices/*"
NVIDIA, DISPLAY, COMPUTE = "0x10de", "0x03", "0x0302"  # of PCI: vendor, class of all GPUs, of those without a screen
MAX_DEVICES = 4096  # as many as the controller takes


def find() -> Dict[str, Any]:
    """What this host has.

    kind: "gpu" or "cpu".
    devices: {"name", "uuid", "memory"} of each that works, in the driver's order.
    lost_devices: [index, reason] of each that does not, in the driver's numbering, which counts all of them.
    problem: text, or "" where all is well.
    is_doubtful: the problem may be that there are none at all.

    NVML counts what the driver has; CUDA_VISIBLE_DEVICES is applied by the controller.
    """
    nodes = sorted(glob.glob(NODES))
    kept = sorted(glob.glob(DRIVER_GPUS))
    if not nodes and not _library_is_here():  # also in a container that was given none of its host's
        found = kept[0] if kept else _on_bus(COMPUTE)
        return _none("%s is here, and neither its device node nor %s" % (found, LIBRARY) if found else "", True)
    is_doubtful = not nodes and not kept
    try:
        import pynvml  # bundled with the agent
    except ImportError as error:
        return _none(str(error), is_doubtful)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        needs_no_device = (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        is_doubtful = is_doubtful and error.value in needs_no_device and not _on_bus(DISPLAY)
        return _none("NVML: %s" % _reason(error), is_doubtful)
    try:
        devices, lost = _all_of(pynvml)
    except pynvml.NVMLError as error:
        return _none("NVML: %s" % _reason(error), False)
    finally:
        pynvml.nvmlShutdown()
    if not devices and not lost and (nodes or kept):
        return _none("NVML finds no device, and %s is here" % (nodes + kept)[0], False)
    problem = "NVML: %s" % "; ".join("GPU %d: %s" % (index, reason) for index, reason in lost[:8]) if lost else ""
    kind = "gpu" if devices or lost else "cpu"
    return dict(_none(problem, False), kind=kind, devices=devices, lost_devices=lost)


def _none(problem: str, is_doubtful: bool) -> Dict[str, Any]:
    is_doubtful = is_doubtful and problem != ""
    return {"kind": "cpu", "devices": [], "lost_devices": [], "problem": problem, "is_doubtful": is_doubtful}


def _all_of(pynvml: Any) -> Tuple[List[Dict[str, Any]], List[List[Any]]]:
    """Those that work, and those that don't: one that is lost hides no other."""
    devices: List[Dict[str, Any]] = []
    lost: List[List[Any]] = []
    for index in range(min(pynvml.nvmlDeviceGetCount(), MAX_DEVICES)):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name = _ask(pynvml, "", pynvml.nvmlDeviceGetName, handle)
            uuid = _ask(pynvml, "", pynvml.nvmlDeviceGetUUID, handle)
            memory = _ask(pynvml, None, pynvml.nvmlDeviceGetMemoryInfo, handle)
        except pynvml.NVMLError as error:
            lost.append([index, _reason(error)])
        else:
            total = 0 if memory is None else int(memory.total)
            devices.append({"name": _text(name), "uuid": _text(uuid), "memory": total})
    return devices, lost


def _ask(pynvml: Any, otherwise: Any, ask: Any, handle: Any) -> Any:
    """Ask a device; returns `otherwise` where it has no such value (devices without memory of their own)."""
    try:
        return ask(handle)
    except pynvml.NVMLError as error:
        if error.value in (
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_NO_PERMISSION,
        ):
            return otherwise
        raise
    except ValueError:  # it is no text
        return otherwise


def _reason(error: Any) -> str:
    """The library's own text, as nvidia-smi prints it, and pynvml's where that has more."""
    import pynvml

    words = str(error)
    try:
        own = _text(pynvml.nvmlErrorString(error.value) or words)
    except (pynvml.NVMLError, ValueError):  # the library could not be loaded, or returned no text
        own = words
    text = own if own.lower().rstrip(".") == words.lower().rstrip(".") else "%s: %s" % (own, words)
    closed = [path for path in glob.glob(NODES) + glob.glob("/dev/nvidiactl") if not os.access(path, os.R_OK | os.W_OK)]
    return "%s (this account may not open %s)" % (text, closed[0]) if closed else text


def _on_bus(kind: str) -> str:
    """The first NVIDIA device of a class on the PCI bus; "" for none."""
    for path in sorted(glob.glob(PCI_DEVICES)):
        if first_line(path + "/vendor") == NVIDIA and first_line(path + "/class").startswith(kind):
            return "PCI device %s" % os.path.basename(path)
    return ""


def _library_is_here() -> bool:
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders += ["/usr/lib", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"]
    folders += glob.glob("/usr/lib/*-linux-gnu")
    return any(os.path.exists(os.path.join(folder, LIBRARY)) for folder in folders)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
