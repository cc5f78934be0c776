"""A libnvidia-ml.so.1 that has the devices, and the faults, that variables of the environment say."""

import subprocess
from pathlib import Path

# STUB_INIT: what nvmlInit gives. STUB_COUNT: how many devices. STUB_LOST: "0:15,3:16", what asking for each gives.
# STUB_DUMB: the same for what a device says of itself. STUB_MEMORY: what asking for a device's memory gives.
SOURCE = r"""
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
static int number(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }
static int error_of(const char *name, int device) {
    const char *rest = getenv(name);
    int index, error;
    while (rest && *rest && sscanf(rest, "%d:%d", &index, &error) == 2) {
        if (index == device) return error;
        rest = strchr(rest, ',');
        if (rest) rest++;
    }
    return 0;
}
int nvmlInit(void) { return number("STUB_INIT", 0); }
int nvmlInitWithFlags(unsigned f) { return number("STUB_INIT", 0); }
int nvmlInit_v2(void) { return number("STUB_INIT", 0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) {
    static char other[40];
    switch (e) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    }
    snprintf(other, sizeof other, "Stub error %d", e);
    return other;
}
int nvmlDeviceGetCount_v2(unsigned *n) { *n = number("STUB_COUNT", 2); return number("STUB_COUNT_ERROR", 0); }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(long)(i + 1); return error_of("STUB_LOST", i); }
int nvmlDeviceGetName(void *h, char *s, unsigned n) {
    snprintf(s, n, "Stub H%ld00", (long)h);
    return error_of("STUB_DUMB", (int)(long)h - 1);
}
int nvmlDeviceGetUUID(void *h, char *s, unsigned n) { snprintf(s, n, "GPU-%ld", (long)h); return 0; }
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *h, struct memory *m) {
    m->total = 80ULL << 30; m->free = 1; m->used = 2;
    return number("STUB_MEMORY", 0);
}
"""
NAME = "libnvidia-ml.so.1"


def build(folder: Path) -> Path:
    """The library, in a folder for LD_LIBRARY_PATH."""
    source = folder / "nvml.c"
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(folder / NAME), str(source)], check=True)
    return folder / NAME
