/* What the leak verdicts are made of, gathered while the trace is replayed: per loop and folded
 * stack the level at the boundaries, what survives by the step it was born in, and what the final
 * collection frees. leaks.c gathers, verdicts.c judges. One owner. */
#ifndef CM_ANALYSIS_LEAKS_H
#define CM_ANALYSIS_LEAKS_H

#include "fold.h"
#include "growth.h"
#include "map.h"
#include "parts.h"

/* Graph nodes stand beside the devices; loops beyond these are not judged. */
enum { CM_LEAK_GRAPH = UINT16_MAX, CM_LEAK_LOOPS = 64 };

/* The blocks (nodes) of one device (the graph), folded stack and loop of birth. */
typedef struct cm_leak_entry {
    uint32_t fold, stack; /* stack: the first one seen */
    uint16_t device;
    uint16_t loop;
    bool evicted;        /* see cm_growth */
    bool working;        /* of data, forward or unknown phase: such stacks show the workload */
    int64_t live;        /* now; after the loop's last boundary as it was there */
    uint64_t count;      /* in blocks */
    int64_t early, late; /* bytes allocated in the first and the last third of the loop */
    int64_t first;       /* step of the first birth, counted in the loop */
    int64_t filled;      /* boundaries that the level knows */
    int64_t *level;      /* CM_LEVELS; NULL: 0 so far */
} cm_leak_entry;

/* What was born in one step and is alive at the loop's last boundary. */
typedef struct cm_leak_age {
    uint32_t entry;
    int64_t step; /* counted in the loop */
    int64_t bytes, dead_bytes;
    uint64_t count, dead;      /* dead: in the final collection */
    uint64_t oldest, youngest; /* of nodes: their lowest and highest sequence number */
} cm_leak_age;

typedef struct cm_leak_loop {
    int64_t steps, done;   /* done: boundaries passed */
    uint32_t last;         /* its last step, counted in the trace */
    size_t first_of_order; /* order[first_of_order + step] = step counted in the trace */
    bool closed;
    bool collected_late; /* a collection ran in its last third */
    uint64_t epochs;
} cm_leak_loop;

typedef struct cm_leak_data {
    const cm_steps *steps;
    cm_folds *folds;
    cm_leak_loop *loop;
    size_t loops;
    uint32_t *order, *relative; /* by loop and step; by step of the trace */
    cm_leak_entry *entry;
    size_t entries, entry_capacity;
    cm_leak_age *age;
    size_t ages, age_capacity;
    uint64_t live_nodes;
    bool final;           /* the final collection was made */
    bool final_automatic; /* ... and automatic collection was on */
} cm_leak_data;

/* Fills in leaks, suspects and leak_parts. false: out of memory. */
bool cm_leaks_judge(cm_leak_data *data, cm_analysis *out);

#endif
