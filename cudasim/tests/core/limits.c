/* The host's own limits are no statement about the device. Linked with --wrap=calloc. */
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

static bool no_memory;
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    return no_memory ? NULL : __real_calloc(count, size);
}

/* Bytes of address space, and of them in memory. */
static size_t mapped_now(size_t *resident)
{
    FILE *file = fopen("/proc/self/statm", "r");
    size_t all = 0, touched = 0;

    CHECK(file != NULL && fscanf(file, "%zu %zu", &all, &touched) == 2);
    fclose(file);
    if (resident != NULL)
        *resident = touched * 4096;
    return all * 4096;
}

static void address_space(void)
{
    struct rlimit limit;
    void *none = &none;

    EQUAL(cm_sim_context(0), CM_SIM_OK);
    size_t before = used(0);
    EQUAL(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = mapped_now(NULL) + 200 * MIB;
    EQUAL(setrlimit(RLIMIT_AS, &limit), 0);

    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 500 * MIB, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    CHECK(none == NULL);
    none = &none;
    EQUAL(cm_sim_reserve(90 * GIB, 0, &none), CM_SIM_OUT_OF_MEMORY);
    CHECK(none == NULL);
    EQUAL(on(0)->refused, 0);
    EQUAL(on(0)->limited, 1);
    EQUAL(used(0), before);
    EQUAL(note(CM_SIM_NOTE_LIMIT, "address space")->count, 2);
    EQUAL(note(CM_SIM_NOTE_LIMIT, "address space")->bytes, 90 * GIB);
    EQUAL(cm_sim_host_alloc(500 * MIB, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(note(CM_SIM_NOTE_LIMIT, "host memory")->bytes, 500 * MIB);

    char *fits = alloc(0, 150 * MIB); /* and all goes on */
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 100 * MIB, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(cm_sim_free(fits, NULL), CM_SIM_OK);
    fits = alloc(0, 150 * MIB);
    EQUAL(cm_sim_free(fits, NULL), CM_SIM_OK);
    EQUAL(on(0)->limited, 2);
    EQUAL(used(0), before);
    EQUAL(on(0)->peak, before + 150 * MIB);
}

static void no_memory_for_records(void)
{
    cm_sim_physical *handle;
    void *none = &none;

    EQUAL(cm_sim_context(0), CM_SIM_OK);
    size_t before = used(0);
    no_memory = true;
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 5 * MIB, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 5, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(cm_sim_reserve(2 * MIB, 0, &none), CM_SIM_OUT_OF_MEMORY);
    CHECK(cm_sim_handle_new("cuBLAS") == NULL);
    EQUAL(cm_sim_create(0, 2 * MIB, &handle), CM_SIM_OK); /* its table is not calloc'ed */
    EQUAL(cm_sim_release(handle), CM_SIM_OK);
    no_memory = false;
    EQUAL(used(0), before);
    EQUAL(on(0)->limited, 2);
    EQUAL(on(0)->refused, 0);
}

/* What cannot be remembered is forgotten, and reads as zero: never as stale bytes. */
static void no_memory_for_what_is_known(void)
{
    char *at = alloc(0, 8 * MIB), host[4096], back[4096];

    memset(host, 7, sizeof host);
    cm_sim_copy(at + 100, host, 200); /* a table and a page's bits */
    no_memory = true;
    cm_sim_copy(at + 5000, host, 200); /* other bits */
    no_memory = false;
    EQUAL(note(CM_SIM_NOTE_LIMIT, "host memory for what the host wrote")->count, 1);
    cm_sim_copy(back, at, 4096);
    EQUAL(on(0)->read_bytes, 4096);
    cm_sim_copy(back, at + 4096, 4096);
    EQUAL(on(0)->read_bytes, 8192);
    for (int i = 0; i < 4096; i++)
        EQUAL(at[i] | at[4096 + i] | back[i], 0);

    no_memory = true;
    cm_sim_copy(at + 3 * MIB, host, 4096); /* no table */
    cm_sim_set(at + 3 * MIB, 1, 100);
    cm_sim_set(at + 3 * MIB + 5, 0, 100);
    no_memory = false;
    for (int i = 0; i < 4096; i++)
        EQUAL(at[3 * MIB + i], 0);

    cm_sim_set(at, 0, 8 * MIB); /* known chunks that cannot be split */
    no_memory = true;
    cm_sim_fresh(at, 512);
    no_memory = false;
    cm_sim_copy(back, at + 4096, 4096);
    EQUAL(on(0)->read_bytes, 3 * 4096);
    cm_sim_copy(back, at + 2 * MIB, 4096); /* the next chunk is still known */
    EQUAL(on(0)->read_bytes, 3 * 4096);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
}

/* Device memory that nobody writes to with a meaning costs the host nothing. */
static void nothing_is_committed(void)
{
    char *host = malloc(64 * MIB), *at = alloc(0, 300 * MIB), *other = alloc(1, 300 * MIB);
    size_t before, after;

    CHECK(host != NULL);
    mapped_now(&before);
    cm_sim_set(at, 0, 300 * MIB);
    cm_sim_set(at, 7, 300 * MIB);
    cm_sim_set(at + 512, 0, 299 * MIB);
    cm_sim_copy(other, at, 300 * MIB);
    cm_sim_copy(at, host, 64 * MIB);
    cm_sim_fresh(at, 300 * MIB);
    mapped_now(&after);
    CHECK(after < before + MIB);
    for (size_t i = 0; i < 64 * MIB; i += 64 << 10) /* all of it in small pieces */
        cm_sim_copy(at + i, memset(host, (int)i, 64 << 10), 64 << 10);
    mapped_now(&after);
    CHECK(after > before + 60 * MIB);
    cm_sim_fresh(at, 64 * MIB);
    mapped_now(&after);
    CHECK(after < before + MIB);
    free(host);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(other, NULL), CM_SIM_OK);
}

/* A closed descriptor may be another file's by now. */
static void the_log_was_closed(void)
{
    char path[] = "victim";

    cm_sim_free(alloc(0, MIB), NULL);
    CHECK(cm_sim_log_wanted());
    for (int i = 3; i < 64; i++)
        close(i);
    FILE *other = fopen(path, "w");
    CHECK(other != NULL);
    cm_sim_free(alloc(0, MIB), NULL);
    CHECK(!cm_sim_log_wanted());
    EQUAL(fseek(other, 0, SEEK_END), 0);
    EQUAL(ftell(other), 0);
    fclose(other);
}

static const test_case cases[] = {
    {"address_space", address_space},
    {"no_memory_for_records", no_memory_for_records},
    {"no_memory_for_what_is_known", no_memory_for_what_is_known},
    {"nothing_is_committed", nothing_is_committed},
    {"the_log_was_closed", the_log_was_closed},
};
MAIN(cases)
