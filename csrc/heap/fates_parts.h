/* Shared by the files that find fates: records (fates.c), the table of live blocks (fates_live.c),
 * the rules (fates_judge.c). */
#ifndef CM_HEAP_FATES_PARTS_H
#define CM_HEAP_FATES_PARTS_H

#include "fates.h"
#include "gradients.h"
#include "../base/pool.h"

enum { CM_FATE_ROUND = 16 };

typedef enum cm_fate_made {
    CM_MADE_ELSEWHERE,
    CM_MADE_FORWARD,
    CM_MADE_BACKWARD,
    CM_MADE_OPTIMIZER,
    CM_MADE_BEFORE
} cm_fate_made;

/* A live block. */
typedef struct cm_fate_life {
    uint64_t key; /* of device and address, 0 = not yet filled in */
    int64_t size;
    uint32_t birth;
    uint32_t stack, visit;    /* its own; of purposes.h */
    uint32_t turn, cycle;     /* of birth, see below */
    uint32_t node;            /* sequence number of the node made with it, 0 = none */
    uint32_t node_ended;      /* turn, 0 = it is alive */
    uint8_t made;             /* cm_fate_made */
    uint8_t moved;            /* cm_category: a module's, CM_CATEGORY_UNKNOWN: not moved */
    bool data : 1, setup : 1; /* for a data set; before the first update */
    bool late : 1;            /* after the step's first recorded call of a module, see note_stack */
    bool built : 1;           /* by a constructor of PyTorch's modules */
    bool loaded : 1, bucket : 1, hooked : 1; /* from a file; of DDP or FSDP; by Python in a node */
    bool inherited : 1;                      /* its life before the window does not count */
    bool after : 1;                          /* after any forward since a pass or update */
    bool recorded : 1;                       /* made in a backward pass that records nodes itself */
} cm_fate_life;

_Static_assert(sizeof(cm_fate_life) == 48, "the promise of bytes per live block");

/* What ended before a cycle, and its last turn with a forward. */
typedef struct cm_fate_cycle {
    uint32_t updates, rounds, passes, last_forward;
} cm_fate_cycle;

typedef struct cm_fate_thread {
    uint32_t number;
    uint32_t node_stack, node; /* of the last node that it made; its sequence number */
    uint32_t saver, passes;    /* the last node run, and the passes ended by then */
} cm_fate_thread;

struct cm_fates {
    const cm_replay *replay;
    cm_fate_list list;
    uint64_t grouped;        /* blocks in cohorts, without the single ones */
    uint32_t *singles;       /* by cohort: the single ones */
    cm_fate_life *inherited; /* by origin, once asked: made where, without a size */
    cm_idmap singled;        /* keys */
    bool failed;             /* out of memory, see cm_fates_end */
    cm_pool lives;
    size_t alive;
    uint32_t *slot; /* hash by key: number in lives */
    size_t slots;
    size_t last_slot;    /* that cm_fates_find found */
    bool keyed;          /* hashed with the process's secret, see base/hash.h */
    uint32_t *node_slot; /* hash by node, of those that have one: number in lives */
    size_t node_slots, with_node;
    /* The program's turns: forward, forward again inside a node (which takes no input), backward,
     * something else. Each change is a turn, so "since then" is a comparison. */
    enum { CM_TURN_ELSEWHERE, CM_TURN_FORWARD, CM_TURN_AGAIN, CM_TURN_BACKWARD } at;
    uint32_t turn, forward, backward, node, refused; /* the last turn with each */
    uint32_t cycle;       /* the first turn after the last backward pass or update */
    uint32_t recorded;    /* the last turn in which a module's call made a node */
    uint32_t twice;       /* passes ended with the one that records nodes itself */
    cm_fate_cycle *ended; /* cycles: each pass and update ends one */
    size_t cycles, cycle_capacity;
    uint32_t gradients; /* with a walk that labelled gradients */
    uint32_t updates, rounds, passes;
    uint64_t round[CM_FATE_ROUND]; /* optimizers that stepped in this round */
    size_t in_round;
    bool workspaces;             /* a hook labelled one */
    bool walked, walks, updated; /* a label was recorded, also before the window; a walk in it; */
    cm_idmap threads;
    cm_fate_thread *thread;
    size_t thread_count, thread_capacity;
    uint32_t last_thread;
    int8_t cuda[256]; /* devices seen */
    size_t cudas;
    cm_gradients unnamed;
    uint32_t boundary; /* stack of the last backward pass or update, 0 = none */
    uint32_t call;     /* ... of the last forward's first block or node */
    /* Stack and thread of the last backward pass, and of its callers those that still run. */
    uint32_t pass, pass_thread, running;
    uint32_t pass_updates; /* ended before it */
};

/* A number of `slot` or `node_slot`. */
static inline cm_fate_life *cm_fates_numbered(const cm_fates *f, uint32_t number)
{
    return cm_pool_at(&f->lives, sizeof(cm_fate_life), number);
}

/* Of the cycle in which it was made; of the one that has not ended, so far. */
static inline cm_fate_cycle cm_fates_cycle(const cm_fates *f, const cm_fate_life *l)
{
    return l->cycle < f->cycles ? f->ended[l->cycle]
                                : (cm_fate_cycle){f->updates, f->rounds, f->passes, f->forward};
}

/* Live blocks by key, of device and address. NULL or false: out of memory, or as said. */
cm_fate_life *cm_fates_find(cm_fates *f, uint64_t key); /* NULL: none */
/* The entry of this key, or a new one for it, to be filled in before any other call: its key is
 * 0. */
cm_fate_life *cm_fates_reserve(cm_fates *f, uint64_t key);
void cm_fates_take(cm_fates *f, const cm_fate_life *l);
void cm_fates_clear_lives(cm_fates *f);
/* The live block made with this node; NULL: none. */
cm_fate_life *cm_fates_of_node(const cm_fates *f, uint32_t node);
/* Its node, of which there is no block yet. */
bool cm_fates_put_node(cm_fates *f, cm_fate_life *l, uint32_t node);
void cm_fates_drop_node(cm_fates *f, const cm_fate_life *l);

/* Whether others of its stack may be for the same. */
static inline bool cm_fates_has_siblings(const cm_fate_life *l)
{
    return l->made == CM_MADE_ELSEWHERE || l->made == CM_MADE_FORWARD;
}

/* Decides the fate. gone: freed; else alive at the window's end. freed_by: NULL if the window's
 * end, or another block at its address, ends it. */
void cm_fates_end_life(cm_fates *f, const cm_fate_life *l, bool gone,
                       const cm_fate_thread *freed_by);
/* The same of so many blocks of a cohort, alive at the window's end. */
void cm_fates_end_cohort(cm_fates *f, const cm_fate_life *l, uint32_t count);

#endif
