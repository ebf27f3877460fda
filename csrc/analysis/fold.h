/* Stacks by what they say: file, function and line of every frame. Which module was called, under
 * which id a code was defined and in which column it stood are folded away, so that the same line
 * has one number however often its stack was defined. One owner, any thread. */
#ifndef CM_ANALYSIS_FOLD_H
#define CM_ANALYSIS_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"

/* The folds of the reserved stacks. */
enum { CM_FOLD_NONE = CM_STACK_NONE, CM_FOLD_LOST = CM_STACK_LOST, CM_FOLD_FIRST = CM_STACK_FIRST };

typedef struct cm_folds cm_folds;

cm_folds *cm_folds_new(const cm_reader *reader); /* NULL: out of memory */
void cm_folds_free(cm_folds *folds);

/* The stack's fold; CM_FOLD_LOST for one that has no definition. false: out of memory. */
bool cm_folds_of(cm_folds *folds, uint32_t stack, uint32_t *fold);
/* A small number for the innermost line of the user's own code (the rule is report.user_frame's:
 * not in an installed package, not in Python itself); 0 where the fold has none. */
uint32_t cm_folds_line(const cm_folds *folds, uint32_t fold);

#endif
