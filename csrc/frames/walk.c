/* Walking a stack by prediction. A stack differs little from the thread's last one, so the last
 * walk's frame addresses predict this one. Chasing `previous` pointers would wait for each load
 * before the next; predicted frames are loaded side by side and compared. Nothing is used that was
 * not compared in this call. No remembered address is read before a live frame points at it, for
 * its memory may be unmapped. */
#include "walk.h"

#include <stdbool.h>

#include "../base/event.h"
#include "flat.h"
#include "intern.h"
#include "offsets.h"

#define LIKELY(condition) __builtin_expect((condition), 1)
#define UNLIKELY(condition) __builtin_expect((condition), 0)

static const uint64_t TRUNCATED_SEED = 0x5851f42d4c957f2du;

static inline unsigned index_slot(const char *frame)
{
    return (uint32_t)((uint64_t)frame >> 3) * 0x9e3779b1u >> 24;
}

static inline uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9fb21c651e98df25u;
    return hash ^ hash >> 35;
}

/* The module that a module frame runs, or its type if modules are collapsed. */
static inline uint64_t module_of(const cm_walk *walk, const char *frame)
{
    uint64_t module = cm_frame_first_local(frame);

    if (UNLIKELY(walk->epoch & CM_EPOCH_COLLAPSED) && module != 0)
        module = (uint64_t)Py_TYPE((PyObject *)module);
    return module;
}

static inline uint64_t enter(cm_walk *walk, int level, const char *frame, uint64_t hash)
{
    uint64_t ip = cm_frame_ip(frame);

    walk->level[level].frame = frame;
    walk->level[level].ip = ip;
    hash = mix(hash, ip);
    if (UNLIKELY(ip - walk->module_base < walk->module_bytes)) {
        uint64_t module = module_of(walk, frame);
        walk->module_level[walk->modules] = (uint16_t)level;
        walk->module[walk->modules++] = module;
        hash = mix(hash, module);
    }
    walk->hash[level] = hash;
    return hash;
}

static void start_epoch(cm_walk *walk, uint64_t epoch)
{
    uint64_t code = atomic_load_explicit(&cm_intern.module_code, memory_order_relaxed);

    walk->epoch = epoch;
    walk->seed = mix(0x2545f4914f6cdd1du, epoch);
    walk->module_base = code >> 16;
    walk->module_bytes = (code & 0xffff) * 2;
    walk->last_hash = 0;
    walk->depth = 0;
    walk->modules = 0;
}

static uint32_t find_or_define(cm_walk *walk, uint64_t hash, bool truncated)
{
    uint32_t stack;

    if (!cm_flat_find_hook(hash, walk->epoch, &stack)) {
        stack = cm_intern_define_hook(walk, hash, truncated);
        if (stack == CM_STACK_LOST)
            return stack; /* not cached, for there may be room next time */
    }
    walk->last_hash = hash;
    walk->last_stack = stack;
    return stack;
}

/* Captures the innermost frames of a stack deeper than CM_WALK_DEPTH. Nothing can be predicted from
 * them, for every call shifts all levels. */
static __attribute__((noinline)) uint32_t capture_truncated(cm_walk *walk, const char *top)
{
    const char *frames[CM_WALK_DEPTH];
    uint64_t hash = walk->seed ^ TRUNCATED_SEED;

    for (int i = CM_WALK_DEPTH - 1; i >= 0; i--, top = cm_frame_previous(top))
        frames[i] = top;
    walk->modules = 0;
    for (int level = 0; level < CM_WALK_DEPTH; level++)
        hash = enter(walk, level, frames[level], hash);
    hash += hash == 0;

    uint32_t stack = walk->last_stack;
    if (hash != walk->last_hash) {
        walk->depth = CM_WALK_DEPTH;
        stack = find_or_define(walk, hash, true);
    }
    walk->depth = 0;
    walk->modules = 0;
    return stack;
}

/* Collects frames from `top` outwards. Returns their number, or CM_WALK_DEPTH + 1 if there are
 * more. */
static __attribute__((noinline)) int collect(const char *top, const char **frames)
{
    int count = 0;

    for (const char *frame = top; frame != NULL; frame = cm_frame_previous(frame)) {
        if (count == CM_WALK_DEPTH)
            return CM_WALK_DEPTH + 1;
        frames[count++] = frame;
    }
    return count;
}

/* Compares the levels from `known` outwards with the live chain. Returns the outermost level to be
 * hashed again (known + 1: none), or -1 if the chain differs. */
static inline int verify(cm_walk *walk, int known)
{
    const cm_walk_level *level = &walk->level[known], *outermost = level + 1;
    const char *frame = level->frame;

#pragma GCC unroll 4
    for (; level > walk->level; level--) {
        const char *outer = level[-1].frame;
        outermost = cm_frame_ip(frame) != level->ip ? level : outermost;
        if (UNLIKELY(cm_frame_previous(frame) != outer))
            return -1;
        frame = outer;
    }
    if (cm_frame_ip(frame) != level->ip)
        outermost = level;
    if (UNLIKELY(cm_frame_previous(frame) != NULL))
        return -1;
    int changed = (int)(outermost - walk->level);

    /* Equal addresses do not make module frames equal: `for layer in layers: x = layer(x)` enters
     * the same frame at the same instruction with another self. */
    while (walk->modules > 0 && walk->module_level[walk->modules - 1] >= changed)
        walk->modules--;
    for (int i = 0; i < walk->modules; i++) {
        int level = walk->module_level[i];
        if (module_of(walk, walk->level[level].frame) != walk->module[i]) {
            walk->modules = i;
            return level;
        }
    }
    return changed;
}

uint32_t cm_walk_capture_hook(cm_walk *walk)
{
    /* Read before the frames. If a frame's code reuses the address of a freed one, the epoch
     * advanced before that frame was entered. */
    uint64_t epoch = atomic_load_explicit(&cm_intern.epoch, memory_order_acquire);

    if (UNLIKELY(epoch == 0))
        return CM_STACK_NONE;
    const char *top = cm_frame_top();
    if (top == NULL)
        return CM_STACK_NONE;
    if (UNLIKELY(walk->epoch != epoch))
        start_epoch(walk, epoch);

    /* Frames entered since the last walk, up to the first known one. */
    const char *fresh[CM_WALK_DEPTH];
    int count = 0, known = -1, changed = 0;
    const char *frame = top;
    do {
        int level = walk->index[index_slot(frame)];
        if (level < walk->depth && walk->level[level].frame == frame) {
            known = level;
            break;
        }
        if (UNLIKELY(count == CM_WALK_DEPTH))
            return capture_truncated(walk, top);
        fresh[count++] = frame;
        frame = cm_frame_previous(frame);
    } while (frame != NULL);

    if (known >= 0) {
        changed = verify(walk, known);
        if (UNLIKELY(changed < 0)) {
            known = -1;
            changed = 0;
            count = collect(top, fresh);
        }
    }
    if (known < 0)
        walk->modules = 0;
    if (UNLIKELY(known + 1 + count > CM_WALK_DEPTH))
        return capture_truncated(walk, top);

    uint64_t hash = changed > 0 ? walk->hash[changed - 1] : walk->seed;
    for (int level = changed; level <= known; level++)
        hash = enter(walk, level, walk->level[level].frame, hash);
    for (int level = known + 1; count > 0; level++) {
        frame = fresh[--count];
        walk->index[index_slot(frame)] = (uint16_t)level;
        hash = enter(walk, level, frame, hash);
        known = level;
    }
    walk->depth = known + 1;
    hash += hash == 0; /* 0 marks a free place */
    return LIKELY(hash == walk->last_hash) ? walk->last_stack : find_or_define(walk, hash, false);
}

cm_walk_top cm_walk_top_hook(void)
{
    cm_walk_top top = {0, 0};

    if (atomic_load_explicit(&cm_intern.epoch, memory_order_acquire) != 0) {
        const char *frame = cm_frame_top();
        if (frame != NULL)
            top = (cm_walk_top){(uint64_t)frame, cm_frame_ip(frame)};
    }
    return top;
}
