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
 * all zero to start with; its owner never touches the inside. */
typedef struct cm_walk {
    struct {
        const char *frame;
        uint64_t ip;
        uint64_t module; /* self of a Module._wrapped_call_impl frame, else 0 */
        uint64_t hash;   /* of this level and everything below it */
    } level[CM_WALK_DEPTH];
    uint16_t index[256]; /* frame address -> level, a hint that is verified */
    int depth;
    uint64_t epoch, last_hash;
    uint32_t last_stack;
} cm_walk;

/* The id of the calling thread's Python stack: CM_STACK_NONE without Python frames, CM_STACK_LOST
 * if it is new and could not be defined. Any thread, with or without the GIL, inside a hook.
 * Takes the intern mutex (a leaf) when the stack is new; allocates nothing, never blocks else. */
uint32_t cm_walk_capture_hook(cm_walk *walk);

/* A cheap identity of "where Python stands": top frame address and its instruction pointer.
 * Two equal tops mean that no Python frame was entered or left in between. */
typedef struct cm_walk_top {
    uint64_t frame, ip;
} cm_walk_top;
cm_walk_top cm_walk_top_hook(void);

/* An id (>= 1) for a C string that lives for ever (a type's RTTI name), 0 if it cannot be defined. */
uint32_t cm_name_intern_hook(const char *name);

/* --- control; GIL held ------------------------------------------------------------------- */

/* Checks the offsets against the public API and hooks code lifetime. 0, or -1 with the reason in
 * *why (static string): stacks are then CM_STACK_NONE, nothing else changes. Idempotent. */
int cm_frames_init(const char **why);

/* A new capture: forgets all ids (they restart), because the new trace knows none of them. Call
 * while recording is off. 0, or -1 when memory for the tables is not to be had. */
int cm_frames_begin(void);

/* Fork handlers: the child must find the intern mutex free. */
void cm_frames_before_fork(void);
void cm_frames_after_fork(void);

#endif
