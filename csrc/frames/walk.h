/* Python stacks without the GIL: the calling thread walks its own chain of interpreter frames and
 * gets a 32-bit stack id. Owned by the thread that calls; see docs/architecture.md for why this is
 * safe, and offsets.h for what is read.
 *
 * The rest of the program sees only these functions. Definitions of codes and stacks go out
 * through deflog.h the first time a stack is seen. */
#ifndef CM_FRAMES_WALK_H
#define CM_FRAMES_WALK_H

#include <stdint.h>

enum { CM_WALK_DEPTH = 512 }; /* deeper stacks keep the innermost frames and are marked truncated */

/* What one thread remembers of its last walk, so that the next only verifies it. Plain memory,
 * all zero to start with; its owner never touches the inside. Levels count from the outermost
 * frame. What every walk reads comes first and lies together. */
typedef struct cm_walk {
    uint64_t epoch, seed;               /* of intern.h; a new epoch empties the memory */
    uint64_t module_base, module_bytes; /* bytecode of Module._wrapped_call_impl, as of the epoch */
    uint64_t last_hash;
    uint32_t last_stack;
    int32_t depth, modules;
    uint16_t index[256]; /* frame address -> level, a hint that is verified */
    struct {
        const char *frame;
        uint64_t ip;
    } level[CM_WALK_DEPTH];
    uint64_t hash[CM_WALK_DEPTH]; /* of this level and everything outside it */
    /* The levels that are module calls, outermost first, and the module each one runs (its type
     * once stacks are folded). */
    uint16_t module_level[CM_WALK_DEPTH];
    uint64_t module[CM_WALK_DEPTH];
} cm_walk;

/* The id of the calling thread's Python stack: CM_STACK_NONE without Python frames (or before
 * cm_frames_begin, or where stacks are off), CM_STACK_LOST if it is new and could not be defined.
 * Any thread, with or without the GIL, inside a hook; never in a signal handler. Takes the intern
 * mutex (a leaf) when the stack is new; never calls malloc (its tables grow by mmap), never blocks
 * else. */
uint32_t cm_walk_capture_hook(cm_walk *walk);

/* A cheap identity of "where Python stands": top frame address and its instruction pointer.
 * Two equal tops mean that no Python frame was entered or left in between. */
typedef struct cm_walk_top {
    uint64_t frame, ip;
} cm_walk_top;
cm_walk_top cm_walk_top_hook(void);

/* An id (>= 1) for a C string that lives for ever (a type's RTTI name), 0 if it cannot be defined.
 * Lock-free once the pointer is known. Two pointers to equal texts get one id. */
uint32_t cm_name_intern_hook(const char *name);

/* The same for a text that may go away (a class's tp_name): looked up by content, so it takes the
 * intern mutex each time. */
uint32_t cm_name_intern_text_hook(const char *text);

/* --- control; GIL held ------------------------------------------------------------------- */

/* Checks the offsets against the public API and hooks code lifetime. 0, or -1 with the reason in
 * *why (static string): stacks are then CM_STACK_NONE, nothing else changes. Idempotent. */
int cm_frames_init(const char **why);

/* A new capture: forgets all ids (they restart), because the new trace knows none of them. Call
 * while recording is off. 0, or -1 when memory for the tables is not to be had. */
int cm_frames_begin(void);

/* Fork handlers: the child must find the intern mutex free. To be called by pthread_atfork's
 * handlers only, the second in parent and child alike: in between no Python may run, because a
 * thread that frees a code object waits for this mutex while it holds the GIL. */
void cm_frames_before_fork(void);
void cm_frames_after_fork(void);

/* What was defined since cm_frames_begin, and what it costs. Any thread. */
typedef struct cm_frames_counts {
    uint64_t stacks, codes, names; /* records in the definition log */
    uint64_t lost;                 /* captures that got CM_STACK_LOST */
    uint64_t epochs;               /* times that remembered stacks had to be looked up afresh */
    uint64_t mapped_bytes;         /* memory of the tables now */
} cm_frames_counts;
cm_frames_counts cm_frames_get_counts(void);

#endif
