/* Hooking the virtual `allocate` of PyTorch's CUDA allocators, in their vtables (cuda.h). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "slots.h"
#include "tables.h"

enum { TYPES = 8 };

/* A class of allocators. Entries are only added, each complete before its vtable is redirected. */
typedef struct allocator_type {
    uintptr_t vtable;
    cm_allocate_fn original;
} allocator_type;

static allocator_type types[TYPES];
static atomic_size_t type_count;

static struct {
    pthread_mutex_t mutex; /* taken before that of slots.c; no hook takes it */
    bool installed;
    void *_Atomic *allocator; /* c10::cuda::CUDACachingAllocator::allocator */
    uintptr_t vtable;         /* of the allocator seen last */
    bool redirected;
    bool watches_devices; /* never reset */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

__thread cm_cuda_call cm_cuda_tls __attribute__((tls_model("initial-exec")));

static atomic_bool never_cached;

void cm_cuda_read_environment(void)
{
    /* Not whether it is obeyed here: PyTorch obeys it whatever Python's options are. */
    atomic_store(&never_cached, getenv("PYTORCH_NO_CUDA_MEMORY_CACHING") != NULL);
}

static uintptr_t word(uintptr_t address)
{
    return *(const uintptr_t *)address;
}

static uintptr_t allocate_word(uintptr_t vtable)
{
    return vtable + CM_VTABLE_ALLOCATE * sizeof(void *);
}

/* The name in the type's description, which the word before the vtable points at. */
static const char *type_name(uintptr_t vtable)
{
    return (const char *)word(word(vtable - sizeof(void *)) + sizeof(void *));
}

/* --- the hook -------------------------------------------------------------------------------- */

static void leave_call(cm_cuda_call *const *entered)
{
    cm_cuda_call *call = *entered;

    if (__builtin_expect(call->refused != 0, 0)) /* an exception is on its way */
        cm_cuda_refused_hook();
    call->inside = false;
    call->requested = 0;
}

static cm_data_ptr outermost_hook(cm_allocate_fn original, void *self, size_t size)
{
    cm_cuda_call *call __attribute__((cleanup(leave_call))) = &cm_cuda_tls;

    call->requested = size;
    call->inside = true;
    call->refused = 0;
    cm_data_ptr given = original(self, size);
    call->refused = 0; /* a first try was refused, but a later one succeeded */
    if (__builtin_expect(call->requested != 0, 0))
        cm_cuda_unreported_hook(given.data, size, given.device_index);
    return given;
}

static cm_data_ptr allocate_hook(void *self, size_t size)
{
    const allocator_type *type = types;

    atomic_thread_fence(memory_order_acquire);
    while (type->vtable != word((uintptr_t)self)) /* every redirected vtable is among them */
        type++;
    /* If one allocator calls another, the outer call has the requested size. */
    return cm_cuda_tls.inside ? type->original(self, size)
                              : outermost_hook(type->original, self, size);
}

/* --- redirecting ----------------------------------------------------------------------------- */

static bool redirect(uintptr_t vtable)
{
    size_t count = atomic_load(&type_count), i = 0;

    while (i < count && types[i].vtable != vtable)
        i++;
    if (i == TYPES)
        return false;
    if (i == count) {
        types[i] = (allocator_type){vtable, (cm_allocate_fn)word(allocate_word(vtable))};
        atomic_store(&type_count, count + 1);
    }
    return word(allocate_word(vtable)) == (uintptr_t)allocate_hook ||
           cm_slots_exchange(allocate_word(vtable), (void *)types[i].original,
                             (void *)allocate_hook);
}

/* Blocks taken straight from CUDA lie on the current device, which must be watched. */
static int watch_devices(uintptr_t vtable)
{
    bool needed = strstr(type_name(vtable), "CudaMallocAsync") != NULL || cm_cuda_met_direct() ||
                  atomic_load(&never_cached);

    if (!needed || state.watches_devices)
        return 0;
    state.watches_devices = cm_slots_register(cm_cuda_device_symbols, cm_cuda_device_symbol_count);
    return state.watches_devices ? cm_slots_install() : 0;
}

static int redirect_current(void)
{
    void *object = state.allocator != NULL ? atomic_load(state.allocator) : NULL;
    uintptr_t vtable = object != NULL ? word((uintptr_t)object) : 0;

    if (vtable == 0)
        return 0;
    if (vtable != state.vtable) {
        state.vtable = vtable;
        state.redirected = redirect(vtable);
    }
    return watch_devices(vtable);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&state.mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

int cm_cuda_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&state.mutex);
    state.installed = true;
    if (state.allocator == NULL)
        state.allocator = cm_slots_find("_ZN3c104cuda20CUDACachingAllocator9allocatorE");
    state.vtable = 0;
    int patched = redirect_current();
    pthread_mutex_unlock(&state.mutex);
    return patched;
}

int cm_cuda_rescan(void)
{
    pthread_mutex_lock(&state.mutex);
    int patched = state.installed ? redirect_current() : 0;
    pthread_mutex_unlock(&state.mutex);
    return patched;
}

void cm_cuda_remove(void)
{
    pthread_mutex_lock(&state.mutex);
    state.installed = state.redirected = false;
    state.vtable = 0;
    for (size_t i = 0; i < atomic_load(&type_count); i++)
        cm_slots_exchange(allocate_word(types[i].vtable), (void *)allocate_hook,
                          (void *)types[i].original);
    pthread_mutex_unlock(&state.mutex);
}

/* --- state --------------------------------------------------------------------------- */

cm_cuda_state cm_cuda_get_state(void)
{
    cm_cuda_state now = {0};

    pthread_mutex_lock(&state.mutex);
    void *object = state.allocator != NULL ? atomic_load(state.allocator) : NULL;
    if (object != NULL)
        now.type = type_name(word((uintptr_t)object));
    now.redirected = state.redirected;
    pthread_mutex_unlock(&state.mutex);
    cm_cuda_counts(&now);
    return now;
}

void cm_cuda_each(void (*each)(void *context, const char *type, const char *library,
                               int redirected),
                  void *context)
{
    for (size_t i = 0; i < atomic_load(&type_count); i++)
        each(context, type_name(types[i].vtable), cm_slots_library(types[i].vtable),
             word(allocate_word(types[i].vtable)) == (uintptr_t)allocate_hook);
}
