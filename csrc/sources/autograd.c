/* Hooks on autograd's nodes: created in forward, run in backward, destroyed with the graph.
 *
 * Creation takes a number (sequence_number::get_and_increment, per thread). The engine runs every
 * node through Engine::evaluate_function. The pair (thread, number) identifies the node in both.
 * Its fields are read at offsets found by calibration (calibrate.c); without them only creation is
 * recorded. */
#define _GNU_SOURCE /* syscall */
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../capture/heap_sample.h"
#include "dispose.h"
#include "emit.h"
#include "sources.h"
#include "tables.h"

enum { NODE_NEW, NODE_RUN, NODE_DESTRUCTOR, NODE_DELETER, BACKWARD, SYMBOLS };

typedef uint64_t (*number_fn)(void);
typedef void (*run_fn)(void *engine, void *task, void *node, void *inputs, const void *queue);
typedef void (*destroy_fn)(void *node);
/* A std::vector, which is returned in memory of the caller's, as any larger structure. */
typedef struct gradients {
    void *first, *end, *limit;
} gradients;
typedef gradients (*backward_fn)(void *engine, const void *roots, const void *inputs, bool keep,
                                 bool create, bool accumulate, const void *outputs);

#define FORWARD(symbol, variant, type) CM_SLOT_ORIGINAL(cm_autograd_symbols[symbol], variant, type)

cm_autograd_thread_id_fn _Atomic cm_autograd_thread_id;
cm_autograd_records_fn _Atomic cm_autograd_grad_mode;

static const uint64_t OWN_NUMBERS = UINT64_C(1) << 40; /* more nodes than any thread makes */

/* Both in one word, so that a hook never sees one without the other. 0: unknown. */
static _Atomic uint64_t offsets;

void cm_autograd_set_offsets(long sequence_nr, long thread_id)
{
    uint64_t both = 0;

    if (sequence_nr > 0 && thread_id > 0)
        both = (uint64_t)sequence_nr << 32 | (uint64_t)thread_id;
    atomic_store_explicit(&offsets, both, memory_order_relaxed);
}

void cm_autograd_get_offsets(long *sequence_nr, long *thread_id)
{
    uint64_t both = atomic_load_explicit(&offsets, memory_order_relaxed);

    *sequence_nr = both != 0 ? (long)(both >> 32) : -1;
    *thread_id = both != 0 ? (long)(both & UINT32_MAX) : -1;
}

void cm_autograd_own_nodes(bool own)
{
    if (own)
        cm_emit_tls.made = cm_emit_tls.ended = 0;
    cm_emit_tls.own_nodes = own;
}

void cm_autograd_own_counts(uint32_t *made, uint32_t *ended)
{
    *made = cm_emit_tls.made;
    *ended = cm_emit_tls.ended;
}

/* Counts, in a hook, a node made or destroyed by calibration. false: it is the program's. */
static inline bool own_hook(uint32_t *count)
{
    if (__builtin_expect(!cm_emit_tls.own_nodes, 1))
        return false;
    ++*count;
    return true;
}

static uint64_t field(const void *node, uint64_t offset)
{
    return *(const uint64_t *)((const char *)node + offset);
}

static uint64_t sequence_of(const void *node, uint64_t at)
{
    return field(node, at >> 32);
}

static int64_t thread_of(const void *node, uint64_t at)
{
    return (int64_t)field(node, at & UINT32_MAX);
}

/* The mangled name of the node's type, from its vtable: the word before it points at the type's
 * description, whose second word is the name (Itanium C++ ABI, 2.9.5). It lives as long as the
 * library that defines the type. */
static const char *type_name(const void *node)
{
    const void *const *vtable = *(const void *const *const *)node;
    const char *const *description = vtable[-1];

    return description[1];
}

/* Emits autograd's id of this thread, by which nodes refer to their creator. The capture has
 * already emitted the system's. */
static void number_thread_slow_hook(cm_producer *t)
{
    cm_autograd_thread_id_fn id =
        atomic_load_explicit(&cm_autograd_thread_id, memory_order_relaxed);
    cm_event *e = id != NULL ? cm_reserve_hook(t) : NULL;

    if (e == NULL)
        return; /* the next node tries again */
    *e = (cm_event){
        .time = cm_clock_now(),
        .address = (uint64_t)syscall(SYS_gettid),
        .size = (int64_t)id(),
        .kind = CM_EV_THREAD,
        .device_index = -1,
    };
    cm_commit_hook(t);
    cm_emit_tls.numbered = cm_producer_generation(t);
}

static inline void number_thread_hook(cm_producer *t)
{
    if (__builtin_expect(cm_emit_tls.numbered != cm_producer_generation(t), 0))
        number_thread_slow_hook(t);
}

/* --- creation ------------------------------------------------------------------------------ */

static void created_hook(uint64_t number)
{
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return;
    number_thread_hook(t);
    uint32_t stack = cm_walk_capture_hook(cm_producer_walk(t));
    uint8_t flags = cm_emit_node_flags_hook(t, stack);
    cm_event *e = cm_emit_reserve_hook(t);
    if (e != NULL) {
        *e = (cm_event){
            .time = cm_clock_now(),
            .address = number,
            .stack = stack,
            .kind = CM_EV_NODE_NEW,
            .flags = flags,
            .device_index = -1,
        };
        cm_commit_hook(t);
    }
    cm_leave_hook(t);
}

static inline __attribute__((always_inline)) uint64_t node_new_hook(int variant)
{
    /* Calibration's nodes take no number from PyTorch, so the program's first one stays 0. */
    if (own_hook(&cm_emit_tls.made))
        return OWN_NUMBERS + cm_emit_tls.made;
    uint64_t number = FORWARD(NODE_NEW, variant, number_fn)();

    if (cm_is_recording())
        created_hook(number);
    return number;
}

/* --- execution ----------------------------------------------------------------------------- */

typedef struct run {
    uint32_t generation; /* in which its start was recorded; 0: it was not */
    uint32_t outer;
    cm_walk_top outer_top;
} run;

static void start_run_hook(run *r, const void *node)
{
    cm_emit_thread *me = &cm_emit_tls;
    uint64_t at = atomic_load_explicit(&offsets, memory_order_relaxed);

    if (at == 0)
        return;
    uint64_t number = sequence_of(node, at);
    if (at >> 32 == CM_DISPOSE_SEQUENCE_AT && number != CM_NODE_NO_SEQUENCE)
        cm_dispose_met_hook(node);
    cm_producer *t = cm_enter_hook();
    if (t == NULL)
        return;
    number_thread_hook(t);
    uint32_t name = cm_name_intern_hook(type_name(node));
    cm_event *e = cm_emit_reserve_hook(t);
    if (e != NULL) {
        *e = (cm_event){
            .time = cm_clock_now(),
            .address = number,
            .size = thread_of(node, at),
            .stack = name,
            .kind = CM_EV_NODE_RUN,
            .device_index = -1,
        };
        cm_commit_hook(t);
        r->generation = cm_producer_generation(t);
        r->outer = me->running;
        r->outer_top = me->top;
        me->running = r->generation;
        me->top = cm_walk_top_hook();
    }
    cm_leave_hook(t);
}

/* Runs on every way out of the node, exceptions included. */
static void end_run_hook(const run *r)
{
    cm_emit_thread *me = &cm_emit_tls;

    if (r->generation == 0)
        return;
    me->running = r->outer;
    me->top = r->outer_top;
    cm_producer *t = cm_enter_hook();
    if (t == NULL) {
        /* Recording was switched off while the node ran. If the same capture goes on, its end must
         * be emitted later, or it would seem to run forever. */
        if (me->owed_since != r->generation)
            me->owed = 0;
        me->owed_since = r->generation;
        me->owed++;
        return;
    }
    if (cm_producer_generation(t) == r->generation) {
        cm_event *e = cm_emit_reserve_hook(t);
        if (e != NULL) {
            *e = (cm_event){.time = cm_clock_now(), .kind = CM_EV_NODE_DONE, .device_index = -1};
            cm_commit_hook(t);
        }
    }
    cm_leave_hook(t);
}

static inline __attribute__((always_inline)) void
node_run_hook(int variant, void *engine, void *task, void *node, void *inputs, const void *queue)
{
    run r __attribute__((cleanup(end_run_hook))) = {0};

    if (cm_is_recording())
        start_run_hook(&r, node);
    FORWARD(NODE_RUN, variant, run_fn)(engine, task, node, inputs, queue);
}

/* --- backward passes -----------------------------------------------------------------------------
 */

bool cm_autograd_in_node(void)
{
    return cm_emit_tls.running != 0;
}

bool cm_autograd_records(void)
{
    cm_autograd_records_fn mode =
        atomic_load_explicit(&cm_autograd_grad_mode, memory_order_relaxed);

    return mode == NULL || mode();
}

static void (*_Atomic pass_listener)(void);

void cm_autograd_set_pass_listener(void (*listener)(void))
{
    atomic_store(&pass_listener, listener);
}

static void tick_hook(void)
{
    cm_producer *t = cm_enter_hook();

    if (t == NULL)
        return;
    cm_emit_put_stack_hook(
        t, (cm_event){.size = CM_TICK_BACKWARD, .kind = CM_EV_TICK, .device_index = -1});
    cm_leave_hook(t);
    cm_heap_sample();
    void (*listener)(void) = atomic_load(&pass_listener);
    if (listener != NULL)
        listener();
}

/* Every backward pass comes through here, of backward() and grad(), from Python and C++. A pass
 * that begins inside a node (of a checkpoint, of a hook) is part of the outer one. A pass that ends
 * with an exception emits no tick. */
static inline __attribute__((always_inline)) gradients
backward_hook(int variant, void *engine, const void *roots, const void *inputs, bool keep,
              bool create, bool accumulate, const void *outputs)
{
    bool inner = cm_autograd_in_node();
    gradients result = FORWARD(BACKWARD, variant, backward_fn)(engine, roots, inputs, keep, create,
                                                               accumulate, outputs);

    if (!inner && cm_is_recording())
        tick_hook();
    return result;
}

/* --- destruction --------------------------------------------------------------------------- */

static void destroyed_hook(const void *node)
{
    uint64_t at = atomic_load_explicit(&offsets, memory_order_relaxed);

    if (at == 0 || cm_emit_tls.dying == node)
        return;
    uint64_t number = sequence_of(node, at);
    /* AccumulateGrad has no number, so its creation was not recorded either. */
    if (number == CM_NODE_NO_SEQUENCE || own_hook(&cm_emit_tls.ended))
        return;
    cm_producer *t = cm_enter_hook();
    if (t == NULL)
        return;
    cm_event *e = cm_emit_reserve_hook(t);
    if (e != NULL) {
        *e = (cm_event){
            .time = cm_clock_now(),
            .address = number,
            .size = thread_of(node, at),
            .kind = CM_EV_NODE_FREE,
            .device_index = -1,
        };
        cm_commit_hook(t);
    }
    cm_leave_hook(t);
}

void cm_autograd_ends_hook(const void *node)
{
    if (cm_is_recording() || cm_emit_tls.own_nodes)
        destroyed_hook(node);
}

/* The thread leaves the hook before the original runs, for that frees the node's memory. */
static inline __attribute__((always_inline)) void node_destructor_hook(int variant, void *node)
{
    cm_autograd_ends_hook(node);
    FORWARD(NODE_DESTRUCTOR, variant, destroy_fn)(node);
}

static void restore_dying_hook(const void *const *outer)
{
    cm_emit_tls.dying = *outer;
}

/* Older versions delete nodes through this function. If the destructor is called through a slot,
 * too, the node must not be recorded twice. */
static inline __attribute__((always_inline)) void node_deleter_hook(int variant, void *node)
{
    const void *outer __attribute__((cleanup(restore_dying_hook)));

    outer = cm_emit_tls.dying;
    cm_autograd_ends_hook(node);
    cm_emit_tls.dying = node;
    FORWARD(NODE_DELETER, variant, destroy_fn)(node);
}

/* --- the table ----------------------------------------------------------------------------- */

#define VARIANT(n)                                                                                 \
    static uint64_t node_new_##n(void)                                                             \
    {                                                                                              \
        return node_new_hook(n);                                                                   \
    }                                                                                              \
    static void node_run_##n(void *engine, void *task, void *node, void *inputs,                   \
                             const void *queue)                                                    \
    {                                                                                              \
        node_run_hook(n, engine, task, node, inputs, queue);                                       \
    }                                                                                              \
    static void node_destructor_##n(void *node)                                                    \
    {                                                                                              \
        node_destructor_hook(n, node);                                                             \
    }                                                                                              \
    static void node_deleter_##n(void *node)                                                       \
    {                                                                                              \
        node_deleter_hook(n, node);                                                                \
    }                                                                                              \
    static gradients backward_##n(void *engine, const void *roots, const void *inputs, bool keep,  \
                                  bool create, bool accumulate, const void *outputs)               \
    {                                                                                              \
        return backward_hook(n, engine, roots, inputs, keep, create, accumulate, outputs);         \
    }
VARIANT(0)
VARIANT(1)
_Static_assert(CM_SLOT_VARIANTS == 2, "one set of hooks for each variant");

#define HOOKS(name) .hooks = {name##_0, name##_1}

cm_slot_symbol cm_autograd_symbols[SYMBOLS] = {
    [NODE_NEW] = {"autograd",
                  "autograd node created",
                  {"_ZN2at15sequence_number17get_and_incrementEv"},
                  HOOKS(node_new)},
    [NODE_RUN] = {"autograd",
                  "autograd node run",
                  {"_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_"
                   "9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE"},
                  HOOKS(node_run)},
    [NODE_DESTRUCTOR] = {"autograd",
                         "autograd node destroyed (torch 2.13 and later)",
                         {"_ZN5torch8autograd4NodeD2Ev"},
                         HOOKS(node_destructor)},
    [NODE_DELETER] = {"autograd",
                      "autograd node destroyed (before torch 2.13)",
                      {"_ZN5torch8autograd10deleteNodeEPNS0_4NodeE"},
                      HOOKS(node_deleter)},
    [BACKWARD] = {"autograd",
                  "backward pass",
                  {"_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at"
                   "6TensorESaIS9_EEbbbS7_"},
                  HOOKS(backward)},
};
const size_t cm_autograd_symbol_count = SYMBOLS;

bool cm_autograd_has_deleter(void)
{
    return atomic_load(&cm_autograd_symbols[NODE_DELETER].originals[0]) != NULL;
}
