#include "synthetic.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../csrc/base/clock.h"
#include "../csrc/base/event.h"
#include "../csrc/base/bytes.h"
#include "../csrc/trace/encode.h"
#include "../csrc/trace/format.h"
#include "../csrc/trace/writer.h"

enum { LAYERS = 12, OPS = 11, NODES = LAYERS * OPS, PARAMETERS = 26, LENGTHS = 16, SEEDS = 64 };
enum { MAIN_THREAD = 1, LOADER_THREAD = 2, CUPTI_THREAD = 3, QUEUE = 4 };
enum { SCATTERED_SEGMENTS = 1000, SCATTERED_PLACES = 64, SCATTERED_STEP = 1000 };
#define SEGMENT (INT64_C(20) << 20)
#define GRANULE (INT64_C(2) << 20)
#define WORKSPACE (INT64_C(8) << 20)
#define CONTEXT (INT64_C(500) << 20)
#define CONTEXT_HANDLE UINT64_C(0x55550000)
#define DEVICE_TOTAL (INT64_C(80) << 30)
#define TICKS_PER_MOMENT (TICKS_PER_SECOND / 10)
#define TICKS_PER_SECOND UINT64_C(2500000000)
#define FIRST_TICK UINT64_C(90000000000000)
#define START_REALTIME UINT64_C(1700000000000000000)

/* The operations of a layer: the backward node, the source line in model.py, and the values per
 * token that they keep and use as scratch. */
static const struct {
    const char *node;
    int line, kept, scratch;
    bool fixed; /* does not depend on the sequence length */
} ops[OPS] = {
    {"NativeLayerNormBackward0", 21, 768, 0, false},
    {"AddmmBackward0", 22, 2304, 0, false},
    {"SplitBackward0", 23, 12, 0, true},
    {"ScaledDotProductFlashAttentionForCpuBackward0", 24, 768, 96, false},
    {"AddmmBackward0", 26, 768, 0, false},
    {"AddBackward0", 27, 768, 0, false},
    {"NativeLayerNormBackward0", 28, 768, 0, false},
    {"AddmmBackward0", 29, 3072, 3072, false},
    {"GeluBackward0", 30, 3072, 0, false},
    {"AddmmBackward0", 31, 768, 768, false},
    {"NativeDropoutBackward0", 32, 768, 192, false},
};

/* Free blocks of one size: the last freed is the first reused, as in malloc. */
typedef struct pool {
    uint64_t *free;
    size_t count, capacity;
} pool;

typedef struct block {
    uint64_t address;
    int64_t size;
    pool *pool;
} block;

typedef struct machine {
    cm_batch *batch;
    cm_writer *writer;
    size_t batch_bytes;
    int status;
    uint64_t random, ticks, flushed, top, sequence;
    uint32_t strings, codes, stacks, names;
    cm_synthetic truth;

    uint32_t forward_stack[NODES], optimizer_stack[PARAMETERS];
    uint32_t data_stack, backward_stack, leak_stack, step_stack, loader_stack;
    uint32_t node_name[OPS], accumulate_name, optimizer_name;
    uint64_t optimizer;

    pool kept[OPS][LENGTHS], scratch[OPS][LENGTHS], gradient[PARAMETERS], buffer[LENGTHS], leak;
    block activation[NODES], parameter_gradient[PARAMETERS], queue[QUEUE], seeds[SEEDS];
    uint64_t node_sequence[NODES];
    unsigned queued;

    cm_synthetic_on on;
    uint64_t segment_left, workspace, totals_at;
    uint32_t correlation, torch_library, cublas_library, workspace_stack;
    int64_t reserved, reported;
} machine;

static uint64_t draw(machine *m)
{
    uint64_t z = m->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* --- definitions --------------------------------------------------------------------------- */

static void define(machine *m, const uint8_t *record, const uint8_t *end)
{
    if (!cm_batch_add_definitions(m->batch, record, (size_t)(end - record)))
        m->status = -ENOMEM;
}

static uint32_t define_text(machine *m, cm_def_kind kind, const char *text)
{
    uint8_t record[256], *p = record;
    *p++ = (uint8_t)kind;
    p = cm_put_bytes(p, text, strlen(text));
    define(m, record, p);
    return kind == CM_DEF_STRING ? ++m->strings : ++m->names;
}

/* Defines a code with instruction n in line first_line + n, columns 4 to 30. */
static uint32_t define_code(machine *m, uint32_t file, const char *function, int first_line)
{
    uint8_t record[512], table[3 * 40], *p = record, *t = table;
    for (int i = 0; i < 40; i++) {
        *t++ = (uint8_t)(0x80 | (i == 0 ? 10 : 11) << 3); /* one unit, same or next line */
        *t++ = 4;
        *t++ = 30;
    }
    uint32_t name = define_text(m, CM_DEF_STRING, function);
    *p++ = CM_DEF_CODE;
    p = cm_put_varint(p, file);
    p = cm_put_varint(p, name);
    p = cm_put_varint(p, (uint64_t)first_line);
    p = cm_put_bytes(p, table, sizeof table);
    define(m, record, p);
    return ++m->codes;
}

static uint32_t define_stack(machine *m, uint32_t parent, uint32_t code, int offset,
                             uint64_t module, uint32_t class_name)
{
    uint8_t record[64], *p = record;
    *p++ = CM_DEF_STACK;
    p = cm_put_varint(p, parent);
    p = cm_put_varint(p, code);
    p = cm_put_varint(p, (uint64_t)offset);
    p = cm_put_varint(p, 0);
    p = cm_put_varint(p, module);
    p = cm_put_varint(p, class_name);
    define(m, record, p);
    return CM_STACK_FIRST + m->stacks++;
}

static void define_program(machine *m)
{
    uint32_t train = define_text(m, CM_DEF_STRING, "/home/user/project/train.py");
    uint32_t model = define_text(m, CM_DEF_STRING, "/home/user/project/model.py");
    uint32_t data = define_text(m, CM_DEF_STRING, "/home/user/project/data.py");
    uint32_t modules = define_text(m, CM_DEF_STRING, "/usr/lib/python3/torch/nn/modules/module.py");
    uint32_t adam = define_text(m, CM_DEF_STRING, "/usr/lib/python3/torch/optim/adamw.py");
    uint32_t tensor = define_text(m, CM_DEF_STRING, "/usr/lib/python3/torch/_tensor.py");
    uint32_t block_class = define_text(m, CM_DEF_STRING, "model.Block");

    uint32_t module_code = define_code(m, train, "<module>", 1);
    uint32_t main_code = define_code(m, train, "main", 40);
    uint32_t collate_code = define_code(m, data, "collate", 10);
    uint32_t fill_code = define_code(m, data, "Prefetcher.run", 30);
    uint32_t forward_code = define_code(m, model, "Model.forward", 50);
    uint32_t block_code = define_code(m, model, "Block.forward", 20);
    uint32_t call_code = define_code(m, modules, "Module._wrapped_call_impl", 1775);
    uint32_t step_code = define_code(m, adam, "AdamW.step", 210);
    uint32_t backward_code = define_code(m, tensor, "Tensor.backward", 620);

    uint32_t root = define_stack(m, CM_STACK_NONE, module_code, 30, 0, 0);
    m->data_stack =
        define_stack(m, define_stack(m, root, main_code, 5, 0, 0), collate_code, 3, 0, 0);
    uint32_t forward = define_stack(m, root, main_code, 6, 0, 0);
    forward = define_stack(m, forward, forward_code, 4, 0, 0);
    for (int layer = 0; layer < LAYERS; layer++) {
        uint64_t module = UINT64_C(0x7f3300001000) + (uint64_t)layer * 0x1c0;
        uint32_t call = define_stack(m, forward, call_code, 8, module, block_class);
        for (int op = 0; op < OPS; op++)
            m->forward_stack[layer * OPS + op] =
                define_stack(m, call, block_code, ops[op].line - 20, 0, 0);
    }
    m->backward_stack =
        define_stack(m, define_stack(m, root, main_code, 8, 0, 0), backward_code, 20, 0, 0);
    m->leak_stack = define_stack(m, root, main_code, 9, 0, 0);
    m->step_stack = define_stack(m, root, main_code, 10, 0, 0);
    for (int i = 0; i < PARAMETERS; i++)
        m->optimizer_stack[i] = define_stack(m, m->step_stack, step_code, 10 + i, 0, 0);
    m->loader_stack = define_stack(m, CM_STACK_NONE, fill_code, 7, 0, 0);

    for (int op = 0; op < OPS; op++)
        m->node_name[op] = define_text(m, CM_DEF_NAME, ops[op].node);
    m->accumulate_name = define_text(m, CM_DEF_NAME, "torch::autograd::AccumulateGrad");
    m->optimizer_name = define_text(m, CM_DEF_NAME, "torch.optim.adamw.AdamW");
    m->optimizer = UINT64_C(0x7f3300100000);
    if (m->on == CM_SYNTHETIC_CPU)
        return;
    m->torch_library = define_text(m, CM_DEF_NAME, "/usr/lib/python3/torch/lib/libc10_cuda.so");
    m->cublas_library = define_text(m, CM_DEF_NAME, "/usr/lib/python3/nvidia/libcublas.so.13");
    m->workspace_stack = m->forward_stack[1];
}

/* --- events -------------------------------------------------------------------------------- */

static cm_clock_anchor anchor_now(const machine *m)
{
    uint64_t ns = (m->ticks - FIRST_TICK) * 2 / 5;
    return (cm_clock_anchor){m->ticks, UINT64_C(5000000000) + ns, START_REALTIME + ns};
}

static void flush(machine *m)
{
    const void *bytes;
    size_t length;
    cm_batch_add_cover(m->batch, 0, m->truth.events);
    if (!cm_batch_finish(m->batch, &bytes, &length))
        m->status = -ENOMEM;
    else
        m->status = cm_writer_chunk(m->writer, bytes, length);
    cm_batch_begin(m->batch, anchor_now(m));
    m->flushed = m->ticks;
}

static void emit(machine *m, uint32_t thread, const cm_event *event)
{
    if (m->status < 0)
        return;
    /* Events are mostly 0.3 to 3 us apart, with occasional long gaps. */
    uint64_t r = draw(m);
    m->ticks += 800 + r % 6400 + ((r >> 32) % 64 == 0 ? 50000 : 0);
    if (cm_batch_size(m->batch) >= m->batch_bytes || m->ticks - m->flushed > TICKS_PER_SECOND)
        flush(m);
    cm_event timed = *event;
    /* Threads are merged by time, but a late event may be a little older than its neighbour. */
    timed.time = m->ticks - (thread == LOADER_THREAD ? (r >> 20) % 4096 : 0);
    if (m->status == 0 && !cm_batch_add_event(m->batch, thread, &timed))
        m->status = -ENOMEM;
    m->truth.events++;
}

static cm_event on_device(const machine *m, cm_event_kind kind)
{
    bool cuda = m->on != CM_SYNTHETIC_CPU;
    return (cm_event){.kind = (uint8_t)kind,
                      .device_type = cuda ? CM_DEVICE_CUDA : CM_DEVICE_CPU,
                      .device_index = cuda ? 0 : -1};
}

static void change_live(machine *m, int64_t bytes)
{
    m->truth.live_bytes += bytes;
    if (m->truth.live_bytes > m->truth.peak_bytes)
        m->truth.peak_bytes = m->truth.live_bytes;
}

/* Emits a driver allocation or free, its correlation id, and its activity record. */
static void emit_driver(machine *m, cm_event_kind kind, uint64_t address, int64_t size,
                        uint32_t stack, uint32_t library)
{
    bool release = kind == CM_EV_DRIVER_FREE;
    cm_event event = on_device(m, kind), record = on_device(m, CM_EV_DRIVER_RECORD);
    cm_event more = {
        .kind = CM_EV_DRIVER_MORE, .size = CM_DRIVER_MORE_CORRELATION, .address = ++m->correlation};
    event.address = record.address = address;
    event.size = release ? 0 : size;
    event.stack = stack;
    event.flags = release ? 0 : CM_DRIVER_DEVICE;
    record.size = size;
    record.stack = library;
    record.flags = release ? CM_EVF_RELEASE : 0;
    emit(m, MAIN_THREAD, &event);
    emit(m, MAIN_THREAD, &more);
    emit(m, CUPTI_THREAD, &record);
    emit(m, CUPTI_THREAD, &more);
}

static uint64_t take_segment(machine *m, int64_t size)
{
    uint64_t address = m->top = (m->top + m->segment_left + GRANULE - 1) / GRANULE * GRANULE;
    emit_driver(m, CM_EV_DRIVER_NEW, address, size, m->forward_stack[0], m->torch_library);
    cm_event event = on_device(m, CM_EV_SEGMENT_NEW);
    event.address = address;
    event.size = size;
    event.stack = m->forward_stack[0];
    emit(m, MAIN_THREAD, &event);
    m->reserved += size;
    m->segment_left = (uint64_t)size;
    m->truth.segments++;
    return address;
}

static void emit_moment(machine *m)
{
    int64_t used = CONTEXT + m->reserved + (m->workspace != 0 ? WORKSPACE : 0);
    const int64_t totals[][2] = {{CM_DEVICE_BYTES_TOTAL, DEVICE_TOTAL},
                                 {CM_DEVICE_BYTES_OWN, used},
                                 {CM_DEVICE_BYTES_OTHERS, 0},
                                 {CM_DEVICE_BYTES_USED, used}};
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        cm_event event = on_device(m, CM_EV_DEVICE);
        event.address = (uint64_t)totals[i][0];
        event.size = totals[i][1];
        event.flags = CM_EVF_QUIET;
        emit(m, CUPTI_THREAD, &event);
    }
    m->totals_at = m->ticks;
    m->truth.moments++;
}

/* Between steps a library sometimes reallocates its workspace, and the device is sampled. */
static void end_step(machine *m)
{
    m->truth.steps++;
    if (m->on == CM_SYNTHETIC_CPU)
        return;
    if (m->truth.steps % 16 == 1) {
        if (m->workspace != 0)
            emit_driver(m, CM_EV_DRIVER_FREE, m->workspace, WORKSPACE, 0, 0);
        m->workspace = UINT64_C(0x7e0000000000) + m->truth.steps * (uint64_t)WORKSPACE;
        emit_driver(m, CM_EV_DRIVER_NEW, m->workspace, WORKSPACE, m->workspace_stack,
                    m->cublas_library);
    }
    if (m->ticks - m->totals_at > TICKS_PER_MOMENT)
        emit_moment(m);
}

static uint64_t fresh_address(machine *m, int64_t size)
{
    if (m->on != CM_SYNTHETIC_CPU) {
        if (m->segment_left < (uint64_t)size)
            take_segment(m, size > SEGMENT ? (size + GRANULE - 1) / GRANULE * GRANULE : SEGMENT);
        m->segment_left -= (uint64_t)size;
        m->top += (uint64_t)size;
        return m->top - (uint64_t)size;
    }
    uint64_t address = m->top;
    m->top += ((uint64_t)size + 127) / 64 * 64;
    return address;
}

static block allocate(machine *m, uint32_t thread, pool *from, int64_t size, uint32_t stack,
                      uint8_t flags)
{
    int64_t asked = size;
    if (m->on != CM_SYNTHETIC_CPU)
        size = (size + 511) / 512 * 512;
    block b = {.size = size, .pool = from};
    if (from->count == 0) {
        b.address = fresh_address(m, size);
    } else {
        /* Not always the last one, for other sizes split and merge free blocks. */
        size_t last = from->count - 1;
        size_t pick = draw(m) % 8 == 0 ? draw(m) % from->count : last;
        b.address = from->free[pick];
        from->free[pick] = from->free[last];
        from->count = last;
    }
    cm_event event = on_device(m, CM_EV_ALLOC);
    event.address = b.address;
    event.size = size;
    event.stack = stack;
    event.flags = flags;
    emit(m, thread, &event);
    m->truth.allocations++;
    change_live(m, size);
    if (asked != size) {
        event = on_device(m, CM_EV_REQUESTED);
        event.address = b.address;
        event.size = asked;
        emit(m, thread, &event);
    }
    if (m->reserved != m->reported) { /* as PyTorch does, which reports totals with the block */
        event = on_device(m, CM_EV_RESERVED);
        event.address = (uint64_t)m->truth.live_bytes;
        event.size = m->reported = m->reserved;
        emit(m, thread, &event);
    }
    return b;
}

static void release(machine *m, uint32_t thread, block *b)
{
    if (b->address == 0)
        return;
    cm_event event = on_device(m, CM_EV_FREE);
    event.address = b->address;
    emit(m, thread, &event);
    m->truth.frees++;
    change_live(m, -b->size);
    pool *into = b->pool;
    if (into != NULL) {
        if (into->count == into->capacity) {
            size_t capacity = into->capacity ? into->capacity * 2 : 16;
            uint64_t *items = realloc(into->free, capacity * sizeof *items);
            if (items == NULL) {
                m->status = -ENOMEM;
                return;
            }
            into->free = items;
            into->capacity = capacity;
        }
        into->free[into->count++] = b->address;
    }
    b->address = 0;
}

static void emit_node(machine *m, cm_event_kind kind, uint64_t sequence, int64_t creator,
                      uint32_t stack_or_name)
{
    cm_event event = {
        .kind = (uint8_t)kind, .address = sequence, .size = creator, .stack = stack_or_name};
    emit(m, MAIN_THREAD, &event);
}

static void emit_argument(machine *m, uint32_t thread, cm_event_kind kind, int64_t what,
                          uint64_t address, uint32_t stack)
{
    cm_event event = {.kind = (uint8_t)kind, .address = address, .size = what, .stack = stack};
    emit(m, thread, &event);
}

/* --- the program --------------------------------------------------------------------------- */

static void start_program(machine *m)
{
    emit_argument(m, MAIN_THREAD, CM_EV_THREAD, 1, 4711, 0);
    emit_argument(m, LOADER_THREAD, CM_EV_THREAD, 2, 4712, 0);
    emit_argument(m, MAIN_THREAD, CM_EV_OBJECT_NEW, CM_OBJECT_OPTIMIZER, m->optimizer,
                  m->optimizer_name);
    if (m->on != CM_SYNTHETIC_CPU) {
        cm_event event = on_device(m, CM_EV_DRIVER_NEW);
        event.flags = CM_DRIVER_CONTEXT;
        event.address = CONTEXT_HANDLE;
        emit(m, MAIN_THREAD, &event);
        emit_moment(m);
    }
    for (int i = 0; i < SEEDS; i++) {
        block *b = &m->seeds[i];
        b->size = (int64_t)(draw(m) % 64 + 1) * 65536;
        /* On a CUDA device they lie in segments from before, which no event reports. */
        b->address = m->on == CM_SYNTHETIC_CPU ? fresh_address(m, b->size)
                                               : UINT64_C(0x7d0000000000) + (uint64_t)i * SEGMENT;
        cm_event event = on_device(m, CM_EV_SEED);
        event.address = b->address;
        event.size = b->size;
        emit(m, MAIN_THREAD, &event);
        m->truth.seed_bytes += b->size;
        change_live(m, b->size);
    }
    emit_argument(m, MAIN_THREAD, CM_EV_MARK, CM_MARK_SEEDED, 0, 0);
    emit_argument(m, MAIN_THREAD, CM_EV_MARK, CM_MARK_WINDOW_OPEN, 1, 0);
}

static int64_t parameter_bytes(int parameter)
{
    return INT64_C(4) * 768 * (768 + 64 * parameter);
}

static void one_step(machine *m)
{
    const uint8_t in_node = CM_EVF_IN_NODE | CM_EVF_NODE_STACK;
    unsigned length = (unsigned)(draw(m) % LENGTHS);
    int64_t tokens = 64 + 8 * (int64_t)length;

    emit_argument(m, MAIN_THREAD, CM_EV_TICK, CM_TICK_DATA, m->optimizer + 64, m->data_stack);
    block *next = &m->queue[m->queued++ % QUEUE];
    release(m, MAIN_THREAD, next);
    *next = allocate(m, LOADER_THREAD, &m->buffer[length], tokens * 8, m->loader_stack, 0);

    for (int n = 0; n < NODES; n++) {
        int op = n % OPS;
        int64_t size = (ops[op].fixed ? 1 : tokens) * ops[op].kept * 4;
        block scratch = {0};
        if (ops[op].scratch > 0)
            scratch = allocate(m, MAIN_THREAD, &m->scratch[op][length],
                               tokens * ops[op].scratch * 4, m->forward_stack[n], 0);
        m->node_sequence[n] = m->sequence++;
        emit_node(m, CM_EV_NODE_NEW, m->node_sequence[n], 0, m->forward_stack[n]);
        m->activation[n] = allocate(m, MAIN_THREAD, &m->kept[op][ops[op].fixed ? 0 : length], size,
                                    m->forward_stack[n], 0);
        release(m, MAIN_THREAD, &scratch);
    }
    for (int i = 0; i < PARAMETERS; i++) /* zero_grad */
        release(m, MAIN_THREAD, &m->parameter_gradient[i]);

    block gradient = {0};
    int parameter = 0;
    for (int n = NODES - 1; n >= 0; n--) {
        int op = n % OPS;
        int64_t size = (ops[op].fixed ? 1 : tokens) * ops[op].kept * 4;
        emit_node(m, CM_EV_NODE_RUN, m->node_sequence[n], 1, m->node_name[op]);
        block produced = allocate(m, MAIN_THREAD, &m->kept[op][ops[op].fixed ? 0 : length], size,
                                  m->backward_stack, in_node);
        if (op == 1 || op == 7)
            m->parameter_gradient[parameter] =
                allocate(m, MAIN_THREAD, &m->gradient[parameter], parameter_bytes(parameter),
                         m->backward_stack, in_node);
        emit_node(m, CM_EV_NODE_DONE, 0, 0, 0);
        release(m, MAIN_THREAD, &gradient);
        gradient = produced;
        release(m, MAIN_THREAD, &m->activation[n]);
        emit_node(m, CM_EV_NODE_FREE, m->node_sequence[n], 1, 0);
        if (op == 1 || op == 7) {
            emit_node(m, CM_EV_NODE_RUN, CM_NODE_NO_SEQUENCE, 0, m->accumulate_name);
            emit_node(m, CM_EV_NODE_DONE, 0, 0, 0);
            parameter++;
        }
    }
    release(m, MAIN_THREAD, &gradient);

    for (int i = 0; i < PARAMETERS; i++) {
        for (int k = 0; k < 5; k++) {
            block scratch = allocate(m, MAIN_THREAD, &m->gradient[i], parameter_bytes(i),
                                     m->optimizer_stack[i], 0);
            release(m, MAIN_THREAD, &scratch);
        }
    }
    allocate(m, MAIN_THREAD, &m->leak, 16384, m->leak_stack, 0);
    m->truth.leaked_bytes += 16384;
    emit_argument(m, MAIN_THREAD, CM_EV_TICK, CM_TICK_OPTIMIZER, m->optimizer, m->step_stack);
    /* Some of the seeds are freed later. */
    if (m->truth.steps % 16 == 15 && m->truth.steps / 16 < SEEDS / 2) {
        block *b = &m->seeds[m->truth.steps / 16];
        m->truth.seed_bytes -= b->size;
        release(m, MAIN_THREAD, b);
    }
    end_step(m);
}

/* Emits only allocations and frees, at random places in a thousand segments. */
static void scatter(machine *m, uint64_t events)
{
    const int64_t size = SEGMENT / SCATTERED_PLACES;
    block *places = calloc(SCATTERED_SEGMENTS * SCATTERED_PLACES, sizeof *places);
    uint64_t segment[SCATTERED_SEGMENTS];
    if (places == NULL) {
        m->status = -ENOMEM;
        return;
    }
    for (int i = 0; i < SCATTERED_SEGMENTS; i++)
        segment[i] = take_segment(m, SEGMENT);
    while (m->status == 0 && m->truth.events < events) {
        for (int i = 0; i < SCATTERED_STEP; i++) {
            uint64_t n = draw(m) % (SCATTERED_SEGMENTS * SCATTERED_PLACES);
            uint64_t address =
                segment[n / SCATTERED_PLACES] + n % SCATTERED_PLACES * (uint64_t)size;
            if (places[n].address != 0) {
                release(m, MAIN_THREAD, &places[n]);
                continue;
            }
            pool one = {.free = &address, .count = 1};
            places[n] = allocate(m, MAIN_THREAD, &one, size, m->forward_stack[n % NODES], 0);
            places[n].pool = NULL;
        }
        emit_argument(m, MAIN_THREAD, CM_EV_TICK, CM_TICK_OPTIMIZER, m->optimizer, m->step_stack);
        end_step(m);
    }
    free(places);
}

static void free_pools(machine *m)
{
    for (int i = 0; i < OPS; i++) {
        for (int length = 0; length < LENGTHS; length++) {
            free(m->kept[i][length].free);
            free(m->scratch[i][length].free);
        }
    }
    for (int i = 0; i < PARAMETERS; i++)
        free(m->gradient[i].free);
    for (int i = 0; i < LENGTHS; i++)
        free(m->buffer[i].free);
    free(m->leak.free);
}

/* Closes the open window within the first one, and opens the next if there are more. */
static void next_window(machine *m, uint64_t *open, bool more)
{
    if (*open > 0)
        emit_argument(m, MAIN_THREAD, CM_EV_MARK, CM_MARK_WINDOW_CLOSE, *open + 1, 0);
    if (more)
        emit_argument(m, MAIN_THREAD, CM_EV_MARK, CM_MARK_WINDOW_OPEN, ++*open + 1, 0);
}

static void write_all(machine *m, uint64_t events, uint64_t windows)
{
    bool cuda = m->on != CM_SYNTHETIC_CPU;
    const char *const meta[] = {"command",
                                "python train.py",
                                "pid",
                                "4711",
                                "python",
                                "3.13.0",
                                "torch",
                                cuda ? "2.13.0+cu130" : "2.13.0+cpu",
                                "synthetic",
                                "1",
                                cuda ? "driver" : NULL,
                                "callbacks",
                                NULL};
    m->status = cm_writer_meta(m->writer, meta);
    if (m->status < 0)
        return;
    cm_batch_begin(m->batch, anchor_now(m));
    define_program(m);
    flush(m);
    start_program(m);
    if (m->on == CM_SYNTHETIC_SCATTERED)
        scatter(m, events);
    uint64_t open = 0;
    while (m->status == 0 && m->truth.events < events) {
        if (open < windows &&
            (double)m->truth.events * (double)windows >= (double)events * (double)open)
            next_window(m, &open, true);
        one_step(m);
    }
    if (m->status == 0)
        next_window(m, &open, false);
    if (m->on != CM_SYNTHETIC_CPU)
        emit_moment(m);
    emit_argument(m, MAIN_THREAD, CM_EV_MARK, CM_MARK_WINDOW_CLOSE, 1, 0);
    if (m->status == 0)
        flush(m);
    if (m->status == 0)
        m->status = cm_writer_end(m->writer, m->truth.events, 0, 0, "");
}

int cm_synthetic_write(const char *path, cm_synthetic_on on, uint64_t events, uint64_t windows,
                       uint64_t seed, size_t batch_bytes, cm_synthetic *out)
{
    machine *m = calloc(1, sizeof *m);
    if (m == NULL)
        return -ENOMEM;
    m->on = on;
    m->batch_bytes = batch_bytes;
    m->random = seed;
    m->ticks = FIRST_TICK;
    m->top = UINT64_C(0x7f4400000000);
    m->sequence = 100;
    m->batch = cm_batch_new();
    int status =
        m->batch == NULL ? -ENOMEM : cm_writer_create(path, true, CM_WRITER_NAMED, &m->writer);
    if (status == 0) {
        write_all(m, events, windows);
        status = m->status;
        m->truth.file_bytes = cm_writer_size(m->writer);
        int closed = cm_writer_close(m->writer);
        if (status == 0)
            status = closed;
        if (status < 0)
            unlink(path);
    }
    *out = m->truth;
    cm_batch_free(m->batch);
    free_pools(m);
    free(m);
    return status;
}
