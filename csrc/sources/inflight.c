/* The first thousand threads that make such calls count on lines of their own, for which nothing is
 * locked; those that come after them share the first line. Lines are never given back: a thread
 * that is gone has begun and ended as often. */
#include "inflight.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { SESSIONS = 4, LINES = 1024 };

typedef struct line {
    _Alignas(64) _Atomic uint64_t begun[SESSIONS];
    _Atomic uint64_t ended[SESSIONS];
} line;
_Static_assert(sizeof(line) == 64, "of one cache line");

static struct {
    _Atomic uint32_t session, taken;
    /* What the lines had when the session began, from one that had its place. */
    _Atomic uint64_t begun_before[SESSIONS], ended_before[SESSIONS];
    line lines[LINES];
} moves;

/* This thread's line; 0: it has asked for none yet, or shares the first. */
static __thread uint32_t own __attribute__((tls_model("initial-exec")));
static __thread bool asked __attribute__((tls_model("initial-exec")));

static line *line_hook(void)
{
    if (__builtin_expect(!asked, 0)) {
        asked = true;
        if (atomic_load_explicit(&moves.taken, memory_order_relaxed) < LINES - 1) {
            own = atomic_fetch_add(&moves.taken, 1) + 1;
            if (own >= LINES)
                own = 0;
        }
    }
    return &moves.lines[own];
}

static void count_hook(_Atomic uint64_t *counter)
{
    if (own == 0)
        atomic_fetch_add_explicit(counter, 1, memory_order_acq_rel);
    else
        atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                              memory_order_release);
}

/* What the driver does next is seen by nobody who does not see this thread's count. (The fence of
 * C11 is none that ThreadSanitizer knows, and gcc says so with an error.) */
static inline void publish(void)
{
#if defined(__x86_64__) /* stores are seen in their order */
    __asm__ volatile("" ::: "memory");
#else
    __sync_synchronize();
#endif
}

static uint64_t sum(uint32_t session, bool ended)
{
    uint32_t taken = atomic_load(&moves.taken);
    uint64_t found = 0;

    for (uint32_t i = 0; i <= taken && i < LINES; i++) {
        line *l = &moves.lines[i];
        found += atomic_load(ended ? &l->ended[session % SESSIONS] : &l->begun[session % SESSIONS]);
    }
    return found;
}

uint32_t cm_driver_session(void)
{
    return atomic_load_explicit(&moves.session, memory_order_relaxed);
}

uint32_t cm_driver_move_begins_hook(void)
{
    uint32_t session = cm_driver_session();

    count_hook(&line_hook()->begun[session % SESSIONS]);
    publish();
    return session;
}

void cm_driver_move_ends_hook(uint32_t session)
{
    if (cm_driver_session() - session < SESSIONS) /* else its place is another session's */
        count_hook(&line_hook()->ended[session % SESSIONS]);
}

void cm_driver_moves_anew(void)
{
    uint32_t session = cm_driver_session() + 1;

    atomic_store(&moves.begun_before[session % SESSIONS], sum(session, false));
    atomic_store(&moves.ended_before[session % SESSIONS], sum(session, true));
    atomic_store(&moves.session, session);
}

uint64_t cm_driver_moves(void)
{
    uint32_t session = atomic_load(&moves.session);
    /* In this order. No thread has ended more calls of a session than it has begun: where the sums
     * are equal, nobody was in one when the last end was read and the first beginning was not. */
    uint64_t out = sum(session, true) - atomic_load(&moves.ended_before[session % SESSIONS]);
    uint64_t in = sum(session, false) - atomic_load(&moves.begun_before[session % SESSIONS]);

    return in << 1 | (in != out);
}
