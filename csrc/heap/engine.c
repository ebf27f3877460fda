#include "engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fates.h"
#include "../base/grow.h"
#include "../base/idmap.h"
#include "../base/own_frame.h"

enum {
    KEPT_RECORDS = 1 << 16, /* of a window: later records are read from the file twice. More than a
                               batch, so that the seek costs less than it saves */
    SAVED_MAX = 16,
    INNER_MAX = 16 /* windows that open within one */
};

/* The newest object made at each address. */
typedef struct objects {
    cm_idmap at;
    cm_event *event;
    size_t count, capacity;
} objects;

/* The state at some record of the trace. */
typedef struct point {
    uint64_t window, opened_ns; /* that opened with the last record; 0: none */
    cm_replay *replay;          /* NULL: no point */
    cm_scanned scanned;
    objects objects;
    cm_reader_place place;
    bool over;   /* the window was closed when it was read */
    bool closed; /* its end is after it and before the base */
} point;

typedef struct inner {
    uint64_t window, position, opened_ns;
    cm_scanned scanned;
    cm_reader_place place;
} inner;

struct cm_engine {
    cm_decoded *at; /* the records at hand: see cm_engine_next */
    cm_reader *reader;
    cm_seeds seeds;
    bool seeded, at_base; /* the reader stands at the base */
    point base;           /* the end of what was read */
    point saved[SAVED_MAX];
    size_t saves;
    cm_idmap passed;         /* windows that open before the base */
    cm_decode_thread *ahead; /* NULL: records are decoded when they are needed, into: */
    cm_record decoded;
    cm_decoded none;

    /* The open window. */
    cm_plan plan;
    cm_fates *fates; /* while its records are applied */
    cm_scanned end;  /* after it */
    cm_record *record;
    size_t records, record_capacity;
    cm_decoded repeated;  /* the kept records, for the second reading */
    cm_reader_place rest; /* of the first record that is not kept */
    bool kept, at_rest;   /* all of its records are kept */
    uint64_t kept_of;     /* window of the kept records, 0 none; the reader is after the last one */
    inner inner[INNER_MAX];
    size_t inners, inner_next;
};

_Static_assert(offsetof(struct cm_engine, at) == 0, "cm_engine_next finds it there");

static bool fail(char *error, size_t error_size, const char *message)
{
    snprintf(error, error_size, "%s", message);
    return false;
}

/* --- points --------------------------------------------------------------------------------- */

static void clear_point(point *p)
{
    cm_replay_free(p->replay);
    cm_idmap_clear(&p->objects.at);
    free(p->objects.event);
    *p = (point){0};
}

static bool copy_point(point *copy, const point *p)
{
    *copy = *p;
    copy->objects = (objects){.count = p->objects.count, .capacity = p->objects.count};
    copy->replay = cm_replay_copy(p->replay);
    if (copy->replay != NULL && cm_idmap_copy(&copy->objects.at, &p->objects.at) &&
        cm_copy((void **)&copy->objects.event, p->objects.event, p->objects.count,
                sizeof *p->objects.event))
        return true;
    clear_point(copy);
    return false;
}

static bool see_object(objects *all, const cm_event *e)
{
    uint32_t at;
    uint64_t key = e->address & (UINT64_MAX >> 1);
    if (e->kind != CM_EV_OBJECT_NEW)
        return true;
    if (!cm_idmap_get(&all->at, key, &at)) {
        at = (uint32_t)all->count;
        if (!cm_grow((void **)&all->event, &all->capacity, all->count + 1, sizeof *all->event) ||
            !cm_idmap_put(&all->at, key, at))
            return false;
        all->count++;
    }
    all->event[at] = *e;
    return true;
}

static point *find_saved(cm_engine *g, uint64_t window)
{
    for (size_t i = 0; i < g->saves; i++)
        if (g->saved[i].window == window)
            return &g->saved[i];
    return NULL;
}

static void drop_saved(cm_engine *g, size_t i)
{
    clear_point(&g->saved[i]);
    memmove(&g->saved[i], &g->saved[i + 1], (--g->saves - i) * sizeof g->saved[i]);
    g->saved[g->saves] = (point){0};
}

/* Prefers closed windows: the ones around them are opened when they close. */
static size_t oldest(const cm_engine *g)
{
    for (size_t i = 0; i < g->saves; i++)
        if (g->saved[i].closed)
            return i;
    return 0;
}

static void see_closing(cm_engine *g, const cm_event *e)
{
    point *p;
    if (e->kind == CM_EV_MARK && e->size == CM_MARK_WINDOW_CLOSE &&
        (p = find_saved(g, e->address)) != NULL)
        p->closed = true;
}

/* Saves the base as the opening of a window. */
static bool save(cm_engine *g, uint64_t window, uint64_t opened_ns, const cm_reader_place *place)
{
    if (find_saved(g, window) != NULL)
        return true;
    if (g->saves == SAVED_MAX)
        drop_saved(g, oldest(g));
    point *p = &g->saved[g->saves];
    if (!copy_point(p, &g->base))
        return false;
    p->window = window;
    p->opened_ns = opened_ns;
    p->place = *place;
    p->over = window == g->base.window && g->plan.closed;
    g->saves++;
    return true;
}

/* Of windows that are over, only the last may be opened again. */
static void drop_over(cm_engine *g)
{
    for (size_t i = g->saves; i-- > 0;)
        if (g->saved[i].over)
            drop_saved(g, i);
}

static void forget_fates(cm_engine *g)
{
    cm_fates_free(g->fates);
    g->fates = NULL;
    if (g->base.replay != NULL)
        g->base.replay->fates = NULL;
}

/* Forgets all that was read. */
static void forget(cm_engine *g)
{
    clear_point(&g->base);
    while (g->saves > 0)
        drop_saved(g, g->saves - 1);
    cm_idmap_clear(&g->passed);
    g->at_base = false;
    g->kept_of = 0;
}

/* --- reading -------------------------------------------------------------------------------- */

/* From where the reader stands, with a thread if there can be one. */
static void read_ahead(cm_engine *g, uint64_t records)
{
    g->ahead = cm_decode_thread_begin(g->reader, records);
}

/* Decodes one record, or waits for more of them. */
static CM_OWN_FRAME int read_more(cm_engine *g, const cm_record **record)
{
    *record = &g->decoded;
    if (g->ahead == NULL)
        return cm_reader_next(g->reader, &g->decoded);
    int got = cm_decode_thread_more(g->ahead);
    g->at = cm_decode_thread_at(g->ahead);
    if (got == 1)
        *record = g->at->next++;
    return got;
}

static bool end_reading_ahead(cm_engine *g)
{
    int got = cm_decode_thread_end(g->ahead);
    g->ahead = NULL;
    g->at = &g->none;
    return got >= 0;
}

/* As cm_reader_next. The record is valid until the next call. */
static inline int read_next(cm_engine *g, const cm_record **record)
{
    *record = cm_decoded_next(g->at);
    return *record != NULL ? 1 : read_more(g, record);
}

/* The place behind the record just read. */
static cm_reader_place tell(const cm_engine *g)
{
    return g->ahead != NULL ? cm_decode_thread_tell(g->ahead) : cm_reader_tell(g->reader);
}

double cm_engine_progress(const cm_engine *g)
{
    return g->ahead != NULL ? cm_decode_thread_at(g->ahead)->progress
                            : cm_reader_progress(g->reader);
}

/* --- the engine ----------------------------------------------------------------------------- */

cm_engine *cm_engine_new(cm_reader *reader)
{
    cm_engine *g = calloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    g->reader = reader;
    g->at = &g->none;
    return g;
}

void cm_engine_free(cm_engine *g)
{
    if (g == NULL)
        return;
    end_reading_ahead(g); /* before its reader is closed */
    forget_fates(g);
    forget(g);
    cm_plan_free(&g->plan);
    cm_seeds_free(&g->seeds);
    free(g->record);
    free(g);
}

const cm_reader *cm_engine_reader(const cm_engine *g)
{
    return g->reader;
}

bool cm_engine_follow(cm_engine *g)
{
    bool grew;
    if (!cm_reader_follow(g->reader, &grew))
        return false;
    if (grew && !g->seeds.whole) { /* the walk may be in what is new */
        forget(g);
        g->seeded = false;
    }
    return true;
}

/* --- to a window's opening ------------------------------------------------------------------ */

typedef struct opening {
    cm_engine *g;
    const cm_window_options *options;
    const char *code;
    double share;
    char *error;
    size_t error_size;
} opening;

static bool out_of_memory(const opening *o)
{
    return fail(o->error, o->error_size, "out of memory");
}

static bool start_over(const opening *o)
{
    cm_engine *g = o->g;
    forget(g);
    if (!g->seeded && !cm_scan_seeds(g->reader, o->options, &g->seeds, o->error, o->error_size))
        return false;
    g->seeded = true;
    g->base.replay = cm_replay_new(g->reader, o->code);
    if (g->base.replay == NULL)
        return out_of_memory(o);
    if (!cm_replay_seed(g->base.replay, g->seeds.seed, g->seeds.count))
        return fail(o->error, o->error_size, g->base.replay->error);
    cm_reader_rewind(g->reader);
    g->base.place = cm_reader_tell(g->reader);
    g->at_base = true;
    return true;
}

/* The record at this position; *more: there was one. */
static inline bool read_on(const opening *o, uint64_t position, const cm_record **record,
                           bool *more)
{
    cm_engine *g = o->g;
    int got = read_next(g, record);
    if (got < 0)
        return fail(o->error, o->error_size, cm_reader_error(g->reader));
    *more = got > 0;
    return !cm_scan_asks(o->options, position + 1) ||
           o->options->progress(o->share * cm_engine_progress(g), o->options->progress_context) ||
           fail(o->error, o->error_size, "");
}

static bool to_base(const opening *o)
{
    cm_engine *g = o->g;
    g->kept_of = 0;
    if (g->at_base)
        return true;
    if (cm_reader_seek(g->reader, &g->base.place) < 0)
        return fail(o->error, o->error_size, cm_reader_error(g->reader));
    return g->at_base = true;
}

/* Goes to a window's first record, kept or in the file. */
static bool to_opening(const opening *o)
{
    return (o->g->kept_of != 0 && o->g->kept_of == o->options->window) || to_base(o);
}

/* Whether a passed window is worth a copy of the heap. After the first ones, copies cost no more
 * than reading: a heap is at most as large as the records read. */
static bool is_worth(size_t copies, uint64_t last, uint64_t position)
{
    enum { SHARE = 16, LEAST = 4096 };
    return copies < SAVED_MAX || position - last >= LEAST + position / SHARE;
}

typedef enum found { FOUND, NOT_THERE, BROKEN } found;

static uint64_t key_of(uint64_t window)
{
    return window & (UINT64_MAX >> 1);
}

static bool opens(const cm_event *e)
{
    return e->kind == CM_EV_MARK && e->size == CM_MARK_WINDOW_OPEN && e->address != 0 &&
           !(e->flags & CM_EVF_BEFORE_START);
}

/* Searches from the base on. */
static found search(const opening *o)
{
    cm_engine *g = o->g;
    point *b = &g->base;
    const cm_record *record;
    cm_change change[2];
    bool more, fine;
    size_t copies = 0;
    uint64_t last = b->scanned.position;
    b->window = 0;
    while ((fine = read_on(o, b->scanned.position, &record, &more)) && more) {
        const cm_event *e = &record->event;
        cm_scan_pass(&b->scanned, record);
        if (cm_replay_apply(b->replay, record, change) < 0) {
            fail(o->error, o->error_size, b->replay->error);
            return BROKEN;
        }
        fine = see_object(&b->objects, e);
        if (fine && opens(e)) {
            cm_reader_place place = cm_reader_tell(g->reader);
            bool wanted = e->address == o->options->window;
            bool known = cm_idmap_get(&g->passed, key_of(e->address), &(uint32_t){0});
            fine = cm_idmap_put(&g->passed, key_of(e->address), 0);
            if (fine && wanted) {
                b->window = e->address;
                b->opened_ns = record->time_ns;
                b->place = place;
                return FOUND;
            }
            if (fine && !known && is_worth(copies, last, b->scanned.position)) {
                fine = save(g, e->address, record->time_ns, &place);
                last = b->scanned.position;
                copies++;
            }
        }
        see_closing(g, e);
        if (!fine) {
            out_of_memory(o);
            return BROKEN;
        }
    }
    if (!fine)
        return BROKEN;
    b->place = cm_reader_tell(g->reader);
    snprintf(o->error, o->error_size, "the trace has no window %" PRIu64, o->options->window);
    return NOT_THERE;
}

/* Moves the base to the window's opening. */
static found go_to_opening(const opening *o)
{
    cm_engine *g = o->g;
    uint64_t window = o->options->window;
    if (g->base.replay != NULL && strcmp(g->base.replay->code, o->code) != 0)
        forget(g);
    if (g->base.replay != NULL && g->base.window == window &&
        (window != 0 || g->base.scanned.position == 0))
        return to_opening(o) ? FOUND : BROKEN;
    point *saved = window == 0 ? NULL : find_saved(g, window);
    if (saved != NULL) {
        point there = *saved;
        *saved = (point){0};
        drop_saved(g, (size_t)(saved - g->saved));
        clear_point(&g->base);
        g->base = there;
        g->at_base = false;
        return to_opening(o) ? FOUND : BROKEN;
    }
    bool behind = window == 0 || cm_idmap_get(&g->passed, key_of(window), &(uint32_t){0});
    if ((g->base.replay == NULL || behind) && !start_over(o))
        return BROKEN;
    if (window == 0)
        return FOUND;
    return to_base(o) ? search(o) : BROKEN;
}

/* --- a window's records --------------------------------------------------------------------- */

static inline void see_inner(cm_engine *g, const cm_record *record, const cm_scan *scan)
{
    const cm_event *e = &record->event;
    if (__builtin_expect(!opens(e), 1) || g->inners == INNER_MAX || g->base.window == 0 ||
        cm_idmap_get(&g->passed, key_of(e->address), &(uint32_t){0}))
        return;
    cm_scanned scanned = cm_scan_passed(scan);
    g->inner[g->inners++] =
        (inner){e->address, scanned.position, record->time_ns, scanned, tell(g)};
}

static bool keep_record(cm_engine *g, const cm_record *record)
{
    g->kept = g->records < KEPT_RECORDS;
    if (!g->kept)
        return true;
    if (!cm_grow((void **)&g->record, &g->record_capacity, g->records + 1, sizeof *g->record))
        return false;
    g->record[g->records++] = *record;
    if (g->records == KEPT_RECORDS) {
        g->rest = cm_reader_tell(g->reader);
        read_ahead(g, UINT64_MAX); /* so many that a thread is worth it */
    }
    return true;
}

static inline bool see_record(cm_engine *g, cm_scan *scan, uint64_t position,
                              const cm_record *record)
{
    return cm_scan_apply(scan, record) &&
           cm_modules_apply(g->base.replay->modules, position, &record->event) &&
           cm_fates_apply(g->fates, position, record);
}

static bool scan_kept(cm_engine *g, cm_scan *scan)
{
    uint64_t position = cm_scan_position(scan);
    for (size_t i = 0; i < g->records && !cm_scan_plan(scan)->closed; i++)
        if (!see_record(g, scan, position++, &g->record[i]))
            return false;
    return true;
}

/* The first reading. */
static bool scan_window(const opening *o)
{
    cm_engine *g = o->g;
    const cm_record *record;
    bool more = true, fine = true;
    cm_scan *scan =
        cm_scan_begin(g->reader, &g->base.scanned, g->base.opened_ns, g->base.replay, o->options);
    forget_fates(g);
    g->fates = cm_fates_begin(g->base.replay);
    if (scan == NULL || g->fates == NULL) {
        cm_scan_free(scan);
        return out_of_memory(o);
    }
    if (g->kept_of == 0) {
        g->records = g->inners = 0;
        g->kept = true;
    } else if (!scan_kept(g, scan)) {
        fine = out_of_memory(o);
    }
    g->inner_next = 0;
    g->at_base = g->at_rest = false;
    const cm_plan *plan = cm_scan_plan(scan);
    for (uint64_t position = cm_scan_position(scan); fine && !plan->closed; position++) {
        fine = read_on(o, position, &record, &more);
        if (!fine || !more)
            break;
        if (!see_record(g, scan, position, record) || (g->kept && !keep_record(g, record)))
            fine = out_of_memory(o);
        see_inner(g, record, scan);
    }
    if (!end_reading_ahead(g) && fine)
        fine = fail(o->error, o->error_size, cm_reader_error(g->reader));
    g->kept_of = g->kept ? o->options->window : 0;
    g->end = cm_scan_passed(scan);
    if (fine && (!cm_scan_finish(scan, g->reader, &g->plan) || !cm_fates_end(g->fates)))
        fine = out_of_memory(o);
    cm_scan_free(scan);
    return fine;
}

bool cm_engine_open(cm_engine *g, const cm_window_options *options, const char *code, double share,
                    cm_window *window, char *error, size_t error_size)
{
    const opening o = {g, options, code, share, error, error_size};
    cm_plan_free(&g->plan);
    found opened = go_to_opening(&o);
    if (opened == NOT_THERE)
        return false;
    bool fine = opened == FOUND;
    if (fine)
        fine = cm_replay_begin(g->base.replay) ? scan_window(&o) : out_of_memory(&o);
    /* A window that is not over will be opened again, too. */
    drop_over(g);
    if (fine && options->window != 0 && (!g->plan.closed || options->again) &&
        !save(g, options->window, g->base.opened_ns, &g->base.place))
        fine = out_of_memory(&o);
    if (fine && !cm_replay_foresee(g->base.replay, cm_fates_list(g->fates)))
        fine = out_of_memory(&o);
    if (!fine) {
        forget_fates(g);
        cm_plan_free(&g->plan);
        forget(g);
        return false;
    }
    g->repeated = (cm_decoded){.next = g->record, .end = g->record + g->records};
    g->at = &g->repeated;
    *window = (cm_window){&g->plan, g->base.replay};
    return true;
}

const cm_event *cm_engine_objects(const cm_engine *g, size_t *count)
{
    *count = g->base.objects.count;
    return g->base.objects.event;
}

const cm_record *cm_engine_more(cm_engine *g, char *error, size_t error_size)
{
    const cm_record *record;
    int got = 1;
    if (!g->at_rest) {
        g->at = &g->none;
        got = cm_reader_seek(g->reader, &g->rest);
        if (got > 0)
            read_ahead(g, g->end.position - g->base.scanned.position - g->records);
    }
    g->at_rest = true;
    if (got > 0)
        got = read_more(g, &record);
    if (got > 0)
        return record;
    fail(error, error_size,
         got < 0 ? cm_reader_error(g->reader) : "the trace became shorter while it was read");
    return NULL;
}

bool cm_engine_reads(const cm_engine *g)
{
    return g->at_rest;
}

/* The last record opened a window for the first time: it may be requested later. */
static bool save_inner(cm_engine *g)
{
    while (g->inner_next < g->inners && g->inner[g->inner_next].position < g->base.replay->position)
        g->inner_next++;
    const inner *i = &g->inner[g->inner_next];
    if (g->inner_next == g->inners || i->position != g->base.replay->position)
        return true;
    cm_scanned before = g->base.scanned;
    g->base.scanned = i->scanned;
    bool fine = save(g, i->window, i->opened_ns, &i->place);
    g->base.scanned = before;
    return fine;
}

static bool see_opening(cm_engine *g, const cm_event *e)
{
    if (!opens(e) || cm_idmap_get(&g->passed, key_of(e->address), &(uint32_t){0}))
        return true;
    return cm_idmap_put(&g->passed, key_of(e->address), 0) && save_inner(g);
}

int cm_engine_note(cm_engine *g, const cm_record *record, int changes, char *error,
                   size_t error_size)
{
    if (changes < 0) {
        fail(error, error_size, g->base.replay->error);
    } else {
        if (!see_object(&g->base.objects, &record->event) || !see_opening(g, &record->event))
            return fail(error, error_size, "out of memory") - 1;
        see_closing(g, &record->event);
    }
    return changes;
}

void cm_engine_close(cm_engine *g, cm_engine_left left)
{
    const cm_record *record;
    cm_change change[2];
    char why[64];
    bool fine = left != CM_ENGINE_BROKEN;
    if (left == CM_ENGINE_GONE_ON) {
        /* The record that closed it. */
        while (fine && g->base.replay->position < g->end.position)
            fine = (record = cm_engine_next(g, why, sizeof why)) != NULL &&
                   cm_engine_apply(g, g->base.replay, record, change, why, sizeof why) >= 0;
        fine = end_reading_ahead(g) && fine;
        g->base.window = 0;
        g->base.scanned = g->end;
        g->base.place = cm_reader_tell(g->reader);
        g->at_base = true;
    }
    end_reading_ahead(g);
    forget_fates(g);
    if (!fine)
        forget(g);
    cm_plan_free(&g->plan);
}
