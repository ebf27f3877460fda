#include "mapped.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"

#define MOST (UINT64_C(1) << 48) /* of a range: more is no mapping */

static bool put(cm_mapped *m, cm_mapped_run run)
{
    uint32_t number;
    if (m->unused_count > 0) {
        number = m->unused[--m->unused_count];
    } else {
        if (m->runs >= UINT32_MAX ||
            !cm_grow((void **)&m->run, &m->capacity, m->runs + 1, sizeof *m->run))
            return false;
        number = (uint32_t)m->runs++;
    }
    m->run[number] = run;
    return cm_ranges_put(&m->starts, run.start, number);
}

static bool drop(cm_mapped *m, uint64_t start, uint32_t number)
{
    cm_ranges_remove(&m->starts, start, number);
    if (!cm_grow((void **)&m->unused, &m->unused_capacity, m->unused_count + 1, sizeof *m->unused))
        return false;
    m->unused[m->unused_count++] = number;
    return true;
}

bool cm_mapped_is_range(uint64_t start, uint64_t size)
{
    return size > 0 && size < MOST && start > 0 && start < UINT64_MAX - MOST;
}

bool cm_mapped_add(cm_mapped *m, uint64_t start, uint64_t size, uint32_t stack)
{
    cm_mapped_run run = {start, start + size, stack};
    uint64_t key;
    uint32_t number;
    if (!cm_mapped_is_range(start, size))
        return true;
    if (cm_ranges_below(&m->starts, start, &key, &number) && m->run[number].end >= start) {
        run.start = key;
        if (m->run[number].end > run.end)
            run.end = m->run[number].end;
        if (!drop(m, key, number))
            return false;
    }
    while (cm_ranges_above(&m->starts, run.start, &key, &number) && key <= run.end) {
        if (m->run[number].end > run.end)
            run.end = m->run[number].end;
        if (!drop(m, key, number))
            return false;
    }
    return put(m, run);
}

/* A run without its part from start to end. */
static bool cut(cm_mapped *m, uint64_t key, uint32_t number, uint64_t start, uint64_t end)
{
    cm_mapped_run run = m->run[number];
    if (!drop(m, key, number))
        return false;
    if (key < start && !put(m, (cm_mapped_run){key, start, run.stack}))
        return false;
    return run.end <= end || put(m, (cm_mapped_run){end, run.end, run.stack});
}

bool cm_mapped_remove(cm_mapped *m, uint64_t start, uint64_t size)
{
    uint64_t key, end = start + size;
    uint32_t number;
    if (!cm_mapped_is_range(start, size))
        return true;
    if (cm_ranges_below(&m->starts, start, &key, &number) && m->run[number].end > start &&
        !cut(m, key, number, start, end))
        return false;
    while (cm_ranges_above(&m->starts, start, &key, &number) && key < end)
        if (!cut(m, key, number, start, end))
            return false;
    return true;
}

bool cm_mapped_next(const cm_mapped *m, uint64_t from, cm_mapped_run *run)
{
    uint64_t key;
    uint32_t number;
    if (!cm_ranges_above(&m->starts, from, &key, &number))
        return false;
    *run = m->run[number];
    return true;
}

bool cm_mapped_around(const cm_mapped *m, uint64_t address, cm_mapped_run *run)
{
    uint64_t key;
    uint32_t number;
    if (!cm_ranges_below(&m->starts, address, &key, &number) || m->run[number].end <= address)
        return false;
    *run = m->run[number];
    return true;
}

void cm_mapped_clear(cm_mapped *m)
{
    cm_ranges_clear(&m->starts);
    free(m->run);
    free(m->unused);
    *m = (cm_mapped){0};
}
