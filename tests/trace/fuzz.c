/* A stand-alone program for the sanitizers (test_trace_fuzz.py compiles it with the trace part).
 *
 *   fuzz damage FILE SEED ROUNDS   a small trace, its chunks damaged behind right checksums
 *   fuzz encode SEED ROUNDS        random events through encoder and decoder
 *   fuzz read FILE                 one pass and a second one; prints events and state */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../csrc/trace/crc32c.h"
#include "../../csrc/trace/decode.h"
#include "../../csrc/trace/encode.h"
#include "../../csrc/trace/format.h"
#include "../../csrc/trace/reader.h"
#include "../../csrc/trace/synthetic.h"

static uint64_t state;

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

/* Reads everything that a report would; returns the number of records of the first pass. */
static uint64_t read_all(const char *path, bool print)
{
    char error[120]; /* too short for some paths */
    cm_reader *reader = cm_reader_open(path, error, sizeof error);
    if (reader == NULL) {
        if (error[0] == '\0')
            die("refused without a word");
        if (print)
            printf("refused %s\n", error);
        return 0;
    }
    uint64_t counts[2] = {0, 0}, sums[2] = {0, 0};
    int last[2];
    for (int pass = 0; pass < 2; pass++) {
        cm_record record;
        while ((last[pass] = cm_reader_next(reader, &record)) == 1) {
            cm_frame frame;
            const cm_event *e = &record.event;
            counts[pass]++;
            sums[pass] += record.time_ns ^ e->time ^ e->address ^ (uint64_t)e->size ^ e->stack;
            sums[pass] = sums[pass] * 31 + e->kind + e->flags + record.thread;
            if (counts[pass] % 16 == 0) {
                uint32_t stack = e->stack;
                while (cm_reader_stack_frame(reader, stack, &frame)) {
                    sums[pass] += (uint64_t)frame.line;
                    stack = cm_reader_stack_parent(reader, stack);
                }
                cm_reader_name(reader, e->stack);
            }
        }
        if (last[pass] < 0 && cm_reader_error(reader)[0] == '\0')
            die("damaged without a word");
        if (cm_reader_progress(reader) < 0 || cm_reader_progress(reader) > 1)
            die("progress out of range");
        if (pass == 0)
            cm_reader_rewind(reader);
    }
    if (counts[0] != counts[1] || sums[0] != sums[1] || last[0] != last[1])
        die("two passes differ");
    if (print)
        printf("events %llu state %d last %d\n", (unsigned long long)counts[0],
               cm_reader_get_state(reader), last[0]);
    cm_reader_close(reader);
    return counts[0];
}

static unsigned char *slurp(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        die("cannot read");
    *length = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*length);
    if (bytes == NULL || fread(bytes, 1, *length, file) != *length)
        die("cannot read");
    fclose(file);
    return bytes;
}

static void spill(const char *path, const unsigned char *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, length, file) != length || fclose(file) != 0)
        die("cannot write");
}

static void damage_payload(unsigned char *payload, size_t length)
{
    static const unsigned char nasty[] = {0x00, 0x01, 0x7f, 0x80, 0xff, 0xfe, 0xc0, 0x07};
    for (uint64_t n = 1 + draw() % 4; n > 0; n--) {
        size_t at = draw() % length;
        /* The counts and lengths stand at the front. */
        if (draw() % 4 == 0)
            at = draw() % (length < 40 ? length : 40);
        switch (draw() % 4) {
        case 0:
            payload[at] ^= (unsigned char)(1u << draw() % 8);
            break;
        case 1:
            payload[at] = nasty[draw() % sizeof nasty];
            break;
        case 2:
            for (size_t i = at; i < length && i < at + 11; i++)
                payload[i] = i + 1 == at + 11 ? 0x01 : 0xff;
            break;
        default: {
            size_t other = draw() % length, n_bytes = draw() % 16;
            for (size_t i = 0; i < n_bytes && at + i < length && other + i < length; i++)
                payload[at + i] = payload[other + i];
        }
        }
    }
}

static void fuzz_damage(const char *path, uint64_t rounds)
{
    cm_synthetic truth;
    size_t length;
    uint64_t sum = 0, whole = 0;

    if (cm_synthetic_write(path, 3000, state, 4096, &truth) < 0)
        die("no synthetic trace");
    unsigned char *original = slurp(path, &length);
    unsigned char *bytes = malloc(length);
    if (bytes == NULL)
        die("out of memory");
    while (rounds-- > 0) {
        size_t size = length;
        memcpy(bytes, original, length);
        for (size_t at = CM_HEADER_SIZE; at + CM_CHUNK_HEADER_SIZE < length;) {
            size_t payload =
                bytes[at + 8] | (size_t)bytes[at + 9] << 8 | (size_t)bytes[at + 10] << 16;
            int kind = bytes[at + 4];
            if (draw() % 4 == 0) {
                damage_payload(bytes + at + CM_CHUNK_HEADER_SIZE, payload);
                cm_chunk_seal(bytes + at, draw() % 16 == 0 ? (int)(draw() % 4) : kind, payload);
            }
            at += CM_CHUNK_HEADER_SIZE + payload;
        }
        if (draw() % 8 == 0)
            size = draw() % (length + 1);
        if (draw() % 8 == 0 && size > 0)
            bytes[draw() % size] ^= (unsigned char)draw();
        spill(path, bytes, size);
        uint64_t got = read_all(path, false);
        sum += got;
        whole += got == truth.events;
    }
    printf("read %llu whole %llu\n", (unsigned long long)sum, (unsigned long long)whole);
    free(bytes);
    free(original);
}

static cm_event any_event(uint64_t *now)
{
    uint64_t r = draw();
    cm_event e = {.kind = (uint8_t)(r % 4 != 0 ? 1 + r / 4 % 8 : r / 4 % 256)};
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

static void fuzz_encode(uint64_t rounds)
{
    enum { MOST = 3000 };
    static cm_event events[MOST];
    static uint32_t threads[MOST];
    cm_batch *batch = cm_batch_new();
    cm_decoder *decoder = cm_decoder_new();
    if (batch == NULL || decoder == NULL)
        die("out of memory");
    while (rounds-- > 0) {
        size_t n = draw() % MOST;
        uint64_t now = draw() >> draw() % 64;
        const uint64_t ticks = now;
        cm_batch_begin(batch, (cm_clock_anchor){ticks, draw() % 2 == 0 ? ticks : draw(), 0});
        for (size_t i = 0; i < n; i++) {
            events[i] = any_event(&now);
            threads[i] = draw() % 8 == 0 ? (uint32_t)draw() >> draw() % 32 : (uint32_t)(draw() % 3);
            if (!cm_batch_add_event(batch, threads[i], &events[i]))
                die("not added");
        }
        const void *bytes;
        size_t length;
        if (!cm_batch_finish(batch, &bytes, &length))
            die("not finished");
        /* Behind the header: anchor, no definitions, count, length, section, no covers, position 0.
         */
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
        if (cm_decoder_begin(decoder, ticks, p, section, n) < 0)
            die("section refused");
        uint64_t unit = n > 0 ? ~UINT64_C(0) << p[0] : 0;
        for (size_t i = 0; i < n; i++) {
            cm_event got;
            uint32_t thread;
            if (cm_decoder_next(decoder, &got, &thread) != 1)
                die("event refused");
            events[i].time &= unit;
            if (memcmp(&got, &events[i], sizeof got) != 0 || thread != threads[i])
                die("event differs");
        }
        cm_event none;
        uint32_t thread;
        if (cm_decoder_next(decoder, &none, &thread) != 0)
            die("more than there was");
        free(copy);
    }
    cm_decoder_free(decoder);
    cm_batch_free(batch);
    printf("equal\n");
}

int main(int count, char **arguments)
{
    if (count == 5 && strcmp(arguments[1], "damage") == 0) {
        state = strtoull(arguments[3], NULL, 10) * 2 + 1;
        fuzz_damage(arguments[2], strtoull(arguments[4], NULL, 10));
    } else if (count == 4 && strcmp(arguments[1], "encode") == 0) {
        state = strtoull(arguments[2], NULL, 10) * 2 + 1;
        fuzz_encode(strtoull(arguments[3], NULL, 10));
    } else if (count == 3 && strcmp(arguments[1], "read") == 0) {
        read_all(arguments[2], true);
    } else {
        die("usage: see fuzz.c");
    }
    return 0;
}
