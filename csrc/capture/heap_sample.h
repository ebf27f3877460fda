/* Samples of the memory that the process has in use, at ticks: no call of the program's own thread
 * is under way then, so that what tensors have of it can be subtracted exactly. */
#ifndef CM_CAPTURE_HEAP_SAMPLE_H
#define CM_CAPTURE_HEAP_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

/* Outside of hooks and of the allocator: asking malloc takes its locks. Most calls only compare the
 * time: samples take a thousandth of it, and 10 ms at the beginning. malloc looks at each of its
 * free pieces, so it is not asked where many may have come: where much has died. */
void cm_heap_sample(void);
/* How often cm_heap_sample was called: ticks that were recorded by this process, of all captures.
 */
uint64_t cm_heap_sample_ticks(void);
/* Asks malloc for the first time, so that a heap in pieces costs no step. */
void cm_heap_sample_begin(void);
/* What malloc has free, what of it lies in arenas of threads, of which there are so many, and by
 * how much the process's resident memory falls when malloc returns all whole pages of it. */
typedef struct cm_heap_trimmed {
    int64_t free, arenas, in_arenas, returned;
} cm_heap_trimmed;
/* Returns them: when the process ends, for it pays for each page that it uses again. Outside of
 * hooks. false: this malloc cannot do it, or nothing is recorded. */
bool cm_heap_trim(cm_heap_trimmed *out);
/* From the collector: pieces of malloc's that the blocks and nodes in use have (merge.h). */
void cm_heap_sample_saw(int64_t in_use);

#endif
