#include "ring_double.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../../../csrc/sources/emit.h"

enum { NAMES = 256, NAME = 128 };

static _Atomic uint32_t recording;
const _Atomic uint32_t *cm_recording = &recording;
_Thread_local cm_producer_self cm_self __attribute__((tls_model("initial-exec")));

static _Atomic uint32_t captures, slots, generations;
static atomic_bool full, reuse;
static _Thread_local cm_event *events;
static _Thread_local _Atomic uint64_t head, published;

static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;
static char names[NAMES][NAME];
static uint32_t name_count;

void double_record(bool on)
{
    atomic_store(&recording, on ? atomic_fetch_add(&captures, 1) + 1 : 0);
}

cm_producer *cm_enter_slow_hook(uint32_t capture)
{
    cm_producer *t = cm_self.thread;

    if (t == NULL) {
        /* Kept for ever, as the real ones are. */
        t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        t->slot = atomic_fetch_add(&slots, 1);
        events = mmap(NULL, DOUBLE_EVENTS * sizeof *events, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        t->head = &head;
        t->published = &published;
        t->next = events;
        atomic_store(&t->limit, (uintptr_t)(events + DOUBLE_EVENTS));
    }
    atomic_store(&t->generation, atomic_fetch_add(&generations, 1) + 1);
    atomic_store(&t->busy, 1);
    cm_self.thread = t;
    cm_self.capture = capture;
    return t;
}

cm_event *cm_reserve_slow_hook(cm_producer *t)
{
    if (atomic_load(&reuse) && !atomic_load(&full)) {
        t->next = events;
        return events;
    }
    return NULL;
}

const cm_event *double_events(void)
{
    return events;
}

size_t double_count(void)
{
    return cm_self.thread != NULL ? (size_t)(cm_self.thread->next - events) : 0;
}

void double_clear(void)
{
    if (cm_self.thread != NULL)
        cm_self.thread->next = events;
}

static void set_limit(void)
{
    size_t room = atomic_load(&full) ? 0 : atomic_load(&reuse) ? 8 : DOUBLE_EVENTS;

    if (cm_self.thread != NULL)
        atomic_store(&cm_self.thread->limit, (uintptr_t)(events + room));
}

void double_full(bool is_full)
{
    atomic_store(&full, is_full);
    set_limit();
}

void double_reuse(bool is_reused)
{
    atomic_store(&reuse, is_reused);
    set_limit();
}

/* The thread's Python stack: as far as these tests go, a number. */
uint32_t cm_walk_capture_hook(cm_walk *walk)
{
    (void)walk;
    return CM_STACK_FIRST;
}

cm_walk_top cm_walk_top_hook(void)
{
    return (cm_walk_top){0};
}

uint32_t cm_name_intern_text_hook(const char *text)
{
    uint32_t id = 0;

    pthread_mutex_lock(&naming);
    while (id < name_count && strcmp(names[id], text) != 0)
        id++;
    if (id == name_count && name_count < NAMES)
        snprintf(names[name_count++], NAME, "%s", text);
    pthread_mutex_unlock(&naming);
    return id + 1;
}

const char *double_name(uint32_t name)
{
    pthread_mutex_lock(&naming);
    bool known = name != 0 && name <= name_count;
    pthread_mutex_unlock(&naming);
    return known ? names[name - 1] : "";
}
