/* Stand-ins for one NVIDIA library each, chosen by a macro: just what finding and subscribing see.
 *
 *   FAKE_DRIVER    libcuda: knows whether it was initialised
 *   FAKE_RUNTIME   libcudart: is there, and gives out what may be memory
 *   FAKE_CALLER    a library that takes memory from it, by a relocation slot
 *   FAKE_CUPTI     libcupti: answers a subscription as the environment says
 *   FAKE_NAMES     ... and has cuptiSubscribe_v2
 *   FAKE_RECORDS   ... and gives records of memory, but none of kernels
 *   FAKE_MULTIPLE  ... and the interface for several subscribers, as 13.3 has it
 *   FAKE_EARLY     ... as 13.2 has it
 *   FAKE_TORCH     libtorch_cpu: calls CUPTI as torch.profiler does, by relocation slots
 *   FAKE_PATIENCE  none's: loaded before all others it counts the main thread's waits for seconds,
 *                  and makes those for more than ten short
 *
 * The environment: FAKE_RESULT, of a subscription, and FAKE_RESULT_V2, where it is asked for beside
 * others; FAKE_HOLDER, who has it; FAKE_GATE, a file without which it gets no answer;
 * FAKE_FLUSH_MS, how long a flush takes; FAKE_DEAF, the result of enabling a callback;
 * FAKE_DRIVER_VERSION; FAKE_INIT, of cuInit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int setting(const char *name, int otherwise);
int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? atoi(text) : otherwise;
}

#ifdef FAKE_DRIVER
static int ready;

int cuInit(unsigned flags)
{
    ready = flags == 0 && setting("FAKE_INIT", 0) == 0;
    return setting("FAKE_INIT", 0);
}

int cuCtxGetCurrent(void **context)
{
    *context = NULL;
    return ready ? 0 : 3;
}

int cuDriverGetVersion(int *version)
{
    *version = setting("FAKE_DRIVER_VERSION", 13000);
    return 0;
}
#endif

#ifdef FAKE_RUNTIME
int cudaMalloc(void **memory, size_t size);
int cudaMalloc(void **memory, size_t size)
{
    *memory = (void *)(uintptr_t)0x700000000000;
    return size == 0;
}
#endif

#ifdef FAKE_CALLER
int cudaMalloc(void **memory, size_t size);
int caller_take(size_t size);
int caller_take(size_t size)
{
    void *memory;
    int status = cudaMalloc(&memory, size);

    return memory == NULL ? -1 : status;
}
#endif

#ifdef FAKE_CUPTI
int fake_subscribed, fake_unsubscribed, fake_enabled, fake_multiple, fake_size, fake_registered,
    fake_flushed, fake_on, fake_on_then;

static void rest(long milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

static void (*told)(void *userdata, int domain, uint32_t id, const void *data);

static int subscribe(void **subscriber, void *callback, int result)
{
    *(void **)&told = callback;
    while (getenv("FAKE_GATE") != NULL && access(getenv("FAKE_GATE"), F_OK) != 0)
        rest(1);
    if (result == 0) {
        fake_subscribed++;
        *subscriber = &fake_subscribed;
    }
    return result;
}

int cuptiSubscribe(void **subscriber, void *callback, void *userdata)
{
    (void)userdata;
    return subscribe(subscriber, callback, setting("FAKE_RESULT", 0));
}

int cuptiUnsubscribe(void *subscriber)
{
    fake_unsubscribed++;
    return subscriber == &fake_subscribed ? 0 : 1;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id)
{
    (void)id;
    if (subscriber != &fake_subscribed || domain < 1)
        return 1;
    fake_enabled += enable ? 1 : -1;
    return setting("FAKE_DEAF", 0);
}

int cuptiGetVersion(uint32_t *version)
{
    if (fake_subscribed == fake_unsubscribed) /* as in 13.2, which does not know a driver either */
        abort();
#ifdef FAKE_MULTIPLE
    *version = 130300;
#else
    *version = 130000;
#endif
    return 0;
}

int cuptiActivityRegisterCallbacks(void *request, void *complete)
{
    (void)request, (void)complete;
    fake_registered++;
    fake_on_then = fake_on;
    return 0;
}

#ifdef FAKE_RECORDS
static int set(int kind, int by)
{
    if (kind != 49 && kind != 50)
        return 27;
    fake_on += by;
    return 0;
}

int cuptiActivityEnable(int kind)
{
    return set(kind, 1);
}

int cuptiActivityDisable(int kind)
{
    return set(kind, -1);
}

/* Takes memory for itself, which it tells as everybody's. */
int cuptiActivityFlushAll(uint32_t flag)
{
    enum { DRIVER = 1, MEM_ALLOC = 243 };
    static const int done;
    uint64_t address = 0x7000;
    struct {
        uint64_t *address;
        size_t size;
    } parameters = {&address, 4096};
    struct {
        int site;
        const char *function;
        const void *parameters;
        const int *result;
        const char *symbol;
        void *context;
        uint32_t context_uid;
        uint64_t *correlation_data;
        uint32_t correlation;
    } data = {.parameters = &parameters, .result = &done, .correlation = 1};

    fake_flushed++;
    rest(setting("FAKE_FLUSH_MS", 0));
    told(NULL, DRIVER, MEM_ALLOC, &data);
    data.site = 1;
    told(NULL, DRIVER, MEM_ALLOC, &data);
    return flag > 1;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    (void)buffer, (void)valid;
    *record = NULL;
    return 12;
}
#else
int cuptiActivityEnable(int kind)
{
    (void)kind;
    return 27;
}
#endif

int cuptiFinalize(void)
{
    return 0;
}

#ifdef FAKE_NAMES
typedef struct parameters {
    size_t size;
    const char *name;
    char *holder;
    size_t holder_size;
    uint8_t multiple;
} parameters;

int cuptiSubscribe_v2(void **subscriber, void *callback, void *userdata, parameters *asked)
{
    int result = setting("FAKE_RESULT", 0);

    (void)userdata;
    if (asked == NULL || asked->size < 32 || strcmp(asked->name, "cuptimem") != 0)
        return 1;
    fake_size = (int)asked->size;
    fake_multiple = asked->size >= 40 && asked->multiple;
    if (fake_multiple)
        result = setting("FAKE_RESULT_V2", result);
    if (result == 39 && getenv("FAKE_HOLDER") != NULL)
        strncpy(asked->holder, getenv("FAKE_HOLDER"), asked->holder_size);
    return subscribe(subscriber, callback, result);
}
#endif

#ifdef FAKE_MULTIPLE
int cuptiActivityEnable_v2(void *subscriber, int kind, void *config)
{
    (void)subscriber, (void)kind, (void)config;
    return 27;
}

int cuptiActivityRegisterCallbacks_v2(void *subscriber, void *request, void *complete)
{
    (void)subscriber, (void)request, (void)complete;
    return 27;
}

#ifndef FAKE_EARLY
int cuptiActivityGetNextRecord_v2(void *subscriber, uint8_t *buffer, size_t valid, void **record)
{
    (void)subscriber, (void)buffer, (void)valid, (void)record;
    return 27;
}
#endif
#endif
#endif

#ifdef FAKE_TORCH
int cuptiSubscribe(void **subscriber, void *callback, void *userdata);
int cuptiUnsubscribe(void *subscriber);
int cuptiActivityRegisterCallbacks(void *request, void *complete);
int cuptiActivityEnable(int kind);
int cuptiFinalize(void);

static void *subscriber;

static void callback(void *userdata, int domain, uint32_t id, const void *data)
{
    (void)userdata, (void)domain, (void)id, (void)data;
}

static void request(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = 1 << 16;
    *most = 0;
    *buffer = malloc(*size);
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    free(buffer);
}

int torch_subscribe(void)
{
    return cuptiSubscribe(&subscriber, (void *)callback, NULL);
}

int torch_unsubscribe(void)
{
    return cuptiUnsubscribe(subscriber);
}

int torch_record(int kind)
{
    int result = cuptiActivityRegisterCallbacks((void *)request, (void *)complete);

    return result != 0 ? result : cuptiActivityEnable(kind);
}

int torch_finalize(void)
{
    return cuptiFinalize();
}
#endif

#ifdef FAKE_PATIENCE
int fake_long_waits, fake_main_waits;

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until)
{
    int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec now;

    *(void **)&wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    clock_gettime(CLOCK_MONOTONIC, &now);
    fake_main_waits += gettid() == getpid() && until->tv_sec > now.tv_sec;
    if (until->tv_sec - now.tv_sec < 10 || until->tv_sec - now.tv_sec > 100)
        return wait(condition, mutex, until);
    fake_long_waits++;
    now.tv_nsec = 999999999;
    return wait(condition, mutex, &now); /* less than a second */
}
#endif
