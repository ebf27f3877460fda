#include "ranges.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"

void cm_ranges_clear(cm_ranges *r)
{
    for (size_t i = 0; i < r->leaves; i++)
        free(r->entry[i].leaf);
    free(r->entry);
    *r = (cm_ranges){0};
}

bool cm_ranges_copy(cm_ranges *copy, const cm_ranges *r)
{
    *copy = (cm_ranges){.capacity = r->leaves, .count = r->count};
    if (!cm_copy((void **)&copy->entry, r->entry, r->leaves, sizeof *r->entry))
        return false;
    for (; copy->leaves < r->leaves; copy->leaves++)
        if (!cm_copy((void **)&copy->entry[copy->leaves].leaf, r->entry[copy->leaves].leaf, 1,
                     sizeof(cm_ranges_leaf))) {
            cm_ranges_clear(copy);
            return false;
        }
    return true;
}

/* Neither search branches on a comparison: addresses come in any order, and a misprediction costs
 * more than the comparison. */

/* How many leaves begin at or below the key. */
static size_t leaves_below(const cm_ranges *r, uint64_t key)
{
    size_t below = 0;
    for (size_t left = r->leaves; left > 0;) {
        size_t half = (left + 1) / 2;
        below += half & -(size_t)(r->entry[below + half - 1].first <= key);
        left -= half;
    }
    return below;
}

/* How many keys of the leaf are at or below the key. */
static uint32_t keys_below(const cm_ranges_leaf *leaf, uint64_t key)
{
    size_t below = 0;
    for (size_t left = leaf->count; left > 0;) {
        size_t half = (left + 1) / 2;
        below += half & -(size_t)(leaf->key[below + half - 1] <= key);
        left -= half;
    }
    return (uint32_t)below;
}

static cm_ranges_leaf *add_leaf(cm_ranges *r, size_t at)
{
    cm_ranges_leaf *leaf = malloc(sizeof *leaf);
    if (leaf == NULL ||
        !cm_grow((void **)&r->entry, &r->capacity, r->leaves + 1, sizeof *r->entry)) {
        free(leaf);
        return NULL;
    }
    memmove(r->entry + at + 1, r->entry + at, (r->leaves - at) * sizeof *r->entry);
    r->entry[at] = (struct cm_ranges_entry){0, leaf};
    r->leaves++;
    leaf->count = 0;
    return leaf;
}

static void move(cm_ranges_leaf *to, uint32_t at, const cm_ranges_leaf *from, uint32_t first,
                 uint32_t count)
{
    memmove(to->key + at, from->key + first, count * sizeof *to->key);
    memmove(to->value + at, from->value + first, count * sizeof *to->value);
}

bool cm_ranges_put(cm_ranges *r, uint64_t key, uint32_t value)
{
    size_t number = leaves_below(r, key);
    number -= number > 0;
    cm_ranges_leaf *leaf = r->leaves > 0 ? r->entry[number].leaf : add_leaf(r, 0);
    if (leaf == NULL)
        return false;
    uint32_t at = keys_below(leaf, key);
    if (at > 0 && leaf->key[at - 1] == key) {
        leaf->value[at - 1] = value;
        return true;
    }
    if (leaf->count == CM_RANGES_LEAF) {
        cm_ranges_leaf *half = add_leaf(r, number + 1);
        if (half == NULL)
            return false;
        half->count = CM_RANGES_LEAF / 2;
        leaf->count -= half->count;
        move(half, 0, leaf, leaf->count, half->count);
        r->entry[number + 1].first = half->key[0];
        if (at > leaf->count) {
            at -= leaf->count;
            leaf = half;
            number++;
        }
    }
    move(leaf, at + 1, leaf, at, leaf->count - at);
    leaf->key[at] = key;
    leaf->value[at] = value;
    leaf->count++;
    r->entry[number].first = leaf->key[0];
    r->count++;
    return true;
}

static void drop_leaf(cm_ranges *r, size_t number)
{
    free(r->entry[number].leaf);
    r->leaves--;
    memmove(r->entry + number, r->entry + number + 1, (r->leaves - number) * sizeof *r->entry);
}

/* Merges the next leaf into this one if both are small. */
static void join(cm_ranges *r, size_t number)
{
    if (number + 1 >= r->leaves)
        return;
    cm_ranges_leaf *leaf = r->entry[number].leaf, *next = r->entry[number + 1].leaf;
    if (leaf->count + next->count > CM_RANGES_LEAF / 2)
        return;
    move(leaf, leaf->count, next, 0, next->count);
    leaf->count += next->count;
    r->entry[number].first = leaf->key[0];
    drop_leaf(r, number + 1);
}

bool cm_ranges_remove(cm_ranges *r, uint64_t key, uint32_t value)
{
    size_t number = leaves_below(r, key);
    if (number-- == 0)
        return false;
    cm_ranges_leaf *leaf = r->entry[number].leaf;
    uint32_t at = keys_below(leaf, key);
    if (at-- == 0 || leaf->key[at] != key || leaf->value[at] != value)
        return false;
    leaf->count--;
    move(leaf, at, leaf, at + 1, leaf->count - at);
    r->count--;
    if (leaf->count == 0) {
        drop_leaf(r, number);
        return true;
    }
    r->entry[number].first = leaf->key[0];
    join(r, number);
    if (number > 0)
        join(r, number - 1);
    return true;
}

bool cm_ranges_below(const cm_ranges *r, uint64_t at, uint64_t *key, uint32_t *value)
{
    size_t number = leaves_below(r, at);
    if (number == 0)
        return false;
    const cm_ranges_leaf *leaf = r->entry[number - 1].leaf;
    uint32_t found = keys_below(leaf, at) - 1;
    *key = leaf->key[found];
    *value = leaf->value[found];
    return true;
}

bool cm_ranges_above(const cm_ranges *r, uint64_t at, uint64_t *key, uint32_t *value)
{
    if (r->leaves == 0)
        return false;
    size_t number = leaves_below(r, at);
    number -= number > 0;
    const cm_ranges_leaf *leaf = r->entry[number].leaf;
    uint32_t found = keys_below(leaf, at);
    if (found > 0 && leaf->key[found - 1] == at)
        found--;
    if (found == leaf->count) {
        if (++number == r->leaves)
            return false;
        leaf = r->entry[number].leaf;
        found = 0;
    }
    *key = leaf->key[found];
    *value = leaf->value[found];
    return true;
}
