/* Finding the library of a code address.
 *
 * The CUPTI thread or the collector reads what is mapped into a table and publishes it whole.
 * Readers count themselves into a table and then check that it is still the current one. A table is
 * refilled only while its count is zero. So a reader never waits, and a few tables suffice.
 *
 * Unwinding: _Unwind_Backtrace uses the unwind tables of each library. From glibc 2.35 on it finds
 * them without a lock (_dl_find_object); before, by dl_iterate_phdr, under the loader's write lock.
 * dlopen and dlclose hold that lock only while they change the list of objects, never while code of
 * a library runs. Other callers of dl_iterate_phdr hold it during their callbacks; ours (slots.c,
 * loaded.c) take no lock there. A thread inside a CUDA callback holds no lock of malloc's, so a
 * holder of the loader's lock never waits for it.
 *
 * The first unwinding of a process may allocate and bind a symbol, so cm_libraries_refresh does it
 * outside of any hook. For code registered by hand (a JIT compiler's), libgcc before 13 sorts its
 * tables at the next unwinding, under a mutex that is always the last one taken. */
#define _GNU_SOURCE /* RTLD_DEFAULT, gettid */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include "../base/grow.h"
#include "../capture/ring_layout.h"
#include "../capture/ring_producer.h"
#include "libraries.h"
#include "loaded.h"

enum { TABLES = 4, FRAMES = 32, CHAIN = 14, PATHS = 8, NAME = 256 };

typedef struct range {
    uintptr_t start, end;
    const char *name;       /* lives as long as its table */
    bool skipped, ours;     /* CUDA's driver, runtime, CUPTI or this extension; this extension */
    _Atomic uint64_t known; /* number of the capture << 32 | name id there; 0: not interned yet */
} range;

typedef struct table {
    _Atomic uint32_t readers;
    uint32_t serial;
    size_t count, room;
    range *ranges;    /* by start */
    cm_loaded loaded; /* owns the names */
    char program[NAME];
} table;

static table tables[TABLES];
static table *_Atomic current;
static pthread_mutex_t refreshing = PTHREAD_MUTEX_INITIALIZER;

/* --- skipped libraries --------------------------------------------------------------------------
 */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* The name is followed by a dot or, in a wheel's copy, by a dash. */
static bool is_cuda(const char *name)
{
    static const char *const those[] = {"libcuda", "libcudart", "libcupti", "libcudadebugger",
                                        "libcuptimem_sim"};

    for (size_t i = 0; i < sizeof those / sizeof those[0]; i++) {
        size_t length = strlen(those[i]);
        if (strncmp(name, those[i], length) == 0 && (name[length] == '.' || name[length] == '-'))
            return true;
    }
    return false;
}

/* --- reading -------------------------------------------------------------------------------------
 */

static int by_start(const void *a, const void *b)
{
    const range *x = a, *y = b;

    return x->start < y->start ? -1 : x->start > y->start;
}

static const range *find(const table *t, uintptr_t address)
{
    size_t low = 0, high = t->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->ranges[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->count && t->ranges[low].start <= address ? &t->ranges[low] : NULL;
}

static void read_program(table *into)
{
    ssize_t length = readlink("/proc/self/exe", into->program, sizeof into->program - 1);

    into->program[length > 0 ? length : 0] = '\0';
}

static void read_object(table *into, size_t number)
{
    const cm_loaded_object *object = &into->loaded.object[number];
    uintptr_t self = (uintptr_t)&cm_libraries_refresh;
    const char *name = base_name(number == 0 ? into->program : object->path);
    size_t first = into->count;
    bool ours = false;

    for (size_t i = object->code; i < object->code_end; i++) {
        range *one = &into->ranges[into->count++];
        one->start = into->loaded.code[i].start;
        one->end = into->loaded.code[i].end;
        one->name = name;
        one->skipped = is_cuda(name);
        atomic_store_explicit(&one->known, 0, memory_order_relaxed);
        ours = ours || (self >= one->start && self < one->end);
    }
    for (size_t i = first; i < into->count; i++) {
        into->ranges[i].ours = ours;
        into->ranges[i].skipped = into->ranges[i].skipped || ours;
    }
}

static bool read_all(table *into, const table *before)
{
    into->count = 0;
    if (!cm_loaded_list(&into->loaded))
        return false;
    if (into->loaded.code_count > into->room) {
        free(into->ranges);
        into->ranges = malloc(into->loaded.code_count * sizeof *into->ranges);
        into->room = into->ranges != NULL ? into->loaded.code_count : 0;
        if (into->ranges == NULL)
            return false;
    }
    read_program(into);
    for (size_t i = 0; i < into->loaded.count; i++)
        read_object(into, i);
    cm_sort(into->ranges, into->count, sizeof *into->ranges, by_start);
    for (size_t i = 0; i < into->count && before != NULL; i++) {
        const range *old = find(before, into->ranges[i].start);
        if (old != NULL && strcmp(old->name, into->ranges[i].name) == 0)
            atomic_store_explicit(&into->ranges[i].known,
                                  atomic_load_explicit(&old->known, memory_order_relaxed),
                                  memory_order_relaxed);
    }
    return true;
}

static table *free_table(const table *in_use)
{
    for (unsigned i = 0; i < TABLES; i++)
        if (&tables[i] != in_use && atomic_load(&tables[i].readers) == 0)
            return &tables[i];
    return NULL;
}

/* --- looking up ----------------------------------------------------------------------------------
 */

static table *enter_hook(void)
{
    for (;;) {
        table *t = atomic_load(&current);
        if (t == NULL)
            return NULL;
        atomic_fetch_add(&t->readers, 1);
        if (atomic_load(&current) == t)
            return t;
        atomic_fetch_sub(&t->readers, 1);
    }
}

static void leave_hook(table *t)
{
    atomic_fetch_sub_explicit(&t->readers, 1, memory_order_release);
}

static uint32_t name_of_hook(range *one)
{
    uint32_t capture = atomic_load_explicit(cm_recording, memory_order_relaxed);
    uint64_t known = atomic_load_explicit(&one->known, memory_order_relaxed);

    if (known >> 32 == capture && (uint32_t)known != 0)
        return (uint32_t)known;
    uint32_t id = cm_name_intern_text_hook(one->name);
    /* Ids of one capture are invalid in the next. */
    if (capture != 0 && id != 0)
        atomic_store_explicit(&one->known, (uint64_t)capture << 32 | id, memory_order_relaxed);
    return id;
}

uint32_t cm_library_of_hook(uintptr_t address)
{
    table *t = enter_hook();

    if (t == NULL)
        return 0;
    const range *one = find(t, address);
    /* This extension only forwards calls, so it is never the caller. */
    bool named = one != NULL && !one->ours && one->name[0] != '\0';
    uint32_t id = named ? name_of_hook((range *)one) : 0;
    leave_hook(t);
    return id;
}

/* --- unwinding -----------------------------------------------------------------------------------
 */

/* _dl_find_object of glibc 2.35 finds an address's object without a lock. */
typedef struct found_object {
    unsigned long long flags;
    void *start, *end;
    struct link_map *map;
    void *unwind_table;
    unsigned long long reserved[16]; /* more than any release fills in */
} found_object;
typedef int (*find_object_fn)(void *address, found_object *found);
static find_object_fn _Atomic find_object;

/* The return addresses between cm_library_of_caller_hook and the caller that was found, and where
 * they lie on the stack. If all are unchanged, the caller is the same. Of one thread. */
typedef struct cached_path {
    uintptr_t base; /* frame address of cm_library_of_caller_hook; 0: empty */
    uint32_t library, length;
    struct {
        uint32_t offset;
        uintptr_t returns_to;
    } chain[CHAIN];
} cached_path;

typedef struct thread_cache {
    uint32_t generation, serial;
    cached_path path[PATHS];
} thread_cache;

static thread_cache *_Atomic caches; /* one for each thread's slot */

typedef struct walk {
    table *table;
    cached_path path;
    unsigned frames;
    bool exact; /* the chain was understood and had room */
} walk;

/* Names a caller that was mapped after the table was read. Its library stays loaded, for its code
 * is on this thread's stack. */
static uint32_t name_unlisted_hook(uintptr_t address, bool *skipped)
{
    find_object_fn ask = atomic_load_explicit(&find_object, memory_order_acquire);
    found_object found = {0};

    *skipped = false;
    if (ask == NULL || ask((void *)address, &found) != 0 || found.map->l_name == NULL)
        return 0;
    const char *name = base_name(found.map->l_name);
    *skipped = is_cuda(name);
    return *skipped || name[0] == '\0' ? 0 : cm_name_intern_text_hook(name);
}

uint32_t cm_library_of_site_hook(uintptr_t site)
{
    table *t = enter_hook();
    bool skipped, listed = t != NULL && find(t, site) != NULL;

    if (t != NULL)
        leave_hook(t);
    return listed ? cm_library_of_hook(site) : name_unlisted_hook(site, &skipped);
}

static _Unwind_Reason_Code visit_frame(struct _Unwind_Context *context, void *argument)
{
    walk *w = argument;
    uintptr_t returns_to = _Unwind_GetIP(context);
    uintptr_t at = _Unwind_GetCFA(context) - sizeof(uintptr_t);
    bool skipped;

    if (returns_to == 0 || w->frames++ >= FRAMES)
        return _URC_END_OF_STACK;
    /* Frames below the base are calls made by this file. */
    if (at > w->path.base) {
        w->exact = w->exact && w->path.length < CHAIN && at - w->path.base < UINT32_MAX &&
                   *(const uintptr_t *)at == returns_to;
        if (w->exact) {
            w->path.chain[w->path.length].offset = (uint32_t)(at - w->path.base);
            w->path.chain[w->path.length].returns_to = returns_to;
            w->path.length++;
        }
    }
    /* - 1: the address of the call, which may be the last instruction of its function. */
    const range *one = find(w->table, returns_to - 1);
    if (one != NULL) {
        if (one->skipped)
            return _URC_NO_REASON;
        w->path.library = one->name[0] != '\0' ? name_of_hook((range *)one) : 0;
        return _URC_END_OF_STACK;
    }
    w->path.library = name_unlisted_hook(returns_to - 1, &skipped);
    return skipped ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static thread_cache *own_cache_hook(uint32_t serial)
{
    thread_cache *all = atomic_load_explicit(&caches, memory_order_acquire);
    const cm_producer *t = cm_self.thread;

    if (all == NULL || t == NULL)
        return NULL;
    thread_cache *mine = &all[t->slot];
    if (mine->generation != cm_producer_generation(t) || mine->serial != serial) {
        for (unsigned i = 0; i < PATHS; i++)
            mine->path[i].base = 0;
        mine->generation = cm_producer_generation(t);
        mine->serial = serial;
    }
    return mine;
}

static bool holds(const cached_path *path, uintptr_t base)
{
    if (path->base != base)
        return false;
    for (uint32_t i = 0; i < path->length; i++)
        if (*(const uintptr_t *)(base + path->chain[i].offset) != path->chain[i].returns_to)
            return false;
    return true;
}

static uint32_t walk_hook(table *t, uintptr_t base)
{
    thread_cache *mine = own_cache_hook(t->serial);
    cached_path *path = mine != NULL ? &mine->path[(base >> 4) % PATHS] : NULL;

    if (path != NULL && holds(path, base))
        return path->library;
    walk w = {.table = t, .path.base = base, .exact = true};
    _Unwind_Backtrace(visit_frame, &w);
    if (path != NULL && w.exact && w.path.library != 0)
        *path = w.path;
    return w.path.library;
}

__attribute__((noinline)) uint32_t cm_library_of_caller_hook(void)
{
    table *t = enter_hook();

    if (t == NULL)
        return 0;
    uint32_t library = walk_hook(t, (uintptr_t)__builtin_frame_address(0));
    leave_hook(t);
    return library;
}

/* --- refreshing ----------------------------------------------------------------------------------
 */

static _Unwind_Reason_Code visit_nothing(struct _Unwind_Context *context, void *argument)
{
    return _URC_NO_REASON;
}

/* Does what would allocate, or ask the loader, at its first time. */
static void prepare(void)
{
    void *room = mmap(NULL, CM_RING_COUNT * sizeof(thread_cache), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (room != MAP_FAILED) /* without it every call is unwound */
        atomic_store(&caches, room);
    atomic_store(&find_object, (find_object_fn)dlsym(RTLD_DEFAULT, "_dl_find_object"));
    _Unwind_Backtrace(visit_nothing, NULL);
}

/* The child has one thread: the holder of the mutex and the counted readers are gone. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&refreshing, NULL);
    for (unsigned i = 0; i < TABLES; i++)
        atomic_store(&tables[i].readers, 0);
}

static void start(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
    prepare();
}

void cm_libraries_refresh(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static uint32_t serial;

    pthread_once(&once, start);
    cm_loads now = cm_loads_now();
    pthread_mutex_lock(&refreshing);
    table *before = atomic_load(&current);
    if (before == NULL || before->loaded.counts.loads != now.loads ||
        before->loaded.counts.unloads != now.unloads) {
        table *next = free_table(before);
        /* If all other tables are being read, or memory is short, the next refresh tries again. */
        if (next != NULL && read_all(next, before)) {
            next->serial = ++serial;
            atomic_store(&current, next);
        }
    }
    pthread_mutex_unlock(&refreshing);
}
