/* Peaks and their contributors, for the whole run and for each step, and the plain sums.
 *
 * Each origin's bytes at the peaks of the run and of the step are snapshots (snapshot.h). A step's
 * largest contributors come from a tournament over origins, which updates only those touched by
 * this step or the previous one. So the cost per step is not linear in stacks. */
#include "contributors.h"
#include "../base/grow.h"
#include "../base/own_frame.h"
#include "parts.h"
#include "tournament.h"

typedef struct share { /* of one origin */
    cm_amount now;
    cm_snapshot run, step;
    uint64_t touched; /* number of the last step that changed it */
    uint32_t leaf;    /* in its device's tree */
    bool known;
} share;

typedef struct maximum {
    int64_t bytes;
    uint64_t time_ns, moment, blocks;
    int64_t step;
} maximum;

typedef struct list {
    uint32_t *origin;
    size_t count, capacity;
} list;

typedef struct device {
    int64_t start, allocated, freed, live;
    uint64_t allocations, frees, blocks;
    maximum run, step;
    int64_t step_start, step_allocated, step_freed;
    int64_t reserved; /* -1: unknown */
    uint64_t step_allocations;
    bool changed; /* in this step */
    list leaves;  /* leaf -> origin */
    list touched, touched_before;
    cm_tournament tree;
    cm_contributors contributors; /* of the requested step */
} device;

typedef struct peak {
    const cm_run *run;
    share *share;
    size_t share_capacity;
    device *device;
    size_t devices, device_capacity;
    int64_t step;         /* now; -1 before the first, steps->count in the tail */
    uint64_t step_number; /* counts every stretch, for share.touched */
    uint64_t step_begin_ns;
    cm_step_report *report;
    size_t reports, report_capacity, most_reports;
    cm_contributor *contributor;
    size_t contributors, contributor_capacity;
} peak;

static bool add_to_list(list *l, uint32_t origin)
{
    if (!cm_grow((void **)&l->origin, &l->capacity, l->count + 1, sizeof *l->origin))
        return false;
    l->origin[l->count++] = origin;
    return true;
}

/* A device's values before its first block do not depend on what made it known. */
static bool know_devices(peak *p)
{
    const cm_replay *replay = p->run->replay;
    if (!cm_grow((void **)&p->device, &p->device_capacity, replay->device_count, sizeof *p->device))
        return false;
    for (; p->devices < replay->device_count; p->devices++) {
        maximum never = {.moment = 1, .time_ns = p->run->begin_ns, .step = -1};
        maximum not_yet = {.moment = 1, .time_ns = p->step_begin_ns, .step = p->step};
        p->device[p->devices] = (device){.run = never, .step = not_yet, .reserved = -1};
    }
    return true;
}

/* The share of an origin that this step has not touched before. */
static CM_OWN_FRAME share *touch_first(peak *p, device *d, uint32_t origin)
{
    if (!cm_grow_zeroed((void **)&p->share, &p->share_capacity, (size_t)origin + 1,
                        sizeof *p->share))
        return NULL;
    share *s = &p->share[origin];
    if (!s->known) {
        s->leaf = (uint32_t)d->leaves.count;
        if (!add_to_list(&d->leaves, origin))
            return NULL;
        s->known = true;
    }
    s->touched = p->step_number;
    return add_to_list(&d->touched, origin) ? s : NULL;
}

static inline share *touch(peak *p, device *d, uint32_t origin)
{
    if (origin < p->share_capacity && p->share[origin].touched == p->step_number)
        return &p->share[origin];
    return touch_first(p, d, origin);
}

static void rise(maximum *m, int64_t bytes, uint64_t blocks, uint64_t time_ns, int64_t step)
{
    *m = (maximum){bytes, time_ns, m->moment + 1, blocks, step};
}

static cm_amount at_step_peak(const device *d, const share *s)
{
    return cm_snapshot_at(&s->step, d->step.moment, s->now);
}

static void begin_step(peak *p, device *d)
{
    d->step_start = d->live;
    d->step_allocated = d->step_freed = 0;
    d->step_allocations = 0;
    d->changed = false;
    rise(&d->step, d->live, d->blocks, p->step_begin_ns, p->step);
}

static bool change(void *part, const cm_change *c)
{
    peak *p = part;
    uint16_t number = c->block.device;
    if (number >= p->devices && !know_devices(p))
        return false;
    device *d = &p->device[number];
    share *s = touch(p, d, c->block.origin);
    if (s == NULL)
        return false;
    d->changed = true;
    cm_snapshot_save(&s->run, d->run.moment, s->now);
    cm_snapshot_save(&s->step, d->step.moment, s->now);
    s->now.bytes += c->bytes;
    d->live = c->live;
    d->blocks = c->blocks;
    if (c->bytes > 0) {
        s->now.count++;
        d->allocated += c->bytes;
        d->step_allocated += c->bytes;
        d->allocations += c->event;
        d->step_allocations += c->event;
        if (c->live > d->run.bytes)
            rise(&d->run, c->live, c->blocks, c->time_ns, p->step);
        if (c->live > d->step.bytes)
            rise(&d->step, c->live, c->blocks, c->time_ns, p->step);
    } else {
        s->now.count--;
        d->freed -= c->bytes;
        d->step_freed -= c->bytes;
        d->frees += c->event;
    }
    return true;
}

typedef struct beginning {
    cm_contributor is;
    uint32_t origin;
} beginning;

static int by_contributor(const void *left, const void *right)
{
    return cm_contributors_compare(&((const beginning *)left)->is, &((const beginning *)right)->is);
}

/* What is alive at the window's begin. Of equal ones the first touched are a step's largest, so
 * they come in an order of their own: numbers of origins depend on the windows read before. */
static bool begin_shares(peak *p)
{
    const cm_replay *replay = p->run->replay;
    cm_amounts alive = {0};
    beginning *all = calloc(replay->origin_count + 1, sizeof *all);
    size_t count = 0;
    bool fine = all != NULL && cm_amounts_add_live(&alive, replay, -1);
    for (uint32_t i = 0; fine && i < alive.capacity && i < replay->origin_count; i++)
        if (alive.of[i].count > 0)
            all[count++] = (beginning){cm_contributor_of(replay, i, alive.of[i]), i};
    if (p->run->steps->kind != 0)
        cm_sort(all, count, sizeof *all, by_contributor);
    for (size_t i = 0; fine && i < count; i++) {
        uint32_t origin = all[i].origin;
        share *s = touch(p, &p->device[replay->origin[origin].device], origin);
        fine = s != NULL;
        if (fine)
            s->now = alive.of[origin];
    }
    free(all);
    free(alive.of);
    return fine;
}

static void *create(const cm_run *run)
{
    peak *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->run = run;
    p->most_reports = CM_STEP_ROWS + cm_reader_bytes(run->replay->reader) / CM_BYTES_OF_STEP_ROW;
    p->step = -1;
    p->step_number = 1;
    p->step_begin_ns = run->begin_ns;
    if (!know_devices(p) || !begin_shares(p)) {
        cm_part_peak.destroy(p);
        return NULL;
    }
    for (size_t i = 0; i < p->devices; i++) {
        device *d = &p->device[i];
        d->live = d->start = run->replay->device[i].live;
        d->reserved = run->replay->device[i].reserved;
        d->blocks = run->replay->device[i].blocks;
        rise(&d->run, d->live, d->blocks, run->begin_ns, -1);
        begin_step(p, d);
    }
    return p;
}

/* The allocator's reserved bytes, and compacted blocks, which were at no peak. */
static bool event(void *part, const cm_record *record)
{
    peak *p = part;
    const cm_event *e = &record->event;
    int number = cm_replay_find_device(p->run->replay, e->device_type, e->device_index);
    if (number < 0)
        return true;
    if ((size_t)number >= p->devices && !know_devices(p))
        return false;
    device *d = &p->device[number];
    d->changed = true;
    if (e->kind == CM_EV_RESERVED) {
        if (e->size >= 0)
            d->reserved = e->size;
        return true;
    }
    d->allocated += e->size;
    d->freed += e->size;
    d->allocations += e->address;
    d->frees += e->address;
    d->step_allocated += e->size;
    d->step_freed += e->size;
    d->step_allocations += e->address;
    return true;
}

/* All contributors at the peak of the run, or of the step about to end. */
static bool all_contributors(peak *p, device *d, bool of_step)
{
    d->contributors.count = 0;
    for (size_t i = 0; i < d->leaves.count; i++) {
        const share *s = &p->share[d->leaves.origin[i]];
        cm_amount then =
            of_step ? at_step_peak(d, s) : cm_snapshot_at(&s->run, d->run.moment, s->now);
        if (then.bytes != 0 &&
            !cm_contributors_add(&d->contributors, p->run->replay, d->leaves.origin[i], then))
            return false;
    }
    cm_contributors_sort(d->contributors.contributor, d->contributors.count);
    return true;
}

/* Leaves hold each origin's bytes at this step's peak. An origin that the step did not touch still
 * has them, so only leaves set by the previous step can be stale. */
static bool set_tree(peak *p, device *d)
{
    if (!cm_tournament_reserve(&d->tree, d->leaves.count))
        return false;
    list *lists[] = {&d->touched_before, &d->touched};
    for (size_t l = 0; l < 2; l++)
        for (size_t i = 0; i < lists[l]->count; i++) {
            const share *s = &p->share[lists[l]->origin[i]];
            cm_tournament_set(&d->tree, s->leaf, at_step_peak(d, s).bytes);
        }
    list swap = d->touched_before;
    d->touched_before = d->touched;
    d->touched = swap;
    d->touched.count = 0;
    return true;
}

/* A few bytes can tick a step on 256 devices. Beyond the rows of any real trace, a device without
 * an event in the step has no row, except the first. */
static bool leave_out(const peak *p, uint32_t number)
{
    return !p->device[number].changed && number > 0 && p->reports >= p->most_reports;
}

static uint32_t loop_of(const cm_steps *steps, int64_t step)
{
    return step < (int64_t)steps->count ? steps->step[step].loop : steps->begun_loop;
}

static bool report_step(peak *p, uint32_t number, cm_moment end)
{
    device *d = &p->device[number];
    uint32_t leaf[CM_STEP_CONTRIBUTORS];
    if (leave_out(p, number))
        return true;
    if (!cm_grow((void **)&p->report, &p->report_capacity, p->reports + 1, sizeof *p->report) ||
        !cm_grow((void **)&p->contributor, &p->contributor_capacity,
                 p->contributors + CM_STEP_CONTRIBUTORS, sizeof *p->contributor))
        return false;
    cm_step_report *r = &p->report[p->reports++];
    *r = (cm_step_report){.index = (uint32_t)p->step,
                          .device = number,
                          .loop = loop_of(p->run->steps, p->step),
                          .incomplete = cm_steps_is_cut(p->run->steps, p->step),
                          .begin_ns = p->step_begin_ns,
                          .end_ns = end.time_ns,
                          .peak_ns = d->step.time_ns,
                          .start = d->step_start,
                          .peak = d->step.bytes,
                          .end = d->live,
                          .allocated = d->step_allocated,
                          .freed = d->step_freed,
                          .reserved = d->reserved,
                          .allocations = d->step_allocations,
                          .first_contributor = p->contributors,
                          .rest_bytes = d->step.bytes,
                          .rest_count = d->step.blocks};
    size_t found = cm_tournament_largest(&d->tree, CM_STEP_CONTRIBUTORS, leaf);
    for (size_t i = 0; i < found; i++) {
        uint32_t origin = d->leaves.origin[leaf[i]];
        cm_amount then = at_step_peak(d, &p->share[origin]);
        p->contributor[p->contributors++] = cm_contributor_of(p->run->replay, origin, then);
        r->rest_bytes -= then.bytes;
        r->rest_count -= then.count;
    }
    r->contributor_count = found;
    if (found > 0)
        cm_contributors_sort(p->contributor + r->first_contributor, found);
    return true;
}

static bool report_all(peak *p, int64_t step, cm_moment end)
{
    const cm_analysis_options *options = p->run->options;
    if (!know_devices(p))
        return false;
    for (uint32_t i = 0; i < p->devices; i++) {
        device *d = &p->device[i];
        if (!set_tree(p, d) || (step >= 0 && !report_step(p, i, end)))
            return false;
        if (options->of_step && step == options->step && !all_contributors(p, d, true))
            return false;
    }
    return true;
}

static bool end_step(void *part, int64_t step, cm_moment end)
{
    peak *p = part;
    if (!report_all(p, step, end))
        return false;
    p->step = step + 1;
    p->step_number++;
    p->step_begin_ns = end.time_ns;
    for (uint32_t i = 0; i < p->devices; i++)
        begin_step(p, &p->device[i]);
    return true;
}

static bool finish(void *part, cm_analysis *out)
{
    peak *p = part;
    const cm_steps *steps = p->run->steps;
    cm_moment end = {p->run->plan->end, p->run->plan->end_ns};
    if (!know_devices(p) || (steps->begun && !report_all(p, (int64_t)steps->count, end)))
        return false;
    for (size_t i = 0; i < p->devices; i++) {
        device *d = &p->device[i];
        cm_device_report *r = &out->device[i];
        if (!p->run->options->of_step && !all_contributors(p, d, false))
            return false;
        r->start = d->start;
        r->peak = d->run.bytes;
        r->peak_time_ns = d->run.time_ns;
        r->peak_step = cm_steps_number(p->run->steps, d->run.step);
        r->end = d->live;
        r->allocated = d->allocated;
        r->freed = d->freed;
        r->allocations = d->allocations;
        r->frees = d->frees;
        r->contributors = d->contributors.contributor;
        r->contributor_count = d->contributors.count;
        d->contributors.contributor = NULL;
        out->allocations += d->allocations;
    }
    out->step = p->report;
    out->step_count = p->reports;
    out->step_contributors = p->contributor;
    p->report = NULL;
    p->contributor = NULL;
    return true;
}

static void destroy(void *part)
{
    peak *p = part;
    for (size_t i = 0; i < p->devices; i++) {
        device *d = &p->device[i];
        free(d->leaves.origin);
        free(d->touched.origin);
        free(d->touched_before.origin);
        cm_tournament_clear(&d->tree);
        free(d->contributors.contributor);
    }
    free(p->device);
    free(p->share);
    free(p->report);
    free(p->contributor);
    free(p);
}

const cm_part_kind cm_part_peak = {.name = "peak",
                                   .create = create,
                                   .change = change,
                                   .event = event,
                                   .events = CM_PART_EVENT(CM_EV_COMPACTED_BLOCKS) |
                                             CM_PART_EVENT(CM_EV_RESERVED),
                                   .step = end_step,
                                   .finish = finish,
                                   .destroy = destroy};
