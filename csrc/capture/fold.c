/* A stretch is kept in memory. On the way through it, what belongs together is tied: allocation and
 * free, a node's creation and end, a run's start and end, and a run to what decides whom its blocks
 * are charged to (nodes.h has the rules). Whatever has no other half stays; then the peak says
 * which pairs stay; and each that stays holds what it depends on. */
#include "fold.h"

#include <stdlib.h>
#include <string.h>

#include "../analysis/blocks.h"
#include "../analysis/drivermap.h"
#include "../analysis/grow.h"
#include "../analysis/map.h"
#include "../analysis/nodes.h"

#define BLOCK_MAX ((int64_t)1 << 48) /* as in the replay: more is damage, and stays as it is */

enum { DEPTH_MAX = 1 << 16, SEQUENCE_BITS = 40, DEVICES = 255, CHARGES = CM_CHARGE_UNRESOLVED + 1 };

enum { PEAK, RESERVED_MOST, FIRST_OOM, USED_MOST, QUIET_MOST, USED_LAST, QUIET_FIRST, POINTS };
enum { TOTALS = POINTS - USED_MOST };

/* Indices of items are from 1; 0 means: none in this stretch (what is older is in the trace). */
typedef struct item {
    cm_event event;
    uint32_t thread;
    uint32_t partner; /* its other half */
    uint32_t frame;   /* the run that it happened in */
    uint32_t link;    /* of a run: the node's creation, or the event that set its line; of an
                         allocation: the size that was asked for; of a free: that its memory is
                         held; of totals and pools: what else is told of them */
    uint8_t device, charge;
    bool keep;
    bool must;    /* stays whatever its other half is */
    bool nothing; /* changes nothing for any reader */
} item;

typedef enum previous { UNSET, SET } previous;

/* A node that runs, or (the first) the thread outside of any. As in nodes.c, `previous` is the line
 * of the node that ran last directly inside it; setter is the event that made it so. */
typedef struct frame {
    uint32_t run, setter;
    previous previous;
} frame;

typedef struct thread {
    uint32_t number;
    bool touched; /* in this stretch */
    frame *frame;
    size_t frames, capacity;
    uint64_t unseen; /* running beyond DEPTH_MAX */
    uint32_t chain;  /* of one pool or one moment: the newest item */
    uint32_t driver; /* the event of the driver level, or record of one, that more may be said of */
    uint32_t held;   /* tells of the free that follows */
    bool split;      /* a moment's first events are in the trace: its last has to be, too */
    uint32_t total;  /* its newest, + 1 */
} thread;

typedef struct device {
    uint8_t type;
    int8_t index;
    bool reserved_known;
    bool oom;
    /* What was alive behind these items stays: the allocation that reached the peak, 0: none rose
     * above the stretch's start; reserved bytes higher than ever; the first request that failed;
     * totals that are kept. */
    uint32_t at[POINTS];
    int64_t live, most, reserved; /* live and most since the stretch's start */
    int64_t most_reserved;
} device;

/* Totals of a device as a whole: those of a moment are one chain. Kept are the last of a stretch,
 * and those that are higher than ever. */
typedef struct totals {
    int64_t used, quiet; /* most ever; of quiet moments */
    uint32_t at[TOTALS]; /* of the stretch: used most, most quietly, last, first quiet ever */
    bool known, quiet_known;
} totals;

typedef struct work { /* left out, of one name */
    uint32_t name;
    uint64_t count;
    int64_t ns;
    cm_event like;
    uint32_t thread;
} work;

enum { POOLS = 64 };

/* The driver's allocations, by address, that may come and go; their events by correlation id, and
 * the records of those (key_of). */
typedef struct drivers {
    cm_drivermap *map; /* for the bytes that are given out; NULL before the first such event */
    cm_idmap given;    /* address -> item; 0: older */
    cm_idmap events;   /* that no record came of -> item */
    cm_idmap records;  /* that no event came of -> item; 0: in the trace */
    struct {
        int64_t most; /* since the stretch's start */
        uint32_t at;  /* the item that reached it; 0: none rose above the start */
    } place[CM_ACCOUNT_DEVICES];
    /* Left out, and no record came yet: a ring. */
    struct gone {
        uint64_t key, address;
        int64_t size;
        int8_t device;
        bool waits;
    } * gone;
    uint32_t next_gone;
    cm_idmap gone_at;
    int64_t sum[CM_DRIVER_SUMS];
} drivers;

enum { GONE = 1 << 16, RECORDS = 1 << 16 };

typedef struct total {
    uint32_t thread;
    uint8_t device, charge;
    uint64_t blocks;
    int64_t bytes;
    uint32_t before; /* the same thread's, + 1 */
} total;

struct cm_fold {
    cm_fold_put put;
    void *context;
    item *items; /* items[0] is no item */
    size_t count, capacity;
    cm_blocks blocks; /* origin: index of the allocation, 0 = older */
    cm_nodes *nodes;
    cm_idmap by_number, by_autograd; /* -> index of thread, number of thread */
    thread *threads;
    size_t thread_count, thread_capacity;
    cm_idmap made; /* thread, sequence -> index of the node's creation in this stretch */
    uint8_t *told; /* a bit per stack: a node made there is in the trace */
    size_t told_bytes;
    bool want_node; /* the next node made may begin a step */
    device device[DEVICES];
    size_t devices;
    uint32_t *todo, *touched; /* items; indices of threads */
    size_t todo_count, todo_capacity, touched_count, touched_capacity;
    total *total;
    size_t totals, total_capacity;
    totals device_totals[256]; /* by index + 128 */
    struct {
        uint64_t address;
        uint32_t at;
    } pool[POOLS]; /* the newest that was seen, by address */
    work *work;
    size_t works, work_capacity;
    cm_idmap work_of; /* name -> index */
    drivers driver;
    uint64_t launches;
    cm_event launch; /* one of them */
    uint32_t launch_thread;
};

cm_fold *cm_fold_new(cm_fold_put put, void *context)
{
    cm_fold *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->put = put;
    f->context = context;
    f->want_node = true;
    f->nodes = cm_nodes_new();
    if (f->nodes == NULL) {
        free(f);
        return NULL;
    }
    return f;
}

void cm_fold_free(cm_fold *f)
{
    if (f == NULL)
        return;
    for (size_t i = 0; i < f->thread_count; i++)
        free(f->threads[i].frame);
    free(f->threads);
    free(f->items);
    free(f->told);
    free(f->todo);
    free(f->touched);
    free(f->total);
    free(f->work);
    cm_idmap_clear(&f->work_of);
    cm_drivermap_free(f->driver.map);
    cm_idmap_clear(&f->driver.given);
    cm_idmap_clear(&f->driver.events);
    cm_idmap_clear(&f->driver.records);
    cm_idmap_clear(&f->driver.gone_at);
    free(f->driver.gone);
    cm_blocks_clear(&f->blocks);
    cm_idmap_clear(&f->by_number);
    cm_idmap_clear(&f->by_autograd);
    cm_idmap_clear(&f->made);
    cm_nodes_free(f->nodes);
    free(f);
}

uint64_t cm_fold_bytes(const cm_fold *f)
{
    return sizeof *f + f->capacity * sizeof *f->items + f->blocks.slots * sizeof *f->blocks.slot +
           f->made.slots * sizeof *f->made.slot + f->todo_capacity * sizeof *f->todo +
           f->thread_capacity * sizeof *f->threads + f->told_bytes +
           (f->driver.given.slots + f->driver.events.slots + f->driver.records.slots +
            f->driver.gone_at.slots) *
               sizeof *f->driver.given.slot +
           (f->driver.gone != NULL ? GONE * sizeof *f->driver.gone : 0) +
           (f->driver.map != NULL ? sizeof *f->driver.map +
                                        f->driver.map->capacity * sizeof *f->driver.map->allocation
                                  : 0);
}

/* --- what is known of threads, devices, nodes ---------------------------------------------- */

static thread *find_thread(cm_fold *f, uint32_t number)
{
    uint32_t at;
    if (cm_idmap_get(&f->by_number, number, &at))
        return &f->threads[at];
    thread fresh = {.number = number};
    if (!cm_grow((void **)&fresh.frame, &fresh.capacity, 1, sizeof *fresh.frame))
        return NULL;
    fresh.frame[fresh.frames++] = (frame){0};
    if (!cm_grow((void **)&f->threads, &f->thread_capacity, f->thread_count + 1,
                 sizeof *f->threads) ||
        !cm_idmap_put(&f->by_number, number, (uint32_t)f->thread_count)) {
        free(fresh.frame);
        return NULL;
    }
    f->threads[f->thread_count] = fresh;
    return &f->threads[f->thread_count++];
}

static bool touch(cm_fold *f, thread *t)
{
    if (t->touched)
        return true;
    if (!cm_grow((void **)&f->touched, &f->touched_capacity, f->touched_count + 1,
                 sizeof *f->touched))
        return false;
    f->touched[f->touched_count++] = (uint32_t)(t - f->threads);
    return t->touched = true;
}

/* DEVICES: not known, or (with `make`) one too many. */
static size_t find_device(cm_fold *f, const cm_event *e, bool make)
{
    int8_t index = e->device_type == CM_DEVICE_CPU ? -1 : e->device_index;
    for (size_t i = 0; i < f->devices; i++)
        if (f->device[i].type == e->device_type && f->device[i].index == index)
            return i;
    if (!make || f->devices == DEVICES)
        return DEVICES;
    f->device[f->devices] = (device){.type = e->device_type, .index = index};
    return f->devices++;
}

static bool node_key(uint32_t number, uint64_t sequence, uint64_t *key)
{
    *key = (uint64_t)number << SEQUENCE_BITS | sequence;
    return number < 1u << (63 - SEQUENCE_BITS) && sequence < (uint64_t)1 << SEQUENCE_BITS;
}

/* The creation, in this stretch, of the node that a run or an end names; 0: none. */
static uint32_t find_made(const cm_fold *f, const cm_event *e, uint64_t *key)
{
    uint64_t autograd_id = (uint64_t)e->size;
    uint32_t number, at;
    if (autograd_id == 0 || autograd_id == UINT64_MAX ||
        !cm_idmap_get(&f->by_autograd, autograd_id, &number) ||
        !node_key(number, e->address, key) || !cm_idmap_get(&f->made, *key, &at))
        return 0;
    return at;
}

/* --- keeping ------------------------------------------------------------------------------- */

static bool want(cm_fold *f, uint32_t at)
{
    if (at == 0 || f->items[at].keep)
        return true;
    f->items[at].keep = true;
    if (!cm_grow((void **)&f->todo, &f->todo_capacity, f->todo_count + 1, sizeof *f->todo))
        return false;
    f->todo[f->todo_count++] = at;
    return true;
}

/* This item stays, and all that it needs to mean what it meant. Only once the stretch is over: an
 * item's other half is not known before. */
static bool keep(cm_fold *f, uint32_t at)
{
    if (!want(f, at))
        return false;
    while (f->todo_count > 0) {
        const item *it = &f->items[f->todo[--f->todo_count]];
        if (!want(f, it->partner) || !want(f, it->frame) || !want(f, it->link))
            return false;
    }
    return true;
}

static void must_stay(cm_fold *f, uint32_t at)
{
    if (at != 0)
        f->items[at].must = true;
}

static void tie(cm_fold *f, uint32_t a, uint32_t b)
{
    if (a != 0 && b != 0) {
        f->items[a].partner = b;
        f->items[b].partner = a;
    }
}

/* --- node runs ----------------------------------------------------------------------------- */

static frame *innermost(thread *t)
{
    return &t->frame[t->frames - 1];
}

static bool run_node(cm_fold *f, thread *t, const cm_event *e, uint32_t at)
{
    frame *outer = innermost(t);
    uint64_t key;
    if (at != 0)
        f->items[at].frame = outer->run;
    if (e->address != CM_NODE_NO_SEQUENCE) {
        if (at != 0)
            f->items[at].link = find_made(f, e, &key);
        outer->setter = at;
        outer->previous = SET;
    } else {
        if (at != 0)
            f->items[at].link = outer->setter;
        /* Gradients of leaves, one after the other, hand the same line on. */
        if (outer->previous == UNSET)
            *outer = (frame){outer->run, at, SET};
    }
    if (t->frames > DEPTH_MAX) {
        t->unseen++;
        return true;
    }
    if (!cm_grow((void **)&t->frame, &t->capacity, t->frames + 1, sizeof *t->frame))
        return false;
    t->frame[t->frames++] = (frame){.run = at};
    return true;
}

static void end_node(cm_fold *f, thread *t, uint32_t at)
{
    if (t->unseen > 0)
        t->unseen--;
    else if (t->frames > 1)
        tie(f, t->frame[--t->frames].run, at);
}

/* Forward runs again on this thread, so that no line is handed on. */
static void run_forward(thread *t, const cm_event *e, uint32_t at)
{
    if (e->flags & CM_EVF_IN_NODE || t->frames > 1 || t->frame[0].previous == UNSET)
        return;
    t->frame[0].previous = UNSET;
    t->frame[0].setter = at;
}

static bool is_first_of_stack(cm_fold *f, uint32_t stack, bool *first)
{
    size_t byte = stack / 8;
    if (byte >= f->told_bytes) {
        size_t before = f->told_bytes;
        if (!cm_grow((void **)&f->told, &f->told_bytes, byte + 1, 1))
            return false;
        memset(f->told + before, 0, f->told_bytes - before);
    }
    *first = !(f->told[byte] >> stack % 8 & 1);
    f->told[byte] |= (uint8_t)(1u << stack % 8);
    return true;
}

static bool make_node(cm_fold *f, thread *t, const cm_event *e, uint32_t at)
{
    uint64_t key;
    bool first = false;
    run_forward(t, e, at);
    f->want_node = false;
    /* A stack beyond what a log of definitions can hold is damage: such an event just stays. */
    if (!(e->flags & CM_EVF_IN_NODE) && e->stack < 1u << 28 &&
        !is_first_of_stack(f, e->stack, &first))
        return false;
    if (at == 0)
        return true;
    f->items[at].frame = innermost(t)->run;
    if (first)
        must_stay(f, at);
    return !node_key(t->number, e->address, &key) || cm_idmap_put(&f->made, key, at);
}

static void free_node(cm_fold *f, const cm_event *e, uint32_t at)
{
    uint64_t key;
    uint32_t made = find_made(f, e, &key);
    if (made == 0)
        return;
    cm_idmap_remove(&f->made, key);
    tie(f, made, at);
}

/* --- blocks -------------------------------------------------------------------------------- */

static bool is_block(const cm_event *e)
{
    return e->size > 0 && e->size <= BLOCK_MAX && e->address != 0;
}

static bool allocate(cm_fold *f, const cm_event *e, uint32_t at)
{
    size_t known = f->devices, number = find_device(f, e, true);
    cm_block old;
    if (number == DEVICES)
        return true;
    if (at != 0) {
        f->items[at].device = (uint8_t)number;
        f->items[at].nothing = e->size >= 0 && e->size <= BLOCK_MAX && !is_block(e);
        if (number == known)
            must_stay(f, at); /* devices are numbered as they come */
    }
    if (!is_block(e))
        return true;
    device *d = &f->device[number];
    if (cm_blocks_take(&f->blocks, (uint16_t)number, e->address, &old)) {
        d->live -= old.size;
        must_stay(f, at);
    }
    cm_block block = {
        .address = e->address, .size = e->size, .origin = at, .device = (uint16_t)number};
    block.direct = (e->flags & CM_EVF_DIRECT) != 0;
    if (cm_blocks_put(&f->blocks, &block) == NULL)
        return false;
    d->live += e->size;
    if (d->live > d->most) {
        d->most = d->live;
        d->at[PEAK] = at;
    }
    return true;
}

/* The device that a block of this address is on, where the event does not tell it. */
static size_t owner_of(const cm_fold *f, const cm_event *e)
{
    for (size_t i = 0; i < f->devices; i++)
        if (f->device[i].type == e->device_type &&
            cm_blocks_find(&f->blocks, (uint16_t)i, e->address) != NULL)
            return i;
    return DEVICES;
}

/* A segment's end stays; a block that was taken from CUDA for itself ends like any other. */
static bool ends_block(const cm_fold *f, const cm_event *e)
{
    size_t number = e->kind == CM_EV_SEGMENT_FREE ? owner_of(f, e) : DEVICES;
    return e->kind == CM_EV_FREE ||
           (number != DEVICES && cm_blocks_find(&f->blocks, (uint16_t)number, e->address)->direct);
}

static void release(cm_fold *f, const cm_event *e, uint32_t at)
{
    size_t number = find_device(f, e, false);
    cm_block old;
    if (number == DEVICES && e->device_type == CM_DEVICE_CUDA &&
        e->device_index == CM_DEVICE_NOT_TOLD)
        number = owner_of(f, e);
    if (at != 0) /* its thread is told with some device's sums */
        f->items[at].nothing = e->address == 0 && f->devices > 0;
    if (e->address == 0 || number == DEVICES ||
        !cm_blocks_take(&f->blocks, (uint16_t)number, e->address, &old))
        return;
    f->device[number].live -= old.size;
    tie(f, old.origin, at);
}

/* The free that a thread told of: it goes where the free goes. */
static void release_held(cm_fold *f, thread *t, uint32_t at)
{
    if (at != 0 && t->held != 0) {
        f->items[at].link = t->held;
        f->items[t->held].nothing = true;
    }
    t->held = 0;
}

/* A bound, so that the blocks before it are older ones. */
static bool find_alive(cm_fold *f, const cm_event *e)
{
    size_t number = find_device(f, e, true);
    if (number == DEVICES || !is_block(e) ||
        cm_blocks_find(&f->blocks, (uint16_t)number, e->address) != NULL)
        return true;
    cm_block block = {.address = e->address, .size = e->size, .device = (uint16_t)number};
    block.direct = (e->flags & CM_EVF_DIRECT) != 0;
    return cm_blocks_put(&f->blocks, &block) != NULL;
}

/* Goes with its block, wherever that goes. */
static void request(cm_fold *f, const cm_event *e, uint32_t at)
{
    size_t number = find_device(f, e, false);
    const cm_block *block =
        number != DEVICES ? cm_blocks_find(&f->blocks, (uint16_t)number, e->address) : NULL;
    if (at == 0 || block == NULL || block->origin == 0)
        return; /* of an older block it stays */
    f->items[block->origin].link = at;
    f->items[at].nothing = true;
}

static void reserve(cm_fold *f, const cm_event *e, uint32_t at)
{
    size_t number = find_device(f, e, true);
    if (number == DEVICES)
        return;
    device *d = &f->device[number];
    if (at != 0)
        f->items[at].nothing = d->reserved_known && d->reserved == e->size;
    if (!d->reserved_known || e->size > d->most_reserved) {
        d->most_reserved = e->size;
        d->at[RESERVED_MOST] = at;
    }
    d->reserved_known = true;
    d->reserved = e->size;
}

static void fail(cm_fold *f, const cm_event *e, uint32_t at)
{
    size_t number = find_device(f, e, true);
    if (number == DEVICES || f->device[number].oom)
        return;
    f->device[number].oom = true;
    f->device[number].at[FIRST_OOM] = at;
}

/* --- the driver level ---------------------------------------------------------------------- */

/* What belongs to one item goes where it goes. */
static void chain(cm_fold *f, thread *t, uint32_t at)
{
    if (at == 0 || t->chain == 0) {
        t->chain = 0;
        return;
    }
    f->items[t->chain].link = at;
    f->items[at].nothing = true;
    t->chain = at;
}

/* The first of a moment's events keeps the others; the last one decides. */
static void see_totals(cm_fold *f, thread *t, const cm_event *e, uint32_t at)
{
    totals *d = &f->device_totals[(uint8_t)(e->device_index + 128)];
    bool quiet = (e->flags & CM_EVF_QUIET) != 0;
    if (at != 0) {
        f->items[at].nothing = true;
        if (t->chain != 0 && f->items[t->chain].event.kind == CM_EV_DEVICE)
            f->items[at].link = t->chain;
    }
    t->chain = e->address == CM_TOLD_USED ? 0 : at;
    if (e->address != CM_TOLD_USED) {
        t->split = t->split || at == 0;
        return;
    }
    if (t->split)
        must_stay(f, at);
    t->split = false;
    d->at[USED_LAST - USED_MOST] = at;
    for (size_t i = 0; i < POOLS; i++)
        f->pool[i].at = 0; /* this moment's ledger needs what was told of pools before it */
    if (!d->known || e->size > d->used) {
        d->known = true;
        d->used = e->size;
        d->at[0] = at;
    }
    if (quiet && (!d->quiet_known || e->size > d->quiet)) {
        if (!d->quiet_known) /* a context is measured there */
            d->at[QUIET_FIRST - USED_MOST] = at;
        d->quiet_known = true;
        d->quiet = e->size;
        d->at[QUIET_MOST - USED_MOST] = at;
    }
    size_t number = find_device(f, e, false);
    for (size_t i = 0; number != DEVICES && i < TOTALS; i++)
        f->device[number].at[USED_MOST + i] = d->at[i];
}

/* Of one that is seen again and again the newest stays. */
static void see_pool(cm_fold *f, thread *t, const cm_event *e, uint32_t at)
{
    size_t slot = (e->address >> 6) % POOLS;
    t->chain = at;
    if (at == 0 || e->flags != CM_POOL_SEEN)
        return;
    if (f->pool[slot].at != 0 && f->pool[slot].address == e->address)
        f->items[f->pool[slot].at].nothing = true;
    f->pool[slot].address = e->address;
    f->pool[slot].at = at;
}

/* What is said of one event is one chain, and goes where that goes. */
static void append(cm_fold *f, uint32_t head, uint32_t at)
{
    uint32_t last = head;
    while (f->items[last].link != 0)
        last = f->items[last].link;
    f->items[last].link = at;
    f->items[at].nothing = true;
}

/* Of these, one can come and go without anybody having to know. */
static bool comes_and_goes(uint8_t kind)
{
    return kind == CM_DRIVER_DEVICE || kind == CM_DRIVER_MANAGED || kind == CM_DRIVER_HOST ||
           kind == CM_DRIVER_ASYNC;
}

static uint64_t address_key(uint64_t address)
{
    return address & (UINT64_MAX >> 1);
}

static uint64_t key_of(uint64_t correlation, bool release)
{
    return (uint64_t)(uint32_t)correlation << 1 | release;
}

static void see_highest(cm_fold *f, size_t place, uint32_t at)
{
    int64_t bytes = f->driver.map->accounts.device[place].bytes;
    if (bytes <= f->driver.place[place].most)
        return;
    f->driver.place[place].most = bytes;
    f->driver.place[place].at = at;
}

/* The bytes that are given out: libraries and records change nothing about them. */
static bool follow(cm_fold *f, const cm_record *record)
{
    if (f->driver.map == NULL && (f->driver.map = cm_drivermap_new(NULL)) == NULL)
        return false;
    return cm_drivermap_apply(f->driver.map, record);
}

static size_t place_of(const cm_event *e)
{
    return cm_accounts_is_host(e->flags & CM_DRIVER_KIND) ? CM_ACCOUNT_HOST
                                                          : cm_drivermap_place(e->device_index);
}

static bool give_out(cm_fold *f, const cm_event *e, uint32_t at)
{
    uint32_t old;
    see_highest(f, place_of(e), at);
    if (!comes_and_goes(e->flags & CM_DRIVER_KIND) || e->address == 0)
        return true;
    if (cm_idmap_get(&f->driver.given, address_key(e->address), &old)) {
        must_stay(f, at); /* the free of the older one was lost */
        must_stay(f, old);
    }
    return cm_idmap_put(&f->driver.given, address_key(e->address), at);
}

static void take_back(cm_fold *f, const cm_event *e, uint32_t at)
{
    uint8_t kind = e->flags & CM_DRIVER_KIND;
    uint32_t given;
    if (kind == CM_DRIVER_CONTEXT)
        cm_idmap_clear(&f->driver.given); /* nobody will free what was in it */
    if ((kind != 0 && !comes_and_goes(kind)) ||
        !cm_idmap_get(&f->driver.given, address_key(e->address), &given))
        return;
    cm_idmap_remove(&f->driver.given, address_key(e->address));
    tie(f, given, at);
}

static bool see_driver(cm_fold *f, thread *t, const cm_record *record, uint32_t at)
{
    const cm_event *e = &record->event;
    t->chain = 0;
    t->driver = at;
    if (e->kind == CM_EV_WITNESS)
        return true;
    if (!follow(f, record))
        return false;
    if (e->kind == CM_EV_DRIVER_FREE) {
        take_back(f, e, at);
        return true;
    }
    if (at != 0)
        f->items[at].frame = innermost(t)->run; /* it may be charged to it */
    return give_out(f, e, at);
}

/* As driverjoin.c judges. */
static bool agree(const cm_event *record, uint64_t address, int64_t size, int8_t device)
{
    return record->address == address && (record->size == 0 || size == 0 || record->size == size) &&
           (record->device_index < 0 || device < 0 || record->device_index == device);
}

static void join_record(cm_fold *f, uint32_t event, uint32_t record)
{
    const item *it = &f->items[event];
    const cm_event *e = &it->event, *what = e;
    if (e->kind == CM_EV_DRIVER_FREE && it->partner != 0)
        what = &f->items[it->partner].event;
    int8_t device = place_of(what) == CM_ACCOUNT_HOST ? -1 : what->device_index;
    if (!agree(&f->items[record].event, e->address, what->size, device))
        must_stay(f, event);
    append(f, event, record);
}

static void drop_record(cm_fold *f, struct gone *g, uint32_t record)
{
    bool same = agree(&f->items[record].event, g->address, g->size, g->device);
    g->waits = false;
    cm_idmap_remove(&f->driver.gone_at, g->key);
    f->items[record].nothing = true;
    f->driver.sum[CM_DRIVER_SUM_MISSING]--;
    f->driver.sum[CM_DRIVER_SUM_MATCHED] -= !same; /* where it will be counted */
    f->driver.sum[CM_DRIVER_SUM_DIFFER] += !same;
}

static bool correlate(cm_fold *f, uint32_t head, uint64_t correlation)
{
    drivers *d = &f->driver;
    const cm_event *e = &f->items[head].event;
    uint32_t other;
    if (e->kind == CM_EV_WITNESS) {
        uint64_t key = key_of(correlation, (e->flags & CM_EVF_RELEASE) != 0);
        if (cm_idmap_get(&d->events, key, &other)) {
            cm_idmap_remove(&d->events, key);
            join_record(f, other, head);
            return true;
        }
        if (cm_idmap_get(&d->gone_at, key, &other)) {
            drop_record(f, &d->gone[other], head);
            return true;
        }
        if (d->records.count >= RECORDS)
            cm_idmap_clear(&d->records);
        return cm_idmap_put(&d->records, key, head);
    }
    uint64_t key = key_of(correlation, e->kind == CM_EV_DRIVER_FREE);
    if (cm_idmap_get(&d->records, key, &other)) {
        cm_idmap_remove(&d->records, key);
        if (other == 0)
            must_stay(f, head);
        else
            join_record(f, head, other);
        return true;
    }
    if (cm_idmap_get(&d->events, key, &other)) { /* of which a record is, the analysis decides */
        must_stay(f, other);
        must_stay(f, head);
    }
    return cm_idmap_put(&d->events, key, head);
}

static bool say_more(cm_fold *f, thread *t, const cm_record *record, uint32_t at)
{
    const cm_event *e = &record->event;
    uint32_t head = t->driver;
    if ((e->size == CM_MORE_HANDLE || e->size == CM_MORE_FAILED) && !follow(f, record))
        return false;
    if (e->size == CM_MORE_FAILED) {
        for (size_t i = 0; i < CM_ACCOUNT_DEVICES; i++)
            see_highest(f, i, at);
        must_stay(f, head);
    }
    if (head == 0 || at == 0) {
        chain(f, t, at);
        return true;
    }
    append(f, head, at);
    if (e->size != CM_MORE_CORRELATION)
        return true;
    if (f->items[head].event.kind == CM_EV_WITNESS)
        t->driver = 0; /* that is all that is said of a record */
    return correlate(f, head, e->address);
}

/* --- one event ----------------------------------------------------------------------------- */

static bool note(cm_fold *f, uint32_t number, const cm_event *e, uint32_t at)
{
    cm_record record = {.event = *e, .thread = number};
    if (!cm_nodes_apply(f->nodes, &record))
        return false;
    thread *t = find_thread(f, number);
    uint32_t given;
    if (t == NULL || !touch(f, t))
        return false;
    switch (e->kind) {
    case CM_EV_ALLOC:
        if (at != 0) {
            f->items[at].frame = innermost(t)->run;
            f->items[at].charge = (uint8_t)cm_nodes_charge(f->nodes, &record).kind;
        }
        run_forward(t, e, at);
        return allocate(f, e, at);
    case CM_EV_FREE:
    case CM_EV_SEGMENT_FREE:
        if (ends_block(f, e)) {
            release(f, e, at);
            release_held(f, t, at);
        }
        return true;
    case CM_EV_HELD:
        t->held = at;
        return true;
    case CM_EV_LAUNCH:
    case CM_EV_WORK:
        if (at != 0)
            f->items[at].nothing = !(e->flags & CM_EVF_SUMMED);
        return true;
    case CM_EV_DEVICE:
        t->driver = 0;
        see_totals(f, t, e, at);
        return true;
    case CM_EV_POOL:
        t->driver = 0;
        see_pool(f, t, e, at);
        return true;
    case CM_EV_DRIVER_NEW:
    case CM_EV_DRIVER_FREE:
    case CM_EV_WITNESS:
        return see_driver(f, t, &record, at);
    case CM_EV_DRIVER_MORE:
        return say_more(f, t, &record, at);
    case CM_EV_REQUESTED:
        request(f, e, at);
        return true;
    case CM_EV_NODE_NEW:
        return make_node(f, t, e, at);
    case CM_EV_NODE_FREE:
        free_node(f, e, at);
        return true;
    case CM_EV_NODE_RUN:
        return run_node(f, t, e, at);
    case CM_EV_NODE_DONE:
        end_node(f, t, at);
        return true;
    case CM_EV_LOST: /* it stays; what was running is unknown from here on */
        t->frames = 1;
        t->unseen = 0;
        t->frame[0] = (frame){0};
        return true;
    case CM_EV_THREAD: {
        uint64_t id = (uint64_t)e->size;
        return id == 0 || id == UINT64_MAX || cm_idmap_put(&f->by_autograd, id, number);
    }
    case CM_EV_SEED:
        return find_alive(f, e);
    case CM_EV_OOM:
        fail(f, e, at);
        return true;
    case CM_EV_SEGMENT_NEW:
        if (cm_idmap_get(&f->driver.given, address_key(e->address), &given))
            must_stay(f, given); /* segments do */
        find_device(f, e, true);
        return true;
    case CM_EV_HOST_READ:
        find_device(f, e, true);
        return true;
    case CM_EV_RESERVED:
        reserve(f, e, at);
        return true;
    case CM_EV_MARK:
        if (e->size == CM_MARK_WINDOW_OPEN)
            f->want_node = true;
        return true;
    default:
        return true;
    }
}

static bool is_bound(const cm_fold *f, const cm_event *e)
{
    switch (e->kind) {
    case CM_EV_TICK:
    case CM_EV_SEED:
        return true;
    case CM_EV_NODE_NEW:
        return f->want_node;
    case CM_EV_MARK: /* collections happen inside of steps */
        return e->size != CM_MARK_COLLECT_BEGIN && e->size != CM_MARK_COLLECT_END;
    default:
        return false;
    }
}

bool cm_fold_see(cm_fold *f, uint32_t thread, const cm_event *event)
{
    return note(f, thread, event, 0);
}

bool cm_fold_add(cm_fold *f, uint32_t thread, const cm_event *event)
{
    bool bound = is_bound(f, event);
    /* What is said of an event stays with it. */
    bool full = f->count >= CM_FOLD_STRETCH && event->kind != CM_EV_DRIVER_MORE;
    if ((bound || full) && !cm_fold_flush(f))
        return false;
    if (bound)
        return note(f, thread, event, 0) && f->put(f->context, thread, event);
    if (f->count == 0) { /* older events rose and fell before */
        for (size_t i = 0; f->driver.map != NULL && i < CM_ACCOUNT_DEVICES; i++) {
            f->driver.place[i].most = f->driver.map->accounts.device[i].bytes;
            f->driver.place[i].at = 0;
        }
        for (size_t i = 0; i < f->devices; i++) {
            f->device[i].live = f->device[i].most = 0;
            memset(f->device[i].at, 0, sizeof f->device[i].at);
        }
    }
    if (!cm_grow((void **)&f->items, &f->capacity, f->count + 2, sizeof *f->items))
        return false;
    f->items[++f->count] = (item){.event = *event, .thread = thread};
    return note(f, thread, event, (uint32_t)f->count);
}

/* --- a stretch's end ----------------------------------------------------------------------- */

static bool was_at_peak(const cm_fold *f, uint32_t at)
{
    const item *it = &f->items[at];
    if (it->event.kind != CM_EV_ALLOC)
        return false;
    const uint32_t *point = f->device[it->device].at;
    for (size_t i = 0; i < POINTS; i++)
        if (at <= point[i] && it->partner > point[i])
            return true;
    return false;
}

/* The same of what the driver gave out; and a block that stays needs the memory that it lies in. */
static bool was_given_then(const cm_fold *f, uint32_t at)
{
    const item *it = &f->items[at];
    if (it->event.kind != CM_EV_DRIVER_NEW || it->partner == 0)
        return false;
    size_t place = place_of(&it->event);
    uint32_t highest = f->driver.place[place].at;
    if (at <= highest && it->partner > highest)
        return true;
    if (place == CM_ACCOUNT_HOST)
        return false;
    size_t number = DEVICES;
    for (size_t i = 0; i < f->devices; i++)
        if (f->device[i].type == CM_DEVICE_CUDA && f->device[i].index == it->event.device_index)
            number = i;
    for (size_t i = 0; i < POINTS; i++) {
        uint32_t point = number != DEVICES ? f->device[number].at[i] : 0;
        uint32_t told = i < TOTALS ? f->device_totals[place].at[i] : 0;
        if ((at <= point && it->partner > point) || (at <= told && it->partner > told))
            return true;
    }
    return false;
}

static bool choose(cm_fold *f)
{
    for (uint32_t i = 1; i <= f->count; i++) {
        const item *it = &f->items[i];
        bool halved = it->partner == 0 && !it->nothing;
        if ((halved || it->must || was_at_peak(f, i) || was_given_then(f, i)) && !keep(f, i))
            return false;
    }
    for (size_t i = 0; i < 256; i++)
        for (size_t j = 0; j < TOTALS; j++)
            if (!keep(f, f->device_totals[i].at[j]))
                return false;
    /* What runs on, and the line that is handed on to the next leaf. */
    while (f->touched_count > 0) {
        thread *t = &f->threads[f->touched[--f->touched_count]];
        t->touched = false;
        /* The rest of a chain comes in the next stretch. */
        if (!keep(f, t->chain) || !keep(f, t->driver))
            return false;
        t->driver = 0;
        t->split = t->split || (t->chain != 0 && f->items[t->chain].event.kind == CM_EV_DEVICE);
        t->chain = t->held = 0;
        for (size_t j = 0; j < t->frames; j++) {
            if (!keep(f, t->frame[j].setter))
                return false;
            t->frame[j].run = t->frame[j].setter = 0;
        }
    }
    return true;
}

static bool new_total(cm_fold *f, thread *t, total fresh)
{
    if (!cm_grow((void **)&f->total, &f->total_capacity, f->totals + 1, sizeof *f->total))
        return false;
    fresh.before = t->total;
    f->total[f->totals++] = fresh;
    t->total = (uint32_t)f->totals;
    return true;
}

/* A block that came and went. */
static bool add_total(cm_fold *f, const item *it)
{
    thread *of = find_thread(f, it->thread);
    if (of == NULL)
        return false;
    for (uint32_t i = of->total; i != 0; i = f->total[i - 1].before) {
        total *t = &f->total[i - 1];
        if (t->device == it->device && t->charge == it->charge) {
            t->blocks++;
            t->bytes += it->event.size;
            return true;
        }
    }
    return new_total(f, of, (total){it->thread, it->device, it->charge, 1, it->event.size, 0});
}

/* A thread that only freed what others allocated counts as one that did something, too. */
static bool add_thread(cm_fold *f, const item *it)
{
    thread *of = find_thread(f, it->thread);
    if (of == NULL || of->total != 0)
        return of != NULL;
    uint8_t device = it->partner != 0 ? f->items[it->partner].device : it->device;
    return new_total(f, of, (total){.thread = it->thread, .device = device});
}

static bool add_work(cm_fold *f, const item *it)
{
    uint32_t at;
    if (it->event.kind == CM_EV_LAUNCH) {
        f->launches++;
        f->launch = it->event;
        f->launch_thread = it->thread;
        return true;
    }
    if (!cm_idmap_get(&f->work_of, it->event.stack, &at)) {
        at = (uint32_t)f->works;
        if (!cm_grow((void **)&f->work, &f->work_capacity, f->works + 1, sizeof *f->work) ||
            !cm_idmap_put(&f->work_of, it->event.stack, at))
            return false;
        f->work[f->works++] =
            (work){.name = it->event.stack, .like = it->event, .thread = it->thread};
    }
    f->work[at].count++;
    if (__builtin_add_overflow(f->work[at].ns, it->event.size, &f->work[at].ns))
        f->work[at].ns = INT64_MAX; /* a trace does not last that long */
    return true;
}

static bool put_work(cm_fold *f, uint64_t time)
{
    cm_event e = f->launch;
    e.time = time;
    e.flags |= CM_EVF_SUMMED;
    e.size = (int64_t)f->launches;
    e.address = 0;
    e.stack = 0;
    if (f->launches > 0 && !f->put(f->context, f->launch_thread, &e))
        return false;
    for (size_t i = 0; i < f->works; i++) {
        const work *w = &f->work[i];
        e = w->like;
        e.time = time;
        e.flags |= CM_EVF_SUMMED;
        e.address = w->count;
        e.size = w->ns;
        if (!f->put(f->context, w->thread, &e))
            return false;
    }
    f->launches = 0;
    f->works = 0;
    cm_idmap_clear(&f->work_of);
    return true;
}

/* Its record may come in a later stretch. */
static bool let_go(cm_fold *f, uint64_t key, uint32_t at)
{
    drivers *d = &f->driver;
    const item *it = &f->items[at];
    const cm_event *what =
        it->event.kind == CM_EV_DRIVER_FREE ? &f->items[it->partner].event : &it->event;
    if (d->gone == NULL && (d->gone = calloc(GONE, sizeof *d->gone)) == NULL)
        return false;
    uint32_t number = d->next_gone++ % GONE;
    struct gone *g = &d->gone[number];
    if (g->waits)
        cm_idmap_remove(&d->gone_at, g->key);
    *g = (struct gone){key, it->event.address, what->size,
                       place_of(what) == CM_ACCOUNT_HOST ? -1 : what->device_index, true};
    d->sum[CM_DRIVER_SUM_MISSING]++;
    return cm_idmap_put(&d->gone_at, key, number);
}

static bool let_drivers_go(cm_fold *f)
{
    drivers *d = &f->driver;
    for (size_t i = 0; i < d->events.slots; i++) {
        const struct cm_idmap_slot *s = &d->events.slot[i];
        if (s->key != 0 && !f->items[s->value].keep && !let_go(f, s->key - 1, s->value))
            return false;
    }
    cm_idmap_clear(&d->events);
    for (size_t i = 0; i < d->given.slots; i++)
        d->given.slot[i].value = 0;
    for (size_t i = 0; i < d->records.slots; i++)
        d->records.slot[i].value = 0;
    return true;
}

static bool put_drivers(cm_fold *f, uint64_t time)
{
    for (uint64_t i = 0; i < CM_DRIVER_SUMS; i++) {
        cm_event e = {.kind = CM_EV_DRIVER_FOLDED,
                      .time = time,
                      .address = i,
                      .size = f->driver.sum[i],
                      .device_index = -1};
        if (e.size != 0 && !f->put(f->context, 0, &e))
            return false;
        f->driver.sum[i] = 0;
    }
    return true;
}

static bool put_sums(cm_fold *f, uint64_t left_out, uint64_t runs, uint32_t nodes)
{
    uint64_t time = f->items[f->count].event.time;
    if (!put_work(f, time) || !put_drivers(f, time))
        return false;
    for (size_t i = 0; i < f->totals; i++) {
        const total *t = &f->total[i];
        cm_event e = {.kind = CM_EV_FOLDED,
                      .time = time,
                      .address = t->blocks,
                      .size = t->bytes,
                      .flags = t->charge,
                      .device_type = f->device[t->device].type,
                      .device_index = f->device[t->device].index};
        if (!f->put(f->context, t->thread, &e))
            return false;
        thread *of = find_thread(f, t->thread);
        if (of == NULL)
            return false;
        of->total = 0;
    }
    cm_event e = {.kind = CM_EV_FOLD,
                  .time = time,
                  .address = left_out,
                  .size = (int64_t)runs,
                  .stack = nodes,
                  .device_index = -1};
    return left_out == 0 || f->put(f->context, 0, &e);
}

static bool put_stretch(cm_fold *f)
{
    uint64_t left_out = 0, runs = 0;
    uint32_t nodes = 0;
    f->totals = 0;
    for (uint32_t i = 1; i <= f->count; i++) {
        const item *it = &f->items[i];
        if (it->keep) {
            if (!f->put(f->context, it->thread, &it->event))
                return false;
            continue;
        }
        left_out++;
        f->driver.sum[CM_DRIVER_SUM_ALLOCATIONS] += it->event.kind == CM_EV_DRIVER_NEW;
        f->driver.sum[CM_DRIVER_SUM_FREES] += it->event.kind == CM_EV_DRIVER_FREE;
        f->driver.sum[CM_DRIVER_SUM_MATCHED] += it->event.kind == CM_EV_WITNESS;
        runs += it->event.kind == CM_EV_NODE_RUN;
        nodes += it->event.kind == CM_EV_NODE_NEW;
        bool heap = it->event.kind == CM_EV_ALLOC || it->event.kind == CM_EV_FREE ||
                    it->event.kind == CM_EV_SEGMENT_FREE;
        bool block = it->event.kind == CM_EV_ALLOC && !it->nothing;
        bool of_work = it->event.kind == CM_EV_LAUNCH || it->event.kind == CM_EV_WORK;
        if ((block && !add_total(f, it)) || (heap && !add_thread(f, it)) ||
            (of_work && !add_work(f, it)))
            return false;
    }
    return let_drivers_go(f) && put_sums(f, left_out, runs, nodes);
}

/* The next stretch's indices mean other items. */
static bool age(cm_fold *f)
{
    for (uint32_t i = 1; i <= f->count; i++) {
        const item *it = &f->items[i];
        cm_block block;
        if (it->event.kind != CM_EV_ALLOC || it->partner != 0 || !is_block(&it->event))
            continue;
        if (!cm_blocks_take(&f->blocks, it->device, it->event.address, &block))
            continue; /* replaced, and its successor freed */
        block.origin = 0;
        if (cm_blocks_put(&f->blocks, &block) == NULL)
            return false;
    }
    cm_idmap_clear(&f->made);
    for (size_t i = 0; i < 256; i++)
        memset(f->device_totals[i].at, 0, sizeof f->device_totals[i].at);
    for (size_t i = 0; i < POOLS; i++)
        f->pool[i].at = 0;
    f->count = 0;
    return true;
}

bool cm_fold_flush(cm_fold *f)
{
    return f->count == 0 || (choose(f) && put_stretch(f) && age(f));
}
