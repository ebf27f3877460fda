#include "calls.h"

#include "grow.h"
#include "map.h"

enum { CALLS_MIN = 4, CALLS_MAX = 1 << 20, FIRST = 8 };

typedef struct place {
    uint64_t module; /* the outermost one; 0 = in no call */
    uint32_t caller; /* the stack that called it */
} place;

/* An outermost module and the first stacks on which it was seen to allocate. */
typedef struct module {
    uint64_t address;
    uint32_t stack[FIRST], count[FIRST];
    uint32_t stacks;
} module;

typedef struct call {
    cm_moment at;
    uint32_t module, opening; /* indices */
    uint32_t caller;
} call;

struct cm_calls {
    const cm_reader *reader;
    place *place; /* by stack */
    size_t places, place_capacity;
    cm_idmap by_address; /* -> module */
    module *module;
    size_t modules, module_capacity;
    call *call;
    size_t calls, call_capacity;
    uint32_t last_thread, last_stack; /* of the last allocation */
    bool stopped;
};

cm_calls *cm_calls_new(const cm_reader *reader)
{
    cm_calls *c = calloc(1, sizeof *c);
    if (c != NULL)
        c->reader = reader;
    return c;
}

void cm_calls_stop(cm_calls *c)
{
    free(c->call);
    c->call = NULL;
    c->calls = c->call_capacity = 0;
    c->stopped = true;
}

void cm_calls_free(cm_calls *c)
{
    if (c == NULL)
        return;
    cm_calls_stop(c);
    free(c->place);
    cm_idmap_clear(&c->by_address);
    free(c->module);
    free(c);
}

/* A parent is defined before its child. */
static bool learn(cm_calls *c)
{
    size_t count = (size_t)CM_STACK_FIRST + cm_reader_stack_count(c->reader);
    if (!cm_grow((void **)&c->place, &c->place_capacity, count, sizeof *c->place))
        return false;
    for (; c->places < count; c->places++) {
        uint32_t stack = (uint32_t)c->places;
        uint32_t parent = cm_reader_stack_parent(c->reader, stack);
        cm_frame frame;
        place p = {0};
        if (stack >= CM_STACK_FIRST && parent < stack)
            p = c->place[parent];
        if (p.module == 0 && cm_reader_stack_frame(c->reader, stack, &frame) && frame.module != 0)
            p = (place){frame.module, parent};
        c->place[stack] = p;
    }
    return true;
}

static module *find_module(cm_calls *c, uint64_t address)
{
    uint64_t key = address >> 1; /* an address: nothing is lost */
    uint32_t index;
    if (!cm_idmap_get(&c->by_address, key, &index)) {
        if (!cm_grow((void **)&c->module, &c->module_capacity, c->modules + 1, sizeof *c->module) ||
            !cm_idmap_put(&c->by_address, key, (uint32_t)c->modules))
            return NULL;
        index = (uint32_t)c->modules++;
        c->module[index] = (module){.address = address};
    }
    return &c->module[index];
}

bool cm_calls_see(cm_calls *c, const cm_record *record, cm_moment at)
{
    uint32_t stack = record->event.stack, i = 0;
    if (c->stopped)
        return true;
    bool again = c->last_thread == record->thread && c->last_stack == stack;
    c->last_thread = record->thread;
    c->last_stack = stack;
    if (again || record->event.flags & CM_EVF_IN_NODE)
        return true;
    if (stack >= c->places && !learn(c))
        return false;
    if (stack >= c->places || c->place[stack].module == 0)
        return true;
    module *m = find_module(c, c->place[stack].module);
    if (m == NULL)
        return false;
    while (i < m->stacks && m->stack[i] != stack)
        i++;
    if (i == FIRST)
        return true;
    if (i == m->stacks)
        m->stack[m->stacks++] = stack;
    m->count[i]++;
    if (c->calls >= CALLS_MAX) {
        cm_calls_stop(c); /* a program this long has had its second */
        return true;
    }
    if (!cm_grow((void **)&c->call, &c->call_capacity, c->calls + 1, sizeof *c->call))
        return false;
    c->call[c->calls++] = (call){at, (uint32_t)(m - c->module), i, c->place[stack].caller};
    return true;
}

/* The first stack that is there in most calls: what is made in the first call only is not. */
static uint32_t opening_of(const module *m)
{
    uint32_t most = 0, i = 0;
    for (uint32_t k = 0; k < m->stacks; k++)
        if (m->count[k] > most)
            most = m->count[k];
    while (m->count[i] < most - most / 4)
        i++;
    return m->count[i] >= CALLS_MIN ? i : FIRST;
}

bool cm_calls_tell(const cm_calls *c, cm_places *places, cm_clock *clock)
{
    for (size_t i = 0; i < c->calls; i++) {
        const call *one = &c->call[i];
        const module *m = &c->module[one->module];
        if (one->opening != opening_of(m))
            continue;
        cm_tick tick = {.at = one->at, .object = m->address, .kind = CM_TICK_MODULE};
        if (!cm_places_line(places, one->caller, &tick.line) || !cm_clock_tick(clock, &tick))
            return false;
    }
    return true;
}
