#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fork.h"
#include "known.h"
#include "sim.h"
#include "space.h"

/* The state of a chunk or of a page; any other value is a pointer: to a chunk's table of pages, or
 * to a page's bits. */
enum { UNKNOWN = 0, ZERO = 1, FULL = 2, STATES = 3 };

enum { PAGE = 4096, PAGES = (int)(CM_SIM_CHUNK / PAGE), WORDS = PAGE / 64 };

typedef struct table {
    uintptr_t page[PAGES];
} table;

typedef struct bits {
    uint64_t word[WORDS]; /* a bit per byte: known */
} bits;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void cm_sim_known_lock(void)
{
    pthread_mutex_lock(&lock);
}

void cm_sim_known_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t to_chunk_end(uintptr_t at, size_t bytes)
{
    return least(bytes, CM_SIM_CHUNK - at % CM_SIM_CHUNK);
}

static size_t to_page_end(uintptr_t at, size_t bytes)
{
    return least(bytes, PAGE - at % PAGE);
}

static uintptr_t state_of(const cm_sim_chunk *chunk)
{
    return atomic_load_explicit(&chunk->known, memory_order_relaxed);
}

static void set_state(cm_sim_chunk *chunk, uintptr_t state)
{
    atomic_store_explicit(&chunk->known, state, memory_order_relaxed);
}

/* Without the lock: no correct program writes to a range that is being handed out or filled. */
static bool all_are(uintptr_t at, size_t bytes, uintptr_t state)
{
    while (bytes > 0) {
        size_t part = to_chunk_end(at, bytes);
        if (state_of(cm_sim_chunk_of(at)) != state)
            return false;
        at += part;
        bytes -= part;
    }
    return true;
}

/* --- Bytes ------------------------------------------------------------------------------------ */

/* Whole pages are given back to the host where there are enough of them to be worth a call. */
static void clear(uintptr_t at, size_t bytes)
{
    uintptr_t first = (at + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    uintptr_t last = (at + bytes) & ~(uintptr_t)(PAGE - 1);

    if (bytes < 16 * PAGE || madvise((void *)first, last - first, MADV_DONTNEED) != 0) {
        memset((void *)at, 0, bytes);
        return;
    }
    memset((void *)at, 0, first - at);
    memset((void *)last, 0, at + bytes - last);
}

/* --- Bits of a page --------------------------------------------------------------------------- */

static void set_bits(bits *of, size_t from, size_t count, bool value)
{
    while (count > 0) {
        size_t shift = from % 64, part = least(count, 64 - shift);
        uint64_t mask = (part == 64 ? UINT64_MAX : ((uint64_t)1 << part) - 1) << shift;
        if (value)
            of->word[from / 64] |= mask;
        else
            of->word[from / 64] &= ~mask;
        from += part;
        count -= part;
    }
}

static size_t count_bits(const bits *of, size_t from, size_t count)
{
    size_t sum = 0;

    while (count > 0) {
        size_t shift = from % 64, part = least(count, 64 - shift);
        uint64_t mask = (part == 64 ? UINT64_MAX : ((uint64_t)1 << part) - 1) << shift;
        sum += (size_t)__builtin_popcountll(of->word[from / 64] & mask);
        from += part;
        count -= part;
    }
    return sum;
}

static bool bit(const bits *of, size_t at)
{
    return of->word[at / 64] >> (at % 64) & 1;
}

/* --- Changing states -------------------------------------------------------------------------- */

static void free_page(uintptr_t *page, uintptr_t state)
{
    if (*page >= STATES)
        free((bits *)*page);
    *page = state;
}

static void free_table(cm_sim_chunk *chunk, uintptr_t state)
{
    table *pages = (table *)state_of(chunk);

    set_state(chunk, state);
    if ((uintptr_t)pages < STATES)
        return;
    for (int i = 0; i < PAGES; i++)
        free_page(&pages->page[i], UNKNOWN);
    free(pages);
}

/* NULL: the host has no memory for it. */
static table *table_of(cm_sim_chunk *chunk)
{
    uintptr_t state = state_of(chunk);
    table *made;

    if (state >= STATES)
        return (table *)state;
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    if (state != UNKNOWN)
        for (int i = 0; i < PAGES; i++)
            made->page[i] = state;
    set_state(chunk, (uintptr_t)made);
    return made;
}

/* NULL: the host has no memory for it. */
static bits *bits_of(uintptr_t *page)
{
    bits *made;

    if (*page >= STATES)
        return (bits *)*page;
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    if (*page != UNKNOWN)
        memset(made, 0xff, sizeof *made);
    *page = (uintptr_t)made;
    return made;
}

static bool mark(uintptr_t *page, uintptr_t at, size_t bytes, bool value)
{
    bits *known = bits_of(page);

    if (known == NULL)
        return false;
    set_bits(known, at % PAGE, bytes, value);
    if (count_bits(known, 0, PAGE) == (value ? PAGE : 0))
        free_page(page, value ? FULL : UNKNOWN);
    return true;
}

static bool turn_page(uintptr_t *page, uintptr_t at, size_t bytes, uintptr_t to)
{
    if (*page == to)
        return true;
    if (to != FULL && *page >= FULL)
        clear(at, bytes);
    if (bytes == PAGE || (to == FULL && *page == ZERO)) {
        free_page(page, to);
        return true;
    }
    if (to == ZERO && *page == FULL)
        return true; /* zeros too are known bytes */
    return mark(page, at, bytes, to != UNKNOWN);
}

/* Within a chunk, under the lock. `to` is UNKNOWN or ZERO, and bytes are cleared, or FULL, and the
 * caller puts them there. false: the host had no memory to remember it; then nothing of the chunk
 * is known any more, and all of it is zero. */
static bool turn(uintptr_t at, size_t bytes, uintptr_t to)
{
    cm_sim_chunk *chunk = cm_sim_chunk_of(at);
    bool fine = true;

    if (state_of(chunk) == to)
        return true;
    if (bytes == CM_SIM_CHUNK) {
        if (to != FULL && state_of(chunk) >= FULL)
            clear(at, bytes);
        free_table(chunk, to);
        return true;
    }
    table *pages = table_of(chunk);
    for (size_t part; pages != NULL && fine && bytes > 0; at += part, bytes -= part) {
        part = to_page_end(at, bytes);
        fine = turn_page(&pages->page[at % CM_SIM_CHUNK / PAGE], at, part, to);
    }
    if (pages != NULL && fine)
        return true;
    clear(at & ~(uintptr_t)(CM_SIM_CHUNK - 1), CM_SIM_CHUNK);
    free_table(chunk, UNKNOWN);
    cm_sim_note(CM_SIM_NOTE_LIMIT, "host memory for what the host wrote", CM_SIM_CHUNK);
    return false;
}

/* Bytes of one state from `at` on; `*state` is one of UNKNOWN, ZERO and FULL. Under the lock. */
static size_t run(uintptr_t at, size_t bytes, uintptr_t *state)
{
    *state = state_of(cm_sim_chunk_of(at));
    if (*state < STATES)
        return to_chunk_end(at, bytes);
    *state = ((table *)*state)->page[at % CM_SIM_CHUNK / PAGE];
    bytes = to_page_end(at, bytes);
    if (*state < STATES)
        return bytes;
    const bits *known = (const bits *)*state;
    size_t from = at % PAGE, length = 1;
    bool value = bit(known, from);
    while (length < bytes && bit(known, from + length) == value)
        length++;
    *state = value ? FULL : UNKNOWN;
    return length;
}

/* --- What others call --------------------------------------------------------------------------
 *
 * The lock is held for a chunk at a time: large ranges do not make other threads wait. */

static void turn_all(uintptr_t at, size_t bytes, uintptr_t to)
{
    if (all_are(at, bytes, to))
        return;
    for (size_t part; bytes > 0; at += part, bytes -= part) {
        part = to_chunk_end(at, bytes);
        pthread_mutex_lock(&lock);
        turn(at, part, to);
        pthread_mutex_unlock(&lock);
    }
}

void cm_sim_known_forget(uintptr_t at, size_t bytes)
{
    turn_all(at, bytes, UNKNOWN);
}

void cm_sim_known_zero(uintptr_t at, size_t bytes)
{
    turn_all(at, bytes, ZERO);
}

void cm_sim_known_write(uintptr_t at, const void *from, size_t bytes)
{
    const char *source = from;

    for (size_t part; bytes > 0; at += part, source += part, bytes -= part) {
        part = to_chunk_end(at, bytes);
        pthread_mutex_lock(&lock);
        if (turn(at, part, FULL))
            memcpy((void *)at, source, part);
        pthread_mutex_unlock(&lock);
    }
}

void cm_sim_known_fill(uintptr_t at, int value, size_t bytes)
{
    for (size_t part; bytes > 0; at += part, bytes -= part) {
        part = to_chunk_end(at, bytes);
        pthread_mutex_lock(&lock);
        if (turn(at, part, FULL))
            memset((void *)at, value, part);
        pthread_mutex_unlock(&lock);
    }
}

/* Unknown bytes are zero, so pages are read as they lie; those that were never touched are not
 * even looked at. */
static size_t read_part(char *into, uintptr_t at, size_t bytes, uintptr_t state)
{
    if (state == UNKNOWN || state == ZERO)
        memset(into, 0, bytes);
    else
        memcpy(into, (const void *)at, bytes);
    if (state < STATES)
        return state == UNKNOWN ? 0 : bytes;
    return count_bits((const bits *)state, at % PAGE, bytes);
}

static size_t read_in_chunk(char *into, uintptr_t at, size_t bytes)
{
    uintptr_t state = state_of(cm_sim_chunk_of(at));
    size_t sum = 0;

    if (state < STATES)
        return read_part(into, at, bytes, state);
    for (size_t part; bytes > 0; at += part, into += part, bytes -= part) {
        part = to_page_end(at, bytes);
        sum += read_part(into, at, part, ((table *)state)->page[at % CM_SIM_CHUNK / PAGE]);
    }
    return sum;
}

size_t cm_sim_known_read(void *to, uintptr_t at, size_t bytes)
{
    char *into = to;
    size_t sum = 0;

    for (size_t part; bytes > 0; at += part, into += part, bytes -= part) {
        part = to_chunk_end(at, bytes);
        pthread_mutex_lock(&lock);
        sum += read_in_chunk(into, at, part);
        pthread_mutex_unlock(&lock);
    }
    return sum;
}

size_t cm_sim_known_elements(void *to, uintptr_t at, size_t item, size_t count, uint8_t *known)
{
    char *into = to;
    size_t bytes = item * count, sum = 0;

    memset(known, 1, count);
    for (size_t done = 0, part; done < bytes; done += part) {
        uintptr_t state, address = at + done;
        pthread_mutex_lock(&lock);
        part = run(address, bytes - done, &state);
        if (state == FULL)
            memcpy(into + done, (const void *)address, part);
        else
            memset(into + done, 0, part);
        pthread_mutex_unlock(&lock);
        if (state == UNKNOWN)
            memset(known + done / item, 0, (done + part - 1) / item + 1 - done / item);
    }
    for (size_t i = 0; i < count; i++)
        sum += known[i];
    return sum;
}

void cm_sim_known_carry(uintptr_t to, uintptr_t from, size_t bytes, bool keep)
{
    if (all_are(from, bytes, UNKNOWN)) {
        cm_sim_known_forget(to, bytes);
        return;
    }
    for (size_t part; bytes > 0; to += part, from += part, bytes -= part) {
        uintptr_t state;
        pthread_mutex_lock(&lock);
        part = to_chunk_end(to, run(from, bytes, &state));
        if (state == FULL && !keep)
            state = UNKNOWN;
        if (turn(to, part, state) && state == FULL)
            memmove((void *)to, (const void *)from, part);
        pthread_mutex_unlock(&lock);
    }
}

void cm_sim_known_drop(uintptr_t at, size_t bytes)
{
    if (all_are(at, bytes, UNKNOWN))
        return;
    pthread_mutex_lock(&lock);
    for (size_t done = 0; done < bytes; done += CM_SIM_CHUNK)
        free_table(cm_sim_chunk_of(at + done), UNKNOWN);
    pthread_mutex_unlock(&lock);
}
