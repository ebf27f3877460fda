/* Mutations that know the format. Bytes that are changed blindly die at the first checksum, so:
 * payloads are changed behind checksums that are right again, sections of a batch behind lengths
 * that are right again, and events are decoded, changed as events, and encoded. */
#include <stdlib.h>
#include <string.h>

#include "../../../csrc/capture/ring_layout.h"
#include "../../../csrc/base/bytes.h"
#include "../../../csrc/trace/crc32c.h"
#include "../../../csrc/trace/decode.h"
#include "../../../csrc/trace/encode.h"
#include "../../../csrc/trace/format.h"
#include "input.h"

enum { ROOM = 1 << 20, CHUNKS = 512, EVENTS = 8192, RECORDS = 2048, RUNS = 512 };

static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static size_t below(size_t n)
{
    return n == 0 ? 0 : (size_t)(draw() % n);
}

static bool one_in(unsigned n)
{
    return draw() % n == 0;
}

/* Small, at a border, of some length, near another. */
static uint64_t any_number(uint64_t near)
{
    static const uint64_t border[] = {
        0x7f,      0x80,       0x3fff,        0xffff,     0x10000,           0xfffff,
        0x100000,  0x7fffffff, 0x80000000,    0xffffffff, UINT64_C(1) << 32, INT64_MAX,
        INT64_MIN, UINT64_MAX, UINT64_MAX - 1};
    switch (draw() % 5) {
    case 0:
        return draw() % 16;
    case 1:
        return border[below(sizeof border / sizeof border[0])];
    case 2:
        return draw() >> draw() % 64;
    default:
        return near + draw() % 9 - 4;
    }
}

/* --- bytes that grow ------------------------------------------------------------------------- */

typedef struct text {
    uint8_t at[ROOM];
    size_t length;
} text;

static void put(text *t, const void *bytes, size_t length)
{
    if (length > ROOM - t->length)
        length = ROOM - t->length;
    if (length > 0)
        memcpy(t->at + t->length, bytes, length);
    t->length += length;
}

static void put_varint(text *t, uint64_t value)
{
    uint8_t bytes[10];
    put(t, bytes, (size_t)(cm_put_varint(bytes, value) - bytes));
}

/* length bytes, changed blindly. */
static void put_mutated(text *t, const uint8_t *bytes, size_t length)
{
    size_t start = t->length, room = length + 64 < ROOM - start ? length + 64 : ROOM - start;

    put(t, bytes, length);
    t->length = start + LLVMFuzzerMutate(t->at + start, t->length - start, room);
}

/* --- definitions ----------------------------------------------------------------------------- */

static bool skip_record(cm_cursor *c)
{
    size_t length;
    int fields = 0;

    switch (cm_cursor_varint(c)) {
    case CM_DEF_STRING:
    case CM_DEF_NAME:
        cm_cursor_bytes(c, &length);
        break;
    case CM_DEF_CODE:
        for (fields = 3; fields > 0; fields--)
            cm_cursor_varint(c);
        cm_cursor_bytes(c, &length);
        break;
    case CM_DEF_STACK:
        for (fields = 6; fields > 0; fields--)
            cm_cursor_varint(c);
        break;
    default:
        return false;
    }
    return !c->bad;
}

static void put_some_text(text *t)
{
    static const char *const some[] = {"",
                                       "a",
                                       "train.py",
                                       "<module>",
                                       "_wrapped_call_impl",
                                       "step",
                                       "/site-packages/torch/optim/adam.py",
                                       "N5torch8autograd14AccumulateGradE",
                                       "N5torch8autograd9generated12MulBackward0E"};
    const char *it = some[below(sizeof some / sizeof some[0])];

    put_varint(t, one_in(20) ? any_number(strlen(it)) : strlen(it));
    put(t, it, strlen(it));
}

static void put_new_record(text *t)
{
    int kind = 1 + (int)below(4);

    put_varint(t, (uint64_t)kind);
    if (kind == CM_DEF_STACK) {
        for (int field = 0; field < 6; field++)
            put_varint(t, one_in(3) ? any_number(3) : below(field == 2 ? 64 : 8));
    } else if (kind == CM_DEF_CODE) {
        uint8_t table[40];
        size_t length = below(sizeof table);
        for (size_t i = 0; i < length; i++)
            table[i] = (uint8_t)(draw() | (one_in(2) ? 0x80 : 0));
        for (int field = 0; field < 3; field++)
            put_varint(t, one_in(8) ? any_number(3) : 1 + below(6));
        put_varint(t, length);
        put(t, table, length);
    } else {
        put_some_text(t);
    }
}

static void put_stack(text *out, uint64_t parent, uint64_t offset)
{
    const uint64_t fields[] = {CM_DEF_STACK, parent, 1, offset, 0, 0, 0};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        put_varint(out, fields[i]);
}

/* Much for few bytes: a deep chain, many children of one stack, a long text, a long table. The id
 * of the stack before is right in a first batch. */
static void put_many_records(text *out, uint64_t last)
{
    size_t many = (size_t)1 << below(12), kind = below(4);
    uint64_t parent = one_in(4) ? 0 : last;

    if (kind < 2) {
        for (size_t i = 0; i < many; i++)
            put_stack(out, kind == 0 && i > 0 ? last + i : parent, one_in(2) ? i : 0);
        return;
    }
    static uint8_t filler[2 << 11];
    memset(filler, kind == 2 ? 'x' : 0x80 | 15 << 3, many);
    put_varint(out, kind == 2 ? 1 + below(2) * 3 : CM_DEF_CODE); /* string, name */
    for (int field = 0; kind == 3 && field < 3; field++)
        put_varint(out, 1);
    put_varint(out, many);
    put(out, filler, many);
}

static void change_definitions(text *out, const uint8_t *bytes, size_t length)
{
    static size_t start[RECORDS + 1];
    cm_cursor c = {bytes, bytes + length, false};
    size_t count = 0;
    uint64_t last = CM_STACK_FIRST - 1;

    if (one_in(4)) {
        put_mutated(out, bytes, length);
        return;
    }
    start[0] = 0;
    while (count < RECORDS && c.at < c.end) {
        last += *c.at == CM_DEF_STACK;
        if (!skip_record(&c))
            break;
        start[++count] = (size_t)(c.at - bytes);
    }
    size_t chosen = below(count + 1), other = below(count);
    unsigned what = (unsigned)below(6);
    for (size_t i = 0; i <= count; i++) {
        if (i == chosen && what == 0)
            put_new_record(out);
        if (i == chosen && what == 1 && count > 0)
            put(out, bytes + start[other], start[other + 1] - start[other]);
        if (i == count || (i == chosen && what == 2))
            continue;
        size_t size = start[i + 1] - start[i];
        if (i == chosen && what == 3) { /* one of its numbers, the kind stays */
            text *field = malloc(sizeof *field);
            if (field == NULL)
                abort();
            field->length = 0;
            put(field, bytes + start[i], size);
            field->at[1 + below(field->length - 1)] = (uint8_t)(any_number(2) & 0x7f);
            put(out, field->at, field->length);
            free(field);
        } else if (i == chosen && what == 4) {
            put_mutated(out, bytes + start[i], size);
        } else {
            put(out, bytes + start[i], size);
        }
    }
    put(out, bytes + start[count], length - start[count]);
    if (what == 5)
        put_many_records(out, last);
}

/* --- events ---------------------------------------------------------------------------------- */

typedef struct row {
    cm_event event;
    uint32_t thread;
} row;

static row rows[EVENTS];

static size_t decode(uint64_t ticks, const uint8_t *section, size_t length, uint64_t count)
{
    static cm_decoder *decoder;
    static uint8_t padded[ROOM + CM_DECODE_PADDING];
    size_t n = 0;

    if (decoder == NULL && (decoder = cm_decoder_new()) == NULL)
        abort();
    if (length > ROOM)
        return 0;
    memcpy(padded, section, length);
    memset(padded + length, 0, CM_DECODE_PADDING);
    if (cm_decoder_begin(decoder, ticks, padded, length, count) < 0)
        return 0;
    while (n < EVENTS && cm_decoder_next(decoder, &rows[n].event, &rows[n].thread) == 1)
        n++;
    return n;
}

/* Any that there is, and once in a while one of a version to come. */
static uint8_t any_kind(void)
{
    return one_in(30) ? (uint8_t)draw() : (uint8_t)(1 + below(CM_EVENT_KINDS - 1));
}

static row new_row(size_t count)
{
    static const uint8_t often[] = {1, 1, 1, 2, 2, 3, 5, 5, 6, 6, 7, 8, 10, 10, 13};
    row r = {0};

    if (count > 0)
        r = rows[below(count)];
    r.event.kind = one_in(2) ? any_kind() : often[below(sizeof often)];
    if (one_in(2))
        r.event.address =
            count > 0 && one_in(2) ? rows[below(count)].event.address : any_number(4096);
    if (one_in(2))
        r.event.size = (int64_t)(one_in(4) ? any_number(64) : 1 + below(8));
    if (one_in(2))
        r.event.stack = (uint32_t)(one_in(8) ? any_number(2) : below(12));
    return r;
}

static void change_row(row *r, const row *other)
{
    switch (draw() % 9) {
    case 0:
        r->event.kind = other->event.kind;
        break;
    case 1:
        r->event.address = one_in(2) ? other->event.address : any_number(r->event.address);
        break;
    case 2:
        r->event.size =
            one_in(2) ? other->event.size : (int64_t)any_number((uint64_t)r->event.size);
        break;
    case 3:
        r->event.stack = one_in(2) ? other->event.stack : (uint32_t)any_number(r->event.stack);
        break;
    case 4:
        r->event.flags = one_in(8) ? (uint8_t)draw() : (uint8_t)below(8);
        break;
    case 5:
        r->event.device_type = one_in(2) ? (uint8_t)below(2) : (uint8_t)draw();
        r->event.device_index = one_in(2) ? (int8_t)-1 : (int8_t)draw();
        break;
    case 6:
        r->event.time += one_in(4) ? any_number(0) : draw() % 100000;
        break;
    case 7:
        r->thread = one_in(2) ? other->thread : (uint32_t)any_number(r->thread);
        break;
    default:
        r->event.kind = any_kind();
    }
}

static size_t change_events(size_t count)
{
    size_t at = below(count), n = 1 + below(8);

    if (n > count - at)
        n = count - at;
    switch (draw() % 8) {
    case 7: { /* one of them many times, each of another block, stack, thread or device */
        uint64_t fields = draw() % 16;
        row one = rows[at];
        for (size_t i = 1; i < (size_t)1 << below(12) && count < EVENTS; i++, count++) {
            one.event.time += 64;
            one.event.address += fields & 1 ? 64 : 0;
            one.event.stack += fields & 2 ? 1 : 0;
            one.thread += fields & 4 ? 1 : 0;
            one.event.device_index = (int8_t)(one.event.device_index + (fields & 8 ? 1 : 0));
            rows[count] = one;
        }
        return count;
    }
    case 0: /* forget some */
        memmove(rows + at, rows + at + n, (count - at - n) * sizeof *rows);
        return count - n;
    case 1: /* a new one */
        if (count == EVENTS)
            return count;
        memmove(rows + at + 1, rows + at, (count - at) * sizeof *rows);
        rows[at] = new_row(count);
        return count + 1;
    case 2: { /* everything once more, later, perhaps at other addresses: steps are made of this */
        uint64_t span = count > 0 ? rows[count - 1].event.time - rows[0].event.time + 64 : 0;
        uint64_t apart = one_in(2) ? 0 : (draw() % 16 + 1) << 20;
        size_t all = count;
        for (unsigned times = 1 + (unsigned)below(12); times > 0; times--) {
            if (all + count > EVENTS)
                break;
            for (size_t i = 0; i < count; i++, all++) {
                rows[all] = rows[all - count];
                rows[all].event.time += span;
                if (rows[all].event.kind <= CM_EV_FREE)
                    rows[all].event.address += apart;
            }
        }
        return all;
    }
    case 3: { /* out of order */
        size_t other = below(count);
        row kept = rows[at];
        rows[at] = rows[other];
        rows[other] = kept;
        return count;
    }
    default:
        for (size_t i = at; i < at + n; i++)
            change_row(&rows[i], &rows[below(count)]);
        return count;
    }
}

/* The count and the events section of these rows. */
static bool encode(uint64_t ticks, size_t count, text *out)
{
    static cm_batch *batch;
    const void *bytes;
    size_t length;

    if (batch == NULL && (batch = cm_batch_new()) == NULL)
        abort();
    cm_batch_begin(batch, (cm_clock_anchor){.ticks = ticks});
    for (size_t i = 0; i < count; i++)
        if (!cm_batch_add_event(batch, rows[i].thread, &rows[i].event))
            return false;
    if (!cm_batch_finish(batch, &bytes, &length))
        return false;
    /* Behind the header and the anchor: no definitions; at the end: no covers, position 0. */
    put(out, (const uint8_t *)bytes + CM_CHUNK_HEADER_SIZE + 25,
        length - CM_CHUNK_HEADER_SIZE - 27);
    return true;
}

/* --- chunks ---------------------------------------------------------------------------------- */

static void change_batch(text *out, const uint8_t *payload, size_t length)
{
    cm_cursor c = {payload, payload + length, false};
    size_t definitions_length, section_length;
    uint8_t anchor[24];

    uint64_t ticks = cm_cursor_fixed(&c, 8);
    cm_cursor_fixed(&c, 8);
    cm_cursor_fixed(&c, 8);
    const uint8_t *definitions = cm_cursor_bytes(&c, &definitions_length);
    const uint8_t *counted = c.at;
    uint64_t count = cm_cursor_varint(&c);
    const uint8_t *section = cm_cursor_bytes(&c, &section_length);
    const uint8_t *rest = c.at;
    if (c.bad || one_in(12)) {
        put_mutated(out, payload, length);
        return;
    }
    memcpy(anchor, payload, sizeof anchor);
    unsigned what = (unsigned)below(10);
    if (what == 0) {
        size_t word = below(3) * 8;
        cm_cursor now = {anchor + word, anchor + sizeof anchor, false};
        cm_put_fixed(anchor + word, any_number(cm_cursor_fixed(&now, 8)), 8);
    }
    put(out, anchor, sizeof anchor);
    if (what == 1 || what == 2) {
        static text changed;
        changed.length = 0;
        change_definitions(&changed, definitions, definitions_length);
        put_varint(out, changed.length);
        put(out, changed.at, changed.length);
    } else {
        put_varint(out, definitions_length);
        put(out, definitions, definitions_length);
    }
    size_t before = out->length;
    bool encoded = false;
    if (what >= 5) {
        size_t n = decode(ticks, section, section_length, count);
        for (uint64_t times = 1 + draw() % 4; times > 0; times--)
            n = n == 0 ? (rows[0] = new_row(0), rows[0].event.time = ticks, 1) : change_events(n);
        encoded = encode(ticks, n, out);
    }
    if (!encoded) {
        out->length = before;
        if (what == 3) {
            static text changed;
            changed.length = 0;
            put_mutated(&changed, section, section_length);
            put_varint(out, one_in(4) ? any_number(count) : count);
            put_varint(out, changed.length);
            put(out, changed.at, changed.length);
        } else {
            put(out, counted, (size_t)(rest - counted));
        }
    }
    if (what == 4)
        put_mutated(out, rest, (size_t)(payload + length - rest));
    else
        put(out, rest, (size_t)(payload + length - rest));
}

/* A chunk of source lines, with other numbers here and there. */
static void change_lines(text *out, const uint8_t *payload, size_t length)
{
    cm_cursor c = {payload, payload + length, false};
    uint64_t n = cm_cursor_varint(&c), known = 0;

    put_varint(out, one_in(8) ? any_number(n) : n);
    for (uint64_t i = 0; i < n && !c.bad; i++) {
        uint64_t number[3];
        for (int k = 0; k < 3; k++) {
            number[k] = cm_cursor_varint(&c);
            put_varint(out, one_in(8) ? any_number(number[k]) : number[k]);
        }
        if (c.bad || number[2] <= known)
            continue;
        known = number[2];
        size_t bytes;
        const uint8_t *string = cm_cursor_bytes(&c, &bytes);
        put_varint(out, one_in(8) ? any_number(bytes) : bytes);
        if (bytes > 0)
            put(out, string, bytes);
    }
}

typedef struct chunk {
    const uint8_t *at; /* with its header */
    size_t payload;
} chunk;

static size_t split(fuzz_part trace, chunk *chunks)
{
    size_t at = CM_HEADER_SIZE, count = 0;

    while (count < CHUNKS && trace.length >= at && trace.length - at >= CM_CHUNK_HEADER_SIZE) {
        size_t payload = fuzz_u32(trace.at + at + 8);
        if (payload > trace.length - at - CM_CHUNK_HEADER_SIZE)
            break;
        chunks[count++] = (chunk){trace.at + at, payload};
        at += CM_CHUNK_HEADER_SIZE + payload;
    }
    return count;
}

static void put_chunk(text *out, int kind, const uint8_t *payload, size_t length)
{
    static uint8_t whole[CM_CHUNK_HEADER_SIZE + ROOM];

    memcpy(whole + CM_CHUNK_HEADER_SIZE, payload, length);
    cm_chunk_seal(whole, kind, length);
    put(out, whole, CM_CHUNK_HEADER_SIZE + length);
}

static void put_end_chunk(text *out)
{
    uint8_t payload[64], *p = payload;

    for (int i = 0; i < 3; i++)
        p = cm_put_varint(p, one_in(3) ? any_number(9) : 0);
    p = one_in(2) ? cm_put_bytes(p, "", 0) : cm_put_bytes(p, "recovered", 9);
    put_chunk(out, CM_CHUNK_END, payload, (size_t)(p - payload));
}

/* One change in the list of chunks, or in one of them. */
static void change_trace(text *out, fuzz_part trace)
{
    static chunk chunks[CHUNKS];
    size_t count = split(trace, chunks), chosen = below(count), other = below(count);
    unsigned what = (unsigned)below(24);

    put(out, trace.at, trace.length < CM_HEADER_SIZE ? trace.length : CM_HEADER_SIZE);
    for (size_t i = 0; i < count; i++) {
        const chunk *c = &chunks[i];
        const uint8_t *payload = c->at + CM_CHUNK_HEADER_SIZE;
        int kind = c->at[4];
        if (i != chosen) {
            put(out, c->at, CM_CHUNK_HEADER_SIZE + c->payload);
            continue;
        }
        switch (what) {
        case 0: /* twice */
            put(out, c->at, CM_CHUNK_HEADER_SIZE + c->payload);
            put(out, c->at, CM_CHUNK_HEADER_SIZE + c->payload);
            break;
        case 1: /* gone */
            break;
        case 2: /* another one before it */
            put(out, chunks[other].at, CM_CHUNK_HEADER_SIZE + chunks[other].payload);
            put(out, c->at, CM_CHUNK_HEADER_SIZE + c->payload);
            break;
        case 3: /* of another kind */
            put_chunk(out, (int)below(6), payload, c->payload);
            break;
        case 4:
            put(out, c->at, CM_CHUNK_HEADER_SIZE + c->payload);
            put_end_chunk(out);
            break;
        default: {
            static text changed;
            changed.length = 0;
            if (kind == CM_CHUNK_BATCH)
                change_batch(&changed, payload, c->payload);
            else if (kind == CM_CHUNK_LINES && one_in(2))
                change_lines(&changed, payload, c->payload);
            else
                put_mutated(&changed, payload, c->payload);
            put_chunk(out, kind, changed.at, changed.length);
        }
        }
    }
    if (count == 0)
        put_end_chunk(out);
    if (what == 5 && out->length > 0)
        out->length -= below(out->length < 64 ? out->length : 64);
}

/* --- rings ----------------------------------------------------------------------------------- */

/* A run at a place that means something. */
static void put_new_run(text *out, uint32_t size)
{
    static const uint32_t fields[] = {
        offsetof(cm_ring_header, block_count),  offsetof(cm_ring_header, id),
        offsetof(cm_ring_header, table_offset), offsetof(cm_ring_header, log_offset),
        offsetof(cm_ring_header, log_bytes),    offsetof(cm_ring_header, blocks_offset),
        offsetof(cm_ring_header, log_head),     offsetof(cm_ring_header, log_tail),
        offsetof(cm_ring_header, unowned_lost), offsetof(cm_ring_header, totals)};
    uint8_t run[FUZZ_RUN_HEAD + 8];
    uint32_t offset = fields[below(sizeof fields / sizeof fields[0])] + (uint32_t)below(2) * 8;

    if (one_in(2)) /* rings, then blocks lie behind the header; where exactly the seeds tell */
        offset = (uint32_t)(sizeof(cm_ring_header) + below(4) * sizeof(cm_ring) + below(16) * 8);
    else if (one_in(2) && size >= CM_BLOCK_BYTES)
        offset = (uint32_t)(size - (1 + below(4)) * CM_BLOCK_BYTES + below(8) * 4);
    fuzz_put_u32(run, offset);
    run[4] = 8;
    run[5] = 0;
    cm_put_fixed(run + FUZZ_RUN_HEAD, any_number(500), 8);
    put(out, run, sizeof run);
}

static void change_ring(text *out, fuzz_part ring)
{
    static size_t start[RUNS + 1];
    size_t count = 0, at = 4;

    if (ring.length < 4 || one_in(16)) {
        put_mutated(out, ring.at, ring.length);
        return;
    }
    while (count < RUNS && ring.length - at >= FUZZ_RUN_HEAD) {
        size_t length = (size_t)ring.at[at + 4] | (size_t)ring.at[at + 5] << 8;
        if (length > ring.length - at - FUZZ_RUN_HEAD)
            break;
        start[count++] = at;
        at += FUZZ_RUN_HEAD + length;
    }
    start[count] = at;
    put(out, ring.at, 4);
    size_t chosen = below(count);
    unsigned what = (unsigned)below(6);
    for (size_t i = 0; i < count; i++) {
        size_t begin = out->length, length = start[i + 1] - start[i];
        if (i == chosen && what == 0)
            continue;
        put(out, ring.at + start[i], length);
        uint8_t *bytes = out->at + begin + FUZZ_RUN_HEAD;
        length -= FUZZ_RUN_HEAD;
        if (i == chosen && what >= 2 && length >= 8) { /* a word of it */
            for (uint64_t times = 1 + draw() % 3; times > 0; times--) {
                size_t word = below(length / 4) * 4;
                uint64_t value = any_number(fuzz_u32(bytes + word));
                memcpy(bytes + word, &value, length - word < 8 || one_in(2) ? 4 : 8);
            }
        }
    }
    if (what == 1)
        put_new_run(out, fuzz_u32(ring.at));
    put(out, ring.at + at, ring.length - at);
}

/* --- what libFuzzer calls -------------------------------------------------------------------- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    static text trace, side, ring;
    static uint8_t composed[3 * ROOM];
    fuzz_input input = fuzz_parse(data, size);

    state = (uint64_t)seed * 2 + 1;
    for (int i = 0; i < 8; i++)
        draw();
    if (size == 0 || size > ROOM || one_in(40))
        return LLVMFuzzerMutate(data, size, room);
    for (uint64_t times = 1 + draw() % 3; times > 0; times--) {
        text *out;
        static text next;
        fuzz_part *part;
        next.length = 0;
        if (input.ring.at != NULL && one_in(2)) {
            change_ring(&next, input.ring);
            part = &input.ring;
            out = &ring;
        } else if (input.side.at != NULL && one_in(2)) {
            change_trace(&next, input.side);
            part = &input.side;
            out = &side;
        } else if (input.trace.at != NULL) {
            change_trace(&next, input.trace);
            part = &input.trace;
            out = &trace;
        } else {
            break;
        }
        memcpy(out->at, next.at, next.length);
        out->length = next.length;
        *part = (fuzz_part){out->at, out->length};
    }
    size_t length = fuzz_compose(&input, composed, room < sizeof composed ? room : sizeof composed);
    if (length == 0)
        return LLVMFuzzerMutate(data, size, room);
    memcpy(data, composed, length);
    return length;
}

/* The first chunks of one, the last of another; or the ring of one with the trace of another. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t room, unsigned seed)
{
    static chunk first[CHUNKS], second[CHUNKS];
    static text trace;
    fuzz_input x = fuzz_parse(a, a_size), y = fuzz_parse(b, b_size);

    state = (uint64_t)seed * 2 + 1;
    for (int i = 0; i < 8; i++)
        draw();
    if (x.trace.at == NULL || y.trace.at == NULL)
        return 0;
    if (one_in(4)) {
        x.ring = y.ring.at != NULL ? y.ring : x.ring;
        x.side = y.side.at != NULL ? y.side : x.side;
        return fuzz_compose(&x, out, room);
    }
    size_t n = split(x.trace, first), m = split(y.trace, second);
    size_t keep = below(n + 1), from = below(m + 1);
    trace.length = 0;
    put(&trace, x.trace.at, x.trace.length < CM_HEADER_SIZE ? x.trace.length : CM_HEADER_SIZE);
    for (size_t i = 0; i < keep; i++)
        put(&trace, first[i].at, CM_CHUNK_HEADER_SIZE + first[i].payload);
    for (size_t i = from; i < m; i++)
        put(&trace, second[i].at, CM_CHUNK_HEADER_SIZE + second[i].payload);
    x.trace = (fuzz_part){trace.at, trace.length};
    return fuzz_compose(&x, out, room);
}
