/* Who called: libraries that are mapped, read and unmapped meanwhile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "events.h"

const char *folder;

typedef void (*raise_fn)(void (*call)(void *), void *argument);

void *load(const char *name)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    void *handle = dlopen(path, RTLD_NOW);
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(handle != NULL);
    return handle;
}

void one_create(void *unused)
{
    static uint64_t handle = 0x11;
    static const cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 0}};
    static const cm_call_create create = {&handle, 64, &device};

    (void)unused;
    whole(D, 549, &create, 0);
}

static void one_alloc(void *unused)
{
    static uint64_t out = 0x7000;
    static const cm_call_take take = {&out, 64};

    (void)unused;
    whole(D, 243, &take, 0);
}

void called_from(void *handle, void (*call)(void *))
{
    ((raise_fn)dlsym(handle, "allocate"))(call, NULL);
}

void libraries(void)
{
    void *a = load("liba.so"), *b = load("libb.so");

    see_libraries = true;
    cm_libraries_refresh();
    for (int i = 0; i < 50; i++) { /* in turn, at one depth of the stack */
        start_over();
        called_from(i % 3 ? a : b, one_create);
        NEW(PHYSICAL, 0x11, 64);
        expect_library(i % 3 ? "liba.so" : "libb.so");
        CHECK(none_left());
    }
    start_over();
    cm_cupti_driver_expect_records(true);
    called_from(a, one_alloc);
    NEW(DEVICE, 0x7000, 64);
    CORRELATED; /* a record will tell who */
    CHECK(none_left());
    cm_cupti_driver_expect_records(false);
    called_from(a, one_alloc);
    NEW(DEVICE, 0x7000, 64);
    CORRELATED;
    expect_library("liba.so");

    /* Through a hook of ours: who called that one. */
    cm_cupti_driver_expect_records(true);
    cm_driver_tls.site = (uintptr_t)dlsym(b, "allocate") + 1;
    one_alloc(NULL);
    cm_driver_tls.site = 0;
    NEW(DEVICE, 0x7000, 64);
    CORRELATED;
    expect_library("libb.so");
    CHECK(cm_library_of_hook((uintptr_t)&libraries) == 0); /* this program is "ourselves" */
    CHECK(strcmp(double_name(cm_library_of_hook((uintptr_t)dlsym(a, "allocate"))), "liba.so") == 0);
    CHECK(cm_library_of_hook(16) == 0);

    /* Mapped since the table was read, and gone again. */
    for (int i = 0; i < 20; i++) {
        void *c = load("libc.so");
        start_over();
        called_from(c, one_create);
        called_from(c, one_create);
        NEW(PHYSICAL, 0x11, 64);
        expect_library("libc.so");
        NEW(PHYSICAL, 0x11, 64);
        expect_library("libc.so");
        if (i % 2)
            cm_libraries_refresh();
        uintptr_t was = (uintptr_t)dlsym(c, "allocate");
        dlclose(c);
        cm_libraries_refresh();
        CHECK(cm_library_of_hook(was) == 0);
    }
    /* Names have other ids in another capture. */
    double_record(false);
    double_record(true);
    start_over();
    called_from(a, one_create);
    NEW(PHYSICAL, 0x11, 64);
    expect_library("liba.so");
    pid_t child = fork();
    if (child == 0) {
        cm_libraries_refresh();
        start_over();
        called_from(b, one_create);
        NEW(PHYSICAL, 0x11, 64);
        expect_library("libb.so");
        _exit(none_left() ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}

enum { THREADS = 4, ROUNDS = 400 };
static atomic_bool over;
static void *caller[2];
static _Thread_local uint32_t own_call;

static void own_create(void *unused)
{
    uint64_t handle = 0x11;
    const cm_memory_properties device = {.location = {CM_LOCATION_DEVICE, 0}};
    const cm_call_create create = {&handle, 64, &device};

    (void)unused;
    own_call += THREADS;
    tell(D, 549, CM_SITE_ENTER, &create, 0, own_call);
    tell(D, 549, CM_SITE_EXIT, &create, 0, own_call);
}

static void *work(void *number)
{
    own_call = (uint32_t)(uintptr_t)number;
    for (int i = 0; i < ROUNDS; i++) {
        bool a = (i / 3 + (int)own_call) % 2;
        double_clear();
        called_from(caller[a], own_create);
        CHECK(double_count() == 2);
        CHECK(strcmp(double_name(double_events()[1].stack), a ? "liba.so" : "libb.so") == 0);
        tell(D, 550, CM_SITE_ENTER, &(cm_call_give){0x11}, 0, own_call + 1000000);
        tell(D, 550, CM_SITE_EXIT, &(cm_call_give){0x11}, 0, own_call + 1000000);
        CHECK(double_count() == 3);
    }
    return NULL;
}

/* Libraries come and go, and are read, while others call. */
static void *churn(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        void *c = load("libc.so");
        cm_libraries_refresh();
        dlclose(c);
        cm_libraries_refresh();
        uint64_t moves = cm_inflight_state();
        (void)moves;
    }
    return NULL;
}

void threads(void)
{
    pthread_t all[THREADS], other;

    caller[0] = load("libb.so");
    caller[1] = load("liba.so");
    pthread_create(&other, NULL, churn, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&all[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    atomic_store(&over, true);
    pthread_join(other, NULL);
    CHECK(cm_inflight_state() % 2 == 0 && cm_inflight_state() == 4ull * THREADS * ROUNDS);
    CHECK(cm_cupti_driver_count() == 2ull * THREADS * ROUNDS + 1); /* and the context */
    printf("%d %d\n", 2 * THREADS * ROUNDS, THREADS + 1);
}
