/* Slots patched and given back over and over while threads call through them and libraries come
 * and go. Every call must give what work_on_it gives, hooked or not.
 *
 *   slots SEED THREADS ROUNDS FOLDER    prints: calls, threads, rounds, calls that a hook saw
 *
 * FOLDER holds libcaller0.so ... (they call work_on_it), libidle.so (does not). */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../check.h"
#include "../../../csrc/sources/slots.h"

enum { CALLERS = 3, CHURNED = 4 }; /* libcaller0..2 stay, libcaller3..6 come and go */
enum { ENOUGH = 100 };             /* calls that a hook must have seen */

typedef int (*function)(int);

static cm_slot_symbol symbol;
static _Atomic uint64_t seen;
static _Atomic bool over;
static function call[CALLERS];
static const char *folder;

static int hook(int x)
{
    atomic_fetch_add_explicit(&seen, 1, memory_order_relaxed);
    return CM_SLOT_ORIGINAL(symbol, 0, function)(x);
}

static cm_slot_symbol symbol = {
    .source = "test", .meaning = "a function", .names = {"work_on_it"}, .hooks = {(void *)hook}};

static void *load(const char *format, int number, int mode)
{
    char path[512];

    snprintf(path, sizeof path, "%s/", folder);
    size_t length = 0;
    while (path[length] != '\0')
        length++;
    snprintf(path + length, sizeof path - length, format, number);
    void *handle = dlopen(path, mode | RTLD_LOCAL);
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(handle != NULL);
    return handle;
}

static void *call_on(void *argument)
{
    uint64_t *calls = argument;

    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        for (int i = 0; i < 100; i++, ++*calls)
            CHECK(call[*calls % CALLERS]((int)i) == 2 * i + 1);
    }
    return NULL;
}

/* Loads, calls and unloads, as long as the slots change. */
static void *come_and_go(void *argument)
{
    uint64_t *calls = argument;

    for (unsigned n = 0; !atomic_load(&over); n++) {
        void *idle = load("libidle.so", 0, RTLD_NOW);
        void *churned =
            load("libcaller%d.so", CALLERS + (int)(n % CHURNED), n % 2 == 0 ? RTLD_LAZY : RTLD_NOW);
        function f = (function)dlsym(churned, "call_it");
        CHECK(f != NULL && f(20) == 41);
        ++*calls;
        CHECK(dlclose(churned) == 0 && dlclose(idle) == 0);
    }
    return NULL;
}

static void count_patched(void *context, const cm_slot_symbol *s, const char *library, int patched)
{
    (void)s;
    (void)library;
    *(int *)context += patched;
}

int main(int count, char **words)
{
    CHECK(count == 5);
    unsigned random = (unsigned)strtoul(words[1], NULL, 10);
    size_t threads = strtoul(words[2], NULL, 10);
    uint64_t rounds = strtoull(words[3], NULL, 10), total = 0;
    folder = words[4];
    pthread_t *thread = calloc(threads, sizeof *thread);
    uint64_t(*calls)[8] = calloc(threads, sizeof *calls); /* a cache line each */
    CHECK(thread != NULL && calls != NULL && threads >= 2);
    CHECK(cm_slots_register(&symbol, 1));
    for (int i = 0; i < CALLERS; i++) {
        call[i] =
            (function)dlsym(load("libcaller%d.so", i, i == 0 ? RTLD_LAZY : RTLD_NOW), "call_it");
        CHECK(call[i] != NULL);
    }
    for (size_t i = 0; i < threads; i++)
        CHECK(pthread_create(&thread[i], NULL, i == 0 ? come_and_go : call_on, calls[i]) == 0);
    uint64_t round = 0;
    /* On a busy machine all rounds may be over before the callers had a turn. */
    for (; round < rounds || atomic_load(&seen) <= ENOUGH; round++) {
        int patched = 0;
        cm_slots_install();
        if (round >= rounds)
            sched_yield();
        cm_slots_each(count_patched, &patched);
        /* One is bound lazily, and each thread may have been about to do that when we patched: it
         * writes over the hook once, and the next look puts it back
         * (tests/record/sources/test_slots.py has it happen). */
        CHECK(patched >= CALLERS - 1);
        for (size_t again = 0; patched < CALLERS && again < threads; again++) {
            cm_slots_rescan();
            patched = 0;
            cm_slots_each(count_patched, &patched);
        }
        CHECK(patched >= CALLERS);
        for (unsigned n = (unsigned)rand_r(&random) % 4; n > 0; n--)
            cm_slots_rescan();
        CHECK(cm_slots_find("no_such_function") == NULL);
        cm_slots_remove();
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        total += calls[i][0];
    }
    int patched = 0;
    uint64_t before = seen;
    cm_slots_each(count_patched, &patched);
    CHECK(patched == 0 && call[0](20) == 41 && call[1](20) == 41 && seen == before);
    CHECK(cm_slots_install() >= CALLERS && call[1](20) == 41 && seen == before + 1);
    cm_slots_remove();
    printf("%llu %zu %llu %llu\n", (unsigned long long)total, threads, (unsigned long long)round,
           (unsigned long long)seen);
    free(thread);
    free(calls);
    return 0;
}
