/* SIGBUS: replaces guarded memory, passes all else on.
 *
 * A handler installed after ours may return to it: faulthandler restores the disposition that it
 * found, and raises the signal again. So each disposition gets a handler of ours that precedes it
 * and no other. A program that calls or restores ours gets what it would have kept without us. */
#define _GNU_SOURCE
#include "bus_error.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recording.h"

enum { FRONTS = 16 }; /* a program that installs more different ones loses the guard */

static struct {
    _Atomic(void *) memory; /* NULL: nothing is guarded */
    _Atomic size_t bytes;
    _Atomic pid_t owner;
    _Atomic(bool (*)(void)) is_harmed;
    atomic_bool replaced;
} guard;

/* Written before its handler is installed, and then never again: the program may keep the handler
 * and restore it at any time. */
static struct sigaction behind[FRONTS];
static int fronts;

static _Thread_local bool own_thread __attribute__((tls_model("initial-exec")));
static _Thread_local bool blocked __attribute__((tls_model("initial-exec")));

static int front_of(const struct sigaction *action);
static bool is_action(const struct sigaction *action, void (*handler)(int));

/* --- the handler ----------------------------------------------------------------------------- */

static bool replace(void)
{
    void *memory = atomic_load(&guard.memory);
    size_t bytes = atomic_load(&guard.bytes);

    if (memory == NULL || atomic_load(&guard.owner) != getpid())
        return false;
    /* Both first: readers of zeros find out why, and later hooks record nothing. */
    atomic_store(&guard.replaced, true);
    cm_recording_set(0);
    if (mmap(memory, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return false;
    madvise(memory, bytes, MADV_DONTFORK);
    return true;
}

static bool is_guarded(const void *address)
{
    uintptr_t start = (uintptr_t)atomic_load(&guard.memory);

    return start != 0 && (uintptr_t)address - start < atomic_load(&guard.bytes);
}

/* Whether a fault was ours and is repaired. */
static bool repair(const siginfo_t *info)
{
    bool (*is_harmed)(void) = atomic_load(&guard.is_harmed);

    if (info->si_code > 0)
        return is_guarded(info->si_addr) && replace();
    /* Raised again by a handler between the fault and us, without its address. The memory may have
     * been replaced meanwhile, but its file is still damaged. */
    return info->si_code == SI_TKILL && info->si_pid == getpid() && !own_thread &&
           atomic_load(&guard.memory) != NULL && is_harmed != NULL && is_harmed() && replace();
}

static void send_again(siginfo_t *info)
{
    pid_t process = getpid(), thread = (pid_t)syscall(SYS_gettid);

    /* With its sender and reason; where that is refused, without. */
    if (syscall(SYS_rt_tgsigqueueinfo, process, thread, SIGBUS, info) < 0)
        syscall(SYS_tgkill, process, thread, SIGBUS);
}

/* The kernel gave us a signal for the process: another thread gets it, or none yet. */
static void leave_to_the_program(siginfo_t *info, ucontext_t *context)
{
    sigaddset(&context->uc_sigmask, SIGBUS);
    blocked = true;
    if (syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, info) < 0)
        kill(getpid(), SIGBUS);
}

/* Whether a handler installed after ours has called it, as one that chains does. Then ours calls
 * what it precedes, and every disposition stays. */
static bool is_called_by_another(int front)
{
    struct sigaction now;

    return sigaction(SIGBUS, NULL, &now) == 0 && front_of(&now) != front &&
           !is_action(&behind[front], SIG_DFL) && !is_action(&behind[front], SIG_IGN);
}

static void call_behind(int front, siginfo_t *info, ucontext_t *context)
{
    if (behind[front].sa_flags & SA_SIGINFO)
        behind[front].sa_sigaction(SIGBUS, info, context);
    else
        behind[front].sa_handler(SIGBUS);
}

static void handle(int front, siginfo_t *info, ucontext_t *context)
{
    int saved = errno;

    if (repair(info)) {
        errno = saved;
        return;
    }
    if (info->si_code <= 0 && own_thread) {
        leave_to_the_program(info, context);
    } else if (is_called_by_another(front)) {
        call_behind(front, info, context);
    } else {
        sigaction(SIGBUS, &behind[front], NULL);
        if (info->si_code <= 0)
            send_again(info);
    }
    errno = saved;
}

#define FRONT(n)                                                                                   \
    static void front_##n(int number, siginfo_t *info, void *context)                              \
    {                                                                                              \
        (void)number;                                                                              \
        handle(n, info, context);                                                                  \
    }
FRONT(0)
FRONT(1)
FRONT(2)
FRONT(3)
FRONT(4)
FRONT(5)
FRONT(6)
FRONT(7)
FRONT(8)
FRONT(9)
FRONT(10)
FRONT(11)
FRONT(12)
FRONT(13)
FRONT(14)
FRONT(15)

static void (*const handlers[FRONTS])(int, siginfo_t *, void *) = {
    front_0, front_1, front_2,  front_3,  front_4,  front_5,  front_6,  front_7,
    front_8, front_9, front_10, front_11, front_12, front_13, front_14, front_15};

/* --- installation ---------------------------------------------------------------------------- */

/* Which of ours it is; -1: none. */
static int front_of(const struct sigaction *action)
{
    for (int i = 0; i < fronts && action->sa_flags & SA_SIGINFO; i++)
        if (action->sa_sigaction == handlers[i])
            return i;
    return -1;
}

/* sigaction writes only these bytes of a sigset_t. */
enum { KERNEL_MASK_BYTES = 8 };

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_flags == b->sa_flags && memcmp(&a->sa_mask, &b->sa_mask, KERNEL_MASK_BYTES) == 0 &&
           (a->sa_flags & SA_SIGINFO ? a->sa_sigaction == b->sa_sigaction
                                     : a->sa_handler == b->sa_handler);
}

static bool is_action(const struct sigaction *action, void (*handler)(int))
{
    return !(action->sa_flags & SA_SIGINFO) && action->sa_handler == handler;
}

static void install(int front)
{
    /* A blocking call is interrupted or restarted as it would be without us. */
    bool restart = is_action(&behind[front], SIG_DFL) || behind[front].sa_flags & SA_RESTART;
    struct sigaction ours = {.sa_sigaction = handlers[front],
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | (restart ? SA_RESTART : 0)};
    struct sigaction found;

    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, &ours, &found) == 0 && !is_same(&found, &behind[front]))
        sigaction(SIGBUS, &found, NULL); /* changed since our check; the next one sees it */
}

void cm_bus_reinstall(void)
{
    struct sigaction now;
    int front = 0;

    if (atomic_load(&guard.memory) == NULL || sigaction(SIGBUS, NULL, &now) < 0 ||
        front_of(&now) >= 0 || is_action(&now, SIG_IGN))
        return;
    while (front < fronts && !is_same(&now, &behind[front]))
        front++;
    if (front == FRONTS)
        return;
    if (front == fronts) {
        behind[front] = now;
        fronts++;
    }
    install(front);
}

static void uninstall(void)
{
    struct sigaction now;
    int front = sigaction(SIGBUS, NULL, &now) == 0 ? front_of(&now) : -1;

    if (front >= 0)
        sigaction(SIGBUS, &behind[front], NULL);
}

/* --- control --------------------------------------------------------------------------------- */

void cm_bus_guard(void *memory, size_t bytes, bool (*is_harmed)(void))
{
    atomic_store(&guard.memory, NULL);
    atomic_store(&guard.bytes, bytes);
    atomic_store(&guard.is_harmed, is_harmed);
    atomic_store(&guard.replaced, false);
    atomic_store(&guard.owner, getpid());
    atomic_store(&guard.memory, memory);
    cm_bus_reinstall();
}

void cm_bus_unguard(void)
{
    if (atomic_exchange(&guard.memory, NULL) != NULL)
        uninstall();
}

bool cm_bus_replace(void)
{
    return cm_bus_is_replaced() || replace();
}

bool cm_bus_is_replaced(void)
{
    return atomic_load(&guard.replaced);
}

static void set_blocked(bool on)
{
    sigset_t bus;

    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(on ? SIG_BLOCK : SIG_UNBLOCK, &bus, NULL);
    blocked = on;
}

void cm_bus_enter_thread(void)
{
    own_thread = true;
    set_blocked(false);
}

void cm_bus_poll_in_thread(void)
{
    sigset_t pending;

    if (blocked && sigpending(&pending) == 0 && !sigismember(&pending, SIGBUS))
        set_blocked(false);
}

void cm_bus_forget(void)
{
    own_thread = false;
    cm_bus_unguard();
}
