#include "dispose.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "emit.h"
#include "slots.h"
#include "tables.h"

enum {
    TYPES = 64,
    MET = 16,
    NODE_WEAK_SELF = 8, /* in the node: weak_ptr to itself; */
    NODE_CONTROL = 16,  /* its second word is the control block */
    BLOCK_OBJECT = 16, /* in the control block, after vtable and counts: the node, or its address */
    DISPOSE = 2        /* in the vtable, after two destructors (Itanium C++ ABI, libstdc++) */
};

typedef void (*dispose_fn)(void *block);

/* A type of control block. Entries are only added, each complete before its vtable is redirected.
 */
typedef struct block_type {
    uintptr_t vtable; /* as the blocks hold it */
    dispose_fn original;
    bool inside; /* the block contains the node; else it contains the node's address */
} block_type;

static block_type types[TYPES];
static atomic_size_t type_count;
static atomic_uintptr_t met[MET]; /* vtables to redirect; the lowest bit: inside */
static const char *_Atomic unseen;

static struct {
    pthread_mutex_t mutex; /* taken before that of slots.c; no hook takes it */
    bool installed;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uintptr_t word(uintptr_t address)
{
    return *(const uintptr_t *)address;
}

static uintptr_t node_in(const block_type *type, uintptr_t block)
{
    return type->inside ? block + BLOCK_OBJECT : word(block + BLOCK_OBJECT);
}

static void dispose_hook(void *block)
{
    const block_type *type = types;

    atomic_thread_fence(memory_order_acquire);
    while (type->vtable != word((uintptr_t)block)) /* every redirected vtable is among them */
        type++;
    cm_autograd_ends_hook((const void *)node_in(type, (uintptr_t)block));
    type->original(block);
}

static const block_type *known(uintptr_t vtable)
{
    size_t count = atomic_load_explicit(&type_count, memory_order_acquire);

    for (size_t i = 0; i < count; i++)
        if (types[i].vtable == vtable)
            return &types[i];
    return NULL;
}

void cm_dispose_met_hook(const void *node)
{
    uintptr_t self = (uintptr_t)node, block = word(self + NODE_CONTROL);

    if (word(self + NODE_WEAK_SELF) != self || block == 0)
        return;
    bool inside = block + BLOCK_OBJECT == self;
    if (!inside && word(block + BLOCK_OBJECT) != self)
        return; /* it has a deleter */
    uintptr_t vtable = word(block);
    if (known(vtable) != NULL)
        return;
    for (int i = 0; i < MET; i++) {
        uintptr_t there = 0, wanted = vtable | (inside ? 1 : 0);
        if (atomic_compare_exchange_strong(&met[i], &there, wanted) || there == wanted)
            return;
    }
}

/* --- redirecting ----------------------------------------------------------------------------- */

/* The name in the type's description, which the word before the vtable points at. */
static const char *type_name(uintptr_t vtable)
{
    return (const char *)word(word(vtable - sizeof(void *)) + sizeof(void *));
}

static uintptr_t dispose_word(uintptr_t vtable)
{
    return vtable + DISPOSE * sizeof(void *);
}

static bool redirect(uintptr_t vtable, bool inside)
{
    const block_type *type = known(vtable);

    if (type == NULL) {
        size_t count = atomic_load(&type_count);
        if (count == TYPES)
            return false;
        types[count] = (block_type){vtable, (dispose_fn)word(dispose_word(vtable)), inside};
        atomic_store_explicit(&type_count, count + 1, memory_order_release);
        type = &types[count];
    }
    return word(dispose_word(vtable)) == (uintptr_t)dispose_hook ||
           cm_slots_exchange(dispose_word(vtable), (void *)type->original, (void *)dispose_hook);
}

static void redirect_or_report(uintptr_t vtable, bool inside)
{
    if (!redirect(vtable, inside))
        atomic_store(&unseen, type_name(vtable));
}

/* Mangled names refer back to the type in its allocator, by a different substitution for each type.
 * GCC 11 and later name std::allocator<void> there. */
#define POLICY "LN9__gnu_cxx12_Lock_policyE2EE"
#define INSIDE(type, again)                                                                        \
    {"_ZTVSt23_Sp_counted_ptr_inplaceI" type "SaIvE" POLICY, true},                                \
    {                                                                                              \
        "_ZTVSt23_Sp_counted_ptr_inplaceI" type "SaI" again "E" POLICY, true                       \
    }
#define BESIDE(type)                                                                               \
    {                                                                                              \
        "_ZTVSt15_Sp_counted_ptrIP" type POLICY, false                                             \
    }

static const struct {
    const char *symbol;
    bool inside;
} known_types[] = {
    INSIDE("N5torch8autograd10CopySlicesE", "S2_"),
    INSIDE("N5torch8autograd9generated18AsStridedBackward0E", "S3_"),
    INSIDE("N5torch8autograd9generated13ViewBackward0E", "S3_"),
    INSIDE("N5torch8autograd9GraphRootE", "S2_"),
    INSIDE("N5torch8autograd5ErrorE", "S2_"),
    INSIDE("N5torch8autograd12DelayedErrorE", "S2_"),
    INSIDE("N5torch8autograd21UndefinedGradBackwardE", "S2_"),
    INSIDE("N5torch8autograd8IdentityE", "S2_"),
    INSIDE("N5torch8autograd13CopyBackwardsE", "S2_"),
    INSIDE("N5torch8autograd7ScatterE", "S2_"),
    INSIDE("N5torch8autograd6GatherE", "S2_"),
    INSIDE("N5torch11distributed8autograd15SendRpcBackwardE", "S3_"),
    INSIDE("N5torch11distributed8autograd15RecvRpcBackwardE", "S3_"),
    BESIDE("N5torch8autograd12DelayedErrorE"),
    BESIDE("N5torch8autograd13UndefinedGradE"),
};

static void found(void *context, uintptr_t address)
{
    const bool *inside = context;

    redirect_or_report(address + 2 * sizeof(void *), *inside); /* after offset and description */
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&state.mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

void cm_dispose_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&state.mutex);
    state.installed = true;
    for (size_t i = 0; i < sizeof known_types / sizeof known_types[0]; i++) {
        bool inside = known_types[i].inside;
        cm_slots_find_all(known_types[i].symbol, found, &inside);
    }
    for (size_t i = 0; i < atomic_load(&type_count); i++) /* types of an earlier capture */
        redirect_or_report(types[i].vtable, types[i].inside);
    pthread_mutex_unlock(&state.mutex);
}

void cm_dispose_rescan(void)
{
    pthread_mutex_lock(&state.mutex);
    for (int i = 0; i < MET && state.installed; i++) {
        uintptr_t one = atomic_load(&met[i]);
        if (one == 0)
            continue;
        redirect_or_report(one & ~(uintptr_t)1, (one & 1) != 0);
        atomic_store(&met[i], 0);
    }
    pthread_mutex_unlock(&state.mutex);
}

void cm_dispose_remove(void)
{
    pthread_mutex_lock(&state.mutex);
    state.installed = false;
    for (size_t i = 0; i < atomic_load(&type_count); i++)
        cm_slots_exchange(dispose_word(types[i].vtable), (void *)dispose_hook,
                          (void *)types[i].original);
    pthread_mutex_unlock(&state.mutex);
}

const char *cm_dispose_unseen(void)
{
    return atomic_load(&unseen);
}

void cm_dispose_each(void (*each)(void *context, const char *type, const char *library,
                                  int redirected),
                     void *context)
{
    for (size_t i = 0; i < atomic_load(&type_count); i++)
        each(context, type_name(types[i].vtable), cm_slots_library(types[i].vtable),
             word(dispose_word(types[i].vtable)) == (uintptr_t)dispose_hook);
}
