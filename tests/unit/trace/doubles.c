/* What the trace room expects of recover, under a test's control; and a few helpers that
 * are awkward through ctypes. Compiled by the tests only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../csrc/trace/decode.h"
#include "../../../csrc/trace/encode.h"
#include "../../../csrc/trace/reader.h"
#include "../../../csrc/trace/tail.h"

static struct {
    cm_tail answer;
    unsigned char *chunks;
    size_t length;
    char grow_path[512];
    unsigned char *grow_bytes;
    size_t grow_length;
} orphan;

/* What the last call was asked. */
int double_calls;
char double_path[512];
uint64_t double_id, double_log, double_cover[64];
size_t double_cover_count;

void double_orphan(int answer, const void *chunks, size_t length)
{
    free(orphan.chunks);
    orphan.answer = (cm_tail)answer;
    orphan.chunks = malloc(length + 1);
    if (orphan.chunks == NULL)
        abort();
    memcpy(orphan.chunks, chunks, length);
    orphan.length = length;
    double_calls = 0;
}

/* The next call appends these bytes to a file first: the process wrote on in the meantime. */
void double_orphan_grows(const char *path, const void *bytes, size_t length)
{
    snprintf(orphan.grow_path, sizeof orphan.grow_path, "%s", path);
    free(orphan.grow_bytes);
    orphan.grow_bytes = malloc(length + 1);
    if (orphan.grow_bytes == NULL)
        abort();
    memcpy(orphan.grow_bytes, bytes, length);
    orphan.grow_length = length;
}

static cm_tail read_tail(const char *ring_path, uint64_t ring_id, const cm_covers *covers,
                         unsigned char **chunks, size_t *length)
{
    double_calls++;
    snprintf(double_path, sizeof double_path, "%s", ring_path);
    double_id = ring_id;
    double_log = covers->log;
    double_cover_count = covers->count;
    for (size_t i = 0; i < covers->count && i < 64; i++)
        double_cover[i] = covers->ring[i];
    if (orphan.grow_length > 0) {
        FILE *file = fopen(orphan.grow_path, "ab");
        if (file == NULL || fwrite(orphan.grow_bytes, 1, orphan.grow_length, file) == 0)
            abort();
        fclose(file);
        orphan.grow_length = 0;
    }
    if (orphan.answer == CM_TAIL_FOUND) {
        *chunks = malloc(orphan.length + 1);
        if (*chunks == NULL)
            abort();
        memcpy(*chunks, orphan.chunks, orphan.length);
        *length = orphan.length;
    }
    return orphan.answer;
}

static cm_owner find_owner(uint64_t ring_id, const char *owner)
{
    return CM_OWNER_UNKNOWN;
}

static const cm_tail_source source = {read_tail, find_owner};

__attribute__((constructor)) static void connect_reader(void)
{
    cm_tail_set_source(&source);
}

/* Adds n events; returns how many were taken. */
size_t double_add(cm_batch *batch, const uint32_t *threads, const cm_event *events, size_t n)
{
    size_t i = 0;
    while (i < n && cm_batch_add_event(batch, threads[i], &events[i]))
        i++;
    return i;
}

void double_begin(cm_batch *batch, uint64_t ticks, uint64_t monotonic_ns, uint64_t realtime_ns)
{
    cm_batch_begin(batch, (cm_clock_anchor){ticks, monotonic_ns, realtime_ns});
}

/* Up to n records; returns how many, and in *last what the last call of next answered. */
size_t double_read(cm_reader *reader, cm_record *records, size_t n, int *last)
{
    size_t i = 0;
    *last = 1;
    while (i < n && (*last = cm_reader_next(reader, &records[i])) == 1)
        i++;
    return i;
}
