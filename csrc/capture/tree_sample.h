/* When the process tree is sampled, and by whom: a thread that lives for one sample and has its own
 * descriptor table. All functions are the collector's thread's, or are called while there is none.
 */
#ifndef CM_CAPTURE_TREE_SAMPLE_H
#define CM_CAPTURE_TREE_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void cm_tree_sample_begin(void);
/* Begins a sample where one is due. Never waits. true: *chunk is one that has ended, until the next
 * call. */
bool cm_tree_sample_poll(uint64_t now, const void **chunk, size_t *length);
/* Ends the sample under way, and waits until the kernel no longer counts its thread. */
void cm_tree_sample_pause(void);
/* One last sample, of all where that is quick; waits for it. false: the recording was too short for
 * any. */
bool cm_tree_sample_last(const void **chunk, size_t *length);
/* In a forked child. */
void cm_tree_sample_forget(void);

#endif
