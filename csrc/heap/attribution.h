/* Attribution of an allocation by its Python stack: the phase of a step, and the code line outside
 * PyTorch. Each stack is judged once, when it is first met.
 *
 *   data       a frame of torch/utils/data anywhere: a data set may run modules and optimizers
 *   otherwise  the innermost frame that decides: a call of a module (forward), or a file of
 *              torch/optim or the `step` that one of its files calls (optimizer). What an optimizer
 *              calls ends its own code: of PyTorch's, all code outside of PyTorch; of a package's,
 *              the user's code; of both and of the user's, a nested function or one named closure
 *   otherwise  forward, if an autograd node was made by this very stack (a loss written by hand),
 * or by its innermost user call, if all newer frames are a library's: an operator that PyTorch
 * routes through Python makes its node first
 *
 * PyTorch's own package is recognised by its folder, never by the word torch alone. */
#ifndef CM_HEAP_ATTRIBUTION_H
#define CM_HEAP_ATTRIBUTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../trace/reader.h"
#include "category.h"
#include "../base/library.h"

typedef struct cm_attribution cm_attribution;

/* NULL: out of memory. The library is to outlive it. */
cm_attribution *cm_attribution_new(const cm_reader *reader, const cm_library *library);
/* A copy, without the numbers of lines. NULL: out of memory. */
cm_attribution *cm_attribution_copy(const cm_attribution *attribution, const cm_library *library);
void cm_attribution_free(cm_attribution *attribution);

/* Reads the reader's new definitions. false: out of memory. */
bool cm_attribution_update(cm_attribution *attribution);
/* These update by themselves when they meet a new stack; unknown stacks are CM_PHASE_OTHER. */
cm_phase cm_attribution_phase(cm_attribution *attribution, uint32_t stack);
void cm_attribution_made_node(cm_attribution *attribution, uint32_t stack);

/* Whether a constructor of PyTorch's modules, or its initialisation, made this. */
bool cm_attribution_builds(cm_attribution *attribution, uint32_t stack);

/* Whether a module's call made this, and nothing that decides otherwise is newer. */
bool cm_attribution_in_module(cm_attribution *attribution, uint32_t stack);

/* Whether an optimizer of PyTorch has called it, a closure's code included. */
bool cm_attribution_in_optimizer(cm_attribution *attribution, uint32_t stack);
/* Whether it reads a file: torch.load, safetensors. */
bool cm_attribution_loads(cm_attribution *attribution, uint32_t stack);
/* What its innermost frame moves, to a device or to another type: a module's parameter, its buffer,
 * or anything else (CM_CATEGORY_UNKNOWN). Of a version of PyTorch that moved.h does not know,
 * nothing. */
cm_category cm_attribution_moved(cm_attribution *attribution, uint32_t stack);
/* Whether code of DDP or FSDP itself asked for this. */
bool cm_attribution_buckets(cm_attribution *attribution, uint32_t stack);

/* Whether it has no user frame (library.h), or none newer than the innermost call of autograd's
 * engine. With such a stack, the running node requested the allocation. A cm_nodes_judge; false for
 * unknown stacks. */
bool cm_attribution_library_alone(void *attribution, uint32_t stack);

/* false once one of the above ran out of memory. */
bool cm_attribution_ok(const cm_attribution *attribution);

/* The stack up to its innermost frame outside PyTorch; the stack itself if there is none. */
uint32_t cm_attribution_outside(cm_attribution *attribution, uint32_t stack);

/* Where two stacks part, in one function: -1 if the line of the first comes before the other's, 1
 * if after it; 0 where that is not so. */
int cm_attribution_order(const cm_attribution *attribution, uint32_t one, uint32_t other);

/* The calls of the first that are calls of the other, too, as a stack above the first: its callers
 * up to the call in which they part. The stack itself if they share nothing. */
uint32_t cm_attribution_shared(const cm_attribution *attribution, uint32_t stack, uint32_t other);

/* Whether their innermost frames outside PyTorch are at one line of one call. */
bool cm_attribution_shares_line(cm_attribution *attribution, uint32_t one, uint32_t other);

/* A small number for that frame's code line, equal for equal file and line. 0 for stacks without
 * frames. false: out of memory. */
bool cm_attribution_line(cm_attribution *attribution, uint32_t stack, uint32_t *line);
/* Restarts the numbers of lines at 0. */
void cm_attribution_forget_lines(cm_attribution *attribution);
/* The first stack with that number; CM_STACK_NONE for 0 and unknown numbers. */
uint32_t cm_attribution_line_stack(const cm_attribution *attribution, uint32_t line);

#endif
