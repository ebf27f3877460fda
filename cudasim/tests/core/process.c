/* What a process leaves and says: driven by test_sim_core.py, which reads the files. */
#include <dlfcn.h>
#include <unistd.h>

#include "check.h"

/* One of everything; then waits to be killed. */
static void work_and_wait(void)
{
    char *at = alloc(0, 5 * MIB), *small = alloc(1, 700), byte;
    cm_sim_physical *handle;
    void *reserved, *none, *pinned;

    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 900 * MIB, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(cm_sim_reserve(32 * MIB, 0, &reserved), CM_SIM_OK);
    EQUAL(cm_sim_create(1, 4 * MIB, &handle), CM_SIM_OK);
    EQUAL(cm_sim_map((char *)reserved + 2 * MIB, 4 * MIB, 0, handle), CM_SIM_OK);
    EQUAL(cm_sim_access((char *)reserved + 2 * MIB, 4 * MIB, true), CM_SIM_OK);
    EQUAL(cm_sim_release(handle), CM_SIM_OK);
    EQUAL(cm_sim_host_alloc(3000, &pinned), CM_SIM_OK);
    CHECK(cm_sim_handle_new("cuBLAS") != NULL);
    cm_sim_copy(&byte, at, 1);
    cm_sim_copy(&byte, small, 1);
    cm_sim_copy(at, &byte, 1);
    cm_sim_copy(&byte, at, 1);
    EQUAL(cm_sim_unmap((char *)reserved + 2 * MIB, 4 * MIB), CM_SIM_OK);
    EQUAL(cm_sim_unreserve(reserved, 32 * MIB), CM_SIM_OK);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    EQUAL(cm_sim_host_free(pinned), CM_SIM_OK);
    for (int i = 0; i < 3; i++)
        cm_sim_note(CM_SIM_NOTE_REFUSED, "NCCL", (uint64_t)(i * 10));
    printf("%d\n", (int)getpid());
    fflush(stdout);
    if (getenv("LEAVE") == NULL)
        pause();
}

static void more_notes_than_room(void)
{
    cm_sim_report *report = cm_sim_report_get();
    char name[128];

    for (int i = 0; i < CM_SIM_REPORT_NOTES + 10; i++) {
        snprintf(name, sizeof name, "%d %090d", i, 0); /* longer than is kept */
        cm_sim_note(CM_SIM_NOTE_UNDESCRIBED, name, 0);
        cm_sim_note(CM_SIM_NOTE_UNDESCRIBED, name, 0);
    }
    EQUAL(report->notes, CM_SIM_REPORT_NOTES);
    EQUAL(report->notes_dropped, 20);
    EQUAL(report->note[7].count, 2);
    EQUAL(strlen(report->note[7].name), CM_SIM_NAME - 1);
}

static void configuration(void)
{
    const cm_sim_config *config = cm_sim_config_get();
    void *none;

    printf("%d %d %zu %lld %lld %u %d %d %d\n", config->devices, config->installed,
           config->copy_max, (long long)config->conv_workspace, (long long)config->handle_bytes,
           config->event_lag, config->driver_version, config->timing, config->trace);
    for (int i = 0; i < config->devices; i++) {
        const cm_sim_profile *device = &config->device[i];
        printf("%d|%s|%s|%zu|%zu|%d.%d|%d|%d|%d|%d|%d|%d|%d|%d|%d\n", config->ordinal[i],
               device->name, device->key, device->memory, device->context, device->major,
               device->minor, device->sms, device->shared_per_sm, device->shared_per_block_optin,
               device->threads_per_sm, device->blocks_per_sm, device->l2, device->clock,
               device->memory_clock, device->bus_width);
    }
    int error = cm_sim_alloc(0, CM_SIM_DEVICE, 1, NULL, &none);
    EQUAL(error, config->devices > 0 ? CM_SIM_OK : CM_SIM_NO_DEVICE);
    EQUAL(cm_sim_has_context(0), config->devices > 0);
    if (config->devices == 0) {
        EQUAL(cm_sim_reserve(2 * MIB, 0, &none), CM_SIM_NO_DEVICE);
        CHECK(cm_sim_handle_new("cuFFT") == NULL);
    }
}

/* PyTorch's allocator hands out a block. The double of libc10.so counts its calls. */
typedef struct device {
    int8_t type, index;
} device;
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, device);

static void blocks_handed_out(void)
{
    const char *path = getenv("LIBC10"); /* unset: there is none */
    char *at = alloc(0, 4 * MIB), host[1024];
    device cuda = {1, 0}, cpu = {0, 0};
    void *library = NULL;

    if (path != NULL) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
    }
    memset(host, 7, sizeof host);
    cm_sim_copy(at, host, sizeof host);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(host, 100, 1, 2, cpu);
    EQUAL(host[0], 7);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(at, -512, 1, 2, cuda); /* taken back */
    EQUAL(at[0], 7);
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(at, 512, 11, 22, cuda);
    EQUAL(at[511], 0);
    EQUAL(at[512], 7);
    cm_sim_copy(host, at, sizeof host);
    EQUAL(on(0)->read_bytes, 512);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    const cm_sim_report_note *missing =
        note(CM_SIM_NOTE_UNDESCRIBED, "c10::reportMemoryUsageToProfiler of libc10.so");
    if (library == NULL) {
        EQUAL(missing->count, 1); /* looked for once */
        return;
    }
    CHECK(missing == NULL);
    int64_t *told = dlsym(library, "told");
    CHECK(told != NULL);
    EQUAL(told[0], 3);
    EQUAL(told[1], 512);
    EQUAL(told[2], 11);
    EQUAL(told[3], 22);
    EQUAL(told[4], 1);
}

static const test_case cases[] = {
    {"work_and_wait", work_and_wait},
    {"more_notes_than_room", more_notes_than_room},
    {"configuration", configuration},
    {"blocks_handed_out", blocks_handed_out},
};
MAIN(cases)
