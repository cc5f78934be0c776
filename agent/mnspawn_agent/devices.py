"""Accelerators of this host, as its driver says; none is no error."""

import glob
import os
from typing import Any, Dict, List

LIBRARY = "libnvidia-ml.so.1"


def find() -> Dict[str, Any]:
    """{"kind": "gpu" | "cpu", "devices": [{"name", "uuid", "memory"}], "problem": text or ""}.

    NVML counts what the driver has; CUDA_VISIBLE_DEVICES is applied by the controller.
    """
    if not glob.glob("/dev/nvidia[0-9]*") and not _library_is_here():
        return {"kind": "cpu", "devices": [], "problem": ""}
    try:
        import pynvml  # bundled with the agent
    except ImportError as error:
        return {"kind": "cpu", "devices": [], "problem": str(error)}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return {"kind": "cpu", "devices": [], "problem": "NVML: %s" % error}
    devices: List[Dict[str, Any]] = []
    problem = ""
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            devices.append(
                {
                    "name": _text(pynvml.nvmlDeviceGetName(handle)),
                    "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
                    "memory": int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                }
            )
    except pynvml.NVMLError as error:
        problem = "NVML: %s" % error
    finally:
        pynvml.nvmlShutdown()
    return {"kind": "gpu" if devices else "cpu", "devices": devices, "problem": problem}


def _library_is_here() -> bool:
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f]
    folders += ["/usr/lib", "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64"]
    folders += glob.glob("/usr/lib/*-linux-gnu")
    return any(os.path.exists(os.path.join(folder, LIBRARY)) for folder in folders)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
