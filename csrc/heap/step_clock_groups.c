/* Rules 1 and 3 of step_clock.h: which ticks of a kind belong to one step. */
#include <string.h>

#include "step_clock_parts.h"
#include "../base/hash.h"
#include "../base/table.h"
#include "../base/grow.h"

enum {
    RATE_MAX = 8,       /* updates in an iteration: more are a loop of their own */
    RATE_PERCENT = 75,  /* of the iterations have the same number */
    RATE_LONGEST = 3,   /* times as many: the others are phases of their own */
    RATE_CANDIDATES = 8 /* objects tried as the one that ticks once an iteration */
};

/* One object that may tick. */
typedef struct object {
    uint64_t key;           /* its address + 1; 0 = empty */
    uint64_t created;       /* position + 1, 0 = before the recording or unknown */
    int64_t in, before;     /* its last two groups, -1 = none */
    cm_clock_lead tick;     /* its first tick in `in` */
    uint64_t backward;      /* nodes started before that tick */
    cm_moment at, previous; /* that tick, and that group's tick before it */
    uint32_t line, previous_line;
    uint32_t number;
    uint32_t calls, repeats; /* of a module: in its last step with gradient; so far in `in` */
    uint64_t called;         /* nodes started before the last of these calls */
    bool trained;            /* called in training mode, with gradients */
} object;

struct cm_clock_objects {
    object *object;
    size_t count, slots;
};

cm_clock_objects *cm_clock_objects_new(void)
{
    return calloc(1, sizeof(cm_clock_objects));
}

void cm_clock_objects_free(cm_clock_objects *objects)
{
    if (objects != NULL)
        free(objects->object);
    free(objects);
}

static bool is_taken(const void *entry)
{
    return ((const object *)entry)->key != 0;
}

static uint64_t hash(const void *owner, const void *entry)
{
    (void)owner;
    return cm_hash(((const object *)entry)->key);
}

static bool has_key(const void *owner, const void *entry, const void *wanted)
{
    (void)owner;
    return ((const object *)entry)->key == *(const uint64_t *)wanted;
}

static const cm_table_kind by_key = {sizeof(object), 64, 3, is_taken, hash, has_key};

/* Its entry, made if need be; NULL: out of memory. Kinds share one table, because at creation the
 * kind of an object's ticks is unknown: an address is one object. */
static object *get_object(cm_clock_objects *all, uint64_t address)
{
    uint64_t key = address + 1;
    if (key == 0)
        key = 1;
    if (!cm_table_make_room(&by_key, NULL, (void **)&all->object, &all->slots, all->count))
        return NULL;
    object *found =
        &all->object[cm_table_find(&by_key, NULL, all->object, all->slots, cm_hash(key), &key)];
    if (found->key == 0)
        *found = (object){.key = key, .in = -1, .before = -1, .number = (uint32_t)all->count++};
    return found;
}

bool cm_clock_objects_made(cm_clock_objects *all, uint64_t address, uint64_t position)
{
    object *made = get_object(all, address);
    if (made != NULL) {
        made->created = position + 1; /* 0 is taken */
        made->trained = false;
    }
    return made != NULL;
}

bool cm_clock_objects_renew(cm_clock_objects *all, uint64_t address)
{
    object *renewed = get_object(all, address);
    if (renewed != NULL)
        renewed->in = renewed->before = -1;
    return renewed != NULL;
}

bool cm_clock_objects_trained(const cm_clock_objects *all, uint64_t key)
{
    return all->slots > 0 &&
           all->object[cm_table_find(&by_key, NULL, all->object, all->slots, cm_hash(key), &key)]
               .trained;
}

/* Rule 1, cut: `ticking` begins the next group, took over in the last one, and did not tick in the
 * one before that. Calls of two modules are two loops only where the first one's repeats. */
static bool cut_last_group(cm_clock_stream *s, const object *ticking, uint32_t kind)
{
    if (s->count < 2 || ticking->in != (int64_t)s->count - 1)
        return true;
    cm_clock_group *last = &s->group[s->count - 1], *before = &s->group[s->count - 2];
    if (last->leader == ticking->key || ticking->before == (int64_t)s->count - 2 ||
        ticking->created > before->first.position + 1 ||
        (kind == CM_TICK_MODULE && last->first_lead.site != before->first_lead.site))
        return true;
    if (!cm_grow((void **)&s->group, &s->capacity, s->count + 2, sizeof *s->group))
        return false;
    last = &s->group[s->count - 1];
    cm_clock_group second = *last;
    second.first = ticking->at;
    second.first_lead = ticking->tick;
    second.backward = ticking->backward;
    second.first_line = ticking->line;
    second.leader = ticking->key;
    last->last = ticking->previous;
    last->last_line = ticking->previous_line;
    for (size_t i = s->ticks; i-- > 0 && s->tick[i].group == s->count - 1;) {
        s->tick[i].group++;
        if (s->tick[i].object == ticking->number)
            break;
    }
    s->group[s->count++] = second;
    return true;
}

/* Whether the iterator and the last group's first one take turns. */
static bool alternates(const cm_clock_stream *s, const object *o)
{
    size_t n = s->count;
    return n > 1 && o->in == (int64_t)n - 2 &&
           (s->group[n - 1].leader == s->group[n - 2].leader ||
            (n > 2 && s->group[n - 1].leader == s->group[n - 3].leader));
}

/* Whether calls of the last group's site are a loop of their own, after which the object is called
 * again. */
static bool returns_after_loop(const cm_clock_stream *s, const object *o)
{
    size_t n = s->count;
    return n > 1 && o->in >= 0 && o->in < (int64_t)n - 2 &&
           s->group[n - 1].first_lead.site == s->group[n - 2].first_lead.site;
}

/* Whether a module that another one leads is called again, no more often than in a step with
 * gradient. */
static bool repeats_call(const cm_clock_stream *s, const cm_tick *tick, const object *o)
{
    const cm_clock_group *last = &s->group[s->count - 1];
    return tick->kind == CM_TICK_MODULE && tick->no_grad && last->no_grad &&
           o->in == (int64_t)s->count - 1 && last->leader != o->key && o->repeats < o->calls;
}

static void note_call(object *o, const cm_tick *tick)
{
    if (tick->kind != CM_TICK_MODULE || tick->no_grad)
        return;
    o->calls = tick->backward == o->called ? o->calls + 1 : 1;
    o->called = tick->backward;
}

/* Whether the tick begins a group (rule 1). */
static bool begins_group(const cm_clock_stream *s, const cm_tick *tick, const object *o,
                         uint64_t calls)
{
    const cm_clock_group *last = s->count ? &s->group[s->count - 1] : NULL;
    if (last == NULL || tick->kind == CM_TICK_STEP)
        return true;
    bool ticked = o->in == (int64_t)s->count - 1;
    if (tick->kind == CM_TICK_MODULE && (tick->backward > last->newest ||
                                         last->no_grad > tick->no_grad || returns_after_loop(s, o)))
        return true;
    if (tick->kind != CM_TICK_DATA)
        return (ticked && !repeats_call(s, tick, o)) || o->created > last->first.position + 1;
    /* A new iterator continues where an exhausted one stopped, often at the same address. If the
     * last batch was used, its iterator was not asked for more: the two belong together only if
     * they alternate. */
    return (ticked && o->line == tick->line) || tick->backward > last->newest ||
           (calls > last->calls && !alternates(s, o));
}

bool cm_clock_add_tick(cm_clock_objects *objects, cm_clock_stream *s, const cm_tick *tick,
                       const cm_clock_lead *lead, uint64_t calls)
{
    bool ends = cm_clock_ends_a_step(tick->kind);
    /* A pass has no object: its line ticks. No object has such a high address. */
    object *o = get_object(objects, tick->kind == CM_TICK_BACKWARD ? UINT64_MAX - 1 - tick->line
                                                                   : tick->object);
    if (o == NULL || !cm_grow((void **)&s->group, &s->capacity, s->count + 1, sizeof *s->group) ||
        !cm_grow((void **)&s->tick, &s->tick_capacity, s->ticks + 1, sizeof *s->tick))
        return false;
    bool next = begins_group(s, tick, o, calls);
    if (next) {
        /* An exhausted iterator shares its last tick's group with the next one: never cut. */
        if (tick->kind != CM_TICK_DATA && !cut_last_group(s, o, tick->kind))
            return false;
        if (!cm_grow((void **)&s->group, &s->capacity, s->count + 1, sizeof *s->group))
            return false;
        s->group[s->count++] = (cm_clock_group){.first = tick->at,
                                                .leader = o->key,
                                                .backward = tick->backward,
                                                .first_lead = *lead,
                                                .first_line = tick->line,
                                                .inside = tick->inside,
                                                .no_grad = tick->no_grad,
                                                .eval_mode = tick->eval_mode};
        o->previous = tick->at;
        o->previous_line = tick->line;
    } else {
        o->previous = s->group[s->count - 1].last;
        o->previous_line = s->group[s->count - 1].last_line;
    }
    cm_clock_group *last = &s->group[s->count - 1];
    if (ends)
        last->backward = tick->backward;
    last->newest = tick->backward;
    last->calls = calls;
    last->last = tick->at;
    last->last_lead = *lead;
    last->last_line = tick->line;
    last->no_grad &= tick->no_grad;
    last->eval_mode &= tick->eval_mode;
    last->sanity = tick->sanity;
    o->trained |= tick->kind == CM_TICK_MODULE && !tick->no_grad && !tick->eval_mode;
    bool repeats = !next && o->in == (int64_t)s->count - 1;
    o->repeats = repeats ? o->repeats + 1 : 1;
    if (!repeats || tick->kind != CM_TICK_MODULE)
        o->before = o->in;
    o->in = (int64_t)s->count - 1;
    note_call(o, tick);
    o->tick = *lead;
    o->at = tick->at;
    o->backward = tick->backward;
    o->line = tick->line;
    if (ends && tick->kind != CM_TICK_STEP)
        s->tick[s->ticks++] = (cm_clock_ticked){o->number, (uint32_t)s->count - 1};
    return true;
}

/* --- rates -------------------------------------------------------------------------------------
 */

/* How often each object ticked; NULL: out of memory. */
static uint32_t *count_ticks(const cm_clock_stream *s, size_t *objects)
{
    *objects = 0;
    for (size_t i = 0; i < s->ticks; i++)
        if (s->tick[i].object >= *objects)
            *objects = (size_t)s->tick[i].object + 1;
    uint32_t *count = calloc(*objects + 1, sizeof *count);
    for (size_t i = 0; count != NULL && i < s->ticks; i++)
        count[s->tick[i].object]++;
    return count;
}

/* The usual number of groups between ticks of an object. 0: it varies. */
static uint32_t usual_distance(const cm_clock_stream *s, uint32_t object)
{
    uint32_t of[RATE_MAX + 1] = {0}, distances = 0, most = 0, last = 0;
    bool seen = false;
    for (size_t i = 0; i < s->ticks; i++) {
        if (s->tick[i].object != object)
            continue;
        uint32_t distance = s->tick[i].group - last;
        last = s->tick[i].group;
        if (seen) {
            of[distance > RATE_MAX ? 0 : distance]++;
            distances++;
        }
        seen = true;
    }
    for (uint32_t d = 1; d <= RATE_MAX; d++)
        if (of[d] > of[most] || most == 0)
            most = d;
    bool fixed = distances > 0 && (uint64_t)of[most] * 100 >= (uint64_t)distances * RATE_PERCENT;
    return fixed ? most : 0;
}

static uint32_t last_line_of(const cm_clock_stream *s, uint32_t object)
{
    for (size_t i = s->ticks; i-- > 0;)
        if (s->tick[i].object == object)
            return s->group[s->tick[i].group].last_line;
    return 0;
}

bool cm_clock_find_rate(const cm_clock_stream *s, size_t least, cm_clock_rate *rate)
{
    size_t objects;
    uint32_t *count = count_ticks(s, &objects);
    *rate = (cm_clock_rate){0};
    if (count == NULL)
        return false;
    for (int tried = 0; tried < RATE_CANDIDATES && rate->updates == 0; tried++) {
        uint32_t rarest = UINT32_MAX;
        for (size_t o = 0; o < objects; o++) /* at most every other group is one of its own */
            if (count[o] >= least && (uint64_t)count[o] * 2 <= s->count + 1 &&
                (rarest == UINT32_MAX || count[o] < count[rarest]))
                rarest = (uint32_t)o;
        if (rarest == UINT32_MAX)
            break;
        uint32_t updates = usual_distance(s, rarest);
        if (updates >= 2)
            *rate = (cm_clock_rate){updates, rarest, last_line_of(s, rarest), count[rarest]};
        count[rarest] = 0;
    }
    free(count);
    return true;
}

/* Joins groups from..to; the result ends like the last one and has the iteration's line. */
static cm_clock_group joined(const cm_clock_stream *s, size_t from, size_t to, uint32_t line)
{
    cm_clock_group all = s->group[to];
    all.first = s->group[from].first;
    all.leader = s->group[from].leader;
    all.inside = s->group[from].inside;
    all.first_line = all.last_line = line;
    return all;
}

cm_clock_group *cm_clock_join(const cm_clock_stream *s, const cm_clock_rate *rate, size_t *count,
                              size_t *left)
{
    cm_clock_group *out = malloc((s->count + 1) * sizeof *out);
    size_t next = 0;
    *count = *left = 0;
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < s->ticks; i++) {
        size_t to = s->tick[i].group;
        if (s->tick[i].object != rate->object || to < next)
            continue;
        if (to - next >= (size_t)RATE_LONGEST * rate->updates)
            while (next < to)
                out[(*count)++] = s->group[next++];
        out[(*count)++] = joined(s, next, to, rate->line);
        next = to + 1;
    }
    *left = s->count - next;
    if (*left >= rate->updates) /* a phase without it */
        while (next < s->count)
            out[(*count)++] = s->group[next++];
    *left = s->count - next;
    return out;
}
