/* Virtual memory and what lies in it. Run with a device of 1 GiB, contexts of 300 MiB. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define CONTEXT (300 * MIB)

/* How touching an address ends: 0, or the signal that it raises. In a child, as a crash would. */
static int touch(volatile char *at, bool write)
{
    int status;
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* a sanitizer's own */
        if (write)
            *at = 1;
        else if (*at != 0)
            _exit(3);
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void use_after_free_faults(void)
{
    char *made = alloc(0, 4 * MIB);

    EQUAL(touch(made + 4 * MIB - 1, true), 0);
    EQUAL(touch(made, false), 0);
    EQUAL(cm_sim_free(made, NULL), CM_SIM_OK);
    EQUAL(touch(made, false), SIGSEGV);
    EQUAL(touch(made + 4 * MIB - 1, true), SIGSEGV);
}

static char *reserve(size_t bytes)
{
    void *made;

    EQUAL(cm_sim_reserve(bytes, 0, &made), CM_SIM_OK);
    EQUAL((uintptr_t)made % (2 * MIB), 0);
    return made;
}

static cm_sim_physical *create(size_t bytes)
{
    cm_sim_physical *made;

    EQUAL(cm_sim_create(0, bytes, &made), CM_SIM_OK);
    return made;
}

static void addresses_are_free_of_charge(void)
{
    char *made[40]; /* 90 GiB each: what expandable segments ask for, by stream and pool */

    EQUAL(cm_sim_context(0), CM_SIM_OK);
    for (int i = 0; i < 40; i++) {
        made[i] = reserve(90 * GIB);
        CHECK(cm_sim_is_device(made[i]));
        CHECK(cm_sim_is_device(made[i] + 90 * GIB - 1));
        CHECK(!cm_sim_find(made[i], NULL));
    }
    EQUAL(used(0), CONTEXT);
    EQUAL(touch(made[3], false), SIGSEGV);
    for (int i = 0; i < 40; i++)
        EQUAL(cm_sim_unreserve(made[i], 90 * GIB), CM_SIM_OK);
    CHECK(!cm_sim_is_device(made[0]));
}

static void a_mapping_keeps_its_handle(void)
{
    char *at = reserve(64 * MIB);
    cm_sim_physical *handle = create(20 * MIB);
    cm_sim_block block;

    EQUAL(used(0), CONTEXT + 20 * MIB);
    EQUAL(cm_sim_map(at + 4 * MIB, 20 * MIB, 0, handle), CM_SIM_OK);
    EQUAL(touch(at + 4 * MIB, false), SIGSEGV); /* no access yet */
    EQUAL(cm_sim_access(at + 4 * MIB, 20 * MIB, true), CM_SIM_OK);
    EQUAL(touch(at + 24 * MIB - 1, true), 0);
    EQUAL(touch(at + 24 * MIB, true), SIGSEGV);
    EQUAL(cm_sim_release(handle), CM_SIM_OK);
    EQUAL(used(0), CONTEXT + 20 * MIB);
    EQUAL(cm_sim_release(handle), CM_SIM_INVALID_VALUE); /* it was held once */
    CHECK(cm_sim_find(at + 5 * MIB, &block));
    EQUAL(block.address, (uintptr_t)at + 4 * MIB);
    EQUAL(block.bytes, 20 * MIB);
    EQUAL(block.kind, CM_SIM_MAPPED);
    EQUAL(block.device, 0);
    CHECK(cm_sim_retain(at + 5 * MIB) == handle);
    EQUAL(cm_sim_physical_device(handle), 0);
    EQUAL(cm_sim_unmap(at + 4 * MIB, 20 * MIB), CM_SIM_OK);
    EQUAL(used(0), CONTEXT + 20 * MIB); /* retained */
    EQUAL(cm_sim_release(handle), CM_SIM_OK);
    EQUAL(used(0), CONTEXT);
    EQUAL(cm_sim_physical_device(handle), -1);
    CHECK(cm_sim_retain(at + 5 * MIB) == NULL);
    EQUAL(touch(at + 5 * MIB, false), SIGSEGV);
    EQUAL(cm_sim_unreserve(at, 64 * MIB), CM_SIM_OK);
    EQUAL(on(0)->allocs, 1);
    EQUAL(on(0)->frees, 1);
}

static void one_handle_mapped_twice(void)
{
    char *at = reserve(64 * MIB);
    cm_sim_physical *handle = create(8 * MIB);

    EQUAL(cm_sim_map(at, 4 * MIB, 0, handle), CM_SIM_OK);
    EQUAL(cm_sim_map(at + 10 * MIB, 4 * MIB, 4 * MIB, handle), CM_SIM_OK);
    EQUAL(cm_sim_release(handle), CM_SIM_OK);
    EQUAL(cm_sim_unmap(at, 4 * MIB), CM_SIM_OK);
    EQUAL(used(0), CONTEXT + 8 * MIB);
    EQUAL(cm_sim_unmap(at + 10 * MIB, 4 * MIB), CM_SIM_OK);
    EQUAL(used(0), CONTEXT);
    EQUAL(cm_sim_unreserve(at, 64 * MIB), CM_SIM_OK);
}

static void unmapped_memory_forgets(void)
{
    char *at = reserve(8 * MIB), there[64] = "written", back[64];
    cm_sim_physical *handle = create(2 * MIB);

    for (int round = 0; round < 2; round++) {
        EQUAL(cm_sim_map(at, 2 * MIB, 0, handle), CM_SIM_OK);
        EQUAL(cm_sim_access(at, 2 * MIB, true), CM_SIM_OK);
        cm_sim_copy(back, at, 64);
        EQUAL(back[0], 0);
        EQUAL(on(0)->reads, round + 1);
        cm_sim_copy(at, there, 64);
        cm_sim_copy(back, at, 64);
        EQUAL(memcmp(there, back, 64), 0);
        EQUAL(on(0)->reads, round + 1);
        EQUAL(cm_sim_unmap(at, 2 * MIB), CM_SIM_OK);
    }
    EQUAL(cm_sim_unreserve(at, 8 * MIB), CM_SIM_OK);
}

static void errors(void)
{
    char *at = reserve(64 * MIB);
    cm_sim_physical *handle = create(4 * MIB), *other = create(4 * MIB);
    void *none = &none;

    EQUAL(cm_sim_reserve(0, 0, &none), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_reserve(MIB, 0, &none), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_reserve(2 * MIB, 3 * MIB, &none), CM_SIM_INVALID_VALUE);
    CHECK(none == NULL);
    EQUAL(cm_sim_create(0, MIB, &(cm_sim_physical *){NULL}), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_create(9, 2 * MIB, &(cm_sim_physical *){NULL}), CM_SIM_INVALID_DEVICE);
    EQUAL(cm_sim_map(at + MIB, 4 * MIB, 0, handle), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_map(at, 6 * MIB, 0, handle), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_map(at, 4 * MIB, 2 * MIB, handle), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_map(at + 62 * MIB, 4 * MIB, 0, handle), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_map(at, 4 * MIB, 0, (void *)77), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_map(at, 4 * MIB, 0, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_map(&none, 4 * MIB, 0, handle), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_access(at, 4 * MIB, true), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_map(at, 4 * MIB, 0, handle), CM_SIM_OK);
    EQUAL(cm_sim_map(at + 2 * MIB, 4 * MIB, 0, other), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_unmap(at, 2 * MIB), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_unmap(at, 6 * MIB), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_unreserve(at, 64 * MIB), CM_SIM_INVALID_VALUE); /* something is mapped */
    EQUAL(cm_sim_free(at, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_unmap(at, 4 * MIB), CM_SIM_OK);
    EQUAL(cm_sim_unmap(at, 4 * MIB), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_unreserve(at, 62 * MIB), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_unreserve(at + 2 * MIB, 62 * MIB), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_unreserve(at, 64 * MIB), CM_SIM_OK);
    EQUAL(cm_sim_unreserve(at, 64 * MIB), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_release(handle), CM_SIM_OK);
    EQUAL(cm_sim_release(handle), CM_SIM_INVALID_VALUE);
    cm_sim_physical *next = create(4 * MIB); /* the same slot, another handle */
    CHECK(next != handle);
    EQUAL(cm_sim_release(handle), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_release(next), CM_SIM_OK);
    EQUAL(cm_sim_release(other), CM_SIM_OK);
    EQUAL(used(0), CONTEXT);
}

static void pinned(void)
{
    void *made, *none = &none;
    char own[8192] = "";
    uintptr_t start;
    size_t bytes;

    CHECK(!cm_sim_host_find(own, NULL, NULL));
    EQUAL(cm_sim_host_alloc(0, &none), CM_SIM_OK);
    CHECK(none == NULL);
    EQUAL(cm_sim_host_alloc(5000, &made), CM_SIM_OK);
    memset(made, 1, 5000);
    CHECK(cm_sim_host_find((char *)made + 4999, &start, &bytes));
    EQUAL(start, (uintptr_t)made);
    EQUAL(bytes, 5000);
    CHECK(!cm_sim_host_find((char *)made + 5000, NULL, NULL));
    CHECK(!cm_sim_is_device(made));
    EQUAL(cm_sim_report_get()->host_bytes, 5000);
    EQUAL(cm_sim_host_register(own + 100, 1000), CM_SIM_OK);
    EQUAL(cm_sim_host_register(own + 1099, 10), CM_SIM_HOST_ALREADY_REGISTERED);
    EQUAL(cm_sim_host_register(own, 101), CM_SIM_HOST_ALREADY_REGISTERED);
    EQUAL(cm_sim_host_register(own, 8192), CM_SIM_HOST_ALREADY_REGISTERED);
    EQUAL(cm_sim_host_register(own, 100), CM_SIM_OK);
    EQUAL(cm_sim_host_register(NULL, 100), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_host_register(own, 0), CM_SIM_INVALID_VALUE);
    CHECK(cm_sim_host_find(own + 1099, &start, &bytes));
    EQUAL(start, (uintptr_t)own + 100);
    EQUAL(cm_sim_host_free(own), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_host_unregister(made), CM_SIM_HOST_NOT_REGISTERED);
    EQUAL(cm_sim_host_unregister(own), CM_SIM_OK);
    EQUAL(cm_sim_host_unregister(own), CM_SIM_HOST_NOT_REGISTERED);
    EQUAL(cm_sim_host_unregister(own + 100), CM_SIM_OK);
    EQUAL(cm_sim_host_free(made), CM_SIM_OK);
    EQUAL(cm_sim_host_free(made), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_host_free(NULL), CM_SIM_OK);
    EQUAL(touch(made, false), SIGSEGV);
    EQUAL(cm_sim_report_get()->host_bytes, 0);
    EQUAL(cm_sim_report_get()->host_peak, 5000);
}

static const test_case cases[] = {
    {"use_after_free_faults", use_after_free_faults},
    {"addresses_are_free_of_charge", addresses_are_free_of_charge},
    {"a_mapping_keeps_its_handle", a_mapping_keeps_its_handle},
    {"one_handle_mapped_twice", one_handle_mapped_twice},
    {"unmapped_memory_forgets", unmapped_memory_forgets},
    {"errors", errors},
    {"pinned", pinned},
};
MAIN(cases)
