/* State that compact.c (events and stretches), compact_blocks.c (nodes and blocks) and
 * compact_driver.c (the driver level) share. Only they include it; compact.h defines compaction. */
#ifndef CM_COMPACT_COMPACT_PARTS_H
#define CM_COMPACT_COMPACT_PARTS_H

#include "../heap/blocks.h"
#include "../heap/category.h"
#include "../heap/driver_map.h"
#include "../base/idmap.h"
#include "../heap/nodes.h"
#include "../heap/step_clock_leads.h"
#include "compact.h"

#define BLOCK_MAX ((int64_t)1 << 48) /* as in the replay: more is damage, and stays */

enum { DEVICES = 255 };

enum { PEAK, RESERVED_MOST, FIRST_OOM, USED_MOST, QUIET_MOST, USED_LAST, QUIET_FIRST, POINTS };
enum { TOTALS = POINTS - USED_MOST };

/* Indices of items are from 1; 0 means: none in this stretch (what is older is in the trace). */
typedef struct compact_item {
    cm_event event;
    uint32_t thread;
    uint32_t partner; /* the other of its pair */
    uint32_t frame;   /* the run that it happened in */
    uint32_t link;    /* of a run: the node's creation, or the event that set its line; of an
                         allocation: the size that was asked for; of a free: its deferral; of totals
                         and pools: the next of their chain */
    uint32_t named;   /* of an allocation: the event that named its thread's operator */
    uint8_t device, charge;
    bool keep;
    bool must;    /* stays whatever its partner is */
    bool nothing; /* changes nothing for any reader */
} compact_item;

typedef enum compact_previous { UNSET, SET } compact_previous;

/* A running node, or (the first) the thread outside of any. As in nodes.c, `previous` is the line
 * of the node that last ran directly inside it; setter is the event that set it. */
typedef struct compact_frame {
    uint32_t run, setter;
    compact_previous previous;
} compact_frame;

typedef struct compact_thread {
    uint32_t number;
    bool touched; /* in this stretch */
    compact_frame *frame;
    size_t frames, capacity;
    uint64_t unseen;   /* running beyond DEPTH_MAX */
    uint32_t chain;    /* of one pool or one moment: the newest item */
    uint32_t driver;   /* the driver event or record that DRIVER_MOREs may follow */
    uint32_t deferral; /* the event that defers the free that follows */
    uint32_t named;    /* the newest event that named its operator */
    bool split;        /* a moment's first events are in the trace: its last must be too */
    uint32_t total;    /* its newest, + 1 */
} compact_thread;

typedef struct compact_device {
    uint8_t type;
    int8_t index;
    bool reserved_known;
    bool oom;
    uint32_t ooms_counted; /* at most as many as a report has */
    /* Blocks alive after these items stay: the allocation that reached the peak (0: none above the
     * stretch's start), the highest reserved bytes, the first failed request, kept totals. */
    uint32_t at[POINTS];
    int64_t live, most, reserved; /* live and most since the stretch's start */
    int64_t most_reserved;
} compact_device;

/* Totals of a whole device: those of a moment are one chain. The last of a stretch and those higher
 * than ever stay. */
typedef struct compact_totals {
    int64_t used, quiet;     /* most ever; of quiet moments */
    uint32_t at[TOTALS];     /* of the stretch: used most, most quietly, last, first quiet ever */
    bool known, quiet_known; /* since the window's start */
    bool measured;           /* a quiet one was seen, ever */
} compact_totals;

typedef struct compact_work { /* left out, of one name */
    uint32_t name;
    uint64_t count;
    int64_t ns;
    cm_event like;
    uint32_t thread;
} compact_work;

enum { POOLS = 64 };

/* The driver's allocations that may be left out, by address; their events by correlation id, and
 * the records of those (key_of). */
typedef struct compact_drivers {
    cm_driver_map *map; /* for the bytes that are given out; NULL before the first such event */
    cm_idmap given;     /* address -> item; 0: older */
    cm_idmap events;    /* without a record -> item */
    cm_idmap records;   /* without an event -> item; 0: in the trace */
    struct {
        int64_t most; /* since the stretch's start */
        uint32_t at;  /* the item that reached it; 0: none rose above the start */
    } place[CM_TOTALS_DEVICES];
    /* Left out without a record so far: a ring. */
    struct compact_gone {
        uint64_t key, address;
        int64_t size;
        int8_t device;
        bool waits;
    } * gone;
    uint32_t next_gone;
    cm_idmap gone_at;
    int64_t sum[CM_DRIVER_SUMS];
} compact_drivers;

enum { GONE = 1 << 16 };

typedef struct compact_total {
    uint32_t thread;
    uint8_t device, charge;
    uint64_t blocks;
    int64_t bytes;
    uint32_t before; /* the same thread's, + 1 */
} compact_total;

struct cm_compaction {
    cm_compact_put put;
    void *context;
    compact_item *items; /* items[0] is no item */
    size_t count, capacity;
    cm_blocks blocks; /* origin: index of the allocation, 0 = older */
    cm_nodes *nodes;
    cm_idmap by_number, by_autograd; /* -> index of thread, number of thread */
    compact_thread *threads;
    size_t thread_count, thread_capacity, last_thread;
    cm_idmap made;       /* thread, sequence -> index of the node's creation in this stretch */
    uint8_t *stack_seen; /* a bit per stack: a node made there is in the trace */
    size_t stack_seen_bytes;
    cm_clock_leads *leads; /* positions count items */
    uint64_t passed;       /* items of earlier stretches */
    bool want_node;        /* the next node made may begin a step */
    compact_device device[DEVICES];
    size_t devices, last_device;
    uint32_t *todo, *touched; /* items; indices of threads */
    size_t todo_count, todo_capacity, touched_count, touched_capacity;
    compact_total *total;
    size_t totals, total_capacity;
    compact_totals device_totals[256]; /* by index + 128 */
    struct {
        uint64_t address;
        uint32_t at;
    } pool[POOLS]; /* the newest that was seen, by address */
    compact_work *work;
    size_t works, work_capacity;
    cm_idmap work_of; /* name -> index */
    compact_drivers driver;
    uint64_t launches;
    cm_event launch; /* one of them */
    uint32_t launch_thread;
};

static inline void cm_compact_must_stay(cm_compaction *c, uint32_t at)
{
    if (at != 0)
        c->items[at].must = true;
}

static inline void cm_compact_tie(cm_compaction *c, uint32_t a, uint32_t b)
{
    if (a != 0 && b != 0) {
        c->items[a].partner = b;
        c->items[b].partner = a;
    }
}

static inline compact_frame *cm_compact_find_innermost(compact_thread *t)
{
    return &t->frame[t->frames - 1];
}

static inline bool cm_compact_is_block(const cm_event *e)
{
    return e->size > 0 && e->size <= BLOCK_MAX && e->address != 0;
}

/* Each applies an event: `at` is its item, 0 where it is in the trace already. All but
 * cm_compact_was_given_then return false when memory is out or `put` returned false. */

/* --- compact_blocks.c --------------------------------------------------------------------- */

size_t cm_compact_find_device(cm_compaction *c, const cm_event *e, bool make);
bool cm_compact_keep(cm_compaction *c, uint32_t at);
bool cm_compact_run_node(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at);
void cm_compact_end_node(cm_compaction *c, compact_thread *t, uint32_t at);
bool cm_compact_make_node(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at);
void cm_compact_free_node(cm_compaction *c, const cm_event *e, uint32_t at);
static inline bool cm_compact_is_of_blocks(const cm_event *e)
{
    return e->kind == CM_EV_ALLOC || e->kind == CM_EV_FREE || e->kind == CM_EV_REQUESTED;
}
/* Does as cm_compact_allocate and cm_compact_release, for events that all stay, so that nothing is
 * tied. Stops at the first event that is not of a block or changes nodes. How many; SIZE_MAX: out
 * of memory. */
size_t cm_compact_see_blocks(cm_compaction *c, const compact_thread *t, const cm_event *events,
                             size_t count);
/* Of all threads: an allocation that may lead to a tick. */
static inline bool cm_compact_lead(cm_compaction *c, const cm_event *e, uint32_t thread,
                                   uint32_t at)
{
    uint64_t position = at != 0 ? c->passed + at : 0;
    return e->stack >= 1u << 28 || /* damage */
           cm_clock_leads_block(c->leads, e->stack, thread, (cm_moment){position, e->time});
}
bool cm_compact_allocate(cm_compaction *c, compact_thread *t, const cm_record *record, uint32_t at);
void cm_compact_release(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at);
bool cm_compact_find_alive(cm_compaction *c, const cm_event *e);
void cm_compact_tie_request(cm_compaction *c, const cm_event *e, uint32_t at);
void cm_compact_see_reserved(cm_compaction *c, const cm_event *e, uint32_t at);
void cm_compact_see_oom(cm_compaction *c, const cm_event *e, uint32_t at);

/* --- compact_driver.c --------------------------------------------------------------------- */

void cm_compact_see_totals(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at);
void cm_compact_see_pool(cm_compaction *c, compact_thread *t, const cm_event *e, uint32_t at);
void cm_compact_keep_given(cm_compaction *c, uint64_t address);
bool cm_compact_see_driver(cm_compaction *c, compact_thread *t, const cm_record *record,
                           uint32_t at);
bool cm_compact_was_given_then(const cm_compaction *c, uint32_t at);
bool cm_compact_driver_more(cm_compaction *c, compact_thread *t, const cm_record *record,
                            uint32_t at);
bool cm_compact_leave_out_drivers(cm_compaction *c);
bool cm_compact_put_drivers(cm_compaction *c, uint64_t time);
bool cm_compact_add_work(cm_compaction *c, const compact_item *it);
bool cm_compact_put_work(cm_compaction *c, uint64_t time);

#endif
