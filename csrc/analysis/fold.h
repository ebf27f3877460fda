/* Stacks by what they say: file, function and line of every frame. The same stack may be defined
 * several times (once per module that is called on it, and again when code is loaded anew); folded,
 * it has one number. And the user's line of a stack, as report.user_frame finds it: its innermost
 * frame outside installed packages and the standard library, else its innermost frame. One owner.
 */
#ifndef CM_ANALYSIS_FOLD_H
#define CM_ANALYSIS_FOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "../trace/reader.h"

typedef struct cm_fold cm_fold;

cm_fold *cm_fold_new(const cm_reader *reader); /* NULL: out of memory */
void cm_fold_free(cm_fold *fold);

/* The folded stack's number; reserved and unknown stacks are their own. false: out of memory. */
bool cm_fold_stack(cm_fold *fold, uint32_t stack, uint32_t *number);
/* A stack that has this number: the first that was asked for. */
uint32_t cm_fold_example(const cm_fold *fold, uint32_t number);
/* Number of the user's line of a folded stack; equal file and line have equal numbers. A stack
 * without frames has the line 0. */
uint32_t cm_fold_line(const cm_fold *fold, uint32_t number);

#endif
