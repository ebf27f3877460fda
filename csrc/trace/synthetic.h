/* A trace as a real training writes it, made up, through the real encoder and writer: for tests and
 * benchmarks of everything that reads traces. The same arguments give the same bytes. No Python;
 * any thread; takes about 100 ns an event.
 *
 * The program: a transformer of 12 layers trained on the CPU by one thread; a second thread (2)
 * fills the next batch's buffer. Seeds at the start, sequence lengths that vary from step to step,
 * node events, an optimizer tick per step, and one line that keeps a block in every step.
 *
 * On a CUDA device its blocks are rounded and lie in segments, and the driver level tells of these,
 * of a library's workspace that comes and goes, and ten times a second of the device. Scattered is
 * no program but the worst order: blocks of one size that come and go at random in 1,000 segments,
 * 32,000 of them alive.
 *
 * Window 1 is all of the training. Within it, from 2 on, as many windows of whole steps as are
 * asked for lie one behind the other (where there are steps enough). */
#ifndef CM_TRACE_SYNTHETIC_H
#define CM_TRACE_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

typedef enum cm_synthetic_on {
    CM_SYNTHETIC_CPU = 0,
    CM_SYNTHETIC_CUDA,
    CM_SYNTHETIC_SCATTERED
} cm_synthetic_on;

typedef struct cm_synthetic { /* what is in the trace, counted while it was made */
    uint64_t events, allocations, frees, steps; /* steps: optimizer ticks */
    int64_t peak_bytes, live_bytes;             /* seeds included */
    int64_t leaked_bytes, seed_bytes; /* of them, at the end: by the leaking line; seeds */
    uint64_t segments, moments;       /* on a CUDA device */
    uint64_t file_bytes;
} cm_synthetic;

/* Whole steps until there are at least `events`. An existing file is replaced. 0, or a negative
 * errno: what was written is removed then. */
int cm_synthetic_write(const char *path, cm_synthetic_on on, uint64_t events, uint64_t windows,
                       uint64_t seed, size_t batch_bytes, cm_synthetic *out);

#endif
