#define _GNU_SOURCE /* dl_iterate_phdr, dlinfo, RTLD_DEFAULT */
#include "slots.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf.h"
#include "loaded.h"

enum { SYMBOLS = 96, REFUSED = -1 };

/* One loaded object, identified by its place: a name may be loaded twice. */
typedef struct library {
    uintptr_t base;
    const cm_elf_header *headers;
    unsigned header_count;
    char *path;   /* "" for the program itself; NULL: a free entry */
    void *handle; /* keeps it loaded; only where a slot was found */
    enum { NEW, SCANNING, SCANNED } state;
} library;

typedef struct slot {
    void *_Atomic *at;
    cm_slot_symbol *symbol;
    void *original; /* the function the slot held or would have been bound to */
    size_t library;
    int variant; /* REFUSED: cannot or must not be patched */
    bool relro;
    bool taken; /* patched and not restored, even if it now holds another tool's hook */
} slot;

static struct {
    pthread_mutex_t mutex;
    bool installed;
    cm_slot_symbol *symbols[SYMBOLS];
    size_t symbol_count;
    cm_elf_names names;
    library *libraries;
    size_t library_count, library_room;
    slot *slots;
    size_t slot_count, slot_room;
    cm_loads counts; /* of the loader, when libraries were last listed */
    bool incomplete; /* the next scan must run even if nothing was loaded */
    bool wanted;     /* slots were found but not patched, for the gate was closed */
    bool (*is_closed)(void);
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* --- storage ------------------------------------------------------------------------------- */

/* Growing an array. The copy is published, then its size, then the old array is freed, so that a
 * child forked in between has a complete one. */
static size_t more(size_t count)
{
    return count == 0 ? 64 : 2 * count;
}

static void *larger_copy(const void *items, size_t count, size_t size)
{
    void *copy = malloc(more(count) * size);

    if (copy != NULL && count != 0)
        memcpy(copy, items, count * size);
    return copy;
}

static slot *known_slot(uintptr_t at)
{
    for (size_t i = 0; i < state.slot_count; i++)
        if ((uintptr_t)state.slots[i].at == at)
            return &state.slots[i];
    return NULL;
}

static void *hook_of(const slot *s)
{
    return s->symbol->hooks[s->variant];
}

static bool is_hook(const cm_slot_symbol *symbol, const void *function)
{
    for (int v = 0; v < CM_SLOT_VARIANTS; v++)
        if (symbol->hooks[v] == function)
            return true;
    return false;
}

/* Whether this is the `elsewhere` of a registered symbol. */
static bool is_elsewhere(const cm_slot_symbol *symbol)
{
    for (size_t k = 0; k < state.symbol_count; k++)
        if (state.symbols[k]->elsewhere == symbol)
            return true;
    return false;
}

bool cm_slots_register(cm_slot_symbol *symbols, size_t count)
{
    bool room = true;

    pthread_mutex_lock(&state.mutex);
    for (size_t i = 0; i < count && room; i++) {
        bool there = false;
        for (size_t k = 0; k < state.symbol_count; k++)
            there = there || state.symbols[k] == &symbols[i];
        if (there)
            continue;
        room = state.symbol_count < SYMBOLS;
        bool named = is_elsewhere(&symbols[i]); /* the first symbol has added the names */
        for (int n = 0; !named && n < CM_SLOT_SPELLINGS && room && symbols[i].names[n] != NULL; n++)
            room =
                cm_elf_names_add(&state.names, symbols[i].names[n], (uint16_t)state.symbol_count);
        if (!room)
            break;
        state.symbols[state.symbol_count++] = &symbols[i];
        state.incomplete = true;
        for (size_t lib = 0; lib < state.library_count; lib++)
            state.libraries[lib].state = NEW;
    }
    pthread_mutex_unlock(&state.mutex);
    return room;
}

static const char *file_name(const library *lib)
{
    const char *name = strrchr(lib->path, '/');

    return name != NULL ? name + 1 : lib->path;
}

static bool is_wanted_in(const cm_slot_symbol *symbol, const library *lib)
{
    return symbol->library == NULL ||
           strncmp(file_name(lib), symbol->library, strlen(symbol->library)) == 0;
}

/* The symbol that hooks this library's calls by this name; NULL: none. */
static cm_slot_symbol *symbol_for(uint16_t id, const library *lib)
{
    cm_slot_symbol *symbol = state.symbols[id];

    while (symbol != NULL && !is_wanted_in(symbol, lib))
        symbol = symbol->elsewhere;
    return symbol;
}

/* --- writing one slot ---------------------------------------------------------------------- */

static bool protect(const slot *s, int protection)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    return !s->relro || mprotect((void *)((uintptr_t)s->at & ~(page - 1)), page, protection) == 0;
}

/* Replaces `from` by `to`, unless the slot was changed meanwhile. */
static bool exchange(const slot *s, void *from, void *to)
{
    if (!protect(s, PROT_READ | PROT_WRITE))
        return false;
    bool done = atomic_compare_exchange_strong(s->at, &from, to);
    /* If the page cannot be made read-only again, it merely stays writable. */
    (void)protect(s, PROT_READ);
    return done;
}

/* The variant that forwards to this function. Claims a free one if none does. */
static int variant_for(cm_slot_symbol *symbol, void *original)
{
    for (int v = 0; v < CM_SLOT_VARIANTS; v++) {
        void *taken = atomic_load(&symbol->originals[v]);
        if (taken == original)
            return v;
        if (taken == NULL && symbol->hooks[v] != NULL) {
            atomic_store(&symbol->originals[v], original);
            return v;
        }
    }
    return REFUSED;
}

/* The function that the loader would bind the name to in this library. */
static void *resolve(const library *lib, const cm_slot_symbol *symbol)
{
    for (int n = 0; n < CM_SLOT_SPELLINGS && symbol->names[n] != NULL; n++) {
        void *function = dlsym(RTLD_DEFAULT, symbol->names[n]);
        if (function == NULL)
            function = dlsym(lib->handle, symbol->names[n]);
        if (function != NULL)
            return function;
    }
    return NULL;
}

/* The function that a call through this slot reaches. */
static void *destination(const library *lib, const cm_elf *object, const cm_elf_match *match,
                         void *held)
{
    return cm_elf_is_unbound(object, match, (uintptr_t)held)
               ? resolve(lib, state.symbols[match->id])
               : held;
}

static bool take(slot *s, void *held)
{
    s->taken = exchange(s, held, hook_of(s)) || s->taken;
    return atomic_load(s->at) == hook_of(s);
}

static bool patch(slot *s)
{
    void *held = atomic_load(s->at);

    if (s->variant == REFUSED || held == hook_of(s))
        return false;
    if (held != s->original) {
        /* Another tool has redirected the slot. If it did so while our hook was there, it forwards
         * to the hook, and a second one would see every call twice. Else our hook forwards to it.
         */
        int variant = s->taken ? REFUSED : variant_for(s->symbol, held);
        if (variant == REFUSED)
            return false;
        s->original = held;
        s->variant = variant;
    }
    return take(s, held);
}

static bool holds_hook(const slot *s)
{
    return s->variant != REFUSED && atomic_load(s->at) == hook_of(s);
}

/* --- finding slots ------------------------------------------------------------------------- */

static library *known_library(uintptr_t base, const cm_elf_header *headers)
{
    for (size_t i = 0; i < state.library_count; i++)
        if (state.libraries[i].base == base && state.libraries[i].headers == headers)
            return &state.libraries[i];
    return NULL;
}

/* An entry to fill, NULL without memory. Entries keep their index, for slots refer to them. */
static library *free_library(void)
{
    for (size_t i = 0; i < state.library_count; i++)
        if (state.libraries[i].path == NULL)
            return &state.libraries[i];
    if (state.library_count == state.library_room) {
        library *old = state.libraries;
        library *copy = larger_copy(old, state.library_count, sizeof *copy);
        if (copy == NULL)
            return NULL;
        state.libraries = copy;
        atomic_signal_fence(memory_order_seq_cst);
        state.library_room = more(state.library_count);
        free(old);
    }
    return &state.libraries[state.library_count++];
}

/* Drops libraries without a handle: after an unload, another one may lie in its place. */
static void forget_unpinned(void)
{
    for (size_t i = 0; i < state.library_count; i++) {
        if (state.libraries[i].handle != NULL)
            continue;
        free(state.libraries[i].path);
        state.libraries[i] = (library){0};
    }
}

/* Adds every new object. false: no memory. */
static bool remember(const cm_loaded *now)
{
    for (size_t i = 0; i < now->count; i++) {
        const cm_loaded_object *object = &now->object[i];
        if (known_library(object->base, object->headers) != NULL)
            continue;
        char *path = strdup(object->path);
        library *entry = path != NULL ? free_library() : NULL;
        if (entry == NULL) {
            free(path);
            return false;
        }
        *entry = (library){
            .base = object->base,
            .headers = object->headers,
            .header_count = object->header_count,
            .path = path,
        };
    }
    return true;
}

typedef struct candidate {
    size_t library;
    cm_elf_match match;
} candidate;

typedef struct search {
    candidate *found;
    size_t count, room; /* found in all, and allocated for */
    size_t library;
    bool complete;
} search;

static bool add_candidate(void *context, const cm_elf_match *match)
{
    search *s = context;

    if (s->count < s->room)
        s->found[s->count] = (candidate){s->library, *match};
    s->count++;
    return true;
}

/* Called by dl_iterate_phdr, under a lock that keeps every object mapped. Searches objects that
 * were listed and not yet scanned. Another library may have been loaded in the place of a listed
 * one since, so names are compared. */
static int search_object(struct dl_phdr_info *info, size_t size, void *context)
{
    search *s = context;
    library *lib = known_library(info->dlpi_addr, info->dlpi_phdr);
    cm_elf object;

    if (lib == NULL || lib->state == SCANNED)
        return 0;
    if (strcmp(lib->path, info->dlpi_name != NULL ? info->dlpi_name : "") != 0) {
        s->complete = false;
        return 0;
    }
    lib->state = SCANNING;
    s->library = (size_t)(lib - state.libraries);
    if (cm_elf_open(&object, lib->base, lib->headers, lib->header_count) &&
        !cm_elf_contains(&object, (uintptr_t)&search_object)) /* our own calls stay as they are */
        cm_elf_each(&object, &state.names, add_candidate, s);
    return 0;
}

/* Finds all slots of objects not yet scanned. Allocates while the loader's lock is not held
 * (loaded.h). */
static void search_new(search *s)
{
    size_t wanted = 1024; /* more than PyTorch has */
    bool room;

    do {
        free(s->found);
        s->found = malloc(wanted * sizeof *s->found);
        room = s->found != NULL;
        s->room = room ? wanted : 0;
        s->count = 0;
        s->complete = room;
        if (room)
            dl_iterate_phdr(search_object, s);
        wanted = s->count + 64;
    } while (s->count > s->room);
    for (size_t i = 0; i < state.library_count; i++)
        if (state.libraries[i].state == SCANNING)
            state.libraries[i].state = room ? SCANNED : NEW;
}

/* Keeps the library loaded from now on. false: it was unloaded or replaced. A listed object may be
 * mapped but not yet relocated, and its slots hold no addresses then. dlopen waits for the loader's
 * lock, hence until the object is ready. */
static bool pin(library *lib)
{
    struct link_map *map = NULL;

    if (lib->handle != NULL)
        return true;
    void *handle = dlopen(lib->path[0] != '\0' ? lib->path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL)
        return false;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map->l_addr != lib->base) {
        dlclose(handle);
        return false;
    }
    lib->handle = handle;
    return true;
}

/* Adds a slot and patches it. 1: it holds a hook now. 0: it does not. -1: no memory. */
static int adopt(const candidate *c)
{
    library *lib = &state.libraries[c->library];
    cm_slot_symbol *symbol = symbol_for(c->match.id, lib);
    cm_elf object;
    bool relro = false;

    if (known_slot(c->match.slot) != NULL)
        return 0;
    if (!cm_elf_open(&object, lib->base, lib->headers, lib->header_count))
        return 0;
    if (state.slot_count == state.slot_room) {
        slot *old = state.slots;
        slot *copy = larger_copy(old, state.slot_count, sizeof *copy);
        if (copy == NULL)
            return -1;
        state.slots = copy;
        atomic_signal_fence(memory_order_seq_cst);
        state.slot_room = more(state.slot_count);
        free(old);
    }

    slot s = {.symbol = symbol, .library = c->library, .variant = REFUSED};
    s.at = (void *_Atomic *)c->match.slot;
    if (!cm_elf_slot_writable(&object, c->match.slot, &relro))
        return 0;
    s.relro = relro;
    void *held = atomic_load(s.at);
    s.original = destination(lib, &object, &c->match, held);
    if (s.original != NULL && !is_hook(symbol, s.original))
        s.variant = variant_for(symbol, s.original);
    state.slots[state.slot_count] = s;
    slot *kept =
        &state.slots[state.slot_count++]; /* listed before it is written: see after_fork_in_child */
    return kept->variant != REFUSED && take(kept, held) ? 1 : 0;
}

/* Whether the gate is closed and slots were found, which a later scan will find again. */
static bool is_kept_out(const search *s)
{
    if (state.is_closed == NULL || !state.is_closed())
        return false;
    for (size_t i = 0; i < s->count; i++) {
        library *lib = &state.libraries[s->found[i].library];
        state.wanted = state.wanted || symbol_for(s->found[i].match.id, lib) != NULL;
        lib->state = NEW;
    }
    return state.wanted;
}

static int scan_new(void)
{
    int patched = 0;
    cm_loaded now = {0};

    for (int attempt = 0; attempt < 3; attempt++) {
        search s = {0};

        state.incomplete = true;
        if (!cm_loaded_list(&now))
            break;
        if (now.counts.unloads != state.counts.unloads) {
            forget_unpinned();
            state.counts.unloads = now.counts.unloads;
        }
        if (!remember(&now))
            break;
        state.counts.loads = now.counts.loads;
        search_new(&s);
        if (is_kept_out(&s)) {
            free(s.found);
            break;
        }
        for (size_t i = 0; i < s.count; i++) {
            library *lib = &state.libraries[s.found[i].library];
            if (symbol_for(s.found[i].match.id, lib) == NULL)
                continue;
            int result = pin(lib) ? adopt(&s.found[i]) : -1;

            if (result < 0) {
                lib->state = NEW;
                s.complete = false;
            } else {
                patched += result;
            }
        }
        free(s.found);
        state.incomplete = !s.complete;
        if (s.complete)
            break;
    }
    cm_loaded_free(&now);
    return patched;
}

/* Patches slots in which lazy binding of another thread has overwritten a hook, or has come between
 * our read and our write. Returns how many were patched for the first time. */
static int verify(void)
{
    int patched = 0;

    for (size_t i = 0; i < state.slot_count; i++) {
        slot *s = &state.slots[i];
        if (s->variant == REFUSED || atomic_load(s->at) != s->original)
            continue;
        bool before = s->taken;
        patched += take(s, s->original) && !before;
    }
    return patched;
}

/* --- the interface ------------------------------------------------------------------------- */

/* The child has one thread: the mutex's holder is gone. Every step above leaves a state from which
 * the next scan can go on. */
static void after_fork_in_child(void)
{
    pthread_mutex_init(&state.mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

void cm_slots_set_gate(bool (*closed)(void))
{
    pthread_mutex_lock(&state.mutex);
    state.is_closed = closed;
    pthread_mutex_unlock(&state.mutex);
}

bool cm_slots_are_wanted(void)
{
    pthread_mutex_lock(&state.mutex);
    bool wanted = state.installed && state.wanted;
    pthread_mutex_unlock(&state.mutex);
    return wanted;
}

/* Whether slots of an earlier capture are known, but the gate is closed. */
static bool are_known_kept_out(void)
{
    state.wanted = state.is_closed != NULL && state.is_closed() && state.slot_count > 0;
    return state.wanted;
}

int cm_slots_install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int patched = 0;

    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&state.mutex);
    state.installed = true;
    if (!are_known_kept_out()) {
        for (size_t i = 0; i < state.slot_count; i++)
            patched += patch(&state.slots[i]);
        patched += scan_new();
        patched += verify();
    }
    pthread_mutex_unlock(&state.mutex);
    return patched;
}

void cm_slots_remove(void)
{
    pthread_mutex_lock(&state.mutex);
    state.installed = false;
    for (size_t i = 0; i < state.slot_count; i++) {
        slot *s = &state.slots[i];
        if (s->taken && exchange(s, hook_of(s), s->original))
            s->taken = false;
    }
    pthread_mutex_unlock(&state.mutex);
}

int cm_slots_rescan(void)
{
    cm_loads now = cm_loads_now();
    int patched = 0;

    pthread_mutex_lock(&state.mutex);
    if (state.installed && !are_known_kept_out()) {
        if (state.incomplete || now.loads != state.counts.loads ||
            now.unloads != state.counts.unloads)
            patched = scan_new();
        patched += verify();
    }
    pthread_mutex_unlock(&state.mutex);
    return patched;
}

void *cm_slots_find(const char *name)
{
    void *found = NULL;

    pthread_mutex_lock(&state.mutex);
    for (size_t i = 0; i < state.library_count && found == NULL; i++)
        if (state.libraries[i].handle != NULL)
            found = dlsym(state.libraries[i].handle, name);
    pthread_mutex_unlock(&state.mutex);
    return found;
}

void cm_slots_find_all(const char *name, void (*each)(void *context, uintptr_t address),
                       void *context)
{
    uintptr_t addresses[16];
    size_t count = 0;

    pthread_mutex_lock(&state.mutex);
    for (size_t i = 0; i < state.library_count && count < 16; i++) {
        void *handle = state.libraries[i].handle;
        uintptr_t address = handle != NULL ? (uintptr_t)dlsym(handle, name) : 0;
        if (address != 0)
            addresses[count++] = address;
    }
    pthread_mutex_unlock(&state.mutex);
    for (size_t i = 0; i < count; i++)
        each(context, addresses[i]);
}

/* The kept library that the address lies in, opened, or NULL. */
static const library *library_at(uintptr_t address, cm_elf *object)
{
    for (size_t i = 0; i < state.library_count; i++) {
        const library *lib = &state.libraries[i];
        if (lib->handle != NULL &&
            cm_elf_open(object, lib->base, lib->headers, lib->header_count) &&
            cm_elf_contains(object, address))
            return lib;
    }
    return NULL;
}

bool cm_slots_exchange(uintptr_t at, void *from, void *to)
{
    slot s = {.at = (void *_Atomic *)at};
    cm_elf object;

    pthread_mutex_lock(&state.mutex);
    bool done = library_at(at, &object) != NULL && cm_elf_slot_writable(&object, at, &s.relro) &&
                exchange(&s, from, to);
    pthread_mutex_unlock(&state.mutex);
    return done;
}

const char *cm_slots_library(uintptr_t address)
{
    cm_elf object;

    pthread_mutex_lock(&state.mutex);
    const library *lib = library_at(address, &object);
    pthread_mutex_unlock(&state.mutex);
    return lib != NULL ? file_name(lib) : "";
}

void cm_slots_each(void (*each)(void *context, const cm_slot_symbol *symbol, const char *library,
                                int patched),
                   void *context)
{
    pthread_mutex_lock(&state.mutex);
    for (size_t k = 0; k < state.symbol_count; k++) {
        bool used = false;

        for (size_t lib = 0; lib < state.library_count; lib++) {
            int slots = 0, patched = 0;

            for (size_t i = 0; i < state.slot_count; i++) {
                const slot *s = &state.slots[i];
                if (s->symbol != state.symbols[k] || s->library != lib)
                    continue;
                slots++;
                patched += holds_hook(s);
            }
            if (slots == 0)
                continue;
            each(context, state.symbols[k], file_name(&state.libraries[lib]), patched);
            used = true;
        }
        if (!used)
            each(context, state.symbols[k], NULL, 0);
    }
    pthread_mutex_unlock(&state.mutex);
}
