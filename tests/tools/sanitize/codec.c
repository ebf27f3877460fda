/* Random events of every kind through the encoder and back, in many threads at once, each with an
 * encoder and a decoder of its own: what comes out is what went in.
 *
 *   codec SEED THREADS ROUNDS FOLDER    prints: events, threads, batches
 *
 * Half of the batches go through the decoder alone, with events that no trace would have; the
 * others make a file each, which the reader gives back. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../csrc/trace/decode.h"
#include "../../../csrc/trace/encode.h"
#include "../../../csrc/trace/format.h"
#include "../../../csrc/trace/reader.h"
#include "../../../csrc/trace/writer.h"

enum { MOST = 3000, LAST_KIND = CM_EV_SAMPLE };

static _Thread_local uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

__attribute__((noreturn)) static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

typedef struct worker {
    pthread_t thread;
    uint64_t seed, rounds, done, batches;
    const char *folder;
    cm_batch *batch;
    cm_decoder *decoder;
    cm_event events[MOST];
    uint32_t threads[MOST];
} worker;

static cm_event any_event(uint64_t *now)
{
    uint64_t r = draw();
    cm_event e = {.kind = (uint8_t)(r % 4 != 0 ? 1 + r / 4 % LAST_KIND : r / 4 % 256)};
    *now += draw() % 16 == 0 ? draw() >> draw() % 64 : draw() % 20000;
    e.time = *now;
    e.address = draw() % 4 == 0 ? draw() >> draw() % 64 : 0x7f0000000000 + draw() % 64 * 64;
    e.size = draw() % 4 == 0 ? (int64_t)(draw() >> draw() % 64) : (int64_t)(draw() % 8 * 512);
    e.stack = draw() % 4 == 0 ? (uint32_t)draw() >> draw() % 32 : (uint32_t)(draw() % 12);
    if (draw() % 8 == 0) {
        e.flags = (uint8_t)draw();
        e.device_type = (uint8_t)draw();
        e.device_index = (int8_t)draw();
    }
    if (draw() % 4 != 0) { /* short forms */
        if (e.kind == CM_EV_FREE || e.kind == CM_EV_NODE_DONE || e.kind == CM_EV_NODE_FREE)
            e.stack = 0;
        if (e.kind == CM_EV_NODE_NEW || e.kind == CM_EV_NODE_DONE)
            e.size = 0;
        if (e.kind == CM_EV_NODE_DONE)
            e.address = 0;
        if (e.kind >= CM_EV_NODE_NEW && draw() % 4 == 0)
            e.address = CM_NODE_NO_SEQUENCE;
    }
    return e;
}

/* A batch of random events; its chunk. */
static void make_batch(worker *w, uint64_t ticks, size_t n, bool plausible, const void **bytes,
                       size_t *length)
{
    uint64_t now = ticks;

    cm_batch_begin(w->batch, (cm_clock_anchor){ticks, draw() % 2 == 0 ? ticks : draw(), 0});
    for (size_t i = 0; i < n; i++) {
        w->events[i] = any_event(&now);
        w->threads[i] = draw() % 8 == 0 ? (uint32_t)draw() >> draw() % 32 : (uint32_t)(draw() % 3);
        if (plausible) /* references that no definition stands behind do not leave the reader */
            w->events[i].stack = 0;
        if (!cm_batch_add_event(w->batch, w->threads[i], &w->events[i]))
            die("not added");
    }
    for (uint64_t covers = draw() % 4; plausible && covers > 0; covers--)
        if (!cm_batch_add_cover(w->batch, (uint32_t)(draw() % 2048), draw()))
            die("cover not added");
    if (!cm_batch_finish(w->batch, bytes, length))
        die("not finished");
}

static void compare(const worker *w, size_t i, uint64_t unit, cm_event got, uint32_t thread)
{
    cm_event want = w->events[i];

    want.time &= unit;
    if (memcmp(&got, &want, sizeof got) != 0 || thread != w->threads[i])
        die("an event differs");
}

static void through_decoder(worker *w)
{
    const void *bytes;
    size_t length, n = draw() % MOST;
    uint64_t ticks = draw() >> draw() % 64;
    cm_event got;
    uint32_t thread;

    make_batch(w, ticks, n, false, &bytes, &length);
    /* Behind the header: anchor, no definitions, count, length, section, no covers, position 0. */
    unsigned char *copy = malloc(length + CM_DECODE_PADDING);
    if (copy == NULL)
        die("out of memory");
    memcpy(copy, bytes, length);
    memset(copy + length, 0xff, CM_DECODE_PADDING);
    const unsigned char *p = copy + CM_CHUNK_HEADER_SIZE + 25;
    for (int varints = 0; varints < 2; varints++)
        while (*p++ >= 0x80)
            ;
    size_t section = (size_t)(copy + length - 2 - p);
    if (cm_decoder_begin(w->decoder, ticks, p, section, n) < 0)
        die("section refused");
    uint64_t unit = n > 0 ? ~UINT64_C(0) << p[0] : 0;
    for (size_t i = 0; i < n; i++) {
        if (cm_decoder_next(w->decoder, &got, &thread) != 1)
            die("event refused");
        compare(w, i, unit, got, thread);
    }
    if (cm_decoder_next(w->decoder, &got, &thread) != 0)
        die("more than there was");
    free(copy);
    w->done += n;
}

static void through_file(worker *w)
{
    const void *bytes;
    size_t length, n = draw() % 300;
    char path[512], error[256];
    cm_writer *writer;
    cm_record record;

    snprintf(path, sizeof path, "%s/codec-%llu.cmem", w->folder, (unsigned long long)w->seed);
    make_batch(w, 1 << 20, n, true, &bytes, &length);
    if (cm_writer_create(path, true, CM_WRITER_NAMED, &writer) < 0 ||
        cm_writer_meta(writer, (const char *const[]){"command", "codec", NULL}) < 0 ||
        cm_writer_chunk(writer, bytes, length) < 0 || cm_writer_end(writer, n, 0, 0, "") < 0 ||
        cm_writer_close(writer) < 0)
        die("the file could not be written");
    cm_reader *reader = cm_reader_open(path, error, sizeof error);
    if (reader == NULL)
        die(error);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            if (cm_reader_next(reader, &record) != 1)
                die("a record is missing");
            record.event.time = w->events[i].time; /* its unit is the decoder's affair */
            compare(w, i, ~UINT64_C(0), record.event, record.thread);
        }
        if (cm_reader_next(reader, &record) != 0 ||
            cm_reader_get_state(reader) != CM_TRACE_COMPLETE)
            die("the trace does not end where it ended");
        cm_reader_rewind(reader);
    }
    cm_reader_close(reader);
    unlink(path);
    w->done += n;
}

static void *work(void *argument)
{
    worker *w = argument;

    state = w->seed * 2 + 1;
    for (uint64_t i = 0; i < w->rounds; i++, w->batches++)
        i % 2 == 0 ? through_decoder(w) : through_file(w);
    return NULL;
}

int main(int count, char **words)
{
    if (count != 5)
        die("usage: codec SEED THREADS ROUNDS FOLDER");
    uint64_t threads = strtoull(words[2], NULL, 10), events = 0, batches = 0;
    worker *all = calloc(threads, sizeof *all);
    if (all == NULL)
        die("out of memory");
    for (uint64_t i = 0; i < threads; i++) {
        worker *w = &all[i];
        w->seed = strtoull(words[1], NULL, 10) * 1000 + i;
        w->rounds = strtoull(words[3], NULL, 10);
        w->folder = words[4];
        w->batch = cm_batch_new();
        w->decoder = cm_decoder_new();
        if (w->batch == NULL || w->decoder == NULL ||
            pthread_create(&w->thread, NULL, work, w) != 0)
            die("cannot begin");
    }
    for (uint64_t i = 0; i < threads; i++) {
        pthread_join(all[i].thread, NULL);
        events += all[i].done;
        batches += all[i].batches;
        cm_batch_free(all[i].batch);
        cm_decoder_free(all[i].decoder);
    }
    free(all);
    printf("%llu %llu %llu\n", (unsigned long long)events, (unsigned long long)threads,
           (unsigned long long)batches);
    return 0;
}
