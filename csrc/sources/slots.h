/* Redirecting calls between shared libraries: every relocation slot through which a loaded library
 * calls a registered function is made to hold a hook, and restored later.
 *
 * Functions here run on any thread and need no GIL. A mutex that no hook takes serializes them.
 * Threads that call through a slot meanwhile see the old or the new value. A library with a hook is
 * kept loaded; hooks and the functions they forward to stay valid, so a thread inside a hook simply
 * finishes. */
#ifndef CM_SOURCES_SLOTS_H
#define CM_SOURCES_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Slots of one symbol may be bound to different functions, if another tool redirected some
 * libraries. Each variant of a hook forwards to one function; a slot bound to a third one stays
 * unpatched. */
enum { CM_SLOT_VARIANTS = 2, CM_SLOT_SPELLINGS = 4 };

typedef struct cm_slot_symbol {
    const char *source;                   /* "allocator", "autograd" */
    const char *meaning;                  /* "CPU allocation" */
    const char *names[CM_SLOT_SPELLINGS]; /* mangled; several if versions differ in spelling
                                             but not in the calling convention */
    void *hooks[CM_SLOT_VARIANTS];
    void *_Atomic originals[CM_SLOT_VARIANTS]; /* the function that hook [i] forwards to; set once,
                                                  before the first slot holds the hook */
    const char *library; /* patch only libraries with this prefix of the file name; NULL: all */
    struct cm_slot_symbol *elsewhere; /* NULL, or the symbol that hooks the same function in all
                                         other libraries; also registered, with the same names */
} cm_slot_symbol;

/* The function that hook number `variant` must call. To be used in that hook only. */
#define CM_SLOT_ORIGINAL(symbol, variant, type)                                                    \
    ((type)atomic_load_explicit(&(symbol).originals[variant], memory_order_relaxed))

/* Adds symbols (static storage). The next scan, which may be a rescan, searches all libraries for
 * them. Another symbol's `elsewhere` must come after that symbol. false: no room. */
bool cm_slots_register(cm_slot_symbol *symbols, size_t count);

/* Sets a gate: while closed() is true, scans search for slots but patch none, and
 * cm_slots_are_wanted returns whether any were found. closed() is called under the slots' mutex. */
void cm_slots_set_gate(bool (*closed)(void));
bool cm_slots_are_wanted(void);

/* Patches all loaded libraries, then repairs slots that lazy binding has overwritten meanwhile.
 * Returns how many more slots hold a hook now. */
int cm_slots_install(void);

/* While installed: patches libraries loaded since the last scan and slots that lazy binding has
 * overwritten. Otherwise it costs some nanoseconds per slot. Waits for a library that another
 * thread is loading. */
int cm_slots_rescan(void);

/* Restores every slot that still holds a hook. */
void cm_slots_remove(void);

/* The address of an exported symbol in one of the libraries that got a hook, or NULL. */
void *cm_slots_find(const char *name);

/* Calls `found` for each of those libraries' own copies of the symbol, perhaps twice for some. */
void cm_slots_find_all(const char *name, void (*found)(void *context, uintptr_t address),
                       void *context);

/* Replaces `from` by `to` in a word of such a library's data (a vtable entry), even if the loader
 * has made it read-only. false: it holds something else, or cannot be written. */
bool cm_slots_exchange(uintptr_t at, void *from, void *to);

/* The file name of the one of those libraries that holds this address, or "". Stays valid. */
const char *cm_slots_library(uintptr_t address);

/* Calls `each` for every (symbol, library) with the number of slots that hold a hook now, and with
 * library NULL for a symbol that no loaded library uses. */
void cm_slots_each(void (*each)(void *context, const cm_slot_symbol *symbol, const char *library,
                                int patched),
                   void *context);

#endif
