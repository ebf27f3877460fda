/* The mapped ranges of expandable segments. Ranges that touch are one, as PyTorch shows them: it
 * grows and shrinks, and falls into two where its middle is unmapped. One owner. */
#ifndef CM_BASE_MAPPED_H
#define CM_BASE_MAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ranges.h"

typedef struct cm_mapped_run {
    uint64_t start, end;
    uint32_t stack;
} cm_mapped_run;

typedef struct cm_mapped {
    cm_ranges starts; /* start -> number of the run */
    cm_mapped_run *run;
    size_t runs, capacity;
    uint32_t *unused; /* numbers */
    size_t unused_count, unused_capacity;
} cm_mapped;

bool cm_mapped_is_range(uint64_t start, uint64_t size); /* the others are of no memory */
/* false: out of memory. */
bool cm_mapped_add(cm_mapped *mapped, uint64_t start, uint64_t size, uint32_t stack);
bool cm_mapped_remove(cm_mapped *mapped, uint64_t start, uint64_t size);
/* The first run from this address on. */
bool cm_mapped_next(const cm_mapped *mapped, uint64_t from, cm_mapped_run *run);
/* The one around an address; false: there is none. */
bool cm_mapped_around(const cm_mapped *mapped, uint64_t address, cm_mapped_run *run);
void cm_mapped_clear(cm_mapped *mapped);

#endif
