/* Says what NVML would say on a machine with the GPUs that the file FAKE_NVML lists, a line each:
     gpu UUID TOTAL USED
     process NUMBER PID BYTES
   The file is read at every call, so that it can change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned pid; unsigned long long used; unsigned a, b; } running;
typedef struct { char uuid[80]; unsigned long long total, used; } gpu;

#define GPUS 8
static gpu gpus[GPUS];

/* Reads the file; gives how many GPUs and, of one of them, how many processes there are. */
static unsigned look(unsigned number, running *into, unsigned *n_running) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : 0;
    char line[256];
    unsigned n = 0, found = 0;
    while (file && fgets(line, sizeof line, file)) {
        unsigned of, pid;
        unsigned long long bytes;
        if (n < GPUS
            && sscanf(line, "gpu %79s %llu %llu", gpus[n].uuid, &gpus[n].total, &gpus[n].used) == 3) {
            n++;
        } else if (sscanf(line, "process %u %u %llu", &of, &pid, &bytes) == 3 && of == number) {
            if (into && found < *n_running) {
                into[found].pid = pid;
                into[found].used = bytes;
                found++;
            }
        }
    }
    if (file) fclose(file);
    if (n_running) *n_running = found;
    return n;
}

int nvmlInit_v2(void) { return look(0, 0, 0) > 0 ? 0 : 999; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = look(0, 0, 0); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
    if (i >= look(0, 0, 0)) return 2;
    *d = &gpus[i];
    return 0;
}
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "Fake GPU", n); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { strncpy(s, ((gpu *)d)->uuid, n); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) {
    gpu *g = d;
    m->total = g->total; m->used = g->used; m->free = g->total - g->used;
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *d, int *major, int *minor) {
    *major = 8; *minor = 6;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, running *r) {
    look((unsigned)((gpu *)d - gpus), r, n);
    return 0;
}
