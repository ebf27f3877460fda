/* Half copies of weights that autocast caches until its context ends. PyTorch casts every argument
 * of an operator through one function, and keeps a result only if it is a leaf's that needs a
 * gradient: then the cache holds it, too, when the function returns. */
#include "emit.h"
#include "tables.h"

#include "../capture/blockpool.h"

/* Returns an at::Tensor in memory of the caller's. */
typedef void *(*cast_fn)(void *result, int8_t type, const void *const *tensor, int8_t device);

#define FORWARD(variant) CM_SLOT_ORIGINAL(cm_autocast_symbols[0], variant, cast_fn)

/* Where this thread's next event goes. */
typedef struct place {
    const cm_event *next;
    uint32_t block;
} place;

static place here(void)
{
    const cm_producer *t =
        cm_self.capture == atomic_load_explicit(cm_recording, memory_order_relaxed) ? cm_self.thread
                                                                                    : NULL;

    return t != NULL ? (place){t->next, t->serial} : (place){0};
}

/* The allocation that this thread emitted last since then; NULL: none. One at the end of a block of
 * events that was full is missed, if another event followed it into the next. */
static const cm_event *last_alloc_hook(const cm_producer *t, place since)
{
    const cm_event *first = since.next;

    if (t->block == 0 || t->next == NULL)
        return NULL;
    if (since.block != t->serial)
        first = cm_blockpool_at(t->block)->events;
    for (const cm_event *e = t->next; e > first;)
        if ((--e)->kind == CM_EV_ALLOC)
            return e;
    return NULL;
}

static void label_hook(place since)
{
    cm_producer *t __attribute__((cleanup(cm_emit_leave_hook))) = cm_enter_hook();
    const cm_event *made = t != NULL ? last_alloc_hook(t, since) : NULL;

    if (made != NULL)
        cm_emit_put_hook(t, (cm_event){.address = made->address,
                                       .kind = CM_EV_LABEL,
                                       .flags = CM_LABEL_AUTOCAST,
                                       .device_type = made->device_type,
                                       .device_index = made->device_index});
}

/* A c10::intrusive_ptr_target has its number of owners behind the vtable's address. */
static bool has_two_owners(const void *tensor)
{
    return (uint32_t)((const uint64_t *)tensor)[1] > 1;
}

static inline __attribute__((always_inline)) void *
cast_hook(int variant, void *result, int8_t type, const void *const *tensor, int8_t device)
{
    if (!cm_is_recording())
        return FORWARD(variant)(result, type, tensor, device);
    const void *given = *tensor;
    place before = here();
    void *returned = FORWARD(variant)(result, type, tensor, device);
    const void *made = *(const void *const *)result;
    if (made != given && has_two_owners(made) && here().next != before.next)
        label_hook(before);
    return returned;
}

#define VARIANT(n)                                                                                 \
    static void *cast_##n(void *result, int8_t type, const void *const *tensor, int8_t device)     \
    {                                                                                              \
        return cast_hook(n, result, type, tensor, device);                                         \
    }
VARIANT(0)
VARIANT(1)
_Static_assert(CM_SLOT_VARIANTS == 2, "one set of hooks for each variant");

cm_slot_symbol cm_autocast_symbols[] = {{
    .source = "allocator",
    .meaning = "half copies that autocast caches",
    .names = {"_ZN2at8autocast11cached_castEN3c1010ScalarTypeERKNS_6TensorENS1_10DeviceTypeE"},
    .hooks = {cast_0, cast_1},
}};
/* On other processors C has no way to return what C++ returns in memory, if it is so small. */
#if defined(__x86_64__)
const size_t cm_autocast_symbol_count = 1;
#else
const size_t cm_autocast_symbol_count = 0;
#endif
