/* What exports read (csrc/analysis/stream.h), of a hostile trace. A file of its own: the names of
 * the analysis's blocks and of those of a ring are the same. */
#include "stream.h"

#include "../../../csrc/analysis/stream.h"

/* The items of a window say the live bytes that they sum to, and name what there is. */
const char *fuzz_stream(cm_reader *reader, uint64_t window)
{
    enum { ROOM = 7 };
    const cm_analysis_options options = {.window = window};
    char error[160] = "";
    cm_item item[ROOM];
    uint64_t live[CM_DEVICES_MAX] = {0};
    size_t count;
    bool over = false;
    cm_stream *s = cm_stream_open(reader, &options, error, sizeof error);

    if (s == NULL)
        return error[0] == '\0' ? "a stream that could not be opened says why" : NULL;
    const char *promise = NULL;
    while (promise == NULL && !over) {
        if (!cm_stream_read(s, item, ROOM, &count, &over, error, sizeof error)) {
            promise = error[0] == '\0' ? "a stream that failed says why" : NULL;
            break;
        }
        const cm_replay *replay = cm_stream_replay(s);
        for (size_t i = 0; i < count; i++) {
            bool block = item[i].kind <= CM_ITEM_FREE;
            if (!block)
                continue;
            if (item[i].device < 0 || (size_t)item[i].device >= replay->device_count ||
                item[i].origin >= replay->origin_count) {
                promise = "a block names its device and its origin";
                break;
            }
            uint64_t *sum = &live[item[i].device];
            *sum += (uint64_t)(item[i].kind == CM_ITEM_FREE ? -item[i].bytes : item[i].bytes);
            if (item[i].kind != CM_ITEM_START && *sum != (uint64_t)item[i].live)
                promise = "blocks sum to the live bytes of their device";
        }
    }
    cm_stream_close(s);
    return promise;
}
