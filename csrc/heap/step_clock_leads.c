/* What belongs to a tick although it comes before: the batch that is made just before the call. A
 * stack leads to a tick if it allocated between two ticks, the later of them being of that site,
 * whatever the site of the earlier one was. So what ends the previous iteration does not lead, nor
 * does setup: they come before one site only. Likewise a stack trails a tick, the metric computed
 * behind an update, if it allocated behind that site whatever the site of the next call or batch
 * was, or if it never came before that call but behind this site, not even before the first one:
 * what leads to a call led to the first, too. */
#include "step_clock_leads.h"

#include <stdlib.h>
#include <string.h>

#include "../base/event.h"
#include "../base/grow.h"
#include "../base/idmap.h"

enum {
    LEARNT = 2,        /* times that one site follows another, until their stacks are known */
    SITES_ASKED = 512, /* of more, any may begin with a stack: asking all takes too long */
    LEADS = 0,         /* in place of a site + 1: the stack leads somewhere, so it trails nothing */
    ANY_SITE = UINT32_MAX /* the stack came after two sites: it leads */
};

/* The first allocation of a stack since the last tick. */
typedef struct entry {
    cm_moment at;
    uint32_t stack, thread;
    bool fresh; /* the first one of all */
} entry;

typedef struct site {
    entry *first; /* what was allocated before its first tick */
    size_t count;
    uint32_t thread; /* of that tick */
    uint32_t led;    /* the segment in which cm_clock_leads_may_begin found what leads to it */
    uint32_t before; /* of the tick before its first one: the site + 1; ANY_SITE: not known */
    uint64_t ticks;
} site;

struct cm_clock_leads {
    cm_idmap number; /* stack, and whether without gradient -> site */
    site *site;
    size_t sites, site_capacity;
    uint32_t last;   /* site of the last tick + 1, 0 = none */
    cm_idmap after;  /* site and stack -> the site + 1 that came before, or ANY_SITE */
    cm_idmap trails; /* site + 1 and stack -> the site + 1 that came next, or ANY_SITE; LEADS */
    cm_idmap follows;
    entry *entry; /* since the last tick */
    size_t count, capacity;
    uint32_t *seen; /* by stack: the segment that has it, from 1 */
    size_t seen_capacity;
    uint32_t segment;
    bool compacted, closed;
    cm_moment closing; /* the recording's own end, after the last tick */
};

cm_clock_leads *cm_clock_leads_new(void)
{
    cm_clock_leads *leads = calloc(1, sizeof *leads);
    if (leads != NULL)
        leads->segment = 1;
    return leads;
}

void cm_clock_leads_free(cm_clock_leads *leads)
{
    if (leads == NULL)
        return;
    for (size_t i = 0; i < leads->sites; i++)
        free(leads->site[i].first);
    free(leads->site);
    cm_idmap_clear(&leads->number);
    cm_idmap_clear(&leads->after);
    cm_idmap_clear(&leads->trails);
    cm_idmap_clear(&leads->follows);
    free(leads->entry);
    free(leads->seen);
    free(leads);
}

static uint64_t pair(uint32_t at, uint32_t stack)
{
    return (uint64_t)at << 32 | stack;
}

/* Whether the stack trails the site whose number + 1 is `last`. */
static bool is_trailing(const cm_clock_leads *leads, uint32_t last, uint32_t stack)
{
    uint32_t next, before;
    if (!cm_idmap_get(&leads->trails, pair(last, stack), &next) ||
        cm_idmap_get(&leads->trails, pair(LEADS, stack), &before))
        return false;
    if (next == ANY_SITE)
        return true;
    const site *s = &leads->site[next - 1];
    return s->before != last && s->before != ANY_SITE &&
           cm_idmap_get(&leads->after, pair(next - 1, stack), &before) && before == last;
}

void cm_clock_leads_relearn(cm_clock_leads *leads)
{
    cm_idmap_clear(&leads->follows);
    leads->last = 0;
    if (leads->seen_capacity > 0)
        memset(leads->seen, 0, leads->seen_capacity * sizeof *leads->seen);
}

/* Whether the stack leads to the site, should that tick next; sure: it does already. */
static bool may_lead(const cm_clock_leads *leads, uint32_t number, uint32_t stack, bool *sure)
{
    uint32_t after, times = 0;
    if (!cm_idmap_get(&leads->after, pair(number, stack), &after) || after == leads->last)
        return false;
    *sure = after == ANY_SITE;
    cm_idmap_get(&leads->follows, pair(number, leads->last), &times);
    return *sure || times < LEARNT;
}

bool cm_clock_leads_may_begin(cm_clock_leads *leads, uint32_t stack, uint32_t thread)
{
    if (stack < CM_STACK_FIRST)
        return false;
    bool may = stack >= leads->seen_capacity || leads->seen[stack] == 0;
    if (!may && leads->seen[stack] == leads->segment)
        return false;
    if (leads->count > 0 && !is_trailing(leads, leads->last, stack) &&
        is_trailing(leads, leads->last, leads->entry[leads->count - 1].stack))
        return true;
    if (leads->sites > SITES_ASKED)
        return true;
    for (size_t i = 0; i < leads->sites; i++) {
        site *s = &leads->site[i];
        bool sure;
        if (s->led == leads->segment || s->thread != thread ||
            !may_lead(leads, (uint32_t)i, stack, &sure))
            continue;
        if (sure)
            s->led = leads->segment;
        may = true;
    }
    return may;
}

bool cm_clock_leads_block(cm_clock_leads *leads, uint32_t stack, uint32_t thread, cm_moment at)
{
    if (stack < CM_STACK_FIRST)
        return true;
    if (!cm_grow_zeroed((void **)&leads->seen, &leads->seen_capacity, (size_t)stack + 1,
                        sizeof *leads->seen))
        return false;
    if (leads->seen[stack] == leads->segment)
        return true;
    if (!cm_grow((void **)&leads->entry, &leads->capacity, leads->count + 1, sizeof *leads->entry))
        return false;
    leads->entry[leads->count++] = (entry){at, stack, thread, leads->seen[stack] == 0};
    leads->seen[stack] = leads->segment;
    return true;
}

void cm_clock_leads_compacted(cm_clock_leads *leads)
{
    leads->compacted = true;
}

void cm_clock_leads_close(cm_clock_leads *leads, cm_moment at)
{
    if (!leads->closed)
        leads->closing = at;
    leads->closed = true;
}

size_t cm_clock_leads_sites(const cm_clock_leads *leads)
{
    return leads->sites;
}

/* A call with a gradient is another site than the same call without. */
static uint64_t key_of(const cm_tick *tick)
{
    return (uint64_t)tick->stack << 1 | tick->no_grad;
}

static bool begins_step(const cm_tick *tick)
{
    return tick->kind == CM_TICK_DATA || tick->kind == CM_TICK_MODULE;
}

static bool number_site(cm_clock_leads *leads, const cm_tick *tick, uint32_t *number)
{
    uint64_t key = key_of(tick);
    if (cm_idmap_get(&leads->number, key, number))
        return true;
    *number = (uint32_t)leads->sites;
    if (!cm_grow((void **)&leads->site, &leads->site_capacity, leads->sites + 1,
                 sizeof *leads->site) ||
        !cm_idmap_put(&leads->number, key, *number))
        return false;
    leads->site[leads->sites++] = (site){0};
    return true;
}

/* Notes that the key was seen with this site. any: with another one before, too. */
static bool learn_site(cm_idmap *sites, uint64_t key, uint32_t site, bool *any)
{
    uint32_t known;
    bool seen = cm_idmap_get(sites, key, &known);
    *any = seen && known != site;
    return (seen && (known == ANY_SITE || known == site)) ||
           cm_idmap_put(sites, key, seen ? ANY_SITE : site);
}

/* Notes that the stack allocated between the last tick and one of this site. */
static bool learn_stack(cm_clock_leads *leads, uint32_t number, uint32_t stack, bool begins)
{
    bool any;
    if (!learn_site(&leads->after, pair(number, stack), leads->last, &any) ||
        (any && !cm_idmap_put(&leads->trails, pair(LEADS, stack), 0)))
        return false;
    return !begins || leads->last == 0 ||
           learn_site(&leads->trails, pair(leads->last, stack), number + 1, &any);
}

/* Notes what was allocated between the last tick and one of this site; where that is known, by
 * stacks that are new. */
static bool learn(cm_clock_leads *leads, uint32_t number, bool begins)
{
    uint32_t times = 0;
    cm_idmap_get(&leads->follows, pair(number, leads->last), &times);
    if (times < LEARNT && !cm_idmap_put(&leads->follows, pair(number, leads->last), times + 1))
        return false;
    for (size_t i = 0; i < leads->count; i++)
        if ((times < LEARNT || leads->entry[i].fresh) &&
            !learn_stack(leads, number, leads->entry[i].stack, begins))
            return false;
    return true;
}

static const entry *find_lead(const cm_clock_leads *leads, uint32_t number, const entry *from,
                              size_t count, uint32_t thread)
{
    uint32_t after;
    for (size_t i = 0; i < count; i++)
        if (from[i].thread == thread &&
            cm_idmap_get(&leads->after, pair(number, from[i].stack), &after) && after == ANY_SITE)
            return &from[i];
    return NULL;
}

/* How many of the entries behind a tick of the site are up to the last one that trails it. */
static size_t count_trailing(const cm_clock_leads *leads, uint32_t last, const entry *from,
                             size_t count, uint32_t thread)
{
    while (count > 0 &&
           !(from[count - 1].thread == thread && is_trailing(leads, last, from[count - 1].stack)))
        count--;
    return count;
}

/* Where what trails the site ends: at an entry, or at the tick that comes next. */
static bool find_trail(const cm_clock_leads *leads, uint32_t last, const entry *from, size_t count,
                       uint32_t thread, cm_moment *end)
{
    size_t trailing = count_trailing(leads, last, from, count, thread);
    if (trailing > 0 && trailing < count)
        *end = from[trailing].at;
    return trailing > 0;
}

/* A site's first tick, and the first ones after each other site, teach: they need all. */
void cm_clock_leads_needed(const cm_clock_leads *leads, const cm_tick *next,
                           void (*keep)(void *context, cm_moment at), void *context)
{
    uint32_t number, times = 0;
    const entry *found = NULL;
    if (next != NULL && cm_idmap_get(&leads->number, key_of(next), &number) &&
        cm_idmap_get(&leads->follows, pair(number, leads->last), &times) && times == LEARNT)
        found = find_lead(leads, number, leads->entry, leads->count, next->thread);
    size_t trailing =
        next != NULL && begins_step(next)
            ? count_trailing(leads, leads->last, leads->entry, leads->count, next->thread)
            : 0;
    for (size_t i = 0; i < leads->count; i++)
        if (times < LEARNT || leads->entry[i].fresh || &leads->entry[i] == found ||
            (trailing > 0 && (i == trailing || i + 1 == trailing)))
            keep(context, leads->entry[i].at);
}

size_t cm_clock_leads_bytes(const cm_clock_leads *leads)
{
    size_t bytes =
        leads->site_capacity * sizeof *leads->site + leads->capacity * sizeof *leads->entry +
        leads->seen_capacity * sizeof *leads->seen +
        (leads->number.slots + leads->after.slots + leads->trails.slots + leads->follows.slots) *
            sizeof *leads->number.slot;
    for (size_t i = 0; i < leads->sites; i++)
        bytes += leads->site[i].count * sizeof *leads->site[i].first;
    return bytes;
}

bool cm_clock_leads_tick(cm_clock_leads *leads, const cm_tick *tick, cm_clock_lead *lead)
{
    bool begins = begins_step(tick);
    *lead = (cm_clock_lead){.at = tick->at};
    if (!number_site(leads, tick, &lead->site) ||
        (!leads->compacted && !learn(leads, lead->site, begins)))
        return false;
    site *s = &leads->site[lead->site];
    const entry *found = NULL;
    lead->first = s->ticks++ == 0;
    if (lead->first) {
        s->thread = tick->thread;
        s->before = leads->compacted ? ANY_SITE : leads->last;
    }
    lead->behind = tick->at;
    lead->trailed =
        begins && !leads->compacted &&
        find_trail(leads, leads->last, leads->entry, leads->count, tick->thread, &lead->behind);
    if (!leads->compacted && lead->first) {
        if (!cm_copy((void **)&s->first, leads->entry, leads->count, sizeof *leads->entry))
            return false;
        s->count = leads->count;
    } else if (!leads->compacted) {
        found = find_lead(leads, lead->site, leads->entry, leads->count, tick->thread);
    }
    if (found != NULL)
        lead->at = found->at;
    leads->last = lead->site + 1;
    leads->count = 0;
    leads->segment++;
    leads->compacted = leads->closed = false;
    return true;
}

cm_moment cm_clock_leads_begin(const cm_clock_leads *leads, const cm_clock_lead *lead)
{
    const site *s = &leads->site[lead->site];
    const entry *found =
        lead->first ? find_lead(leads, lead->site, s->first, s->count, s->thread) : NULL;
    return found != NULL ? found->at : lead->at;
}

bool cm_clock_leads_behind(const cm_clock_leads *leads, const cm_clock_lead *lead, cm_moment *end)
{
    const site *s = &leads->site[lead->site];
    *end = lead->behind;
    return lead->first ? find_trail(leads, s->before, s->first, s->count, s->thread, end)
                       : lead->trailed;
}

/* Not later: a function that returns frees what the loop had kept. */
bool cm_clock_leads_last(const cm_clock_leads *leads, cm_moment *end)
{
    if (leads->last == 0 || leads->compacted)
        return false;
    size_t trailing = count_trailing(leads, leads->last, leads->entry, leads->count,
                                     leads->site[leads->last - 1].thread);
    if (trailing == 0)
        return false;
    *end = leads->entry[trailing - 1].at;
    end->position++;
    return true;
}

bool cm_clock_leads_trail(const cm_clock_leads *leads, cm_moment *trail)
{
    bool loops = leads->last != 0 && leads->site[leads->last - 1].ticks > 1 && !leads->compacted;
    *trail = leads->closing;
    for (size_t i = 0; loops && i < leads->count; i++)
        if (leads->entry[i].fresh) {
            if (!leads->closed || leads->entry[i].at.position < trail->position)
                *trail = leads->entry[i].at;
            return true;
        }
    return leads->closed;
}
