#include "driver_prologue.h"

#include "driver_map_parts.h"

/* Referenced kinds come first. */
static int rank(uint8_t kind)
{
    switch (kind) {
    case CM_DRIVER_CONTEXT:
    case CM_DRIVER_POOL:
        return 0;
    case CM_DRIVER_PHYSICAL:
    case CM_DRIVER_IMPORTED:
    case CM_DRIVER_MULTICAST:
    case CM_DRIVER_RESERVED:
        return 1;
    default:
        return 2;
    }
}
enum { RANKS = 3 };

/* The value of a released handle that is still mapped may be reused: then the new trace gives it an
 * unused one. */
static uint64_t name_of(const cm_driver_map *m, uint32_t slot)
{
    const cm_driver_allocation *a = &m->allocation[slot];
    uint32_t found;
    if (a->shown == 0 || a->references > 0 ||
        (cm_driver_map_lookup(m, CM_DRIVER_SPACE_HANDLE, a->address, &found) && found == slot))
        return a->address;
    return UINT64_C(1) << 62 | slot;
}

static bool more(cm_driver_prologue_emit emit, void *context, cm_driver_more what, uint64_t value,
                 uint32_t name)
{
    return emit(context, (cm_event){.kind = CM_EV_DRIVER_MORE,
                                    .flags = CM_EVF_ALREADY,
                                    .size = what,
                                    .address = value,
                                    .stack = name});
}

static bool emit_one(const cm_driver_map *m, uint32_t slot, cm_driver_prologue_emit emit,
                     void *context)
{
    const cm_driver_allocation *a = &m->allocation[slot];
    cm_total_key key = {0};
    if (a->total != CM_TOTALS_NONE)
        key = cm_totals_key(&m->totals, a->total);
    cm_event e = {.kind = CM_EV_DRIVER_NEW,
                  .flags = (uint8_t)(a->kind | CM_EVF_ALREADY | (a->backward ? CM_EVF_OF_NODE : 0)),
                  .address = name_of(m, slot),
                  .size = a->size,
                  .stack = key.stack,
                  .device_type = CM_DEVICE_CUDA,
                  .device_index = a->device};
    uint64_t handle = a->shows != 0 ? name_of(m, a->shows - 1) : a->pool;
    if (!emit(context, e) ||
        (key.library != 0 && !more(emit, context, CM_DRIVER_MORE_LIBRARY, 0, key.library)) ||
        (handle != 0 && !more(emit, context, CM_DRIVER_MORE_HANDLE, handle, 0)) ||
        (a->torch && !more(emit, context, CM_DRIVER_MORE_TORCH, 0, 0)) ||
        (a->at_least && !more(emit, context, CM_DRIVER_MORE_AT_LEAST, 0, 0)))
        return false;
    e.flags = CM_DRIVER_REFERENCE | CM_EVF_ALREADY;
    for (uint32_t i = 1; i < a->references; i++)
        if (!emit(context, e))
            return false;
    return true;
}

bool cm_driver_prologue(const cm_driver_map *m, cm_driver_prologue_emit emit, void *context)
{
    if (m == NULL)
        return true;
    for (int now = 0; now < RANKS; now++)
        for (uint32_t i = 0; i < m->slots; i++) {
            const cm_driver_allocation *a = &m->allocation[i];
            if (a->alive && !a->implied && rank(a->kind) == now && !emit_one(m, i, emit, context))
                return false;
        }
    /* Released handles that live only through mappings. */
    for (uint32_t i = 0; i < m->slots; i++) {
        const cm_driver_allocation *a = &m->allocation[i];
        if (!a->alive || a->references > 0 || a->shown == 0)
            continue;
        cm_event e = {.kind = CM_EV_DRIVER_FREE,
                      .flags = (uint8_t)(a->kind | CM_EVF_ALREADY),
                      .address = name_of(m, i),
                      .device_type = CM_DEVICE_CUDA,
                      .device_index = a->device};
        if (!emit(context, e))
            return false;
    }
    return true;
}
