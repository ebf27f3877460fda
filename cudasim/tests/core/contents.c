/* Which bytes are known, and what they are. Run with COPY_MAX=64KiB. */
#include <pthread.h>

#include "check.h"

#define COPY_MAX ((size_t)64 << 10)

static struct {
    int calls, written, device;
    const void *address;
    size_t bytes;
} told;

static void hook(const void *address, size_t bytes, int device, bool written)
{
    told.calls++;
    told.written += written;
    told.address = address;
    told.bytes = bytes;
    told.device = device;
}

/* Host memory with something in it. */
static char *filled(size_t bytes, int value)
{
    char *made = malloc(bytes);

    CHECK(made != NULL);
    memset(made, value, bytes);
    return made;
}

static bool all(const char *at, int value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != (char)value)
            return false;
    return true;
}

static void reads_are_counted_and_told(void)
{
    char *at = alloc(1, 8 * MIB), *host = filled(4096, 7);

    cm_sim_set_read_hook(hook);
    cm_sim_copy(at + 1000, host, 100);
    cm_sim_copy(host, at + 1000, 100); /* all known */
    EQUAL(told.calls, 1);
    EQUAL(told.written, 1);
    CHECK(told.address == at + 1000);
    EQUAL(told.bytes, 100);
    EQUAL(on(1)->known_reads, 1);
    EQUAL(on(1)->known_bytes, 100);
    EQUAL(on(1)->reads, 0);
    cm_sim_copy(host, at + 990, 120); /* 20 are not */
    EQUAL(told.calls, 2);
    EQUAL(told.written, 1);
    CHECK(told.address == at + 990);
    EQUAL(told.bytes, 20);
    EQUAL(told.device, 1);
    CHECK(all(host, 0, 10) && all(host + 10, 7, 100) && all(host + 110, 0, 10));
    EQUAL(on(1)->reads, 1);
    EQUAL(on(1)->read_bytes, 20);
    EQUAL(on(0)->reads, 0);
    cm_sim_set_read_hook(NULL);
    cm_sim_copy(host, at, 1);
    EQUAL(told.calls, 2);
    EQUAL(on(1)->reads, 2);

    /* A copy of rows is one read. */
    cm_sim_set_read_hook(hook);
    memset(host, 9, 4096);
    cm_sim_copy_2d(host, 16, at + 1000, 50, 10, 4);
    EQUAL(told.calls, 3);
    EQUAL(told.written, 1);
    EQUAL(told.bytes, 20); /* two rows of four lie beyond the known bytes */
    CHECK(told.address == at + 1100);
    EQUAL(on(1)->reads, 3);
    CHECK(all(host, 7, 10) && all(host + 10, 9, 6) && all(host + 16, 7, 10));
    CHECK(all(host + 32, 0, 10) && all(host + 48, 0, 10) && all(host + 58, 9, 6));
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    free(host);
}

static void large_copies_lose_their_contents(void)
{
    char *at = alloc(0, 8 * MIB), *host = filled(4 * MIB, 5);

    cm_sim_copy(at, host, COPY_MAX);
    cm_sim_copy(at + MIB, host, COPY_MAX + 1);
    cm_sim_copy(host, at, 4 * MIB); /* small pieces do come back, in whatever size they are read */
    CHECK(all(host, 5, COPY_MAX) && all(host + COPY_MAX, 0, 4 * MIB - COPY_MAX));
    EQUAL(on(0)->read_bytes, 4 * MIB - COPY_MAX);
    memset(host, 5, 4 * MIB);
    cm_sim_copy(at, host, 4 * MIB); /* over known bytes */
    cm_sim_copy(host, at, COPY_MAX);
    CHECK(all(host, 0, COPY_MAX));
    memset(host, 5, 4 * MIB);
    cm_sim_copy_2d(at, 200, host, 100, 100, COPY_MAX / 100 + 1);
    cm_sim_copy(host, at, 100);
    CHECK(all(host, 0, 100));
    EQUAL(on(0)->known_reads, 0);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    free(host);
}

static void memsets(void)
{
    char *at = alloc(0, 64 * MIB), *host = filled(64 * MIB, 5);

    cm_sim_set(at, 0, 64 * MIB);
    cm_sim_copy(host, at, 64 * MIB);
    CHECK(all(host, 0, 64 * MIB));
    EQUAL(on(0)->reads, 0);
    cm_sim_set(at + 3 * MIB, 200, COPY_MAX);
    cm_sim_set(at + 4 * MIB, 200, COPY_MAX + 1);
    cm_sim_copy(host, at, 64 * MIB);
    EQUAL(on(0)->read_bytes, COPY_MAX + 1);
    CHECK(all(host + 3 * MIB, 200, COPY_MAX) && all(host + 4 * MIB, 0, MIB));
    cm_sim_set(host, 3, 100);
    CHECK(all(host, 3, 100));
    cm_sim_set(at, 256, 1); /* the lowest byte counts */
    cm_sim_copy(host, at, 1);
    EQUAL(host[0], 0);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    free(host);
}

/* Ends of chunks in the source and in the target, which are not the same ones. */
static void copies_across_chunks(void)
{
    char *from = alloc(0, 8 * MIB), *to = alloc(0, 8 * MIB), *host = filled(COPY_MAX, 6);
    size_t half = COPY_MAX / 2;

    cm_sim_set(from, 0, 4 * MIB);
    cm_sim_copy(from + 4 * MIB - half, host, COPY_MAX);
    for (size_t shift = 0; shift <= COPY_MAX; shift += COPY_MAX / 8) {
        char *at = to + 2 * MIB - shift;
        cm_sim_copy(at, from + MIB, COPY_MAX); /* zeros */
        memset(host, 1, COPY_MAX);
        cm_sim_copy(host, at, COPY_MAX);
        CHECK(all(host, 0, COPY_MAX));
        cm_sim_copy(at, from + 4 * MIB - half, COPY_MAX); /* bytes on both sides of an end */
        cm_sim_copy(host, at, COPY_MAX);
        CHECK(all(host, 6, COPY_MAX));
        EQUAL(on(0)->reads, 0);
        cm_sim_fresh(to, 8 * MIB);
    }
    cm_sim_copy(host, to + 2 * MIB, COPY_MAX);
    EQUAL(on(0)->read_bytes, COPY_MAX);
    EQUAL(cm_sim_free(from, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(to, NULL), CM_SIM_OK);
    free(host);
}

static void blocks_begin_afresh(void)
{
    char *host = filled(COPY_MAX, 5), *at = alloc(0, 8 * MIB), *small = alloc(0, 600);
    char *neighbour = alloc(0, 600);

    cm_sim_copy(at, host, COPY_MAX);
    cm_sim_fresh(at, 1000); /* handed out again: the first 1000 bytes of it */
    cm_sim_copy(host, at, 2000);
    CHECK(all(host, 0, 1000) && all(host + 1000, 5, 1000));
    EQUAL(on(0)->read_bytes, 1000);
    cm_sim_fresh(host, 2000); /* host memory is nobody's block */
    CHECK(all(host + 1000, 5, 1000));

    cm_sim_copy(small, host + 1000, 600);
    cm_sim_copy(neighbour, host + 1000, 600);
    EQUAL(cm_sim_free(small, NULL), CM_SIM_OK);
    CHECK(alloc(0, 500) == small);
    cm_sim_copy(host, small, 500);
    CHECK(all(host, 0, 500));
    EQUAL(on(0)->read_bytes, 1500);
    cm_sim_copy(host, neighbour, 600);
    CHECK(all(host, 5, 600));
    EQUAL(on(0)->read_bytes, 1500);
    EQUAL(cm_sim_free(small, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(neighbour, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    free(host);
}

static void what_is_outside(void)
{
    char *at = alloc(0, 2 * MIB), *small = alloc(0, 512), *host = filled(4096, 5);
    void *reserved;

    cm_sim_copy(host, at + 2 * MIB - 10, 20);
    CHECK(all(host, 0, 20));
    EQUAL(note(CM_SIM_NOTE_REFUSED, "copy outside of device memory")->count, 1);
    cm_sim_copy(small + 500, host, 20);
    EQUAL(note(CM_SIM_NOTE_REFUSED, "copy outside of device memory")->count, 2);
    EQUAL(cm_sim_reserve(2 * MIB, 0, &reserved), CM_SIM_OK);
    cm_sim_copy(reserved, host, 1);
    cm_sim_copy(at, reserved, 1);
    EQUAL(note(CM_SIM_NOTE_REFUSED, "copy outside of device memory")->count, 4);
    cm_sim_set(reserved, 1, 1);
    EQUAL(note(CM_SIM_NOTE_REFUSED, "memset outside of device memory")->count, 1);
    cm_sim_fresh(reserved, 2 * MIB); /* nothing is there: nothing happens */
    cm_sim_copy(host, host + 100, 0);
    cm_sim_copy(host, host, 100);
    memset(host, 4, 50);
    cm_sim_copy(host + 10, host, 60); /* the host's own, overlapping */
    CHECK(all(host, 4, 60) && all(host + 60, 0, 1) == false);
    EQUAL(cm_sim_unreserve(reserved, 2 * MIB), CM_SIM_OK);
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    free(host);
}

/* --- Random operations against a model that keeps a flag for each byte -------------------------
 */

enum { PARTS = 4, ARENA = 7 << 20 };

static struct {
    char *before;      /* so that the small block does not begin with its chunk */
    char *base[PARTS]; /* a block, a small one, mapped memory, a block of another device */
    size_t start[PARTS + 1];
    unsigned char *value, *known; /* the model, by offset in all parts */
    unsigned char *host, *expected;
} arena;

static uint64_t seed = 1;

static size_t random_below(size_t bound)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(seed >> 20) % bound;
}

static void make_arena(void)
{
    static const size_t sizes[PARTS] = {3 << 20, 700000, 2 << 20, ARENA - (5 << 20) - 700000};
    cm_sim_physical *handle;
    void *at;

    EQUAL(cm_sim_reserve(4 * MIB, 0, &at), CM_SIM_OK);
    for (int i = 0; i < 2; i++) { /* a range over two mappings and a part of a third */
        EQUAL(cm_sim_create(0, 2 * MIB, &handle), CM_SIM_OK);
        EQUAL(cm_sim_map((char *)at + i * 2 * MIB, 2 * MIB, 0, handle), CM_SIM_OK);
        EQUAL(cm_sim_release(handle), CM_SIM_OK);
    }
    EQUAL(cm_sim_access(at, 4 * MIB, true), CM_SIM_OK);
    arena.before = alloc(0, 5000);
    arena.base[0] = alloc(0, sizes[0]);
    arena.base[1] = alloc(0, sizes[1]);
    arena.base[2] = (char *)at + MIB;
    arena.base[3] = alloc(1, sizes[3]);
    for (int i = 0; i < PARTS; i++)
        arena.start[i + 1] = arena.start[i] + sizes[i];
    EQUAL(arena.start[PARTS], ARENA);
    arena.value = calloc(1, ARENA);
    arena.known = calloc(1, ARENA);
    arena.host = malloc(ARENA);
    arena.expected = malloc(ARENA);
    CHECK(arena.value && arena.known && arena.host && arena.expected);
}

static void drop_arena(void)
{
    char *reserved = arena.base[2] - MIB;

    EQUAL(cm_sim_free(arena.base[0], NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(arena.base[1], NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(arena.before, NULL), CM_SIM_OK);
    EQUAL(cm_sim_unmap(reserved, 4 * MIB), CM_SIM_OK);
    EQUAL(cm_sim_unreserve(reserved, 4 * MIB), CM_SIM_OK);
    EQUAL(cm_sim_free(arena.base[3], NULL), CM_SIM_OK);
    free(arena.value);
    free(arena.known);
    free(arena.host);
    free(arena.expected);
}

typedef struct piece {
    char *at;
    size_t model, bytes;
} piece;

/* Edges of pages and chunks, small and large sizes, all more often than chance would have them. */
static piece random_piece(size_t most)
{
    int part = (int)random_below(PARTS);
    size_t size = arena.start[part + 1] - arena.start[part];
    size_t bytes = random_below(4) ? random_below(9000) + 1 : random_below(size) + 1;
    size_t from;

    if (random_below(5) == 0)
        bytes = (bytes + 4095) & ~(size_t)4095;
    if (bytes > most)
        bytes = most;
    if (bytes > size)
        bytes = size;
    from = random_below(size - bytes + 1);
    if (random_below(4) == 0)
        from &= ~(size_t)4095;
    if (random_below(20) == 0)
        from = 0;
    return (piece){arena.base[part] + from, arena.start[part] + from, bytes};
}

static void model_forget(piece at)
{
    memset(arena.known + at.model, 0, at.bytes);
    memset(arena.value + at.model, 0, at.bytes);
}

static void model_set(piece at, int value)
{
    memset(arena.known + at.model, 1, at.bytes);
    memset(arena.value + at.model, value, at.bytes);
}

static uint64_t total_reads(void)
{
    return on(0)->reads + on(1)->reads;
}

static uint64_t total_bytes(void)
{
    return on(0)->read_bytes + on(1)->read_bytes;
}

static void check_read(piece at, uint64_t reads, uint64_t bytes)
{
    uint64_t unknown = 0;

    for (size_t i = 0; i < at.bytes; i++)
        unknown += !arena.known[at.model + i];
    EQUAL(memcmp(arena.host, arena.value + at.model, at.bytes), 0);
    EQUAL(total_bytes() - bytes, unknown);
    EQUAL(total_reads() - reads, unknown > 0);
}

static void do_read(void)
{
    uint64_t reads = total_reads(), bytes = total_bytes();
    piece at = random_piece(ARENA);

    memset(arena.host, 0xee, at.bytes);
    cm_sim_copy(arena.host, at.at, at.bytes);
    check_read(at, reads, bytes);
}

static void do_write(void)
{
    piece at = random_piece(ARENA);
    unsigned char first = (unsigned char)random_below(256);

    for (size_t i = 0; i < at.bytes; i++)
        arena.host[i] = (unsigned char)(first + i * 7);
    cm_sim_copy(at.at, arena.host, at.bytes);
    if (at.bytes > COPY_MAX) {
        model_forget(at);
        return;
    }
    model_set(at, 0);
    memcpy(arena.value + at.model, arena.host, at.bytes);
}

static void do_set(void)
{
    piece at = random_piece(ARENA);
    int value = random_below(2) ? 0 : (int)random_below(256);

    cm_sim_set(at.at, value, at.bytes);
    if (value == 0 || at.bytes <= COPY_MAX)
        model_set(at, value);
    else
        model_forget(at);
}

static void do_fresh(void)
{
    piece at = random_piece(ARENA);

    cm_sim_fresh(at.at, at.bytes);
    model_forget(at);
}

static void do_carry(void)
{
    piece from = random_piece(COPY_MAX), to = random_piece(from.bytes);

    from.bytes = to.bytes;
    if (from.model < to.model + to.bytes && to.model < from.model + from.bytes)
        return; /* overlapping: undefined in CUDA */
    cm_sim_copy(to.at, from.at, to.bytes);
    memcpy(arena.known + to.model, arena.known + from.model, to.bytes);
    memcpy(arena.value + to.model, arena.value + from.model, to.bytes);
}

/* Rows to the device, each of them its own small write; or from it, all of them one read. */
static void do_rows(void)
{
    piece at = random_piece(ARENA);
    size_t height = random_below(6) + 2, pitch = at.bytes / height, width = pitch / 2;
    uint64_t reads = total_reads(), bytes = total_bytes(), unknown = 0;

    if (width == 0 || width * height > COPY_MAX)
        return;
    if (random_below(2)) {
        memset(arena.host, 0x5a, width * height);
        cm_sim_copy_2d(at.at, pitch, arena.host, width, width, height);
        for (size_t row = 0; row < height; row++)
            model_set((piece){NULL, at.model + row * pitch, width}, 0x5a);
        return;
    }
    cm_sim_copy_2d(arena.host, width, at.at, pitch, width, height);
    for (size_t row = 0; row < height; row++) {
        EQUAL(memcmp(arena.host + row * width, arena.value + at.model + row * pitch, width), 0);
        for (size_t i = 0; i < width; i++)
            unknown += !arena.known[at.model + row * pitch + i];
    }
    EQUAL(total_bytes() - bytes, unknown);
    EQUAL(total_reads() - reads, unknown > 0);
}

/* Copies within the device of more than copy_max keep no contents but zeros; so the model cannot
 * follow do_carry there without knowing which known bytes are known to be zero only by their state.
 * They are tried on their own: whatever is known afterwards must be right. */
static void do_large_carry(void)
{
    piece to = {arena.base[3], arena.start[3], COPY_MAX + 1 + random_below(100000)};
    piece from = {arena.base[0] + random_below(MIB), 0, to.bytes};
    uint64_t bytes = total_bytes(), unknown = 0;

    from.model = arena.start[0] + (size_t)(from.at - arena.base[0]);
    cm_sim_copy(to.at, from.at, to.bytes);
    cm_sim_copy(arena.host, to.at, to.bytes);
    CHECK(all((char *)arena.host, 0, to.bytes));
    for (size_t i = 0; i < to.bytes; i++) /* at least what is unknown, or known and not zero */
        unknown += !arena.known[from.model + i] || arena.value[from.model + i] != 0;
    CHECK(total_bytes() - bytes >= unknown);
    cm_sim_fresh(to.at, to.bytes);
    model_forget(to);
}

static void model(void)
{
    static void (*const operations[])(void) = {do_read,  do_read,  do_write, do_write,      do_set,
                                               do_fresh, do_carry, do_rows,  do_large_carry};
    const char *asked = getenv("SEED"), *rounds = getenv("ROUNDS");

    seed = asked != NULL ? strtoull(asked, NULL, 10) : 1;
    make_arena();
    for (int i = rounds != NULL ? atoi(rounds) : 1000; i > 0; i--) {
        size_t which = random_below(sizeof operations / sizeof *operations);
        if (operations[which] == do_carry && random_below(2))
            continue;
        operations[which]();
    }
    for (int i = 0; i < PARTS; i++) { /* all of it */
        uint64_t reads = total_reads(), bytes = total_bytes();
        piece at = {arena.base[i], arena.start[i], arena.start[i + 1] - arena.start[i]};
        cm_sim_copy(arena.host, at.at, at.bytes);
        check_read(at, reads, bytes);
    }
    drop_arena();
}

/* Elements of a tensor with a gap between its rows: those outside of it keep what they have. */
static void elements_of_tensors(void)
{
    enum { ROWS = 3, COLUMNS = 4, PITCH = 6 };
    int32_t *at = (int32_t *)alloc(0, 4 * MIB), host[ROWS * PITCH], values[ROWS * COLUMNS];
    uint8_t known[ROWS * COLUMNS];
    const int64_t sizes[] = {ROWS, COLUMNS}, strides[] = {PITCH, 1}, turned[] = {1, PITCH};
    cm_sim_tensor tensor = {at + 1, 4, 2, sizes, strides};
    uint64_t reads = on(0)->reads, known_reads = on(0)->known_reads;

    for (int i = 0; i < ROWS * PITCH; i++)
        host[i] = i;
    EQUAL(cm_sim_values_read(&tensor, values, known), 0);
    CHECK(all((char *)values, 0, sizeof values) && all((char *)known, 0, sizeof known));
    cm_sim_copy(at, host, sizeof host);
    EQUAL(cm_sim_values_read(&tensor, values, known), ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        EQUAL(values[i], 1 + i / COLUMNS * PITCH + i % COLUMNS);

    /* One element of each row becomes unknown, the others get values. */
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        values[i] = 100 + i;
        known[i] = i % COLUMNS != 2;
    }
    EQUAL(cm_sim_values_write(&tensor, values, known), 0);
    memset(values, 0xff, sizeof values);
    EQUAL(cm_sim_values_read(&tensor, values, known), ROWS * (COLUMNS - 1));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        EQUAL(known[i], i % COLUMNS != 2);
        EQUAL(values[i], known[i] ? 100 + i : 0);
    }
    /* Transposed, and what lies between the rows. */
    cm_sim_tensor other = {at + 1, 4, 2, (const int64_t[]){COLUMNS, ROWS}, turned};
    EQUAL(cm_sim_values_read(&other, values, known), ROWS * (COLUMNS - 1));
    EQUAL(values[1], 100 + COLUMNS);
    EQUAL(known[2 * ROWS], 0);
    cm_sim_tensor gap = {at + 5, 4, 1, (const int64_t[]){2}, (const int64_t[]){1}};
    EQUAL(cm_sim_values_read(&gap, values, known), 2);
    EQUAL(values[0], 5);
    EQUAL(values[1], 6);

    /* All of it at once, a number without dimensions, and nothing at all. */
    EQUAL(cm_sim_values_write(&tensor, NULL, NULL), 0);
    EQUAL(cm_sim_values_read(&tensor, values, known), 0);
    /* Of very many blocks also what lies between them. */
    const int64_t many[] = {MIB / 8}, apart[] = {2};
    cm_sim_tensor odd = {at + 1, 4, 1, many, apart};
    cm_sim_tensor even = {at + 2, 4, 1, sizes, apart};
    cm_sim_copy(at, host, sizeof host);
    EQUAL(cm_sim_values_read(&even, values, known), ROWS);
    EQUAL(cm_sim_values_write(&odd, NULL, NULL), 0);
    EQUAL(cm_sim_values_read(&even, values, known), 0);
    cm_sim_tensor number = {at, 4, 0, NULL, NULL};
    EQUAL(cm_sim_values_write(&number, &(int32_t){77}, NULL), 0);
    EQUAL(cm_sim_values_read(&number, values, known), 1);
    EQUAL(values[0], 77);
    cm_sim_tensor empty = {NULL, 4, 1, (const int64_t[]){0}, (const int64_t[]){1}};
    EQUAL(cm_sim_values_read(&empty, values, known), 0);
    EQUAL(cm_sim_values_write(&empty, values, NULL), 0);

    /* An element of which only a part is known is not. */
    cm_sim_copy((char *)(at + 1000), host, 3);
    cm_sim_tensor part = {at + 1000, 4, 1, (const int64_t[]){1}, (const int64_t[]){1}};
    EQUAL(cm_sim_values_read(&part, values, known), 0);
    /* Memory of the host, and beyond the block. */
    cm_sim_tensor outside = {host, 4, 1, (const int64_t[]){2}, (const int64_t[]){1}};
    EQUAL(cm_sim_values_read(&outside, values, known), -1);
    EQUAL(cm_sim_values_write(&outside, values, NULL), -1);
    cm_sim_tensor beyond = {at + MIB - 1, 4, 1, (const int64_t[]){2}, (const int64_t[]){1}};
    EQUAL(cm_sim_values_read(&beyond, values, known), -1);
    EQUAL(on(0)->reads, reads); /* none of it is a read of the program's */
    EQUAL(cm_sim_free(at, NULL), CM_SIM_OK);
    EQUAL(on(0)->known_reads, known_reads);
}

static const test_case cases[] = {
    {"elements_of_tensors", elements_of_tensors},
    {"reads_are_counted_and_told", reads_are_counted_and_told},
    {"large_copies_lose_their_contents", large_copies_lose_their_contents},
    {"memsets", memsets},
    {"copies_across_chunks", copies_across_chunks},
    {"blocks_begin_afresh", blocks_begin_afresh},
    {"what_is_outside", what_is_outside},
    {"model", model},
};
MAIN(cases)
