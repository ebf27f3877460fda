/* Reads what is left in a ring file. The file may be anything: all that it holds is first checked
 * against its size. */
#include "orphan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/file_range.h"
#include "../base/grow.h"
#include "kept_rings.h"
#include "../capture/merge.h"
#include "../capture/ring_owner.h"
#include "recover.h"
#include "../capture/ringfile.h"

enum { CHUNK_EVENTS = 1 << 17 };

typedef struct piece { /* a block that belongs to a ring */
    uint32_t ring, serial;
    uint64_t base;
    const cm_ring_block *block;
} piece;

typedef struct ring_source {
    cm_merge_source source;    /* first: the merge hands back a pointer to it */
    const piece *first, *last; /* its blocks, oldest first; last: past the end */
    uint64_t missing;
} ring_source;

/* --- the file ---------------------------------------------------------------------------- */

static bool is_sound(const cm_ring_header *header, uint64_t size)
{
    uint64_t table = (uint64_t)CM_RING_COUNT * sizeof(cm_ring);

    return atomic_load(&header->magic) == CM_RING_MAGIC && header->version == CM_RING_VERSION &&
           header->ring_count == CM_RING_COUNT && header->block_bytes == CM_BLOCK_BYTES &&
           header->id != 0 && header->total_bytes == size && header->table_offset % 64 == 0 &&
           header->table_offset >= sizeof *header && header->table_offset <= size - table &&
           header->log_bytes > 0 && header->log_bytes <= size &&
           header->log_offset <= size - header->log_bytes && header->blocks_offset % 64 == 0 &&
           header->blocks_offset <= size &&
           header->block_count <= (size - header->blocks_offset) / CM_BLOCK_BYTES &&
           memchr(header->trace_path, 0, sizeof header->trace_path) != NULL;
}

bool cm_recover_header(int fd, cm_ring_header *header)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= CM_RING_BYTES_MIN &&
           st.st_size <= CM_RING_BYTES_MAX && cm_read_at(fd, 0, header, sizeof *header) == 0 &&
           is_sound(header, (uint64_t)st.st_size);
}

cm_ring_header *cm_recover_load(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < CM_RING_BYTES_MIN ||
        st.st_size > CM_RING_BYTES_MAX)
        return NULL;
    void *image = aligned_alloc(4096, ((size_t)st.st_size + 4095) & ~(size_t)4095);
    if (image == NULL)
        return NULL;
    if (cm_read_at(fd, 0, image, (size_t)st.st_size) < 0 ||
        !is_sound(image, (uint64_t)st.st_size)) {
        free(image);
        return NULL;
    }
    return image;
}

/* --- from ring to merge ------------------------------------------------------------------ */

static int older_first(const void *a, const void *b)
{
    const piece *x = a, *y = b;

    if (x->ring != y->ring)
        return x->ring < y->ring ? -1 : 1;
    if (x->base != y->base)
        return x->base < y->base ? -1 : 1;
    return x->serial < y->serial ? -1 : x->serial > y->serial;
}

static size_t sort_pieces(const cm_ring_header *header, piece *pieces)
{
    const cm_ring_block *blocks =
        (const cm_ring_block *)((const unsigned char *)header + header->blocks_offset);
    size_t count = 0;

    for (uint32_t i = 0; i < header->block_count; i++) {
        uint32_t owner = atomic_load_explicit(&blocks[i].owner, memory_order_relaxed);
        if (owner >= 1 && owner <= CM_RING_COUNT)
            pieces[count++] = (piece){.ring = owner - 1,
                                      .serial = blocks[i].serial,
                                      .base = blocks[i].base,
                                      .block = &blocks[i]};
    }
    cm_sort(pieces, count, sizeof *pieces, older_first);
    return count;
}

/* A count in a damaged file may be anything: limits it to the highest of an event. */
static uint64_t add_count(uint64_t count, uint64_t more)
{
    return more > INT64_MAX || count > INT64_MAX - more ? INT64_MAX : count + more;
}

/* The newest block that begins at or before the position holds it. If none does (the trace was cut,
 * or the ring is damaged), goes on at the next block. */
static bool find_run(cm_merge *merge, cm_merge_source *source)
{
    ring_source *r = (ring_source *)source;

    (void)merge;
    while (source->position < source->end) {
        const piece *next = r->first;
        while (next < r->last && next->base <= source->position)
            next++;
        uint64_t stop = next < r->last && next->base < source->end ? next->base : source->end;
        if (next > r->first) {
            const piece *p = next - 1;
            uint64_t offset = source->position - p->base;
            r->first = p; /* positions only grow */
            if (offset < CM_BLOCK_EVENTS) {
                if (stop - p->base > CM_BLOCK_EVENTS)
                    stop = p->base + CM_BLOCK_EVENTS;
                source->at = &p->block->events[offset];
                source->stop = &p->block->events[stop - p->base];
                return true;
            }
        }
        r->missing = add_count(r->missing, stop - source->position);
        source->position = stop;
    }
    return false;
}

static uint64_t unreported_losses(const cm_ring *ring)
{
    uint64_t lost_at = atomic_load(&ring->lost_at);

    /* Killed between the event that reports them and the count's reset. */
    if (lost_at != 0 && atomic_load(&ring->head) >= lost_at)
        return 0;
    return add_count(0, atomic_load(&ring->lost));
}

static uint32_t open_sources(const cm_ring_header *header, const cm_covers *covers,
                             const piece *pieces, size_t count, ring_source *sources)
{
    const cm_ring *rings = (const cm_ring *)((const unsigned char *)header + header->table_offset);
    const piece *at = pieces, *last = pieces + count;
    uint32_t opened = 0;

    for (uint32_t i = 0; i < CM_RING_COUNT; i++) {
        const piece *first = at;
        while (at < last && at->ring == i)
            at++;
        uint64_t head = atomic_load(&rings[i].head);
        uint64_t from = i < covers->count ? covers->ring[i] : 0;
        uint64_t unreported = unreported_losses(&rings[i]);
        if (from > head)
            from = head; /* a cover that this ring cannot have led to */
        if (from == head && unreported == 0)
            continue;
        sources[opened++] = (ring_source){
            .source = {.position = from, .end = head, .ring = i, .thread = rings[i].thread},
            .first = first,
            .last = at,
            .missing = unreported};
    }
    return opened;
}

/* --- the chunks -------------------------------------------------------------------------- */

static const cm_ring_totals *choose_totals(const cm_ring_header *header, const cm_covers *covers)
{
    const cm_ring_totals *best = &header->totals[0];
    uint64_t taken = 0;

    for (size_t i = 0; i < covers->count; i++)
        taken += covers->ring[i];
    for (int i = 0; i < 2; i++)
        if (atomic_load(&header->totals[i].events) == taken)
            best = &header->totals[i];
    return best;
}

static bool append(cm_recovered *out, const void *bytes, size_t length)
{
    unsigned char *grown = realloc(out->chunks, out->length + length);
    if (grown == NULL)
        return false;
    memcpy(grown + out->length, bytes, length);
    out->chunks = grown;
    out->length += length;
    return true;
}

static bool add_definitions(const cm_ring_header *header, uint64_t from, cm_batch *batch)
{
    const unsigned char *log = (const unsigned char *)header + header->log_offset;
    uint64_t head = atomic_load(&header->log_head);

    /* Ids follow from the order, so that with a gap the rest would mean something else. */
    if (from >= head || head - from > header->log_bytes)
        return true;
    size_t at = (size_t)(from % header->log_bytes), length = (size_t)(head - from);
    size_t first = header->log_bytes - at < length ? header->log_bytes - at : length;
    return cm_batch_add_definitions(batch, log + at, first) &&
           cm_batch_add_definitions(batch, log, length - first);
}

/* Losses are reported on the thread that lost the events, at the time of the chunk. */
static bool add_losses(cm_batch *batch, ring_source *sources, uint32_t count, uint64_t time,
                       uint64_t unowned)
{
    cm_event event = {.kind = CM_EV_LOST, .time = time, .device_index = -1};

    for (uint32_t i = 0; i < count; i++) {
        event.size = (int64_t)sources[i].missing;
        if (event.size != 0 && !cm_batch_add_event(batch, sources[i].source.thread, &event))
            return false;
    }
    event.size = (int64_t)unowned;
    return unowned == 0 || cm_batch_add_event(batch, 0, &event);
}

static bool write_chunks(const cm_ring_header *header, const cm_covers *covers,
                         ring_source *sources, uint32_t count, cm_merge *merge, cm_batch *batch,
                         cm_recovered *out)
{
    const cm_ring_totals *totals = choose_totals(header, covers);
    const cm_clock_anchor anchor = {.ticks = totals->ticks,
                                    .monotonic_ns = totals->monotonic_ns,
                                    .realtime_ns = totals->realtime_ns};
    uint64_t lost = atomic_load(&header->unowned_lost);
    uint64_t unowned = lost > totals->unowned_lost ? add_count(0, lost - totals->unowned_lost) : 0;
    uint64_t log_head = atomic_load(&header->log_head);
    bool more = true;

    for (uint32_t i = 0; i < count; i++)
        if (find_run(merge, &sources[i].source))
            cm_merge_add(merge, &sources[i].source);
    for (bool first = true; more; first = false) {
        const void *bytes;
        size_t length;

        cm_batch_begin(batch, anchor);
        if (first && !add_definitions(header, covers->log, batch))
            return false;
        if (cm_merge_run(merge, batch, CHUNK_EVENTS) < 0)
            return false;
        more = merge->count > 0;
        if (!more &&
            !add_losses(batch, sources, count, anchor.ticks, add_count(unowned, merge->damaged)))
            return false;
        for (uint32_t i = 0; i < count; i++)
            if (!cm_batch_add_cover(batch, sources[i].source.ring, sources[i].source.position))
                return false;
        cm_batch_set_log_position(batch, log_head > covers->log ? log_head : covers->log);
        out->events += cm_batch_events(batch);
        if (!cm_batch_finish(batch, &bytes, &length) || !append(out, bytes, length))
            return false;
    }
    out->lost_stacks = totals->lost_stacks + merge->lost_stacks;
    return true;
}

bool cm_recover(const cm_ring_header *header, const cm_covers *covers, cm_recovered *out)
{
    const cm_ring *rings = (const cm_ring *)((const unsigned char *)header + header->table_offset);
    bool good = false;
    cm_merge merge = {.watermark = UINT64_MAX, .refill = find_run};

    memset(out, 0, sizeof *out);
    cm_batch *batch = cm_batch_new();
    piece *pieces = malloc(((size_t)header->block_count + 1) * sizeof *pieces);
    ring_source *sources = malloc(CM_RING_COUNT * sizeof *sources);
    merge.heap = malloc(CM_RING_COUNT * sizeof *merge.heap);
    if (batch != NULL && pieces != NULL && sources != NULL && merge.heap != NULL) {
        size_t found = sort_pieces(header, pieces);
        uint32_t count = open_sources(header, covers, pieces, found, sources);
        out->lost_events = add_count(0, atomic_load(&header->unowned_lost));
        for (uint32_t i = 0; i < CM_RING_COUNT; i++)
            out->lost_events = add_count(out->lost_events, atomic_load(&rings[i].lost_total));
        good = write_chunks(header, covers, sources, count, &merge, batch, out);
        out->lost_events = add_count(out->lost_events, merge.damaged);
        for (uint32_t i = 0; i < count; i++)
            out->lost_events =
                add_count(out->lost_events,
                          sources[i].missing - unreported_losses(&rings[sources[i].source.ring]));
    }
    cm_batch_free(batch);
    free(pieces);
    free(sources);
    free(merge.heap);
    if (!good) {
        free(out->chunks);
        memset(out, 0, sizeof *out);
    }
    return good;
}

static bool is_ring_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && strncmp(slash + 1, CM_RING_PREFIX, sizeof CM_RING_PREFIX - 1) == 0;
}

static cm_tail read_at(const char *ring_path, uint64_t ring_id, const cm_covers *covers,
                       unsigned char **chunks, size_t *length)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    cm_tail result = CM_TAIL_NONE;
    cm_recovered recovered;
    struct stat st;

    /* The path may come from any trace: only a ring's name is opened. Our own ring is not, because
     * closing it would drop our lock on it. */
    if (!is_ring_name(ring_path) || lstat(ring_path, &st) < 0 || !S_ISREG(st.st_mode))
        return CM_TAIL_NONE;
    if (cm_ringfile_is_ours(st.st_dev, st.st_ino))
        return CM_TAIL_ALIVE;
    int fd = open(ring_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd < 0)
        return CM_TAIL_NONE;
    bool locked = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    cm_ring_header head, *header = NULL;
    if (cm_recover_header(fd, &head) && head.id == ring_id) {
        /* Another process's lock is a sweeper's: that changes nothing in the ring. A live process's
         * header is enough, so that a reader may ask often. */
        if ((locked && cm_owner_may_be(&head, lock.l_pid)) || !cm_ring_is_abandoned(&head))
            result = CM_TAIL_ALIVE;
        else
            header = cm_recover_load(fd);
    }
    close(fd);
    if (header != NULL && header->id == ring_id && cm_recover(header, covers, &recovered)) {
        *chunks = recovered.chunks;
        *length = recovered.length;
        result = CM_TAIL_FOUND;
    }
    free(header);
    return result;
}

static cm_tail read_tail(const char *ring_path, uint64_t ring_id, const cm_covers *covers,
                         unsigned char **chunks, size_t *length)
{
    char kept[CM_RING_PATH_MAX];

    *chunks = NULL;
    *length = 0;
    cm_tail result = read_at(ring_path, ring_id, covers, chunks, length);
    if (result == CM_TAIL_NONE && cm_kept_path(ring_id, kept, sizeof kept))
        result = read_at(kept, ring_id, covers, chunks, length);
    return result;
}

static cm_owner find_owner(uint64_t ring_id, const char *owner)
{
    return cm_ringfile_is_recording(ring_id) ? CM_OWNER_RUNS : cm_owner_find(owner);
}

const cm_tail_source cm_orphan_tail = {read_tail, find_owner};
