/* Redirecting calls between shared libraries: every relocation slot through which a loaded library
 * calls one of the registered functions is made to hold our hook, and given back later.
 *
 * Functions here may run in any thread, need no GIL, and are serialised by a mutex of their own
 * that no hook ever takes. Threads that call through the slots meanwhile see either the old or the
 * new value. A library that got a hook is kept loaded; hooks and the addresses they forward to stay
 * valid for ever, so that a thread inside a hook simply finishes. */
#ifndef CM_SOURCES_SLOTS_H
#define CM_SOURCES_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Slots of one symbol may be bound to different functions (another tool redirected one library
 * only). Each variant of a hook forwards to one such function; a slot bound to yet another one is
 * left alone and shown as not patched. */
enum { CM_SLOT_VARIANTS = 2, CM_SLOT_SPELLINGS = 4 };

typedef struct cm_slot_symbol {
    const char *source;                   /* which source wants it: "allocator", "autograd" */
    const char *meaning;                  /* "CPU allocation" */
    const char *names[CM_SLOT_SPELLINGS]; /* mangled; more than one if spelled differently by
                                             version with the same calling convention */
    void *hooks[CM_SLOT_VARIANTS];
    void *_Atomic originals[CM_SLOT_VARIANTS]; /* what hook [i] forwards to; set before the first
                                                  slot holds it, and only once */
    const char *library; /* NULL: wherever it is called from; else only in libraries whose file name
                            begins so */
    struct cm_slot_symbol *elsewhere; /* NULL, or who hooks the same function in all other
                                         libraries: registered itself, with the same names */
} cm_slot_symbol;

/* To be used inside hook number `variant` only: the function that it must call. */
#define CM_SLOT_ORIGINAL(symbol, variant, type)                                                    \
    ((type)atomic_load_explicit(&(symbol).originals[variant], memory_order_relaxed))

/* Adds symbols (static storage) to those that the next scan looks for, in what was scanned before,
 * too; a rescan is one. A symbol that is another's `elsewhere` comes after that one. false: no
 * room. */
bool cm_slots_register(cm_slot_symbol *symbols, size_t count);

/* While closed says so nothing is patched, but looked for: cm_slots_are_wanted then says whether
 * there is something to patch. closed: quick, called under the slots' mutex. */
void cm_slots_set_gate(bool (*closed)(void));
bool cm_slots_are_wanted(void);

/* Patches everything that is loaded now, and checks afterwards that no slot was overwritten by
 * lazy binding meanwhile. Returns how many slots hold a hook now that did not before. */
int cm_slots_install(void);

/* While installed: patches what was loaded since the last scan, and what lazy binding has written
 * over since. Costs some nanoseconds a slot when nothing was. Waits for a library that another
 * thread is loading right now. */
int cm_slots_rescan(void);

/* Gives back every slot that still holds our hook. */
void cm_slots_remove(void);

/* The address of an exported symbol in one of the libraries that got a hook, or NULL. */
void *cm_slots_find(const char *name);

/* Calls found for each of those libraries' own copies of the symbol, some perhaps twice. */
void cm_slots_find_all(const char *name, void (*found)(void *context, uintptr_t address),
                       void *context);

/* Replaces from by to in a word of such a library's data (an entry of a vtable), where the loader
 * may have made it read-only. false: it held something else, or may not be written. */
bool cm_slots_exchange(uintptr_t at, void *from, void *to);

/* The file name of the library among them that this address lies in, or "". Stays valid. */
const char *cm_slots_library(uintptr_t address);

/* Calls each for every (symbol, library) with the number of slots that hold our hook right now,
 * and with library NULL for a symbol that no loaded library uses. */
void cm_slots_each(void (*each)(void *context, const cm_slot_symbol *symbol, const char *library,
                                int patched),
                   void *context);

#endif
