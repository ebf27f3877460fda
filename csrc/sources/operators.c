#include "operators.h"

#include <stdint.h>
#include <string.h>

#include "emit.h"
#include "slots.h"

/* at::RecordFunctionCallback, which is passed by value (ATen/record_function.h, 2.4 to 2.15). */
enum { SCOPE_FUNCTION = 0, SCOPES = 10 };
typedef struct callback {
    void *start, *end;
    double sampling;
    bool scopes[SCOPES];
    bool needs_inputs, needs_outputs, needs_ids;
} callback;
_Static_assert(sizeof(callback) == 40, "as in PyTorch's header");

typedef uint64_t (*add_fn)(callback added);
typedef void (*remove_fn)(uint64_t handle);
typedef const char *(*name_fn)(const void *function);

enum {
    DEPTH = 32,      /* nested operators; deeper ones are ignored */
    FRAMES = 1 << 16 /* bytes between a hook's frame and the RecordFunction that calls it */
};

/* The running operators of a thread, innermost last. Names are looked up only when one allocates.
 * Distances are half as large as addresses: static TLS is short (test_static_tls.py). */
typedef struct running {
    uintptr_t outermost;   /* at::RecordFunction, on this thread's stack */
    uint32_t below[DEPTH]; /* how far below it each one lies; the first: 0 */
    uint32_t depth;
    uint32_t name, generation; /* emitted last, and the ring's generation at that time */
    bool testing, seen, left;
} running;
static __thread running self __attribute__((tls_model("initial-exec")));

atomic_bool cm_operators_recorded;
static uint64_t handle; /* of our callback; 0: there is none */
static remove_fn remove_callback;
static name_fn _Atomic name_of;

/* --- begin and end ------------------------------------------------------------------------- */

static bool is_tested(const void *function)
{
    return strcmp(atomic_load_explicit(&name_of, memory_order_relaxed)(function), "aten::empty") ==
           0;
}

static inline uintptr_t address_of(const running *r, uint32_t depth)
{
    return r->outermost - r->below[depth];
}

/* Drops operators in frames below this one, which have returned. */
static inline void drop_ended(running *r, uintptr_t frame)
{
    while (r->depth > 0 && address_of(r, r->depth - 1) < frame)
        r->depth--;
}

/* One that lies above the outermost, or out of reach below it, is not of the same stack. */
static inline void push(running *r, uintptr_t function)
{
    if (r->depth == 0)
        r->outermost = function;
    if (r->depth < DEPTH && r->outermost - function <= UINT32_MAX)
        r->below[r->depth++] = (uint32_t)(r->outermost - function);
}

/* Ignores a RecordFunction that is not on this stack: it may end on another thread. */
void __attribute__((visibility("hidden"), noinline)) cm_operators_began_hook(const void *function)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    running *r = &self;

    drop_ended(r, frame);
    if ((uintptr_t)function - frame < FRAMES)
        push(r, (uintptr_t)function);
    if (__builtin_expect(r->testing, 0))
        r->seen |= is_tested(function);
}

static void ended_hook(const void *function, void *context)
{
    running *r = &self;

    (void)context;
    if (r->depth > 0 && address_of(r, r->depth - 1) == (uintptr_t)function)
        r->depth--;
    if (__builtin_expect(r->testing, 0))
        r->left |= is_tested(function);
}

/* PyTorch expects a std::unique_ptr, returned in memory of the caller's; it is always null. */
#if defined(__aarch64__)
void began(void); /* register x8 has the address, which C cannot name */
__asm__(".text\n"
        ".balign 4\n"
        ".hidden began\n"
        ".globl began\n"
        ".type began, %function\n"
        "began:\n"
        "hint #34\n"
        "str xzr, [x8]\n"
        "b cm_operators_began_hook\n"
        ".size began, . - began\n");
#else
static void *began(void **context, const void *function)
{
    *context = NULL;
    cm_operators_began_hook(function);
    return context;
}
#endif

/* --- names --------------------------------------------------------------------------------- */

/* Ids by text, for a name's memory may be reused. An entry is the text's hash with the id in its
 * low bits. The capture is part of the hash, for each capture has its own ids. */
enum { ID_BITS = 20, CACHED = 1 << 10 };
static _Atomic uint64_t cached[CACHED];

static uint32_t intern_hook(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ cm_self.capture;

    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    _Atomic uint64_t *entry = &cached[hash >> 32 & (CACHED - 1)];
    uint64_t known = atomic_load_explicit(entry, memory_order_relaxed);
    if (known != 0 && (known ^ hash) >> ID_BITS == 0)
        return known & ((1u << ID_BITS) - 1);
    uint32_t id = cm_name_intern_text_hook(name);
    if (id != 0 && id < 1u << ID_BITS)
        atomic_store_explicit(entry, hash >> ID_BITS << ID_BITS | id, memory_order_relaxed);
    return id;
}

/* Whether other operators call this one to allocate their result. */
static bool only_allocates(const char *name)
{
    return strncmp(name, "aten::empty", strlen("aten::empty")) == 0 ||
           strncmp(name, "aten::new_empty", strlen("aten::new_empty")) == 0 ||
           strcmp(name, "aten::resize_") == 0;
}

static const char *find_name_hook(const running *r)
{
    name_fn ask = atomic_load_explicit(&name_of, memory_order_relaxed);
    uint32_t depth = r->depth;
    const char *name = ask((const void *)address_of(r, --depth));

    while (depth > 0 && only_allocates(name))
        name = ask((const void *)address_of(r, --depth));
    return name;
}

void cm_operators_emit_hook(cm_producer *t)
{
    running *r = &self;

    drop_ended(r, (uintptr_t)__builtin_frame_address(0));
    uint32_t name = r->depth > 0 ? intern_hook(find_name_hook(r)) : 0;
    if (r->name == name && r->generation == cm_producer_generation(t))
        return;
    cm_event *e = cm_emit_reserve_hook(t);
    if (e == NULL)
        return; /* the next allocation tries again */
    *e = (cm_event){
        .time = cm_clock_now(), .stack = name, .kind = CM_EV_OPERATOR, .device_index = -1};
    cm_commit_hook(t);
    r->name = name;
    r->generation = cm_producer_generation(t);
}

/* --- control ------------------------------------------------------------------------------- */

const char *cm_operators_start(void)
{
    add_fn add = (add_fn)cm_slots_find("_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    name_fn name = (name_fn)cm_slots_find("_ZNK2at14RecordFunction4nameEv");

    remove_callback = (remove_fn)cm_slots_find("_ZN2at14removeCallbackEm");
    if (add == NULL || name == NULL || remove_callback == NULL)
        return "this PyTorch does not export RecordFunction's callbacks";
    atomic_store(&name_of, name);
    if (handle == 0)
        handle = add(
            (callback){(void *)began, (void *)ended_hook, 1, {[SCOPE_FUNCTION] = true}, 0, 0, 0});
    atomic_store(&cm_operators_recorded, true);
    return NULL;
}

/* A running operator still calls ended_hook at its end. */
void cm_operators_stop(void)
{
    atomic_store(&cm_operators_recorded, false);
    if (handle != 0)
        remove_callback(handle);
    handle = 0;
}

void cm_operators_begin_test(void)
{
    self.seen = self.left = false;
    self.testing = true;
}

bool cm_operators_end_test(void)
{
    self.testing = false;
    return self.seen && self.left;
}
