/* Holders that the process itself found (CM_EV_HOLDER): of growing memory while recording and at
 * its end, of all other memory at its end. */
#include "../base/grow.h"
#include "parts.h"

typedef struct list {
    cm_holder *holder;
    size_t count, capacity;
} list;

typedef struct holders {
    const cm_run *run;
    list of_leaks, alive;
    cm_held_line *line;
    size_t line_count, line_capacity;
    cm_holder last; /* the HOLDER event of the next path, and its thread */
    uint32_t thread;
    bool valid, is_alive;
} holders;

static void *create(const cm_run *run)
{
    holders *h = calloc(1, sizeof *h);
    if (h != NULL)
        h->run = run;
    return h;
}

static void begin(holders *h, const cm_record *record)
{
    const cm_event *e = &record->event;
    int64_t step = h->run->replay->step;
    int device = cm_replay_find_device(h->run->replay, e->device_type, e->device_index);
    h->is_alive = (e->flags & CM_HOLDER_ALIVE) != 0;
    h->last = (cm_holder){.kind = e->flags & CM_HOLDER_NODES ? CM_LEAK_NODES : CM_LEAK_BYTES,
                          .first = (e->flags & CM_HOLDER_FIRST) != 0,
                          .backward = (e->flags & CM_HOLDER_BACKWARD) != 0,
                          .forward = (e->flags & CM_HOLDER_FORWARD) != 0,
                          .device = device < 0 ? CM_LEAK_NO_DEVICE : (uint32_t)device,
                          .stack = e->stack,
                          .step = cm_steps_number(h->run->steps, step)};
    h->thread = record->thread;
    h->valid = device >= 0 || !h->is_alive;
}

/* The line that the next holder of what is alive belongs to. */
static bool begin_line(holders *h)
{
    if (!h->last.first && h->line_count > 0)
        return true;
    if (!cm_grow((void **)&h->line, &h->line_capacity, h->line_count + 1, sizeof *h->line))
        return false;
    h->line[h->line_count++] = (cm_held_line){
        .device = h->last.device, .stack = h->last.stack, .first_holder = h->alive.count};
    return true;
}

static bool event(void *part, const cm_record *record)
{
    holders *h = part;
    const cm_event *e = &record->event;
    if (e->kind == CM_EV_HOLDER) {
        begin(h, record);
        return true;
    }
    list *to = h->is_alive ? &h->alive : &h->of_leaks;
    if (!h->valid || h->thread != record->thread || e->size < 0 || to->count >= CM_HOLDERS_KEPT)
        return true;
    if (!cm_grow((void **)&to->holder, &to->capacity, to->count + 1, sizeof *to->holder) ||
        (h->is_alive && !begin_line(h)))
        return false;
    if (h->is_alive)
        h->line[h->line_count - 1].holder_count++;
    cm_holder *now = &to->holder[to->count++];
    *now = h->last;
    now->path = e->stack;
    now->count = e->address;
    now->bytes = e->size;
    h->last.first = false;
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    holders *h = part;
    out->holders = h->of_leaks.holder;
    out->holder_count = h->of_leaks.count;
    out->alive_holders = h->alive.holder;
    out->alive_holder_count = h->alive.count;
    out->held_lines = h->line;
    out->held_line_count = h->line_count;
    h->of_leaks.holder = h->alive.holder = NULL;
    h->line = NULL;
    return true;
}

static void destroy(void *part)
{
    holders *h = part;
    free(h->of_leaks.holder);
    free(h->alive.holder);
    free(h->line);
    free(h);
}

const cm_part_kind cm_part_holders = {.name = "holders",
                                      .create = create,
                                      .event = event,
                                      .events = CM_PART_EVENT(CM_EV_HOLDER) |
                                                CM_PART_EVENT(CM_EV_HOLDER_PATH),
                                      .finish = finish,
                                      .destroy = destroy};
