/* Many threads at once: what one of them makes, uses and destroys is no other's business. */
#include "check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 200 };

static const char text[] = ".version 8.5\n.target sm_90\n.global .b8 data[64];\n"
                           ".visible .entry k() { ret; }\n";

static handle shared;

static void round_of(int number)
{
    handle module = NULL, function = NULL, mine = NULL, stream = NULL, array = NULL;
    address block = 0, variable = 0, pooled = 0, range = 0;
    uint64_t physical = 0;
    char in[256], out[256];
    memset(in, number, sizeof in);
    EQUAL(cuMemAlloc_v2(&block, 4096), OK);
    EQUAL(cuMemcpyHtoD_v2(block, in, sizeof in), OK);
    EQUAL(cuMemcpyDtoH_v2(out, block, sizeof out), OK);
    CHECK(!memcmp(in, out, sizeof in));
    EQUAL(cuModuleLoadData(&module, text), OK);
    EQUAL(cuModuleGetFunction(&mine, module, "k"), OK);
    EQUAL(cuModuleGetGlobal_v2(&variable, NULL, module, "data"), OK);
    EQUAL(cuModuleGetFunction(&function, shared, "k"), OK); /* the first of them makes it */
    EQUAL(cuStreamCreate(&stream, 1), OK);
    EQUAL(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), OK);
    EQUAL(cuLaunchKernel(mine, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL), OK);
    EQUAL(cuMemAllocAsync(&pooled, 65536, stream), OK);
    EQUAL(cuMemFreeAsync(pooled, stream), OK);
    const properties asked = {.type = 1, .where = {1, 0}};
    const access_rights rights = {{1, 0}, 3};
    EQUAL(cuMemAddressReserve(&range, 4 * MIB, 0, 0, 0), OK);
    EQUAL(cuMemCreate(&physical, 2 * MIB, &asked, 0), OK);
    EQUAL(cuMemMap(range + 2 * MIB, 2 * MIB, 0, physical, 0), OK);
    EQUAL(cuMemRelease(physical), OK);
    EQUAL(cuMemSetAccess(range + 2 * MIB, 2 * MIB, &rights, 1), OK);
    EQUAL(cuMemUnmap(range + 2 * MIB, 2 * MIB), OK);
    EQUAL(cuMemAddressFree(range, 4 * MIB), OK);
    const shape flat = {.width = 64, .format = 1, .channels = 1};
    EQUAL(cuArrayCreate_v2(&array, &flat), OK);
    EQUAL(cuArrayDestroy(array), OK);
    void *found = NULL;
    EQUAL(cuGetProcAddress_v2("cuMemFree", &found, 13000, 0, NULL), OK);
    CHECK(found == (void *)cuMemFree_v2);
    EQUAL(cuStreamDestroy_v2(stream), OK);
    EQUAL(cuModuleUnload(module), OK);
    EQUAL(cuMemFree_v2(block), OK);
}

static void *work(void *number)
{
    begin(0);
    for (int i = 0; i < ROUNDS; i++)
        round_of((int)(intptr_t)number);
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    begin(0);
    size_t before = used(0);
    EQUAL(cuModuleLoadData(&shared, text), OK);
    for (intptr_t i = 0; i < THREADS; i++)
        EQUAL(pthread_create(&thread[i], NULL, work, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        EQUAL(pthread_join(thread[i], NULL), 0);
    EQUAL(cuModuleUnload(shared), OK);
    EQUAL(cuCtxSynchronize(), OK);
    EQUAL(used(0), before);
}

static atomic_bool enough;

static void *load_and_unload(void *unused)
{
    begin(0);
    while (!atomic_load(&enough)) {
        handle module = NULL, function = NULL, array = NULL;
        const shape flat = {.width = 64, .format = 1, .channels = 1};
        EQUAL(cuModuleLoadData(&module, text), OK);
        EQUAL(cuModuleGetFunction(&function, module, "k"), OK);
        EQUAL(cuModuleUnload(module), OK);
        EQUAL(cuArrayCreate_v2(&array, &flat), OK);
        EQUAL(cuArrayDestroy(array), OK);
    }
    return unused;
}

/* A child is told that it cannot use the device, whatever its parent was doing: it never hangs. */
static void forks(void)
{
    pthread_t thread[2];
    begin(0);
    for (int i = 0; i < 2; i++)
        EQUAL(pthread_create(&thread[i], NULL, load_and_unload, NULL), 0);
    for (int i = 0; i < 50; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            address block = 0;
            handle module = NULL, array = NULL;
            const shape flat = {.width = 64, .format = 1, .channels = 1};
            alarm(20);
            _exit(cuMemAlloc_v2(&block, 64) == OK || cuArrayCreate_v2(&array, &flat) == OK ||
                  cuModuleUnload(module) != INVALID_HANDLE ||
                  cuArrayDestroy(array) != INVALID_HANDLE);
        }
        int status = -1;
        EQUAL(waitpid(child, &status, 0), child);
        EQUAL(status, 0);
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++)
        EQUAL(pthread_join(thread[i], NULL), 0);
}

const test_case thread_cases[] = {
    {"forks", forks},
    {"threads", threads},
    {NULL, NULL},
};
