#include "census.h"

#include <stdlib.h>

#include "../base/grow.h"

void cm_census_clear(cm_census *census)
{
    free(census->row);
    *census = (cm_census){0};
}

bool cm_census_add(cm_census *census, const cm_census_row *row)
{
    if (!cm_grow((void **)&census->row, &census->capacity, census->count + 1, sizeof *census->row))
        return false;
    census->row[census->count++] = *row;
    return true;
}

static uint64_t key(const cm_census_row *row)
{
    return (uint64_t)row->group << 32 | row->step;
}

static int by_key(const void *left, const void *right)
{
    uint64_t a = key(left), b = key(right);
    return a < b ? -1 : a > b;
}

void cm_census_sort(cm_census *census)
{
    size_t kept = 0;
    cm_sort(census->row, census->count, sizeof *census->row, by_key);
    for (size_t i = 0; i < census->count; i++) {
        const cm_census_row *row = &census->row[i];
        if (kept == 0 || key(&census->row[kept - 1]) != key(row)) {
            census->row[kept++] = *row;
            continue;
        }
        cm_census_row *into = &census->row[kept - 1];
        into->bytes += row->bytes;
        into->count += row->count;
        if (row->youngest > into->youngest)
            into->youngest = row->youngest;
    }
    census->count = kept;
}

void cm_census_subtract(cm_census *census, const cm_census *gone)
{
    size_t kept = 0, g = 0;
    for (size_t i = 0; i < census->count; i++) {
        cm_census_row row = census->row[i];
        while (g < gone->count && key(&gone->row[g]) < key(&row))
            g++;
        if (g < gone->count && key(&gone->row[g]) == key(&row)) {
            row.bytes -= gone->row[g].bytes;
            row.count -= gone->row[g].count;
        }
        if (row.count > 0)
            census->row[kept++] = row;
    }
    census->count = kept;
}

const cm_census_row *cm_census_find(const cm_census *census, uint32_t group, size_t *count)
{
    size_t low = 0, high = census->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (census->row[middle].group < group)
            low = middle + 1;
        else
            high = middle;
    }
    size_t end = low;
    while (end < census->count && census->row[end].group == group)
        end++;
    *count = end - low;
    return *count > 0 ? &census->row[low] : NULL;
}
