/* Many threads at once; and fork() among them. Run with two devices, contexts of 300 MiB. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 8, SLOTS = 24 };

static atomic_bool stop;
static int rounds = 1500;
static atomic_uint_least64_t refused;

static unsigned random_of(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33);
}

static void one_mapping(int device)
{
    cm_sim_physical *handle;
    char byte = 1;
    void *at;

    EQUAL(cm_sim_reserve(64 * MIB, 0, &at), CM_SIM_OK);
    if (cm_sim_create(device, 4 * MIB, &handle) == CM_SIM_OK) {
        EQUAL(cm_sim_map(at, 4 * MIB, 0, handle), CM_SIM_OK);
        EQUAL(cm_sim_access(at, 4 * MIB, true), CM_SIM_OK);
        EQUAL(cm_sim_release(handle), CM_SIM_OK);
        cm_sim_copy((char *)at + 3 * MIB, &byte, 1);
        EQUAL(cm_sim_unmap(at, 4 * MIB), CM_SIM_OK);
    } else {
        refused++;
    }
    EQUAL(cm_sim_unreserve(at, 64 * MIB), CM_SIM_OK);
}

static void one_host_block(void)
{
    void *at;
    size_t bytes;

    EQUAL(cm_sim_host_alloc(10000, &at), CM_SIM_OK);
    CHECK(cm_sim_host_find((char *)at + 9999, NULL, &bytes));
    EQUAL(bytes, 10000);
    EQUAL(cm_sim_host_free(at), CM_SIM_OK);
}

static void use(char *at, size_t bytes, uint64_t *seed)
{
    char out[700], back[700];
    size_t length = bytes < sizeof out ? bytes : sizeof out;
    size_t from = random_of(seed) % (bytes - length + 1);

    memset(out, (int)random_of(seed), length);
    cm_sim_fresh(at, bytes);
    cm_sim_copy(at + from, out, length);
    cm_sim_copy(back, at + from, length);
    EQUAL(memcmp(out, back, length), 0);
    if (random_of(seed) % 2) {
        cm_sim_set(at, 0, bytes);
        cm_sim_copy(back, at + from, length);
        CHECK(back[0] == 0 && back[length - 1] == 0);
    }
}

static void *hammer(void *argument)
{
    uint64_t seed = (uintptr_t)argument;
    struct {
        void *at;
        size_t bytes;
    } held[SLOTS] = {{NULL, 0}};

    for (int i = 0; i < rounds && !atomic_load(&stop); i++) {
        int slot = (int)(random_of(&seed) % SLOTS), device = (int)(random_of(&seed) % 2);
        CM_SIM_ENTRY;
        if (held[slot].at != NULL) {
            cm_sim_block block;
            CHECK(cm_sim_find(held[slot].at, &block));
            EQUAL(block.bytes, held[slot].bytes);
            use(held[slot].at, held[slot].bytes, &seed);
            EQUAL(cm_sim_free(held[slot].at, NULL), CM_SIM_OK);
            held[slot].at = NULL;
            continue;
        }
        held[slot].bytes = random_of(&seed) % (random_of(&seed) % 4 ? 5000 : 5000000) + 1;
        if (cm_sim_alloc(device, CM_SIM_DEVICE, held[slot].bytes, NULL, &held[slot].at) != 0)
            refused++;
        cm_sim_set_current_device(device);
        EQUAL(cm_sim_current_device(), device);
        switch (random_of(&seed) % 16) {
        case 0:
            one_mapping(device);
            break;
        case 1:
            one_host_block();
            break;
        case 2:
            cm_sim_handle_free(cm_sim_handle_new("cuSPARSE"));
            break;
        case 3:
            cm_sim_note(CM_SIM_NOTE_UNDESCRIBED, "some entry point", 1);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        EQUAL(cm_sim_free(held[i].at, NULL), CM_SIM_OK);
    return NULL;
}

static void hammering(void)
{
    pthread_t threads[THREADS];

    for (uintptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    for (int device = 0; device < 2; device++) {
        EQUAL(used(device), 300 * MIB);
        EQUAL(on(device)->allocs, on(device)->frees);
        EQUAL(on(device)->library, 0);
        CHECK(on(device)->allocs > 1000);
    }
    EQUAL(on(0)->refused + on(1)->refused, refused);
    EQUAL(cm_sim_report_get()->host_bytes, 0);
    CHECK(note(CM_SIM_NOTE_UNDESCRIBED, "some entry point")->count > 100);
}

/* What a child finds that inherits a used device. */
static void poisoned_child(char *parents, uint64_t allocs)
{
    char byte = 1;
    void *none;
    size_t free_bytes;

    alarm(30); /* a lock that nobody holds any more */
    CHECK(cm_sim_forked());
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 100, NULL, &none), CM_SIM_NOT_INITIALIZED);
    EQUAL(cm_sim_free(parents, NULL), CM_SIM_NOT_INITIALIZED);
    EQUAL(cm_sim_context(0), CM_SIM_NOT_INITIALIZED);
    EQUAL(cm_sim_memory_info(0, &free_bytes, NULL), CM_SIM_NOT_INITIALIZED);
    EQUAL(cm_sim_reserve(2 * MIB, 0, &none), CM_SIM_NOT_INITIALIZED);
    EQUAL(cm_sim_unreserve(parents, 2 * MIB), CM_SIM_NOT_INITIALIZED);
    EQUAL(cm_sim_unmap(parents, 2 * MIB), CM_SIM_NOT_INITIALIZED);
    EQUAL(cm_sim_host_alloc(100, &none), CM_SIM_NOT_INITIALIZED);
    CHECK(cm_sim_handle_new("cuBLAS") == NULL);
    CHECK(cm_sim_retain(parents) == NULL);
    cm_sim_copy(parents, &byte, 1);
    cm_sim_copy(&byte, parents + 1, 1);
    cm_sim_note(CM_SIM_NOTE_REFUSED, "in a child", 0);
    CHECK(on(0)->allocs >= allocs); /* its own, from here on */
}

static void finish(pid_t child)
{
    int status;

    CHECK(child > 0);
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
}

static void fork_after_use(void)
{
    char *at = alloc(0, 3 * MIB);
    uint64_t reads = on(0)->reads, notes = cm_sim_report_get()->notes;
    pid_t child = fork();

    if (child == 0) {
        poisoned_child(at, 1);
        _exit(0);
    }
    finish(child);
    EQUAL(on(0)->reads, reads);
    EQUAL(cm_sim_report_get()->notes, notes);
    CHECK(!cm_sim_forked());
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    EQUAL(used(0), 300 * MIB);
}

static void fork_before_use(void)
{
    cm_sim_note(CM_SIM_NOTE_REFUSED, "a report, and no device", 0);
    pid_t child = fork();

    if (child == 0) {
        CHECK(!cm_sim_forked());
        EQUAL(cm_sim_report_get()->notes, 0); /* a report of its own */
        EQUAL(cm_sim_free(alloc(0, 3 * MIB), NULL), CM_SIM_OK);
        EQUAL(on(0)->allocs, 1);
        _exit(0);
    }
    finish(child);
    EQUAL(on(0)->allocs, 0);
    EQUAL(cm_sim_report_get()->notes, 1);
}

/* Holds the lock of the known bytes most of the time. */
static void *write_on(void *argument)
{
    char *host = calloc(1, 64 << 10), *at = argument;

    while (!atomic_load(&stop))
        cm_sim_copy(at + MIB, host, 64 << 10);
    free(host);
    return NULL;
}

static void fork_among_threads(void)
{
    pthread_t threads[4];
    char *at = alloc(0, 3 * MIB);

    rounds = 1 << 30; /* until they are stopped */
    for (uintptr_t i = 0; i < 3; i++)
        EQUAL(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
    EQUAL(pthread_create(&threads[3], NULL, write_on, at), 0);
    for (int i = 0; i < 40; i++) {
        pid_t child = fork();
        if (child == 0) {
            poisoned_child(at, 1);
            _exit(0);
        }
        finish(child);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 4; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    EQUAL(used(0), 300 * MIB);
    CHECK(note(CM_SIM_NOTE_REFUSED, "in a child") == NULL);
}

static void time_in_entry_points(void)
{
    cm_sim_report *report = cm_sim_report_get();

    for (int i = 0; i < 10; i++) {
        CM_SIM_ENTRY;
        for (int j = 0; j < 3; j++) {
            CM_SIM_ENTRY; /* within another: not counted again */
            cm_sim_free(alloc(0, 100), NULL);
        }
    }
    bool timing = getenv("CUPTIMEM_SIM_TIMING") != NULL;
    EQUAL(report->entries, timing ? 10 : 0);
    EQUAL(report->entry_ns > 0, timing);
    EQUAL(report->timing, timing);
}

static const test_case cases[] = {
    {"hammering", hammering},
    {"fork_after_use", fork_after_use},
    {"fork_before_use", fork_before_use},
    {"fork_among_threads", fork_among_threads},
    {"time_in_entry_points", time_in_entry_points},
};
MAIN(cases)
