#include "inflight.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { SESSIONS = 4, LINES = 1024 };

/* The first thousand threads each have a line of their own and need no locked instruction; later
 * ones share the first line. Lines are never reused: a thread that is gone began as many calls as
 * it ended. */
typedef struct line {
    _Alignas(64) _Atomic uint64_t begun[SESSIONS];
    _Atomic uint64_t ended[SESSIONS];
} line;
_Static_assert(sizeof(line) == 64, "one cache line");

static struct {
    _Atomic uint32_t session, taken;
    /* Sums at the session's beginning, left by an earlier session with the same index. */
    _Atomic uint64_t begun_before[SESSIONS], ended_before[SESSIONS];
    line lines[LINES];
} state;

/* This thread's line; 0: none assigned yet, or it shares the first. */
static __thread uint32_t own __attribute__((tls_model("initial-exec")));
static __thread bool asked __attribute__((tls_model("initial-exec")));

static line *line_hook(void)
{
    if (__builtin_expect(!asked, 0)) {
        asked = true;
        if (atomic_load_explicit(&state.taken, memory_order_relaxed) < LINES - 1) {
            own = atomic_fetch_add(&state.taken, 1) + 1;
            if (own >= LINES)
                own = 0;
        }
    }
    return &state.lines[own];
}

static void count_hook(_Atomic uint64_t *counter)
{
    if (own == 0)
        atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel);
    else
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                              memory_order_release);
}

/* The count must be visible before any effect of the driver call. (gcc rejects C11's fence under
 * ThreadSanitizer, which does not support it.) */
static inline void publish(void)
{
#if defined(__x86_64__) /* stores become visible in program order */
    __asm__ volatile("" ::: "memory");
#else
    __sync_synchronize();
#endif
}

static uint64_t sum(uint32_t session, bool ended)
{
    uint32_t taken = atomic_load(&state.taken);
    uint64_t found = 0;

    for (uint32_t i = 0; i <= taken && i < LINES; i++) {
        line *l = &state.lines[i];
        found += atomic_load(ended ? &l->ended[session % SESSIONS] : &l->begun[session % SESSIONS]);
    }
    return found;
}

uint32_t cm_inflight_session(void)
{
    return atomic_load_explicit(&state.session, memory_order_relaxed);
}

uint32_t cm_inflight_begin_hook(void)
{
    uint32_t session = cm_inflight_session();

    count_hook(&line_hook()->begun[session % SESSIONS]);
    publish();
    return session;
}

void cm_inflight_end_hook(uint32_t session)
{
    if (cm_inflight_session() - session < SESSIONS) /* else its index is a later session's */
        count_hook(&line_hook()->ended[session % SESSIONS]);
}

void cm_inflight_new_session(void)
{
    uint32_t session = cm_inflight_session() + 1;

    atomic_store(&state.begun_before[session % SESSIONS], sum(session, false));
    atomic_store(&state.ended_before[session % SESSIONS], sum(session, true));
    atomic_store(&state.session, session);
}

uint64_t cm_inflight_state(void)
{
    uint32_t session = atomic_load(&state.session);
    /* Ends are summed before beginnings. No thread has ended more calls than it has begun, so if
     * the sums are equal, no call was in flight between the two sums. */
    uint64_t out = sum(session, true) - atomic_load(&state.ended_before[session % SESSIONS]);
    uint64_t in = sum(session, false) - atomic_load(&state.begun_before[session % SESSIONS]);

    return in << 1 | (in != out);
}
