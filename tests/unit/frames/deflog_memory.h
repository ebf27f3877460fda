#ifndef DEFLOG_MEMORY_H
#define DEFLOG_MEMORY_H

#include <stddef.h>
#include <stdint.h>

void deflog_memory_clear(void);
void deflog_memory_set_capacity(size_t bytes); /* appends that pass this length are refused */
const unsigned char *deflog_memory_bytes(size_t *length);
size_t deflog_memory_longest(void); /* longest append since the last clear */

#endif
