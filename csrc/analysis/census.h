/* What is alive, counted by group and step of birth. One owner. */
#ifndef CM_ANALYSIS_CENSUS_H
#define CM_ANALYSIS_CENSUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cm_census_row {
    uint32_t group, step;
    int64_t bytes;
    uint64_t count;
    uint64_t youngest; /* the highest order among them */
} cm_census_row;

typedef struct cm_census {
    cm_census_row *row;
    size_t count, capacity;
} cm_census;

/* All zero is an empty census. */
void cm_census_clear(cm_census *census);
bool cm_census_add(cm_census *census, const cm_census_row *row); /* false: out of memory */
/* Sorts by group, then step, and joins rows that agree in both. */
void cm_census_sort(cm_census *census);
/* Subtracts `gone` from `census`, which contains it; both are sorted. */
void cm_census_subtract(cm_census *census, const cm_census *gone);
/* The rows of one group of a sorted census; NULL if there are none. */
const cm_census_row *cm_census_find(const cm_census *census, uint32_t group, size_t *count);

#endif
