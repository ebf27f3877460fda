/* Python stacks without the GIL: a thread walks its own chain of interpreter frames and gets a
 * 32-bit stack id. docs/architecture.md explains why this is safe, offsets.h what is read. Codes
 * and stacks are defined through deflog.h when they first occur. */
#ifndef CM_FRAMES_WALK_H
#define CM_FRAMES_WALK_H

#include <stdint.h>

#include "../base/event.h"

enum { CM_WALK_DEPTH = 512 }; /* of deeper stacks only the innermost frames are recorded */

typedef struct cm_walk_level {
    const char *frame;
    uint64_t ip;
} cm_walk_level;

/* A thread's memory of its last walk, which the next one only verifies. Initialized to zero;
 * private to frames/. Levels count from the outermost frame. Fields that every walk reads come
 * first. */
typedef struct cm_walk {
    uint64_t epoch, seed;               /* of intern.h; a new epoch resets the walk */
    uint64_t module_base, module_bytes; /* bytecode of Module._wrapped_call_impl, as of the epoch */
    uint64_t last_hash;
    uint32_t last_stack;
    int32_t depth, modules;
    uint16_t index[256]; /* frame address -> level; only a hint */
    cm_walk_level level[CM_WALK_DEPTH];
    uint64_t hash[CM_WALK_DEPTH]; /* of this level and everything outside it */
    /* The levels that are module calls, outermost first, and each one's module (or its type, after
     * modules were collapsed). */
    uint16_t module_level[CM_WALK_DEPTH];
    uint64_t module[CM_WALK_DEPTH];
} cm_walk;

/* The id of the calling thread's Python stack. CM_STACK_NONE: no Python frames, or stacks are off.
 * CM_STACK_LOST: it is new and could not be defined. Any thread, with or without the GIL, inside a
 * hook; never in a signal handler. Takes the intern mutex if the stack is new, and no other lock
 * under it. Never calls malloc, for its tables grow by mmap. */
uint32_t cm_walk_capture_hook(cm_walk *walk);

/* The top frame's address and instruction pointer. If two tops are equal, no Python frame was
 * entered or left in between. */
typedef struct cm_walk_top {
    uint64_t frame, ip;
} cm_walk_top;
cm_walk_top cm_walk_top_hook(void);

/* The same, in the hook that has just captured this stack. */
static inline cm_walk_top cm_walk_captured_top_hook(const cm_walk *walk, uint32_t stack)
{
    if (stack == CM_STACK_NONE || walk->depth == 0)
        return cm_walk_top_hook();
    const cm_walk_level *innermost = &walk->level[walk->depth - 1];
    return (cm_walk_top){(uint64_t)innermost->frame, innermost->ip};
}

/* An id (>= 1) for a C string that is never freed (a type's RTTI name), 0 if it cannot be defined.
 * Lock-free once the pointer is known. Equal texts have one id. */
uint32_t cm_name_intern_hook(const char *name);

/* The same for a text that may be freed (a class's tp_name). Looked up by content, under the intern
 * mutex. */
uint32_t cm_name_intern_text_hook(const char *text);

/* --- control; GIL held ------------------------------------------------------------------- */

/* Checks the offsets against the public API and hooks the end of code objects. 0, or -1 with the
 * reason in *why (static string): then every stack is CM_STACK_NONE. Idempotent. */
int cm_frames_init(const char **why);

/* Begins a capture: ids restart, for the new trace has no definitions. Call while recording is off.
 * 0, or -1: no memory for the tables. */
int cm_frames_begin(void);

/* For pthread_atfork's handlers only, the second in parent and child: the child must find the
 * intern mutex free. No Python may run in between, for a thread that frees a code object waits for
 * this mutex while it holds the GIL. */
void cm_frames_before_fork(void);
void cm_frames_after_fork(void);

/* Counts since cm_frames_begin. Any thread. */
typedef struct cm_frames_counts {
    uint64_t stacks, codes, names; /* records in the definition log */
    uint64_t lost;                 /* captures that got CM_STACK_LOST */
    uint64_t epochs;               /* times that all cached stacks became stale */
    uint64_t mapped_bytes;         /* memory of the tables now */
} cm_frames_counts;
cm_frames_counts cm_frames_get_counts(void);

#endif
