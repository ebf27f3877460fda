/* Writes whatever events a test asks for, through the real encoder and writer. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../../csrc/trace/encode.h"
#include "../../../csrc/trace/writer.h"

int cm_clock_uses_counter;

typedef struct crafted {
    uint32_t thread;
    uint32_t defined; /* bytes of definitions by then */
    cm_event event;
} crafted;

static int write_batch(cm_writer *writer, cm_batch *batch, const void *definitions, size_t length,
                       const crafted *record, size_t count)
{
    const void *bytes;
    size_t size;
    uint64_t now = 0;
    for (size_t i = 0; i < count; i++)
        if (record[i].event.time > now)
            now = record[i].event.time;
    cm_batch_begin(batch, (cm_clock_anchor){now, now, 1000000000 + now});
    if (length > 0 && !cm_batch_add_definitions(batch, definitions, length))
        return -1;
    for (size_t i = 0; i < count; i++)
        if (!cm_batch_add_event(batch, record[i].thread, &record[i].event))
            return -1;
    if (!cm_batch_finish(batch, &bytes, &size))
        return -1;
    return cm_writer_chunk(writer, bytes, size);
}

/* end: NULL leaves the end chunk out. late: definitions come in the batch that needs them, not all
 * in the first. */
__attribute__((visibility("default"))) int craft(const char *path, const char *const *meta,
                                                 const void *definitions, size_t length,
                                                 const crafted *record, size_t count,
                                                 size_t per_batch, const char *end, uint64_t lost,
                                                 bool late)
{
    size_t defined = 0;
    cm_writer *writer;
    cm_batch *batch = cm_batch_new();
    int status = batch == NULL ? -1 : cm_writer_create(path, false, CM_WRITER_NAMED, &writer);
    if (status < 0)
        return status;
    status = cm_writer_meta(writer, meta);
    for (size_t at = 0; status == 0 && at < count; at += per_batch) {
        size_t n = count - at < per_batch ? count - at : per_batch;
        size_t until = late ? record[at + n - 1].defined : length;
        status = write_batch(writer, batch, (const char *)definitions + defined, until - defined,
                             record + at, n);
        defined = until;
    }
    if (status == 0 && end != NULL)
        status = cm_writer_end(writer, count, lost, 0, end);
    int closed = cm_writer_close(writer);
    cm_batch_free(batch);
    return status != 0 ? status : closed;
}
