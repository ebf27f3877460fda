/* A definition log in plain memory, in place of capture/'s: append, a bound that tests move, and
 * the bytes to read back. */
#include "deflog_memory.h"

#include <stdlib.h>
#include <string.h>

#include "frames/deflog.h"

static unsigned char *log_bytes;
static size_t log_length, log_reserved, log_capacity = SIZE_MAX, log_longest;

bool cm_deflog_append_hook(const void *records, size_t length)
{
    if (length > CM_DEFLOG_APPEND_MAX)
        abort(); /* the contract */
    if (length > log_capacity - log_length || log_capacity < log_length)
        return false;
    if (log_length + length > log_reserved) {
        log_reserved = (log_length + length) * 2;
        log_bytes = realloc(log_bytes, log_reserved);
        if (log_bytes == NULL)
            abort();
    }
    memcpy(log_bytes + log_length, records, length);
    log_length += length;
    if (length > log_longest)
        log_longest = length;
    return true;
}

void deflog_memory_clear(void)
{
    log_length = log_longest = 0;
    log_capacity = SIZE_MAX;
}

void deflog_memory_set_capacity(size_t bytes)
{
    log_capacity = bytes;
}

const unsigned char *deflog_memory_bytes(size_t *length)
{
    *length = log_length;
    return log_bytes;
}

size_t deflog_memory_longest(void)
{
    return log_longest;
}
