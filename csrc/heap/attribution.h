/* What follows from a Python stack for its allocation: the part of a step that it belongs to, and
 * the code line outside PyTorch that it comes from. Each stack is judged once, when it is first
 * seen.
 *
 *   data       a frame of torch/utils/data anywhere: a data set may run modules and optimizers
 *   otherwise  the innermost frame that decides: a call of a module (forward) or a file of
 *              torch/optim (optimizer)
 *   otherwise  forward, if an autograd node was made by this very stack (a loss written by hand),
 * or by the call in it that its innermost frames, all a library's, came from: an operator that
 * PyTorch routes through Python makes its node before
 *
 * PyTorch's own package is recognised by where its files lie, never by the word torch alone. */
#ifndef CM_HEAP_ATTRIBUTION_H
#define CM_HEAP_ATTRIBUTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "category.h"
#include "library.h"

typedef struct cm_attribution cm_attribution;

/* NULL: out of memory. The library is to outlive it. */
cm_attribution *cm_attribution_new(const cm_reader *reader, const cm_library *library);
/* A copy, without the numbers of lines. NULL: out of memory. */
cm_attribution *cm_attribution_copy(const cm_attribution *attribution, const cm_library *library);
void cm_attribution_free(cm_attribution *attribution);

/* Reads what the reader has defined since the last call. false: out of memory. */
bool cm_attribution_update(cm_attribution *attribution);
/* These update by themselves when they meet a new stack; unknown stacks are CM_PHASE_OTHER. */
cm_phase cm_attribution_phase(cm_attribution *attribution, uint32_t stack);
void cm_attribution_made_node(cm_attribution *attribution, uint32_t stack);

/* Whether a constructor of PyTorch's modules, or what it initialises them with, made this. */
bool cm_attribution_builds(cm_attribution *attribution, uint32_t stack);

/* Whether there is no frame of the user's (library.h) on it, or none that is newer than the
 * innermost call of autograd's engine. What a backward allocates with such a stack was asked for by
 * the node that runs. A cm_nodes_judge; false for stacks that are unknown. */
bool cm_attribution_library_alone(void *attribution, uint32_t stack);

/* Whether all of the above were answered: false once memory for one of them was not to be had. */
bool cm_attribution_ok(const cm_attribution *attribution);

/* The stack up to its innermost frame outside PyTorch; the stack itself if there is none. */
uint32_t cm_attribution_outside(cm_attribution *attribution, uint32_t stack);

/* A small number for the code line of that frame; equal file and line have equal numbers. 0 for
 * stacks without frames. false: out of memory. */
bool cm_attribution_line(cm_attribution *attribution, uint32_t stack, uint32_t *line);
/* Lines are numbered from 0 again. */
void cm_attribution_forget_lines(cm_attribution *attribution);
/* The stack by which that number was first given; CM_STACK_NONE for 0 and unknown numbers. */
uint32_t cm_attribution_line_stack(const cm_attribution *attribution, uint32_t line);

#endif
