#include "follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "../base/library.h"
#include "../heap/scan.h"

enum {
    FEW = 16,
    CHOOSE_EVERY = CM_FOLLOW_CHANGES / 2
}; /* FEW: steps whose clock may still change, so that all of their changes are kept */

/* The live bytes of a device from one record to the next one. */
typedef struct move {
    uint64_t position;
    int64_t most, last;
} move;

typedef struct history {
    move *move;
    size_t count, capacity;
    int64_t before;  /* live before the first one */
    uint64_t known;  /* position from which it is whole */
    int64_t highest; /* of the whole trace */
    bool begun;
} history;

/* A step clock, and the number of its first step. */
typedef struct watch {
    cm_scan *scan; /* NULL: none */
    int64_t first;
    uint64_t begin; /* position */
} watch;

struct cm_follow {
    char *path, *code_given, *code;
    cm_reader *reader;
    cm_replay *replay;
    cm_seeds seeds;
    cm_window_options window;
    cm_scanned scanned;
    watch now, next; /* next: takes over once it has seen enough steps */
    cm_amounts live;
    history *of; /* by device */
    size_t histories;
    cm_follow_step *step;
    size_t step_count, step_capacity;
    cm_follow_totals totals;
    uint64_t ticked; /* records up to the last tick */
    uint64_t chosen; /* records that steps were chosen for */
    bool open;       /* the last of these steps went on then */
    bool at_end, walk_ended;
};

static bool fail(char *error, size_t error_size, const char *message)
{
    snprintf(error, error_size, "%s", message);
    return false;
}

/* --- opening -------------------------------------------------------------------------------- */

static void forget(cm_follow *f)
{
    cm_scan_free(f->now.scan);
    cm_scan_free(f->next.scan);
    cm_replay_free(f->replay);
    cm_reader_close(f->reader);
    cm_seeds_free(&f->seeds);
    for (size_t i = 0; i < f->histories; i++)
        free(f->of[i].move);
    free(f->of);
    free(f->live.of);
    free(f->step);
    free(f->code);
    *f = (cm_follow){.path = f->path, .code_given = f->code_given, .totals = {.resident = -1}};
}

static history *history_of(cm_follow *f, uint16_t device, int64_t before)
{
    if (!cm_grow_zeroed((void **)&f->of, &f->histories, (size_t)device + 1, sizeof *f->of))
        return NULL;
    history *h = &f->of[device];
    if (!h->begun)
        *h = (history){.before = before, .highest = before, .begun = true};
    return h;
}

static bool see_seeds(cm_follow *f)
{
    if (!cm_amounts_add_live(&f->live, f->replay, -1))
        return false;
    for (size_t i = 0; i < f->replay->device_count; i++)
        if (history_of(f, (uint16_t)i, f->replay->device[i].live) == NULL)
            return false;
    return true;
}

static bool begin(cm_follow *f, char *error, size_t error_size)
{
    forget(f);
    f->reader = cm_reader_open(f->path, error, error_size);
    if (f->reader == NULL)
        return false;
    const char *code =
        f->code_given != NULL ? f->code_given : cm_library_names(cm_reader_meta(f->reader, "code"));
    if (!cm_scan_seeds(f->reader, &f->window, &f->seeds, error, error_size))
        return false;
    f->code = strdup(code);
    f->replay = f->code == NULL ? NULL : cm_replay_new(f->reader, f->code);
    if (f->replay == NULL)
        return fail(error, error_size, "out of memory");
    f->replay->only_labels = true;
    if (!cm_replay_seed(f->replay, f->seeds.seed, f->seeds.count))
        return fail(error, error_size, f->replay->error);
    f->now.scan = cm_scan_begin(f->reader, &f->scanned, 0, f->replay, &f->window);
    if (f->now.scan == NULL || !see_seeds(f))
        return fail(error, error_size, "out of memory");
    return true;
}

cm_follow *cm_follow_open(const char *path, const char *code, char *error, size_t error_size)
{
    cm_follow *f = calloc(1, sizeof *f);
    if (f != NULL) {
        f->path = strdup(path);
        f->code_given = code == NULL ? NULL : strdup(code);
    }
    bool fine = f != NULL && f->path != NULL && (code == NULL || f->code_given != NULL);
    if (!fine)
        fail(error, error_size, "out of memory");
    if (fine && begin(f, error, error_size))
        return f;
    cm_follow_close(f);
    return NULL;
}

void cm_follow_close(cm_follow *f)
{
    if (f == NULL)
        return;
    forget(f);
    free(f->path);
    free(f->code_given);
    free(f);
}

/* --- the history of live bytes -------------------------------------------------------------- */

/* Joins changes two by two. */
static void halve(history *h)
{
    size_t count = 0;
    for (size_t i = 0; i < h->count; i += 2) {
        move joined = h->move[i];
        if (i + 1 < h->count) {
            joined.last = h->move[i + 1].last;
            if (h->move[i + 1].most > joined.most)
                joined.most = h->move[i + 1].most;
        }
        h->move[count++] = joined;
    }
    h->count = count;
}

static bool see_live(cm_follow *f, uint64_t position, const cm_change *change)
{
    history *h = history_of(f, change->block.device, change->live - change->bytes);
    if (h == NULL)
        return false;
    if (change->live > h->highest)
        h->highest = change->live;
    move *last = h->count > 0 ? &h->move[h->count - 1] : NULL;
    if (last != NULL && last->position == position) { /* it replaced a block */
        last->last = change->live;
        if (change->live > last->most)
            last->most = change->live;
        return true;
    }
    if (h->count == CM_FOLLOW_CHANGES)
        halve(h);
    if (!cm_grow((void **)&h->move, &h->capacity, h->count + 1, sizeof *h->move))
        return false;
    h->move[h->count++] = (move){position, change->live, change->live};
    return true;
}

/* The first change at or after the position. */
static size_t first_from(const history *h, uint64_t position)
{
    size_t low = 0, high = h->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (h->move[middle].position < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void find_peak(const history *h, cm_follow_step *step)
{
    size_t i = first_from(h, step->begin.position);
    step->left = i > 0 ? h->move[i - 1].last : h->before;
    step->peak = step->left;
    for (; i < h->count && h->move[i].position < step->end.position; i++) {
        step->left = h->move[i].last;
        if (h->move[i].most > step->peak)
            step->peak = h->move[i].most;
    }
}

static void forget_before(history *h, uint64_t position)
{
    size_t gone = first_from(h, position);
    if (position > h->known)
        h->known = position;
    if (gone == 0)
        return;
    h->before = h->move[gone - 1].last;
    h->count -= gone;
    memmove(h->move, h->move + gone, h->count * sizeof *h->move);
}

/* --- steps ---------------------------------------------------------------------------------- */

static bool is_same(const cm_follow_step *a, const cm_follow_step *b)
{
    return a->device == b->device && a->begin.position == b->begin.position &&
           a->end.position == b->end.position;
}

/* Adds the row of a step: as it was known, or from the history. `at` moves on through the known
 * rows. */
static bool add_step(cm_follow *f, const cm_follow_step *known, size_t known_count, size_t *at,
                     cm_follow_step step)
{
    const history *h = &f->of[step.device];
    size_t i = *at;
    while (i < known_count && known[i].end.position < step.end.position)
        i++;
    *at = i;
    while (i < known_count && known[i].end.position == step.end.position &&
           !is_same(&known[i], &step))
        i++;
    if (i < known_count && is_same(&known[i], &step)) {
        step.peak = known[i].peak;
        step.left = known[i].left;
    } else if (step.begin.position < h->known) {
        return true;
    } else {
        find_peak(h, &step);
    }
    if (!cm_grow((void **)&f->step, &f->step_capacity, f->step_count + 1, sizeof *f->step))
        return false;
    f->step[f->step_count++] = step;
    return true;
}

static bool is_over(const cm_follow *f)
{
    return f->at_end && cm_reader_get_state(f->reader) != CM_TRACE_RECORDING;
}

/* A step that only the end of what was read ends goes on, unless its last record is the tick. */
static size_t count_ended(const cm_follow *f, const cm_steps *steps)
{
    size_t count = steps->kind == 0 ? 0 : steps->count;
    if (count == 0 || is_over(f) || steps->step[count - 1].end.position < f->scanned.position)
        return count;
    uint32_t kind = steps->loop[steps->step[count - 1].loop].kind;
    return kind == CM_TICK_DATA || kind == CM_TICK_MODULE ? count - 1 : count;
}

static cm_moment begin_of(const cm_steps *steps, size_t i)
{
    return i == 0 ? steps->begin : steps->step[i - 1].end;
}

static bool take_steps(cm_follow *f, const cm_steps *steps)
{
    cm_follow_step *known = f->step;
    size_t known_count = f->step_count, at = 0, count = count_ended(f, steps);
    size_t from = count > CM_FOLLOW_STEPS ? count - CM_FOLLOW_STEPS : 0;
    bool fine = true;
    f->open = count < steps->count;
    f->step = NULL;
    f->step_count = f->step_capacity = 0;
    /* Rows of steps that this clock did not see. */
    int64_t least = f->now.first + (int64_t)count - CM_FOLLOW_STEPS;
    for (size_t i = 0; fine && f->now.first > 0 && i < known_count; i++)
        if (known[i].number >= least && known[i].number < f->now.first) {
            fine =
                cm_grow((void **)&f->step, &f->step_capacity, f->step_count + 1, sizeof *f->step);
            if (fine)
                f->step[f->step_count++] = known[i];
        }
    for (size_t i = from; fine && i < count; i++) {
        cm_follow_step step = {.number = f->now.first + (int64_t)i,
                               .begin = begin_of(steps, i),
                               .end = steps->step[i].end};
        snprintf(step.loop, sizeof step.loop, "%s", steps->loop[steps->step[i].loop].name);
        for (size_t d = 0; fine && d < f->histories; d++)
            if (f->of[d].begun) {
                step.device = (uint16_t)d;
                fine = add_step(f, known, known_count, &at, step);
            }
    }
    free(known);
    f->totals.steps = f->now.first + (int64_t)count;
    f->totals.step_kind = steps->kind;
    if (count > FEW) /* the last one's end may still move */
        for (size_t d = 0; d < f->histories; d++)
            forget_before(&f->of[d], begin_of(steps, count - 1).position);
    return fine;
}

static size_t steps_from(const cm_steps *steps, uint64_t position)
{
    size_t count = 0;
    while (count < steps->count && begin_of(steps, steps->count - 1 - count).position >= position)
        count++;
    return count;
}

/* The clock that began later takes over: its step that ends with the last one has that number. */
static bool take_over(cm_follow *f, const cm_steps *steps)
{
    cm_steps later;
    if (!cm_scan_steps(f->next.scan, &later))
        return false;
    uint64_t end = steps->step[steps->count - 1].end.position;
    size_t ended = 0;
    while (ended < later.count && later.step[ended].end.position <= end)
        ended++;
    cm_steps_free(&later);
    f->next.first = f->now.first + (int64_t)steps->count - (int64_t)ended;
    cm_scan_free(f->now.scan);
    f->now = f->next;
    f->next = (watch){0};
    return true;
}

static bool choose(cm_follow *f)
{
    cm_steps steps;
    if (f->ticked <= f->chosen && !(f->open && (f->scanned.position > f->chosen || is_over(f))))
        return true;
    f->chosen = f->scanned.position;
    if (!cm_scan_steps(f->now.scan, &steps))
        return false;
    bool fine = take_steps(f, &steps);
    if (fine && f->next.scan == NULL && steps.count >= 2 * CM_FOLLOW_KEPT) {
        f->next.begin = f->scanned.position;
        f->next.scan =
            cm_scan_begin(f->reader, &f->scanned, f->scanned.newest_ns, f->replay, &f->window);
        fine = f->next.scan != NULL;
    } else if (fine && f->next.scan != NULL &&
               steps_from(&steps, f->next.begin) >= CM_FOLLOW_KEPT) {
        fine = take_over(f, &steps);
    }
    cm_steps_free(&steps);
    return fine;
}

/* --- records -------------------------------------------------------------------------------- */

static bool relabel(cm_follow *f)
{
    const cm_block *block = f->replay->relabelled;
    return block == NULL || (cm_amounts_add(&f->live, f->replay->relabelled_from,
                                            (cm_amount){-block->size, UINT64_MAX}) &&
                             cm_amounts_add(&f->live, block->origin, (cm_amount){block->size, 1}));
}

static bool see_record(cm_follow *f, const cm_record *record, char *error, size_t error_size)
{
    const cm_event *e = &record->event;
    uint64_t position = f->scanned.position;
    cm_change change[2];
    bool fine = cm_scan_apply(f->now.scan, record) &&
                (f->next.scan == NULL || cm_scan_apply(f->next.scan, record));
    cm_scan_pass(&f->scanned, record);
    int changes = fine ? cm_replay_apply(f->replay, record, change) : 0;
    if (changes < 0)
        return fail(error, error_size, f->replay->error);
    for (int i = 0; fine && i < changes; i++)
        fine = see_live(f, position, &change[i]) &&
               cm_amounts_add(&f->live, change[i].block.origin,
                              (cm_amount){change[i].bytes, change[i].bytes > 0 ? 1 : UINT64_MAX});
    if (e->kind != CM_EV_SAMPLE && e->kind != CM_EV_DEVICE && record->time_ns > f->totals.newest_ns)
        f->totals.newest_ns = record->time_ns;
    switch (e->kind) {
    case CM_EV_LABEL:
        fine = fine && relabel(f);
        break;
    case CM_EV_TICK:
        f->ticked = f->scanned.position;
        break;
    case CM_EV_OOM:
        f->totals.refused++;
        break;
    case CM_EV_SAMPLE:
        if (e->address == CM_SAMPLE_RSS)
            f->totals.resident = e->size;
        break;
    case CM_EV_MARK: /* what the walk found was alive from the start */
        f->walk_ended |= e->size == CM_MARK_SEEDED && !(e->flags & CM_EVF_BEFORE_START);
        break;
    default:
        break;
    }
    return fine || fail(error, error_size, "out of memory");
}

/* Whether the file is still the one that was read so far. */
static bool goes_on(cm_follow *f)
{
    if (!cm_reader_reopen(f->reader) || (f->at_end && !cm_reader_go_on(f->reader)))
        return false;
    f->at_end = false;
    return f->seeds.whole || !f->walk_ended;
}

cm_follow_got cm_follow_read(cm_follow *f, size_t most, size_t *count, char *error,
                             size_t error_size)
{
    cm_record record;
    int got = 1;
    *count = 0;
    if (!goes_on(f))
        return begin(f, error, error_size) ? CM_FOLLOW_AGAIN : CM_FOLLOW_FAILED;
    while (*count < most && (got = cm_reader_next(f->reader, &record)) == 1) {
        if (!see_record(f, &record, error, error_size))
            return CM_FOLLOW_FAILED;
        ++*count;
        if (f->scanned.position % CHOOSE_EVERY == 0 && !choose(f)) {
            fail(error, error_size, "out of memory");
            return CM_FOLLOW_FAILED;
        }
    }
    if (got < 0) {
        fail(error, error_size, cm_reader_error(f->reader));
        return CM_FOLLOW_FAILED;
    }
    f->at_end = got == 0;
    f->totals.records = f->scanned.position;
    if (f->at_end && !choose(f)) {
        fail(error, error_size, "out of memory");
        return CM_FOLLOW_FAILED;
    }
    cm_reader_close_file(f->reader);
    return f->at_end ? CM_FOLLOW_AT_END : CM_FOLLOW_MORE;
}

/* --- results -------------------------------------------------------------------------------- */

const cm_reader *cm_follow_reader(const cm_follow *f)
{
    return f->reader;
}

const cm_replay *cm_follow_replay(const cm_follow *f)
{
    return f->replay;
}

const cm_amounts *cm_follow_live(const cm_follow *f)
{
    return &f->live;
}

int64_t cm_follow_peak(const cm_follow *f, uint16_t device)
{
    return device < f->histories ? f->of[device].highest : 0;
}

cm_follow_totals cm_follow_totals_of(const cm_follow *f)
{
    return f->totals;
}

const cm_follow_step *cm_follow_steps(const cm_follow *f, size_t *count)
{
    *count = f->step_count;
    return f->step;
}
