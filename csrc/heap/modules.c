#include "modules.h"

#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"

#define ADDRESS (UINT64_MAX >> 1)

typedef struct life { /* of one object at an address, from its creation or first name on */
    uint64_t address, from;
    uint64_t made;               /* the last creation, while it has no name */
    uint32_t name, before, jump; /* name 0: unknown; before: the previous life at this address,
                                    jump: an earlier one, to skip many at once; + 1 */
    uint32_t depth;              /* lives before it */
} life;

typedef struct of_stack {
    uint64_t module; /* NOT_ASKED, or the innermost module's address, 0 = none */
    uint32_t name;
    size_t lives; /* the name holds for this number of lives; 0: it depends on the record */
} of_stack;

#define NOT_ASKED UINT64_MAX

struct cm_modules {
    const cm_reader *reader;
    uint64_t seen; /* records */
    cm_idmap newest;
    life *life;
    size_t lives, life_capacity;
    of_stack *stack;
    size_t stack_capacity;
};

cm_modules *cm_modules_new(const cm_reader *reader)
{
    cm_modules *m = calloc(1, sizeof *m);
    if (m != NULL)
        m->reader = reader;
    return m;
}

cm_modules *cm_modules_copy(const cm_modules *modules)
{
    cm_modules *copy = cm_modules_new(modules->reader);
    if (copy == NULL)
        return NULL;
    copy->seen = modules->seen;
    copy->lives = copy->life_capacity = modules->lives;
    if (cm_idmap_copy(&copy->newest, &modules->newest) &&
        cm_copy((void **)&copy->life, modules->life, modules->lives, sizeof *modules->life))
        return copy;
    cm_modules_free(copy);
    return NULL;
}

void cm_modules_free(cm_modules *modules)
{
    if (modules == NULL)
        return;
    cm_idmap_clear(&modules->newest);
    free(modules->life);
    free(modules->stack);
    free(modules);
}

static bool begin_life(cm_modules *m, uint64_t address, uint64_t from, uint32_t name)
{
    uint32_t before;
    bool known = cm_idmap_get(&m->newest, address & ADDRESS, &before);
    if (m->lives >= UINT32_MAX - 1 ||
        !cm_grow((void **)&m->life, &m->life_capacity, m->lives + 1, sizeof *m->life) ||
        !cm_idmap_put(&m->newest, address & ADDRESS, (uint32_t)m->lives))
        return false;
    life fresh = {.address = address, .from = from, .made = from, .name = name};
    if (known) { /* skew-binary jumps: any earlier life is a logarithm of steps away */
        const life *last = &m->life[before];
        const life *far = last->jump != 0 ? &m->life[last->jump - 1] : NULL;
        bool even = far != NULL && far->jump != 0 &&
                    last->depth - far->depth == far->depth - m->life[far->jump - 1].depth;
        fresh.before = before + 1;
        fresh.jump = even ? far->jump : before + 1;
        fresh.depth = last->depth + 1;
    }
    m->life[m->lives++] = fresh;
    return true;
}

bool cm_modules_apply_object(cm_modules *m, uint64_t position, const cm_event *e)
{
    uint32_t at;
    if (position < m->seen)
        return true;
    m->seen = position + 1;
    bool label = e->kind == CM_EV_LABEL && e->flags == CM_LABEL_MODULE;
    if (!label && (e->kind != CM_EV_OBJECT_NEW || e->size != CM_OBJECT_MODULE))
        return true;
    bool known = cm_idmap_get(&m->newest, e->address & ADDRESS, &at);
    if (label && known && m->life[at].name == 0) {
        if (m->life[at].made > m->life[at].from) /* another object was made there later */
            return begin_life(m, e->address, m->life[at].made, e->stack);
        m->life[at].name = e->stack;
        return true;
    }
    if (label)
        return known ? m->life[at].name == e->stack || begin_life(m, e->address, position, e->stack)
                     : begin_life(m, e->address, 0, e->stack);
    if (!known || m->life[at].name != 0)
        return begin_life(m, e->address, position, 0);
    m->life[at].made = position; /* of objects without a name the last one counts */
    return true;
}

/* The life at that record, of those up to `at`; else the first. */
static uint32_t find_life(const cm_modules *m, uint32_t at, uint64_t position)
{
    while (m->life[at].from > position && m->life[at].before != 0) {
        const life *l = &m->life[at];
        bool far = l->jump != 0 && m->life[l->jump - 1].from > position;
        at = (far ? l->jump : l->before) - 1;
    }
    return at;
}

uint32_t cm_modules_at(const cm_modules *m, uint64_t address, uint64_t position)
{
    uint32_t at;
    if (address == 0 || !cm_idmap_get(&m->newest, address & ADDRESS, &at))
        return 0;
    at = find_life(m, at, position);
    return m->life[at].from <= position ? m->life[at].name : 0;
}

/* Parents are defined before their children, so the walk outwards ends. It ends at a stack with a
 * known answer and stores the answer in all passed ones, so each is passed once. */
static uint64_t innermost(cm_modules *m, uint32_t stack)
{
    uint64_t found = 0;
    cm_frame frame;
    uint32_t outer = stack;
    for (; outer >= CM_STACK_FIRST && cm_reader_stack_frame(m->reader, outer, &frame);
         outer = cm_reader_stack_parent(m->reader, outer)) {
        found = m->stack[outer].module;
        if (found == NOT_ASKED && (frame.module != 0 || frame.module_class != NULL))
            found = frame.module == NOT_ASKED ? 0 : frame.module;
        if (found != NOT_ASKED)
            break;
        found = 0;
    }
    for (uint32_t at = stack; at != outer; at = cm_reader_stack_parent(m->reader, at))
        m->stack[at].module = found;
    if (outer >= CM_STACK_FIRST)
        m->stack[outer].module = found;
    return found;
}

uint32_t cm_modules_of_stack(cm_modules *m, uint32_t stack, uint64_t position)
{
    uint32_t at;
    size_t before = m->stack_capacity;
    if (stack < CM_STACK_FIRST || m->lives == 0)
        return 0;
    if (stack >= before) {
        size_t count = (size_t)CM_STACK_FIRST + cm_reader_stack_count(m->reader);
        if (stack >= count ||
            !cm_grow((void **)&m->stack, &m->stack_capacity, count, sizeof *m->stack))
            return 0;
        for (size_t i = before; i < m->stack_capacity; i++)
            m->stack[i] = (of_stack){.module = NOT_ASKED};
    }
    of_stack *s = &m->stack[stack];
    if (s->module == NOT_ASKED)
        s->module = innermost(m, stack);
    if (s->module == 0)
        return 0;
    if (s->lives == m->lives)
        return s->name;
    s->name = cm_modules_at(m, s->module, position);
    /* One life: the name holds for all that follows. */
    bool single = !cm_idmap_get(&m->newest, s->module & ADDRESS, &at) ||
                  (m->life[at].before == 0 && m->life[at].from <= position);
    s->lives = single ? m->lives : 0;
    return s->name;
}

bool cm_modules_each(const cm_modules *m, uint64_t position,
                     bool (*visit)(void *context, uint64_t address, uint32_t name), void *context)
{
    for (size_t i = 0; i < m->lives; i++) {
        const life *l = &m->life[i];
        uint32_t at;
        if (l->name != 0 && l->from <= position &&
            cm_idmap_get(&m->newest, l->address & ADDRESS, &at) &&
            find_life(m, at, position) == i && !visit(context, l->address, l->name))
            return false;
    }
    return true;
}
