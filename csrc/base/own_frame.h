/* For a function that the hot path calls rarely, or as its last act: inlined, it would make every
 * record save and restore the registers that it alone needs. */
#ifndef CM_BASE_OWN_FRAME_H
#define CM_BASE_OWN_FRAME_H

#define CM_OWN_FRAME __attribute__((noinline))

#endif
