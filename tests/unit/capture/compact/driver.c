/* Compacts events that a test made: the first `whole` of them are seen, the next ones compacted,
 * with the stretches cut after each `cut` of them, and the last `rest` are left as they are. */
#include <stdlib.h>

#include "../../../../csrc/compact/compact.h"
#include "../../../../csrc/trace/reader.h"

/* The compaction names no libraries. */
const char *cm_reader_name(const cm_reader *reader, uint32_t name)
{
    (void)reader;
    (void)name;
    return NULL;
}

typedef struct crafted { /* as in tests/unit/analysis/craft.c */
    uint32_t thread;
    uint32_t padding;
    cm_event event;
} crafted;

typedef struct output {
    crafted *at;
    size_t count, room;
} output;

static bool put(void *context, uint32_t thread, const cm_event *event)
{
    output *out = context;
    if (out->count == out->room)
        return false;
    out->at[out->count++] = (crafted){.thread = thread, .event = *event};
    return true;
}

/* What is said of an event has its time, so that nothing that ends a stretch comes between them;
 * that it failed is known later. */
static bool belongs(const cm_event *e)
{
    return e->kind == CM_EV_DRIVER_MORE && e->size != CM_DRIVER_MORE_FAILED;
}

/* The number of events in `out`, which has room for `room`; -1: the compaction failed. */
long compact(const crafted *in, size_t count, size_t whole, size_t cut, size_t rest, crafted *to,
             size_t room)
{
    output out = {.at = to, .room = room};
    cm_compaction *f = cm_compact_new(put, &out);
    bool fine = f != NULL, due = false;
    for (size_t i = 0; fine && i < count; i++) {
        if (i == count - rest)
            fine = cm_compact_flush(f);
        if (i < whole || i >= count - rest)
            fine = fine && put(&out, in[i].thread, &in[i].event) &&
                   (i >= whole || cm_compact_see(f, in[i].thread, &in[i].event, 1));
        else {
            due = due || (i - whole + 1) % cut == 0;
            fine = fine && cm_compact_add(f, in[i].thread, &in[i].event);
            if (fine && due && (i + 1 == count || !belongs(&in[i + 1].event))) {
                fine = cm_compact_flush(f);
                due = false;
            }
        }
    }
    fine = fine && cm_compact_flush(f);
    cm_compact_free(f);
    return fine ? (long)out.count : -1;
}
