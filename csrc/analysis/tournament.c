#include "tournament.h"

#include <stdlib.h>
#include <string.h>

static int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void cm_tournament_clear(cm_tournament *tree)
{
    free(tree->value);
    *tree = (cm_tournament){0};
}

bool cm_tournament_reserve(cm_tournament *tree, size_t leaves)
{
    if (leaves <= tree->leaves)
        return true;
    size_t count = tree->leaves ? tree->leaves : 64;
    while (count < leaves)
        count *= 2;
    int64_t *value = calloc(count * 2, sizeof *value);
    if (value == NULL)
        return false;
    if (tree->leaves > 0)
        memcpy(value + count, tree->value + tree->leaves, tree->leaves * sizeof *value);
    for (size_t i = count; i-- > 1;)
        value[i] = larger_of(value[2 * i], value[2 * i + 1]);
    free(tree->value);
    *tree = (cm_tournament){value, count};
    return true;
}

void cm_tournament_set(cm_tournament *tree, size_t leaf, int64_t value)
{
    size_t i = tree->leaves + leaf;
    tree->value[i] = value;
    while (i > 1) {
        i /= 2;
        int64_t winner = larger_of(tree->value[2 * i], tree->value[2 * i + 1]);
        if (tree->value[i] == winner)
            break;
        tree->value[i] = winner;
    }
}

size_t cm_tournament_largest(cm_tournament *tree, size_t wanted, uint32_t *leaf)
{
    int64_t taken[64];
    size_t found = 0;
    if (wanted > sizeof taken / sizeof taken[0])
        wanted = sizeof taken / sizeof taken[0];
    /* Remove each winner to find the next, and restore all at the end. */
    while (tree->leaves > 0 && found < wanted && tree->value[1] > 0) {
        size_t i = 1;
        while (i < tree->leaves)
            i = tree->value[2 * i] == tree->value[i] ? 2 * i : 2 * i + 1;
        taken[found] = tree->value[i];
        leaf[found] = (uint32_t)(i - tree->leaves);
        cm_tournament_set(tree, leaf[found++], 0);
    }
    for (size_t i = 0; i < found; i++)
        cm_tournament_set(tree, leaf[i], taken[i]);
    return found;
}
