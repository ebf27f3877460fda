/* The fold's own house: what compact.c (events and stretches), compact_blocks.c (nodes and blocks)
 * and compact_driver.c (the driver level) share. Nobody else includes it; compact.h says what a
 * fold is. */
#ifndef CM_COMPACT_COMPACT_PARTS_H
#define CM_COMPACT_COMPACT_PARTS_H

#include "../heap/blocks.h"
#include "../heap/category.h"
#include "../heap/driver_map.h"
#include "../base/idmap.h"
#include "../heap/nodes.h"
#include "compact.h"

#define BLOCK_MAX ((int64_t)1 << 48) /* as in the replay: more is damage, and stays as it is */

enum { DEVICES = 255 };

enum { PEAK, RESERVED_MOST, FIRST_OOM, USED_MOST, QUIET_MOST, USED_LAST, QUIET_FIRST, POINTS };
enum { TOTALS = POINTS - USED_MOST };

/* Indices of items are from 1; 0 means: none in this stretch (what is older is in the trace). */
typedef struct fold_item {
    cm_event event;
    uint32_t thread;
    uint32_t partner; /* its other half */
    uint32_t frame;   /* the run that it happened in */
    uint32_t link;    /* of a run: the node's creation, or the event that set its line; of an
                         allocation: the size that was asked for; of a free: that its memory is
                         held; of totals and pools: what else is told of them */
    uint32_t named;   /* of an allocation: the event that named its thread's operator */
    uint8_t device, charge;
    bool keep;
    bool must;    /* stays whatever its other half is */
    bool nothing; /* changes nothing for any reader */
} fold_item;

typedef enum fold_previous { UNSET, SET } fold_previous;

/* A node that runs, or (the first) the thread outside of any. As in nodes.c, `previous` is the line
 * of the node that ran last directly inside it; setter is the event that made it so. */
typedef struct fold_frame {
    uint32_t run, setter;
    fold_previous previous;
} fold_frame;

typedef struct fold_thread {
    uint32_t number;
    bool touched; /* in this stretch */
    fold_frame *frame;
    size_t frames, capacity;
    uint64_t unseen; /* running beyond DEPTH_MAX */
    uint32_t chain;  /* of one pool or one moment: the newest item */
    uint32_t driver; /* the event of the driver level, or record of one, that more may be said of */
    uint32_t held;   /* tells of the free that follows */
    uint32_t named;  /* the newest event that named its operator */
    bool split;      /* a moment's first events are in the trace: its last has to be, too */
    uint32_t total;  /* its newest, + 1 */
} fold_thread;

typedef struct fold_device {
    uint8_t type;
    int8_t index;
    bool reserved_known;
    bool oom;
    uint32_t ooms_counted; /* at most as many as a report has */
    /* What was alive behind these items stays: the allocation that reached the peak, 0: none rose
     * above the stretch's start; reserved bytes higher than ever; the first request that failed;
     * totals that are kept. */
    uint32_t at[POINTS];
    int64_t live, most, reserved; /* live and most since the stretch's start */
    int64_t most_reserved;
} fold_device;

/* Totals of a device as a whole: those of a moment are one chain. Kept are the last of a stretch,
 * and those that are higher than ever. */
typedef struct fold_totals {
    int64_t used, quiet;     /* most ever; of quiet moments */
    uint32_t at[TOTALS];     /* of the stretch: used most, most quietly, last, first quiet ever */
    bool known, quiet_known; /* since the window's start */
    bool measured;           /* a quiet one was seen, ever */
} fold_totals;

typedef struct fold_work { /* left out, of one name */
    uint32_t name;
    uint64_t count;
    int64_t ns;
    cm_event like;
    uint32_t thread;
} fold_work;

enum { POOLS = 64 };

/* The driver's allocations, by address, that may come and go; their events by correlation id, and
 * the records of those (key_of). */
typedef struct fold_drivers {
    cm_drivermap *map; /* for the bytes that are given out; NULL before the first such event */
    cm_idmap given;    /* address -> item; 0: older */
    cm_idmap events;   /* that no record came of -> item */
    cm_idmap records;  /* that no event came of -> item; 0: in the trace */
    struct {
        int64_t most; /* since the stretch's start */
        uint32_t at;  /* the item that reached it; 0: none rose above the start */
    } place[CM_ACCOUNT_DEVICES];
    /* Left out, and no record came yet: a ring. */
    struct fold_gone {
        uint64_t key, address;
        int64_t size;
        int8_t device;
        bool waits;
    } * gone;
    uint32_t next_gone;
    cm_idmap gone_at;
    int64_t sum[CM_DRIVER_SUMS];
} fold_drivers;

enum { GONE = 1 << 16 };

typedef struct fold_total {
    uint32_t thread;
    uint8_t device, charge;
    uint64_t blocks;
    int64_t bytes;
    uint32_t before; /* the same thread's, + 1 */
} fold_total;

struct cm_fold {
    cm_fold_put put;
    void *context;
    fold_item *items; /* items[0] is no item */
    size_t count, capacity;
    cm_blocks blocks; /* origin: index of the allocation, 0 = older */
    cm_nodes *nodes;
    cm_idmap by_number, by_autograd; /* -> index of thread, number of thread */
    fold_thread *threads;
    size_t thread_count, thread_capacity, last_thread;
    cm_idmap made; /* thread, sequence -> index of the node's creation in this stretch */
    uint8_t *told; /* a bit per stack: a node made there is in the trace */
    size_t told_bytes;
    bool want_node; /* the next node made may begin a step */
    fold_device device[DEVICES];
    size_t devices, last_device;
    uint32_t *todo, *touched; /* items; indices of threads */
    size_t todo_count, todo_capacity, touched_count, touched_capacity;
    fold_total *total;
    size_t totals, total_capacity;
    fold_totals device_totals[256]; /* by index + 128 */
    struct {
        uint64_t address;
        uint32_t at;
    } pool[POOLS]; /* the newest that was seen, by address */
    fold_work *work;
    size_t works, work_capacity;
    cm_idmap work_of; /* name -> index */
    fold_drivers driver;
    uint64_t launches;
    cm_event launch; /* one of them */
    uint32_t launch_thread;
};

static inline void cm_fold_must_stay(cm_fold *f, uint32_t at)
{
    if (at != 0)
        f->items[at].must = true;
}

static inline void cm_fold_tie(cm_fold *f, uint32_t a, uint32_t b)
{
    if (a != 0 && b != 0) {
        f->items[a].partner = b;
        f->items[b].partner = a;
    }
}

static inline fold_frame *cm_fold_find_innermost(fold_thread *t)
{
    return &t->frame[t->frames - 1];
}

static inline bool cm_fold_is_block(const cm_event *e)
{
    return e->size > 0 && e->size <= BLOCK_MAX && e->address != 0;
}

/* What an event changes: `at` is its item, 0 where it is in the trace already. All that return
 * bool, but for cm_fold_was_given_then, return false when memory is out or `put` returned false. */

/* --- compact_blocks.c ---------------------------------------------------------------------------
 */

size_t cm_fold_find_device(cm_fold *f, const cm_event *e, bool make);
bool cm_fold_keep(cm_fold *f, uint32_t at);
bool cm_fold_run_node(cm_fold *f, fold_thread *t, const cm_event *e, uint32_t at);
void cm_fold_end_node(cm_fold *f, fold_thread *t, uint32_t at);
bool cm_fold_make_node(cm_fold *f, fold_thread *t, const cm_event *e, uint32_t at);
void cm_fold_free_node(cm_fold *f, const cm_event *e, uint32_t at);
/* For events that stay whole, so that nothing is tied: what cm_fold_allocate and cm_fold_release do
 * for as many of the first ones as are of blocks and change nothing about nodes. How many;
 * SIZE_MAX: out of memory. */
static inline bool cm_fold_is_of_blocks(const cm_event *e)
{
    return e->kind == CM_EV_ALLOC || e->kind == CM_EV_FREE || e->kind == CM_EV_REQUESTED;
}
size_t cm_fold_see_blocks(cm_fold *f, const fold_thread *t, const cm_event *events, size_t count);
bool cm_fold_allocate(cm_fold *f, fold_thread *t, const cm_record *record, uint32_t at);
void cm_fold_release(cm_fold *f, fold_thread *t, const cm_event *e, uint32_t at);
bool cm_fold_find_alive(cm_fold *f, const cm_event *e);
void cm_fold_tie_request(cm_fold *f, const cm_event *e, uint32_t at);
void cm_fold_see_reserved(cm_fold *f, const cm_event *e, uint32_t at);
void cm_fold_see_oom(cm_fold *f, const cm_event *e, uint32_t at);

/* --- compact_driver.c ---------------------------------------------------------------------------
 */

void cm_fold_see_totals(cm_fold *f, fold_thread *t, const cm_event *e, uint32_t at);
void cm_fold_see_pool(cm_fold *f, fold_thread *t, const cm_event *e, uint32_t at);
void cm_fold_keep_given(cm_fold *f, uint64_t address);
bool cm_fold_see_driver(cm_fold *f, fold_thread *t, const cm_record *record, uint32_t at);
bool cm_fold_was_given_then(const cm_fold *f, uint32_t at);
bool cm_fold_say_more(cm_fold *f, fold_thread *t, const cm_record *record, uint32_t at);
bool cm_fold_let_drivers_go(cm_fold *f);
bool cm_fold_put_drivers(cm_fold *f, uint64_t time);
bool cm_fold_add_work(cm_fold *f, const fold_item *it);
bool cm_fold_put_work(cm_fold *f, uint64_t time);

#endif
