"""C libraries in the place of the vendors' own, for their real bindings: four GPUs, two Gaudis."""

import subprocess
from pathlib import Path

NVML = """
#include <string.h>
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned long long reference, violation; } violation;
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 4; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { if (i > 3) return 6; *d = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetHandleByUUID(const char *u, void **d) {
    if (strcmp(u, "GPU-second")) return 6;
    *d = (void *)2;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *d, utilisation *u) { u->gpu = 90; u->memory = 50; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 1000; m->free = 400; m->used = 600; return 0; }
int nvmlDeviceGetClockInfo(void *d, unsigned t, unsigned *c) { *c = t == 1 ? 1410 : 0; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *p) { *p = 350000; return 0; }
int nvmlDeviceGetTemperature(void *d, unsigned s, unsigned *t) { *t = 61; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *d, unsigned long long *e) {
    if (d == (void *)4) return 3;
    *e = d == (void *)3 ? 0 : 5000 * (unsigned long long)(long)d;
    return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) { *r = 0x1 | 0x4 | 0x40; return 0; }
int nvmlDeviceGetViolationStatus(void *d, unsigned p, violation *v) {
    v->violation = p == 0 ? 2000000000ULL : 0;
    return 0;
}
int nvmlDeviceGetTotalEccErrors(void *d, unsigned e, unsigned c, unsigned long long *n) {
    *n = e == 1 ? 3 : 7;
    return 0;
}
int nvmlDeviceGetPcieReplayCounter(void *d, unsigned *n) { *n = 5; return 0; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *d, unsigned *n) { *n = 5; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *n) { *n = d == (void *)1 ? 700000 : 500000; return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *later) { *now = d != (void *)1; *later = 0; return 0; }
int nvmlDeviceGetCurrPcieLinkWidth(void *d, unsigned *n) { return 3; }
"""

HLML = """
typedef struct { unsigned aip, memory; } utilisation;
typedef struct { unsigned long long free, total, used; } memory;
typedef struct { unsigned long long reference, violation; } violation;
int hlml_init(void) { return 0; }
int hlml_device_get_count(unsigned *n) { *n = 2; return 0; }
int hlml_device_get_handle_by_index(unsigned i, void **d) { *d = (void *)(long)(i + 1); return 0; }
int hlml_device_get_module_id(void *d, unsigned *m) { *m = d == (void *)1 ? 6 : 3; return 0; }
int hlml_device_get_utilization_rates(void *d, utilisation *u) { u->aip = 80; u->memory = 5; return 0; }
int hlml_device_get_memory_info(void *d, memory *m) { m->free = 400; m->total = 1000; m->used = 600; return 0; }
int hlml_device_get_clock_info(void *d, unsigned t, unsigned *c) { *c = t == 0 ? 1650 : 1; return 0; }
int hlml_device_get_power_usage(void *d, unsigned *p) { *p = 420000; return 0; }
int hlml_device_get_temperature(void *d, unsigned s, unsigned *t) { *t = s == 0 ? 55 : 1; return 0; }
int hlml_device_get_total_energy_consumption(void *d, unsigned long long *e) {
    if (d == (void *)2) return 3;
    *e = 5000000000000ULL;
    return 0;
}
int hlml_device_get_current_clocks_throttle_reasons(void *d, unsigned long long *r) { *r = 0x2; return 0; }
int hlml_device_get_violation_status(void *d, unsigned p, violation *v) {
    v->violation = p == 1 ? 3000000000ULL : 500000000ULL;
    return 0;
}
int hlml_device_get_total_ecc_errors(void *d, unsigned e, unsigned c, long long *n) { *n = e == 1 ? 2 : 9; return 0; }
int hlml_device_get_pcie_replay_counter(void *d, unsigned *n) { *n = 4; return 0; }
int hlml_device_get_curr_pcie_link_generation(void *d, unsigned *n) { *n = 4; return 0; }
int hlml_device_get_power_management_limit(void *d, unsigned *n) { *n = 600000; return 0; }
int hlml_device_get_curr_pcie_link_width(void *d, unsigned *n) { *n = 16; return 0; }
"""


def compiled(folder: Path, name: str, source: str) -> Path:
    """Compile C source into a shared library called `name`."""
    (folder / "source.c").write_text(source)
    library = folder / name
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", library, folder / "source.c"], check=True)
    return library
