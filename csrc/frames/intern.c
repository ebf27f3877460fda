#include "intern.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../base/event.h"
#include "../base/pages.h"
#include "flat.h"
#include "key_map.h"
#include "offsets.h"
#include "record.h"
#include "text.h"

#ifndef CM_INTERN_MAX_STACKS /* held in the table; more can be defined. Tests lower it */
#define CM_INTERN_MAX_STACKS (1u << 18)
#endif
#ifndef CM_INTERN_COLLAPSE_AFTER
#define CM_INTERN_COLLAPSE_AFTER 100000u
#endif

enum {
    MAX_STRINGS = 1 << 16,
    MAX_CODES = 1 << 16,
    NAMES_MAX = 1 << 13,
    PREFIXES_MAX = 16,
    BARRIERS_MAX = 16
};

struct cm_intern_shared cm_intern;

/* Names by address. Every backward node looks one up, so this table is lock-free, too. Entries stay
 * until the next capture. */
typedef struct name_entry {
    _Atomic(const char *) name;
    _Atomic uint32_t id;
} name_entry;
static name_entry *name_table;
static const size_t NAME_TABLE_BYTES = NAMES_MAX * sizeof(name_entry);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Everything below is guarded by the mutex. */
static struct {
    cm_map strings;  /* (hash, length) -> string id */
    cm_map names;    /* (hash, length) -> name id */
    cm_map contents; /* (hash of a code record's fields, line table length) -> code id */
    cm_map codes;    /* (address) -> code id, or HIDDEN */
    cm_map stacks;   /* (parent and code, module, offset) -> stack id */
    uint32_t next_string, next_code, next_stack, next_name;
    uint32_t truncated_root; /* 0: not defined yet */
    uint32_t stacks_in_modules;
    uint32_t name_slots_used;
    uint64_t lost, epochs;
} table;

/* Set by control functions; kept across captures. */
static struct {
    char *prefix[PREFIXES_MAX];
    const void *barrier[BARRIERS_MAX];
    int prefixes, barriers;
} hidden;

static const uint32_t HIDDEN = UINT32_MAX;    /* the id of a code that is never shown */
static const uint64_t COLLAPSED = 1ull << 63; /* a module key that is a class name's string id */

static cm_text file_text, name_text; /* too big for a thread's stack */

void cm_intern_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void cm_intern_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static cm_map_key text_key(const cm_text *text)
{
    return (cm_map_key){text->hash, text->length, 0};
}

/* --- epochs and forgetting ------------------------------------------------------------------ */

static void next_epoch(bool collapsed)
{
    uint64_t epoch = atomic_load_explicit(&cm_intern.epoch, memory_order_relaxed);

    if (epoch == 0)
        return; /* off: cm_intern_begin turns it on */
    epoch = ((epoch >> 1) + 1) << 1 | (collapsed ? CM_EPOCH_COLLAPSED : 0);
    atomic_store_explicit(&cm_intern.epoch, epoch, memory_order_release);
    cm_flat_new_epoch();
    table.epochs++;
}

static bool is_collapsed(void)
{
    return atomic_load_explicit(&cm_intern.epoch, memory_order_relaxed) & CM_EPOCH_COLLAPSED;
}

/* Empties the exact tables when they are full or outdated. Ids go on: what occurs again is defined
 * again under a new id, as the format permits. */
static void forget_definitions(void)
{
    cm_map_clear(&table.strings);
    cm_map_clear(&table.contents);
    cm_map_clear(&table.codes);
    cm_map_clear(&table.stacks);
    table.truncated_root = 0;
    next_epoch(is_collapsed());
}

/* Makes room for one more code and one more stack with their strings. */
static bool make_room(void)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        if (cm_map_reserve(&table.strings, 3, MAX_STRINGS) &&
            cm_map_reserve(&table.contents, 1, MAX_CODES) &&
            cm_map_reserve(&table.codes, 1, MAX_CODES) &&
            cm_map_reserve(&table.stacks, 1, CM_INTERN_MAX_STACKS))
            return true;
        forget_definitions();
    }
    return false;
}

/* --- codes ---------------------------------------------------------------------------------- */

static bool is_under_hidden_path(const cm_text *file)
{
    for (int i = 0; i < hidden.prefixes; i++) {
        size_t n = strlen(hidden.prefix[i]);
        if (file->length >= n && memcmp(file->bytes, hidden.prefix[i], n) == 0 &&
            (file->length == n || file->bytes[n] == '/' || hidden.prefix[i][n - 1] == '/'))
            return true;
    }
    return false;
}

static bool is_barrier(const void *code)
{
    for (int i = 0; i < hidden.barriers; i++)
        if (hidden.barrier[i] == code)
            return true;
    return false;
}

/* The text's id. Puts the text into the record if it is new. */
static uint32_t string_id(const cm_text *text, uint32_t *fresh)
{
    uint32_t id = cm_map_find(&table.strings, text_key(text));

    if (id == 0) {
        cm_record_put_text(CM_DEF_STRING, text);
        id = table.next_string + (*fresh)++;
    }
    return id;
}

static void add_string(const cm_text *text)
{
    if (cm_map_find(&table.strings, text_key(text)) == 0)
        cm_map_add(&table.strings, text_key(text), table.next_string++);
}

/* The id of a live code object, HIDDEN, or 0 if it is new and could not be defined. */
static uint32_t code_id(const PyCodeObject *code)
{
    cm_map_key address = {(uint64_t)code, 0, 0};
    uint32_t id = cm_map_find(&table.codes, address);

    if (id != 0)
        return id;
    cm_text_copy_str(&file_text, code->co_filename);
    if (is_under_hidden_path(&file_text)) {
        cm_map_add(&table.codes, address, HIDDEN);
        return HIDDEN;
    }
    cm_text_copy_str(&name_text, code->co_qualname);
    const unsigned char *lines = (const unsigned char *)PyBytes_AS_STRING(code->co_linetable);
    size_t length =
        cm_record_line_table_length(lines, (size_t)PyBytes_GET_SIZE(code->co_linetable));

    /* The same source compiled again (exec in a loop) has the same id. */
    uint64_t parts[] = {file_text.hash, name_text.hash, (uint64_t)code->co_firstlineno,
                        cm_text_hash(lines, length)};
    cm_map_key content = {cm_text_hash(parts, sizeof parts), length, 0};
    id = cm_map_find(&table.contents, content);
    if (id == 0) {
        uint32_t fresh = 0;
        cm_record_start();
        uint32_t file = string_id(&file_text, &fresh);
        uint32_t name = file_text.hash == name_text.hash && file_text.length == name_text.length
                            ? file
                            : string_id(&name_text, &fresh);
        cm_record_put(CM_DEF_CODE);
        cm_record_put(file);
        cm_record_put(name);
        cm_record_put(code->co_firstlineno < 0 ? 0 : (uint64_t)code->co_firstlineno);
        cm_record_put_bytes(lines, length);
        if (!cm_record_append())
            return 0;
        add_string(&file_text);
        add_string(&name_text);
        id = table.next_code++;
        cm_map_add(&table.contents, content, id);
    }
    cm_map_add(&table.codes, address, id);
    return id;
}

/* --- stacks --------------------------------------------------------------------------------- */

/* A class's plain name: in static types tp_name includes the module. */
static void copy_class_name(cm_text *text, const PyTypeObject *type)
{
    const char *dot = strrchr(type->tp_name, '.');

    cm_text_copy(text, dot != NULL ? dot + 1 : type->tp_name);
}

/* The child of `parent` for this frame, defined if it is new; 0 if that was impossible. module: the
 * module that this frame calls, or NULL. */
static uint32_t stack_id(uint32_t parent, uint32_t code, uint32_t offset, PyObject *module,
                         bool in_module)
{
    bool collapsed = module != NULL && is_collapsed();
    uint32_t class_name = 0, fresh = 0;
    cm_map_key key = {(uint64_t)parent << 32 | code, (uint64_t)module, offset};

    cm_record_start();
    if (collapsed) {
        copy_class_name(&name_text, Py_TYPE(module));
        class_name = string_id(&name_text, &fresh);
        key.b = COLLAPSED | class_name;
    }
    uint32_t id = fresh == 0 ? cm_map_find(&table.stacks, key) : 0;
    if (id != 0)
        return id;
    if (module != NULL && !collapsed) {
        copy_class_name(&name_text, Py_TYPE(module));
        class_name = string_id(&name_text, &fresh);
    }
    cm_record_put(CM_DEF_STACK);
    cm_record_put(parent);
    cm_record_put(code);
    cm_record_put(offset);
    cm_record_put(collapsed ? CM_DEFF_COLLAPSED : 0);
    cm_record_put(collapsed ? 0 : (uint64_t)module);
    cm_record_put(class_name);
    if (!cm_record_append())
        return 0;
    if (fresh != 0)
        add_string(&name_text);
    id = table.next_stack++;
    cm_map_add(&table.stacks, key, id);
    if (in_module && ++table.stacks_in_modules == CM_INTERN_COLLAPSE_AFTER)
        next_epoch(true);
    return id;
}

static uint32_t truncated_root(void)
{
    if (table.truncated_root == 0) {
        cm_record_start();
        cm_record_put(CM_DEF_STACK);
        cm_record_put(CM_STACK_NONE);
        cm_record_put(0);
        cm_record_put(0);
        cm_record_put(CM_DEFF_TRUNCATED);
        cm_record_put(0);
        cm_record_put(0);
        if (cm_record_append())
            table.truncated_root = table.next_stack++;
    }
    return table.truncated_root;
}

static uint32_t define(const cm_walk *walk, bool truncated)
{
    uint32_t stack = CM_STACK_NONE;
    int first = 0;

    for (int k = walk->depth - 1; k >= 0 && hidden.barriers > 0; k--) {
        const PyCodeObject *code = cm_frame_code(walk->level[k].frame);
        if (code != NULL && is_barrier(code)) {
            first = k + 1;
            break;
        }
    }
    if (truncated && first == 0 && (stack = truncated_root()) == 0)
        return CM_STACK_LOST;

    int m = 0;
    for (int k = 0; k < walk->depth; k++) {
        PyObject *module = NULL;
        const char *frame = walk->level[k].frame;
        bool is_module = m < walk->modules && walk->module_level[m] == k;
        m += is_module;
        if (k < first)
            continue;
        const PyCodeObject *code = cm_frame_code(frame);
        if (code == NULL)
            continue; /* an interpreter frame, of a call from C */
        if (!make_room())
            return CM_STACK_LOST;
        /* Frames that are not shown need this, too: only known codes advance the epoch when freed,
         * and each is part of the cached hash. */
        uint32_t id = code_id(code);
        if (id == 0)
            return CM_STACK_LOST;
        int64_t offset = cm_frame_offset(code, walk->level[k].ip);
        if (id == HIDDEN || !cm_frame_is_complete(frame, code, offset))
            continue;
        if (offset < 0 || offset >= Py_SIZE(code))
            offset = 0; /* outside the bytecode: the line is unknown */
        if (is_module)
            module = (PyObject *)cm_frame_first_local(frame);
        stack = stack_id(stack, id, (uint32_t)offset, module, m > 0);
        if (stack == 0)
            return CM_STACK_LOST;
    }
    return stack;
}

uint32_t cm_intern_define_hook(const cm_walk *walk, uint64_t hash, bool truncated)
{
    pthread_mutex_lock(&mutex);
    uint32_t stack = define(walk, truncated);
    /* If the epoch has advanced meanwhile, the hash is stale, but the id is right. */
    if (stack == CM_STACK_LOST)
        table.lost++;
    else if (atomic_load_explicit(&cm_intern.epoch, memory_order_relaxed) == walk->epoch)
        cm_flat_remember(hash, walk->epoch, stack);
    pthread_mutex_unlock(&mutex);
    return stack;
}

void cm_intern_forget_code(const void *code)
{
    pthread_mutex_lock(&mutex);
    if (cm_map_remove(&table.codes, (cm_map_key){(uint64_t)code, 0, 0}))
        next_epoch(is_collapsed());
    pthread_mutex_unlock(&mutex);
}

/* --- names ---------------------------------------------------------------------------------- */

static uint32_t name_slot(const char *name)
{
    uint64_t h = (uint64_t)name * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 40) & (NAMES_MAX - 1);
}

/* Mutex held. */
static uint32_t name_id(const char *name)
{
    cm_text_copy(&name_text, name);
    cm_map_key key = text_key(&name_text);
    uint32_t id = cm_map_find(&table.names, key);

    if (id != 0 || !cm_map_reserve(&table.names, 1, MAX_STRINGS))
        return id;
    cm_record_start();
    cm_record_put_text(CM_DEF_NAME, &name_text);
    if (!cm_record_append())
        return 0;
    cm_map_add(&table.names, key, table.next_name);
    return table.next_name++;
}

uint32_t cm_name_intern_text_hook(const char *text)
{
    pthread_mutex_lock(&mutex);
    uint32_t id = name_table == NULL ? 0 : name_id(text);
    pthread_mutex_unlock(&mutex);
    return id;
}

/* The entry of this name, or the free one where it belongs; NULL when the table is full. */
static name_entry *find_name(name_entry *names, const char *name)
{
    uint32_t i = name_slot(name);

    for (uint32_t n = 0; n < NAMES_MAX; n++, i = (i + 1) & (NAMES_MAX - 1)) {
        const char *there = atomic_load_explicit(&names[i].name, memory_order_acquire);
        if (there == name || there == NULL)
            return &names[i];
    }
    return NULL;
}

uint32_t cm_name_intern_hook(const char *name)
{
    name_entry *names = __atomic_load_n(&name_table, __ATOMIC_ACQUIRE);

    if (names == NULL)
        return 0;
    name_entry *entry = find_name(names, name);
    if (entry != NULL && atomic_load_explicit(&entry->name, memory_order_acquire) == name)
        return atomic_load_explicit(&entry->id, memory_order_relaxed);

    pthread_mutex_lock(&mutex);
    uint32_t id = name_id(name);
    entry = find_name(names, name);
    if (id != 0 && table.name_slots_used < NAMES_MAX / 4 * 3 && entry != NULL &&
        atomic_load_explicit(&entry->name, memory_order_relaxed) == NULL) {
        atomic_store_explicit(&entry->id, id, memory_order_relaxed);
        atomic_store_explicit(&entry->name, name, memory_order_release);
        table.name_slots_used++;
    }
    pthread_mutex_unlock(&mutex);
    return id;
}

/* --- control -------------------------------------------------------------------------------- */

static bool map_lock_free_tables(void)
{
    if (!cm_flat_map())
        return false;
    if (name_table == NULL) {
        void *names = cm_pages_map(NAME_TABLE_BYTES, PROT_READ | PROT_WRITE, 0);
        if (names == MAP_FAILED)
            return false;
        __atomic_store_n(&name_table, names, __ATOMIC_RELEASE);
    }
    return true;
}

int cm_intern_begin(bool stacks)
{
    pthread_mutex_lock(&mutex);
    if (!map_lock_free_tables()) {
        pthread_mutex_unlock(&mutex);
        return -1;
    }
    forget_definitions();
    cm_map_clear(&table.names);
    memset(&table, 0, sizeof table);
    table.next_string = table.next_code = table.next_name = 1;
    table.next_stack = CM_STACK_FIRST;

    /* Recording is off, so there is no reader. */
    cm_flat_clear();
    madvise(name_table, NAME_TABLE_BYTES, MADV_DONTNEED);
    if (stacks) {
        uint64_t epoch = atomic_load_explicit(&cm_intern.epoch, memory_order_relaxed);
        atomic_store_explicit(&cm_intern.epoch, ((epoch >> 1) + 1) << 1, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return 0;
}

bool cm_intern_add_hidden(const char *prefix)
{
    char *copy = prefix[0] != '\0' ? strdup(prefix) : NULL;

    if (copy == NULL)
        return false;
    pthread_mutex_lock(&mutex);
    bool known = false;
    for (int i = 0; i < (int)hidden.prefixes && !known; i++)
        known = strcmp(hidden.prefix[i], prefix) == 0; /* every capture adds the same ones */
    bool fits = known || hidden.prefixes < PREFIXES_MAX;
    if (fits && !known) {
        hidden.prefix[hidden.prefixes++] = copy;
        forget_definitions(); /* known codes may have become hidden */
    }
    pthread_mutex_unlock(&mutex);
    if (!fits || known)
        free(copy);
    return fits;
}

bool cm_intern_add_barrier(const void *code)
{
    pthread_mutex_lock(&mutex);
    bool fits = is_barrier(code) || hidden.barriers < BARRIERS_MAX;
    if (fits && !is_barrier(code)) {
        hidden.barrier[hidden.barriers++] = code;
        next_epoch(is_collapsed());
    }
    pthread_mutex_unlock(&mutex);
    return fits;
}

void cm_intern_set_module_code(uint64_t code)
{
    pthread_mutex_lock(&mutex);
    atomic_store_explicit(&cm_intern.module_code, code, memory_order_relaxed);
    next_epoch(is_collapsed());
    pthread_mutex_unlock(&mutex);
}

cm_frames_counts cm_frames_get_counts(void)
{
    cm_frames_counts counts = {0};

    pthread_mutex_lock(&mutex);
    if (name_table != NULL) {
        counts.stacks = table.next_stack - CM_STACK_FIRST;
        counts.codes = table.next_code - 1;
        counts.names = table.next_name - 1;
        counts.lost = table.lost;
        counts.epochs = table.epochs;
        counts.mapped_bytes = cm_map_bytes(&table.strings) + cm_map_bytes(&table.names) +
                              cm_map_bytes(&table.contents) + cm_map_bytes(&table.codes) +
                              cm_map_bytes(&table.stacks) + NAME_TABLE_BYTES + cm_flat_bytes();
    }
    pthread_mutex_unlock(&mutex);
    return counts;
}
