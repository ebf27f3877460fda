#include "intern.h"

#include <string.h>

#include "../base/grow.h"
#include "../base/hash.h"

static uint32_t hash_of(const uint8_t *bytes, size_t length)
{
    uint64_t hash = length, word;
    for (; length >= sizeof word; bytes += sizeof word, length -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = cm_hash(hash ^ word);
    }
    word = 0;
    if (length > 0)
        memcpy(&word, bytes, length);
    return (uint32_t)cm_hash(hash ^ word);
}

static bool rebuild(cm_intern *in, size_t slots)
{
    uint32_t *fresh = calloc(slots, sizeof *fresh);
    if (fresh == NULL)
        return false;
    for (size_t i = 0; i < in->count; i++) {
        size_t to = in->hash[i] & (slots - 1);
        while (fresh[to] != 0)
            to = (to + 1) & (slots - 1);
        fresh[to] = (uint32_t)i + 1;
    }
    free(in->slot);
    in->slot = fresh;
    in->slots = slots;
    return true;
}

static bool is(const cm_intern *in, uint32_t id, uint32_t hash, const void *bytes, size_t length)
{
    size_t known;
    if (in->hash[id] != hash)
        return false;
    const void *at = cm_intern_at(in, id, &known);
    return known == length && (length == 0 || memcmp(at, bytes, length) == 0);
}

static bool append(cm_intern *in, const void *bytes, size_t length, uint32_t hash)
{
    if (in->count >= CM_INTERN_MAX ||
        !cm_grow((void **)&in->bytes, &in->capacity, in->length + length + 1, 1) ||
        !cm_grow((void **)&in->start, &in->start_capacity, in->count + 2, sizeof *in->start) ||
        !cm_grow((void **)&in->hash, &in->hash_capacity, in->count + 1, sizeof *in->hash))
        return false;
    if (length > 0)
        memcpy(in->bytes + in->length, bytes, length);
    in->start[in->count] = in->length;
    in->length += length;
    in->hash[in->count++] = hash;
    in->start[in->count] = in->length;
    return true;
}

bool cm_intern_add(cm_intern *in, const void *bytes, size_t length, uint32_t *id)
{
    if (in->count * 3 >= in->slots * 2 && !rebuild(in, in->slots ? in->slots * 2 : 256))
        return false;
    uint32_t hash = hash_of(bytes, length);
    size_t i = hash & (in->slots - 1);
    for (; in->slot[i] != 0; i = (i + 1) & (in->slots - 1)) {
        if (is(in, in->slot[i] - 1, hash, bytes, length)) {
            *id = in->slot[i] - 1;
            return true;
        }
    }
    *id = (uint32_t)in->count;
    if (!append(in, bytes, length, hash))
        return false;
    in->slot[i] = *id + 1;
    return true;
}

void cm_intern_clear(cm_intern *in)
{
    free(in->bytes);
    free(in->start);
    free(in->hash);
    free(in->slot);
    *in = (cm_intern){0};
}
