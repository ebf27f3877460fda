/* Writing a synthetic trace of a training run, with the real encoder and writer, for tests and
 * benchmarks. The same arguments give the same bytes. About 100 ns an event.
 * synthetic.py calls it.
 *
 * The program: a transformer of 12 layers trained on the CPU by one thread; a second thread (2)
 * fills the next batch's buffer. Seeds at the start, sequence lengths that vary from step to step,
 * node events, an optimizer tick per step, and one line that keeps a block in every step.
 *
 * On a CUDA device its blocks are rounded and lie in segments. There are driver events of these and
 * of a library's workspace, and device totals ten times a second. Scattered is the worst order:
 * blocks of one size are allocated and freed at random in 1,000 segments, 32,000 of them alive.
 *
 * Window 1 is the whole training. Within it, windows from 2 on follow each other, of whole steps,
 * as many as requested (if there are enough steps). */
#ifndef CM_BENCHMARKS_SYNTHETIC_H
#define CM_BENCHMARKS_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

typedef enum cm_synthetic_on {
    CM_SYNTHETIC_CPU = 0,
    CM_SYNTHETIC_CUDA,
    CM_SYNTHETIC_SCATTERED
} cm_synthetic_on;

typedef struct cm_synthetic { /* the trace's true totals, counted while it was made */
    uint64_t events, allocations, frees, steps; /* steps: optimizer ticks */
    int64_t peak_bytes, live_bytes;             /* seeds included */
    int64_t leaked_bytes, seed_bytes;           /* of the live bytes at the end */
    uint64_t segments, moments;                 /* on a CUDA device */
    uint64_t file_bytes;
} cm_synthetic;

/* Writes whole steps until there are at least `events`. Replaces an existing file. 0, or a negative
 * errno, and the file is removed. */
int cm_synthetic_write(const char *path, cm_synthetic_on on, uint64_t events, uint64_t windows,
                       uint64_t seed, size_t batch_bytes, cm_synthetic *out);

#endif
