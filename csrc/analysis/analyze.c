#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fragmentation.h"
#include "../base/grow.h"
#include "../base/library.h"
#include "../base/idmap.h"
#include "../base/own_frame.h"
#include "ooms.h"
#include "parts.h"
#include "window_time.h"

/* All analyses. */
static const cm_part_kind *const kinds[] = {
    &cm_part_peak,          &cm_part_above,      &cm_part_timeline,  &cm_part_survivors,
    &cm_part_ooms,          &cm_part_leaks,      &cm_part_requested, &cm_part_segments,
    &cm_part_check,         &cm_part_host_reads, &cm_part_ledger,    &cm_part_device_curve,
    &cm_part_fragmentation, &cm_part_kernels,    &cm_part_tables,    &cm_part_charts,
    &cm_part_tensors,       &cm_part_holders,    &cm_part_garbage,   &cm_part_lives};
enum { PARTS = sizeof kinds / sizeof kinds[0], EVENT_KINDS = 64 };

/* The parts that need some callback. */
typedef struct listeners {
    struct listener {
        union {
            bool (*change)(void *part, const cm_change *change);
            bool (*event)(void *part, const cm_record *record);
        };
        void *part;
    } of[PARTS + 1]; /* behind the last one: no part */
    size_t count;
} listeners;

#define SCAN_SHARE 0.35 /* of the time, measured: the first reading only decodes */

typedef struct analyzer {
    cm_engine *engine;
    const cm_reader *reader;
    cm_analysis_options options;
    cm_window_options opened;
    cm_replay *replay;
    cm_plan *plan;
    cm_run run;
    void *part[PARTS];
    listeners of_changes, of_marked, of_event[EVENT_KINDS];
    bool started, fine;
    int64_t bounds;               /* step bounds passed: the first is the begin of step 0 */
    uint64_t bound;               /* position of the next one; UINT64_MAX: none */
    uint64_t due;                 /* ... of what is next: the window's begin, a bound, or its end */
    int64_t most[CM_DEVICES_MAX]; /* highest live bytes in the window so far */
    uint64_t events;
    cm_compacted compacted;
    cm_idmap thread; /* that allocated or freed */
    uint32_t last_thread;
    cm_backward_bytes backward;       /* before the window */
    uint64_t unknown_frees, replaced; /* ... these, too */
    cm_analysis *out;
    char *error;
    size_t error_size;
} analyzer;

static bool fail(analyzer *a, const char *message)
{
    snprintf(a->error, a->error_size, "%s", message);
    return false;
}

static bool no_memory(analyzer *a)
{
    return fail(a, "out of memory");
}

/* Most records concern few parts or none: only these are called. */
static void build_dispatch(analyzer *a)
{
    for (size_t i = 0; i < PARTS; i++) {
        listeners *all = kinds[i]->only_marked ? &a->of_marked : &a->of_changes;
        if (kinds[i]->change != NULL && (kinds[i]->listens == NULL || kinds[i]->listens(&a->run)))
            all->of[all->count++] =
                (struct listener){.change = kinds[i]->change, .part = a->part[i]};
        for (size_t kind = 0; kind < EVENT_KINDS; kind++)
            if (kinds[i]->events & CM_PART_EVENT(kind))
                a->of_event[kind].of[a->of_event[kind].count++] =
                    (struct listener){.event = kinds[i]->event, .part = a->part[i]};
    }
}

static cm_moment next_bound(const analyzer *a)
{
    const cm_steps *steps = &a->plan->steps;
    if (steps->kind == 0 || a->bounds > (int64_t)steps->count)
        return (cm_moment){.position = UINT64_MAX};
    return a->bounds ? steps->step[a->bounds - 1].end : steps->begin;
}

static bool start_parts(analyzer *a)
{
    a->started = true;
    a->backward = a->replay->backward;
    a->unknown_frees = a->replay->unknown_frees;
    a->replaced = a->replay->replaced;
    cm_nodes_begin_step(a->replay->nodes, a->replay->step);
    a->run =
        (cm_run){&a->options, a->replay, &a->plan->steps, a->plan->begin_ns, a->reader, a->plan};
    for (size_t i = 0; i < a->replay->device_count; i++)
        a->most[i] = a->replay->device[i].live;
    for (size_t i = 0; i < PARTS; i++) {
        a->part[i] = kinds[i]->create(&a->run);
        if (a->part[i] == NULL)
            return no_memory(a);
    }
    build_dispatch(a);
    a->bound = next_bound(a).position;
    return true;
}

/* Step bounds at or before this position. */
static bool pass_bounds(analyzer *a, uint64_t position)
{
    while (a->bound <= position) {
        cm_moment bound = next_bound(a);
        int64_t ended = a->bounds++ - 1;
        for (size_t i = 0; i < PARTS; i++)
            if (kinds[i]->step != NULL && !kinds[i]->step(a->part[i], ended, bound))
                return no_memory(a);
        a->replay->step = (int32_t)(ended + 1);
        cm_nodes_begin_step(a->replay->nodes, a->replay->step);
        a->bound = next_bound(a).position;
    }
    return true;
}

/* What is due before the record at this position. *over: the window is. */
static bool pass(analyzer *a, uint64_t position, bool *over)
{
    if (position == a->plan->begin && !start_parts(a))
        return false;
    if (a->started && !pass_bounds(a, position))
        return false;
    *over = position >= a->plan->end;
    a->due = a->started ? a->bound : a->plan->begin;
    if (a->due > a->plan->end)
        a->due = a->plan->end;
    return true;
}

static CM_OWN_FRAME bool see_other_thread(analyzer *a, uint32_t thread)
{
    a->last_thread = thread;
    return cm_idmap_put(&a->thread, thread, 0) || no_memory(a);
}

static inline bool see_thread(analyzer *a, uint32_t thread)
{
    return (thread == a->last_thread && a->thread.count > 0) || see_other_thread(a, thread);
}

static void count_compacted(analyzer *a, const cm_event *e)
{
    int64_t last = (int64_t)a->plan->steps.count - 1, step = a->replay->step;
    if (step > last)
        step = last; /* the tail is in no step */
    if (a->compacted.events == 0)
        a->compacted.from_step = step;
    a->compacted.to_step = step;
    a->compacted.events += e->address;
    a->events += e->address;
}

static inline bool notify_all(const listeners *all, const cm_change *change)
{
    for (const struct listener *l = all->of; l->part != NULL; l++)
        if (!l->change(l->part, change))
            return false;
    return true;
}

static CM_OWN_FRAME bool notify_of_changes(analyzer *a, cm_change *change, int changes)
{
    for (cm_change *c = change; c < change + changes; c++) {
        int64_t *most = &a->most[c->block.device];
        c->highest = c->bytes > 0 && c->live > *most;
        if (c->highest)
            *most = c->live;
        if (!notify_all(&a->of_changes, c) ||
            ((c->highest || c->label != NULL) && !notify_all(&a->of_marked, c)))
            return no_memory(a);
    }
    return true;
}

static bool notify_of_event(analyzer *a, const cm_record *record)
{
    if (record->event.kind >= EVENT_KINDS)
        return true;
    for (const struct listener *l = a->of_event[record->event.kind].of; l->part != NULL; l++)
        if (!l->event(l->part, record))
            return no_memory(a);
    return true;
}

/* Records other than of the program's tensors. */
static CM_OWN_FRAME bool notify_parts(analyzer *a, const cm_record *record, cm_change *change,
                                      int changes)
{
    const cm_event *e = &record->event;
    bool freed = e->kind == CM_EV_SEGMENT_FREE && changes > 0;
    bool work = e->kind == CM_EV_LAUNCH || e->kind == CM_EV_WORK;
    bool summed = work && e->flags & CM_EVF_SUMMED;
    bool compacted = e->kind == CM_EV_COMPACTED_BLOCKS;
    if (e->kind == CM_EV_COMPACTED)
        count_compacted(a, e);
    else if (!compacted && !summed && e->kind != CM_EV_COMPACTED_DRIVER)
        a->events++;
    if ((freed || compacted) && !see_thread(a, record->thread))
        return false;
    return (changes == 0 || notify_of_changes(a, change, changes)) &&
           (freed || notify_of_event(a, record));
}

static inline bool notify(analyzer *a, const cm_record *record, cm_change *change, int changes)
{
    uint8_t kind = record->event.kind;
    if (kind != CM_EV_ALLOC && kind != CM_EV_FREE)
        return notify_parts(a, record, change, changes);
    a->events++;
    return see_thread(a, record->thread) && notify_of_changes(a, change, changes);
}

static bool replay_all(analyzer *a)
{
    const cm_record *record;
    cm_change change[2];
    bool over = false;
    a->due = a->replay->position;
    for (uint64_t position = a->due;; position++) {
        if (position == a->due && !pass(a, position, &over))
            return false;
        if (over)
            return true;
        record = cm_engine_next(a->engine, a->error, a->error_size);
        if (record == NULL)
            return false;
        int changes =
            cm_engine_apply(a->engine, a->replay, record, change, a->error, a->error_size);
        if (changes < 0 || (a->started && !notify(a, record, change, changes)))
            return false;
        if (cm_scan_asks(&a->opened, position) && cm_engine_reads(a->engine) &&
            !a->opened.progress(SCAN_SHARE + (1 - SCAN_SHARE) * cm_engine_progress(a->engine),
                                a->opened.progress_context))
            return fail(a, "");
    }
}

/* The clock's lines outlive the attribution that numbered them. */
static bool keep_lines(analyzer *a)
{
    uint32_t highest = a->plan->steps.line;
    for (size_t i = 0; i < a->plan->steps.loop_count; i++)
        if (a->plan->steps.loop[i].line > highest)
            highest = a->plan->steps.loop[i].line;
    for (size_t i = 0; i < a->plan->steps.change_count; i++)
        if (a->plan->steps.change[i].line > highest)
            highest = a->plan->steps.change[i].line;
    uint32_t others[] = {a->plan->steps.passed_line, a->plan->steps.updates_line};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i] > highest)
            highest = others[i];
    a->out->line_stack = calloc((size_t)highest + 1, sizeof *a->out->line_stack);
    if (a->out->line_stack == NULL)
        return no_memory(a);
    a->out->line_count = (size_t)highest + 1;
    for (uint32_t line = 0; line <= highest; line++)
        a->out->line_stack[line] = cm_attribution_line_stack(a->replay->attribution, line);
    return true;
}

static bool finish(analyzer *a)
{
    cm_analysis *out = a->out;
    const cm_replay *replay = a->replay;
    if (!cm_attribution_ok(replay->attribution))
        return no_memory(a);
    out->device = calloc(replay->device_count + 1, sizeof *out->device);
    if (out->device == NULL)
        return no_memory(a);
    out->device_count = replay->device_count;
    for (size_t i = 0; i < replay->device_count; i++)
        snprintf(out->device[i].name, sizeof out->device[i].name, "%s", replay->device[i].name);
    out->lost_events = a->plan->lost_events;
    out->lost_stacks = a->plan->lost_stacks;
    out->unknown_frees = replay->unknown_frees - a->unknown_frees;
    out->replaced = replay->replaced - a->replaced;
    out->seeds_skipped = a->plan->seeds_skipped;
    for (size_t i = 0; i < PARTS; i++)
        if (!kinds[i]->finish(a->part[i], out))
            return no_memory(a);

    out->state = a->plan->state;
    snprintf(out->reason, sizeof out->reason, "%s", a->plan->reason);
    out->start_realtime_ns = cm_reader_start_realtime_ns(a->reader);
    out->begin_ns = a->plan->begin_ns;
    out->end_ns = a->plan->end_ns;
    out->duration_ns = a->plan->end_ns - a->plan->begin_ns;
    out->step_asked = a->options.of_step ? a->options.step : -1;
    out->events = a->events;
    out->compacted = a->compacted;
    out->threads = a->thread.count;
    out->backward = replay->backward;
    out->backward.bytes -= a->backward.bytes;
    out->backward.resolved -= a->backward.resolved;
    out->backward.accumulation -= a->backward.accumulation;
    out->backward.unresolved -= a->backward.unresolved;
    if (!keep_lines(a))
        return false;
    out->steps = a->plan->steps;
    a->plan->steps = (cm_steps){0};
    cm_window_time_rebase(out);
    return true;
}

#define LOOPS_NAMED 3

/* "it has steps 0 to 39 (training, evaluation)" */
static void say_steps(const cm_steps *steps, char *text, size_t size)
{
    size_t named = steps->loop_count > LOOPS_NAMED + 1 ? LOOPS_NAMED : steps->loop_count;
    int used;
    if (steps->count < 2)
        used = snprintf(text, size, "%s", steps->count ? "it has step 0 alone" : "it has no steps");
    else
        used = snprintf(text, size, "it has steps 0 to %zu", steps->count - 1);
    for (size_t i = 0; i < named && used >= 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%s", i ? ", " : " (",
                         steps->loop[i].name);
    if (named == 0 || used < 0 || (size_t)used >= size)
        return;
    if (named < steps->loop_count)
        snprintf(text + used, size - (size_t)used, " and %zu more loops)",
                 steps->loop_count - named);
    else
        snprintf(text + used, size - (size_t)used, ")");
}

/* The requested step, from 0. */
static bool find_step(analyzer *a)
{
    int64_t asked = a->options.step, count = (int64_t)a->plan->steps.count;
    a->options.step = asked < 0 && asked >= -count ? count + asked : asked;
    if (a->options.step >= 0 && a->options.step < count + a->plan->steps.begun)
        return true;
    char there[192];
    say_steps(&a->plan->steps, there, sizeof there);
    snprintf(a->error, a->error_size, "the trace has no step %" PRId64 ": %s", asked, there);
    return false;
}

/* The window's state afterwards, for the engine. */
static cm_engine_left analyze(analyzer *a)
{
    if (a->options.of_step && !find_step(a))
        return CM_ENGINE_STAYED;
    if (a->plan->steps.count > INT32_MAX) {
        fail(a, "the trace has too many steps");
        return CM_ENGINE_STAYED;
    }
    a->fine = replay_all(a) && finish(a);
    return a->fine ? CM_ENGINE_GONE_ON : CM_ENGINE_BROKEN;
}

cm_analysis *cm_engine_analyze(cm_engine *engine, const cm_analysis_options *options, char *error,
                               size_t error_size)
{
    analyzer a = {.engine = engine,
                  .reader = cm_engine_reader(engine),
                  .options = *options,
                  .opened = cm_analysis_window(options),
                  .error = error,
                  .error_size = error_size};
    /* The trace's list is in the chunk after the header, so it was read already. */
    const char *code =
        options->code != NULL ? options->code : cm_library_names(cm_reader_meta(a.reader, "code"));
    a.out = calloc(1, sizeof *a.out);
    if (a.out == NULL || (a.out->code = strdup(code)) == NULL) {
        cm_analysis_free(a.out);
        no_memory(&a);
        return NULL;
    }
    cm_window window;
    if (cm_engine_open(engine, &a.opened, a.out->code, SCAN_SHARE, &window, error, error_size)) {
        a.replay = window.replay;
        a.plan = window.plan;
        cm_engine_left left = analyze(&a);
        for (size_t i = 0; i < PARTS; i++)
            if (a.part[i] != NULL)
                kinds[i]->destroy(a.part[i]);
        cm_engine_close(engine, left);
    }
    cm_idmap_clear(&a.thread);
    if (a.fine)
        return a.out;
    cm_analysis_free(a.out);
    return NULL;
}

cm_analysis *cm_analyze(cm_reader *reader, const cm_analysis_options *options, char *error,
                        size_t error_size)
{
    cm_engine *engine = cm_engine_new(reader);
    cm_analysis *analysis = NULL;
    if (engine == NULL)
        snprintf(error, error_size, "out of memory");
    else
        analysis = cm_engine_analyze(engine, options, error, error_size);
    cm_engine_free(engine);
    return analysis;
}

static void free_driver(cm_analysis *analysis)
{
    for (size_t i = 0; i < analysis->driver.device_count; i++)
        free(analysis->driver.device[i].line);
    free(analysis->driver.device);
    free(analysis->driver.host.line);
    for (size_t i = 0; i < analysis->ledger_count; i++)
        free(analysis->ledgers[i].line);
    free(analysis->ledgers);
    for (size_t i = 0; i < analysis->curve_count; i++)
        free(analysis->curves[i].point);
    free(analysis->curves);
    for (size_t i = 0; i < analysis->fragmentation_count; i++) {
        cm_fragmentation_clear(&analysis->fragmentation[i]);
    }
    free(analysis->fragmentation);
    free(analysis->kernels.name);
    free(analysis->kernels.early);
    free(analysis->kernels.late);
    free(analysis->kernels.deferred_frees);
}

void cm_analysis_free(cm_analysis *analysis)
{
    if (analysis == NULL)
        return;
    for (size_t i = 0; i < analysis->device_count; i++) {
        free(analysis->device[i].contributors);
        free(analysis->device[i].garbage.contributors);
        free(analysis->device[i].garbage.freed_contributors);
        free(analysis->device[i].timeline);
        cm_ooms_free(analysis->device[i].ooms, analysis->device[i].oom_count);
        free(analysis->device[i].tensors);
        for (size_t t = 0; t < CM_TABLES; t++)
            free(analysis->device[i].table[t].contributors);
    }
    free(analysis->device);
    free(analysis->code);
    free(analysis->rss);
    free(analysis->rest);
    free(analysis->step);
    free(analysis->step_contributors);
    cm_steps_free(&analysis->steps);
    free(analysis->line_stack);
    free(analysis->survivors);
    free(analysis->survivors_end);
    free(analysis->kept_blocks);
    free(analysis->host_reads);
    free(analysis->leaks);
    free(analysis->suspects);
    free(analysis->kept);
    free(analysis->leak_parts);
    free(analysis->holders);
    free(analysis->held_lines);
    free(analysis->alive_holders);
    for (size_t i = 0; i < analysis->chart_count; i++) {
        free(analysis->charts[i].interval);
        free(analysis->charts[i].contributor);
        free(analysis->charts[i].entry);
        free(analysis->charts[i].block);
    }
    free(analysis->charts);
    for (size_t i = 0; i < analysis->lives_count; i++) {
        free(analysis->lives[i].life);
        free(analysis->lives[i].contributor);
        free(analysis->lives[i].step);
    }
    free(analysis->lives);
    free_driver(analysis);
    free(analysis);
}
