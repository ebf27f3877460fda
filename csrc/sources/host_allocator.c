/* Blocks of PyTorch's allocator for pinned host memory. It reports them to no observer.
 *
 * The allocator is an object without an exported name; at::getHostAllocator returns it. Its virtual
 * `allocate` is hooked by a copy of its vtable, for only the pointer to that can be exchanged in a
 * hook. A free is the call of the deleter in the DataPtr that `allocate` returned: ours stands
 * there and forwards. What else holds a DataPtr uses its data and context, which stay as they are.
 *
 * Before torch 2.8 there is no getHostAllocator, and pinned blocks are not seen. */
#include <stdatomic.h>
#include <string.h>

#include "cuda.h"
#include "emit.h"
#include "operators.h"
#include "tables.h"

enum {
    PREFIX = 2, /* words before a vtable: offset to the top, type description */
    WORDS = 64  /* more than the class has: what follows is other read-only data */
};

typedef void (*deleter_fn)(void *context);
typedef void *(*get_fn)(int8_t device_type);

/* How at::HostBlock begins, the context of a block's DataPtr. Checked with each block. */
typedef struct host_block {
    char mutex[40];
    size_t size; /* rounded up to a power of two */
    void *data;
} host_block;

/* The allocator, once it was asked for. Everything but its vtable pointer is written once. */
static struct {
    void *_Atomic object;
    const uintptr_t *_Atomic original;
    uintptr_t copy[PREFIX + WORDS];
    deleter_fn _Atomic deleter; /* of all of its blocks */
} host;

#define ENTERED cm_producer *t __attribute__((cleanup(cm_emit_leave_hook)))

static cm_event event_of(cm_event_kind kind, const void *data, size_t size)
{
    return (cm_event){
        .address = (uint64_t)(uintptr_t)data,
        .size = (int64_t)size,
        .kind = (uint8_t)kind,
        .device_type = CM_DEVICE_PINNED,
        .device_index = -1,
    };
}

static void deleter_hook(void *context)
{
    {
        ENTERED = cm_enter_hook();
        if (t != NULL)
            cm_emit_put_hook(t, event_of(CM_EV_FREE, ((const host_block *)context)->data, 0));
    }
    atomic_load_explicit(&host.deleter, memory_order_relaxed)(context);
}

/* Whether a call of our deleter can stand for the block's end. */
static bool take_deleter_hook(cm_data_ptr *given)
{
    deleter_fn known = NULL, own = (deleter_fn)given->context[0];

    return own != NULL &&
           (atomic_compare_exchange_strong(&host.deleter, &known, own) || known == own);
}

static cm_data_ptr allocate_hook(void *self, size_t size)
{
    const uintptr_t *original = atomic_load_explicit(&host.original, memory_order_relaxed);
    cm_data_ptr given = ((cm_allocate_fn)original[CM_VTABLE_ALLOCATE])(self, size);
    const host_block *block = given.context[1];

    if (given.data == NULL || block == NULL || block->data != given.data || block->size < size ||
        !take_deleter_hook(&given))
        return given;
    given.context[0] = (void *)deleter_hook;
    ENTERED = cm_enter_hook();
    if (t == NULL)
        return given;
    cm_operators_hook(t);
    cm_emit_put_stack_hook(t, event_of(CM_EV_ALLOC, given.data, block->size));
    if (block->size > size)
        cm_emit_put_hook(t, event_of(CM_EV_REQUESTED, given.data, size));
    return given;
}

/* --- redirecting ----------------------------------------------------------------------------- */

static void exchange(void *object, const uintptr_t *from, const uintptr_t *to)
{
    uintptr_t expected = (uintptr_t)from;

    atomic_compare_exchange_strong((uintptr_t _Atomic *)object, &expected, (uintptr_t)to);
}

static void copy_vtable_hook(void *object)
{
    const uintptr_t *vtable = *(const uintptr_t *const *)object;
    const char *type = ((const char *const *)vtable[-1])[1]; /* the name in its description */
    void *none = NULL;

    if (strstr(type, "CUDACachingHostAllocator") == NULL ||
        !atomic_compare_exchange_strong(&host.object, &none, object))
        return;
    memcpy(host.copy, vtable - PREFIX, sizeof host.copy);
    host.copy[PREFIX + CM_VTABLE_ALLOCATE] = (uintptr_t)allocate_hook;
    atomic_store(&host.original, vtable);
}

/* Whoever asks for the allocator gets it redirected. */
static inline __attribute__((always_inline)) void *get_hook(int variant, int8_t device_type)
{
    void *object = CM_SLOT_ORIGINAL(cm_host_allocator_symbols[0], variant, get_fn)(device_type);

    if (device_type != CM_DEVICE_CUDA || object == NULL || !cm_is_recording())
        return object;
    if (atomic_load(&host.object) == NULL)
        copy_vtable_hook(object);
    const uintptr_t *original = atomic_load(&host.original);
    if (original != NULL && object == atomic_load(&host.object))
        exchange(object, original, host.copy + PREFIX);
    return object;
}

void cm_host_allocator_remove(void)
{
    void *object = atomic_load(&host.object);
    const uintptr_t *original = atomic_load(&host.original);

    if (object != NULL && original != NULL)
        exchange(object, host.copy + PREFIX, original);
}

static void *get_0(int8_t device_type)
{
    return get_hook(0, device_type);
}

static void *get_1(int8_t device_type)
{
    return get_hook(1, device_type);
}
_Static_assert(CM_SLOT_VARIANTS == 2, "one hook for each variant");

cm_slot_symbol cm_host_allocator_symbols[] = {
    {.source = "allocator",
     .meaning = "the allocator of pinned host memory",
     .names = {"_ZN2at16getHostAllocatorEN3c1010DeviceTypeE"},
     .hooks = {get_0, get_1}},
};
const size_t cm_host_allocator_symbol_count = 1;
