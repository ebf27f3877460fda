/* See doubles.c. */
#ifndef CUPTI_DOUBLES_H
#define CUPTI_DOUBLES_H

#include <stddef.h>
#include <stdint.h>

#include "objects/cupti_hooks.h"

int noted(void);             /* notes for the report since the last question */
void lag(unsigned launches); /* work is done after so many later ones */
void synchronize(void);      /* all of it is */
void *a_stream(int i);       /* 0: the default one */
void *a_context(int device);
void *a_pool(int device);

uintptr_t call_malloc(int device, size_t bytes);
void call_free(int device, uintptr_t address, size_t bytes);
void call_launch(int device, int stream, const char *name);
void call_copy(int device, int kind, uintptr_t to, uintptr_t from, size_t bytes);
void call_set(int device, int value, size_t bytes);
void call_malloc_async(int device, int stream, size_t bytes); /* a driver call that fails: 2 */

#endif
