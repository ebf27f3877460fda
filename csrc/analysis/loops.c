#include "loops.h"

#include <stdlib.h>
#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "growth.h"

/* One life of a data iterator: an epoch. */
typedef struct life {
    uint32_t line; /* that calls it */
    uint32_t loop; /* with most of its batches (a running majority) */
    uint64_t votes;
    uint32_t first, last; /* steps of that loop in which it was called */
    uint32_t steps;       /* how many */
} life;

struct cm_loops_iterators {
    cm_idmap at; /* address -> index of life + 1; 0: made, not yet called */
    life *life;
    size_t count, capacity;
};

/* The last step of a clock that ticks where a step begins lasts until something else does, or the
 * recording ends. By then the variables of the loop's function are gone. */
static bool is_open(const cm_steps *steps, size_t step)
{
    uint32_t kind = steps->loop[steps->step[step].loop].kind;
    return step + 1 == steps->count && (kind == CM_TICK_MODULE || kind == CM_TICK_DATA);
}

cm_loops *cm_loops_new(const cm_steps *steps)
{
    cm_loops *loops = calloc(1, sizeof *loops);
    uint8_t *judged = malloc(steps->loop_count + 1);
    if (loops == NULL || judged == NULL)
        goto failed;
    loops->steps = steps;
    loops->loop_of = malloc(steps->count + 1);
    loops->index = malloc((steps->count + 1) * sizeof *loops->index);
    loops->iterators = calloc(1, sizeof *loops->iterators);
    if (loops->loop_of == NULL || loops->index == NULL || loops->iterators == NULL)
        goto failed;
    for (size_t i = 0; i < steps->loop_count; i++) {
        judged[i] = CM_LOOP_NONE;
        if (steps->loop[i].steps < CM_LOOP_STEPS_MIN || loops->count == CM_LOOPS_MAX)
            continue;
        judged[i] = (uint8_t)loops->count;
        cm_loop *loop = &loops->loop[loops->count++];
        loop->number = (uint32_t)i;
        loop->global = malloc(steps->loop[i].steps * sizeof *loop->global);
        if (loop->global == NULL)
            goto failed;
    }
    for (size_t i = 0; i < steps->count; i++) {
        loops->loop_of[i] = is_open(steps, i) ? CM_LOOP_NONE : judged[steps->step[i].loop];
        if (loops->loop_of[i] == CM_LOOP_NONE)
            continue;
        cm_loop *loop = &loops->loop[loops->loop_of[i]];
        loops->index[i] = loop->steps;
        loop->global[loop->steps++] = (uint32_t)i;
    }
    free(judged);
    return loops;
failed:
    free(judged);
    cm_loops_free(loops);
    return NULL;
}

void cm_loops_free(cm_loops *loops)
{
    if (loops == NULL)
        return;
    for (size_t i = 0; i < loops->count; i++) {
        free(loops->loop[i].global);
        free(loops->loop[i].epoch);
    }
    if (loops->iterators != NULL) {
        cm_idmap_clear(&loops->iterators->at);
        free(loops->iterators->life);
    }
    free(loops->iterators);
    free(loops->loop_of);
    free(loops->index);
    free(loops);
}

bool cm_loops_trains(const cm_loops *loops, const cm_loop *loop)
{
    return strncmp(loops->steps->loop[loop->number].name, "training", strlen("training")) == 0;
}

static uint32_t kind_of(const cm_loops *loops, const cm_loop *loop)
{
    return loops->steps->loop[loop->number].kind;
}

static cm_loop_thread *ticked_by(cm_loop *loop, uint32_t thread)
{
    for (size_t i = 0; i < loop->threads; i++)
        if (loop->ticked[i].thread == thread)
            return &loop->ticked[i];
    if (loop->threads == CM_LOOP_THREADS)
        return NULL;
    loop->ticked[loop->threads] = (cm_loop_thread){.thread = thread};
    return &loop->ticked[loop->threads++];
}

static void note_tick(cm_loop *loop, uint32_t thread)
{
    cm_loop_thread *t = ticked_by(loop, thread);
    if (t == NULL || t->last == loop->passed + 1)
        return;
    t->before = t->last;
    t->last = loop->passed + 1;
}

bool cm_loops_is_old(const cm_loops *loops, const cm_loop *loop, uint32_t step, uint32_t thread)
{
    if (loop->passed - step < CM_GROWTH_OLD)
        return false;
    uint32_t kind = kind_of(loops, loop);
    /* The tick of such a step comes before its work. */
    bool begins = kind == CM_TICK_MODULE || kind == CM_TICK_DATA;
    for (size_t i = 0; loop->threads > 1 && i < loop->threads; i++) {
        const cm_loop_thread *t = &loop->ticked[i];
        if (t->thread == thread && loop->passed + 1 - t->last < CM_LOOP_CALL * loop->threads)
            return t->before > step + begins;
    }
    return true;
}

static bool ask(cm_loops *loops, uint64_t address, uint32_t line, uint32_t loop, uint32_t step)
{
    struct cm_loops_iterators *it = loops->iterators;
    uint32_t number;
    if (!cm_idmap_get(&it->at, address, &number))
        number = 0;
    life *now = number > 0 ? &it->life[number - 1] : NULL;
    /* An iterator called from another line is another one at the same address. */
    if (now == NULL || now->line != line) {
        if (it->count >= UINT32_MAX - 1 ||
            !cm_grow((void **)&it->life, &it->capacity, it->count + 1, sizeof *it->life) ||
            !cm_idmap_put(&it->at, address, (uint32_t)it->count + 1))
            return false;
        now = &it->life[it->count++];
        *now = (life){.line = line, .loop = loop, .first = step, .last = step, .steps = 1};
    }
    if (now->loop != loop && now->votes == 0) {
        now->loop = loop;
        now->first = now->last = step;
        now->steps = 1;
    }
    now->votes += now->loop == loop ? 1 : (uint64_t)-1;
    if (now->loop == loop && now->last != step) {
        now->last = step;
        now->steps++;
    }
    return true;
}

bool cm_loops_event(cm_loops *loops, const cm_record *record, int64_t step,
                    cm_attribution *attribution)
{
    const cm_event *e = &record->event;
    uint32_t line, index;
    if (e->address == UINT64_MAX)
        return true; /* no object has such an address */
    if (e->kind == CM_EV_OBJECT_NEW)
        return e->size != CM_OBJECT_ITERATOR || cm_idmap_put(&loops->iterators->at, e->address, 0);
    if (e->kind != CM_EV_TICK)
        return true;
    /* The first batch is loaded before the first step, and belongs to it. */
    cm_loop *loop = cm_loops_find(loops, step < 0 ? 0 : step, &index);
    if (loop == NULL)
        return true;
    if (e->size == kind_of(loops, loop))
        note_tick(loop, record->thread);
    if (e->size != CM_TICK_DATA)
        return true;
    return cm_attribution_line(attribution, e->stack, &line) &&
           ask(loops, e->address, line, (uint32_t)(loop - loops->loop), index);
}

static int by_last(const void *left, const void *right)
{
    const life *a = left, *b = right;
    if (a->loop != b->loop)
        return a->loop < b->loop ? -1 : 1;
    if (a->last != b->last)
        return a->last < b->last ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* The line that asks for data in most of the loop's steps; false: none in half of them. */
static bool main_line(const life *of, size_t count, uint32_t steps, uint32_t *line, bool *fine)
{
    cm_idmap sums = {0};
    uint32_t most = 0, sum;
    for (size_t i = 0; i < count && *fine; i++) {
        if (!cm_idmap_get(&sums, of[i].line, &sum))
            sum = 0;
        sum += of[i].steps;
        *fine = cm_idmap_put(&sums, of[i].line, sum);
        if (sum > most) {
            most = sum;
            *line = of[i].line;
        }
    }
    cm_idmap_clear(&sums);
    return *fine && (uint64_t)most * 2 >= steps;
}

static bool count_epochs(cm_loop *loop, const life *of, size_t count)
{
    uint32_t line = 0, until = 0;
    bool fine = true;
    if (!main_line(of, count, loop->steps, &line, &fine))
        return fine;
    loop->epoch = malloc(count * sizeof *loop->epoch);
    if (loop->epoch == NULL)
        return false;
    /* Loaders used side by side overlap: they are one epoch. An exhausted iterator may be called
     * once more in the next one's first step. */
    for (size_t i = 0; i < count; i++) {
        if (of[i].line != line || (loop->epochs > 0 && of[i].first < until))
            continue;
        loop->epoch[loop->epochs++] = of[i].first;
        until = of[i].last;
    }
    return true;
}

/* Roll-outs, samples: calls between the steps of another loop have no iterator, but blocks kept
 * until that loop continues may be its input. Each stretch is an epoch. A single one proves
 * nothing: the program may end with it. */
static bool count_stretches(const cm_steps *steps, cm_loop *loop)
{
    size_t stretches = 1;
    if (loop->epochs > 0 || steps->kind == CM_TICK_MODULE ||
        steps->loop[loop->number].kind != CM_TICK_MODULE)
        return true;
    for (uint32_t i = 1; i < loop->steps; i++)
        stretches += loop->global[i] != loop->global[i - 1] + 1;
    if (stretches == 1)
        return true;
    uint32_t *epoch = realloc(loop->epoch, stretches * sizeof *epoch);
    if (epoch == NULL)
        return false;
    loop->epoch = epoch;
    for (uint32_t i = 0; i < loop->steps; i++)
        if (i == 0 || loop->global[i] != loop->global[i - 1] + 1)
            loop->epoch[loop->epochs++] = i;
    return true;
}

bool cm_loops_finish(cm_loops *loops)
{
    struct cm_loops_iterators *it = loops->iterators;
    cm_sort(it->life, it->count, sizeof *it->life, by_last);
    for (size_t i = 0, end; i < it->count; i = end) {
        for (end = i + 1; end < it->count && it->life[end].loop == it->life[i].loop;)
            end++;
        if (!count_epochs(&loops->loop[it->life[i].loop], it->life + i, end - i))
            return false;
    }
    for (size_t i = 0; i < loops->count; i++)
        if (!count_stretches(loops->steps, &loops->loop[i]))
            return false;
    return true;
}
