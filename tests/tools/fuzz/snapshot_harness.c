/* What reads memory snapshots of PyTorch's, over one input: in one piece and in small ones, which
 * must come to the same; and the trace that is made of it, which must be whole. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../../csrc/snapshot/convert.h"
#include "../../../csrc/snapshot/pickle.h"
#include "../../../csrc/trace/reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

__attribute__((noreturn)) static void broken(const char *promise)
{
    fprintf(stderr, "broken promise: %s\n", promise);
    abort();
}

typedef struct reading {
    cm_snap snapshot;
    cm_pickle pickle;
    bool whole;
} reading;

static void read_in(reading *r, const uint8_t *data, size_t size, size_t piece)
{
    *r = (reading){0};
    r->pickle.snapshot = &r->snapshot;
    if (!cm_snap_init(&r->snapshot))
        broken("there is memory");
    for (size_t at = 0, held = 0; at + held < size;) {
        size_t length = held + piece < size - at ? held + piece : size - at;
        uint8_t *window =
            malloc(length); /* of its exact size: the sanitizer sees what lies behind */
        memcpy(window, data + at, length);
        size_t taken = cm_pickle_feed(&r->pickle, window, length);
        free(window);
        if (taken > length)
            broken("no more is taken than there is");
        at += taken;
        held = length - taken;
    }
    r->whole = cm_pickle_end(&r->pickle);
    if (r->whole != (r->pickle.error[0] == '\0'))
        broken("what is refused is refused with a line");
}

static void read_trace(const char *path)
{
    char error[512];
    cm_record record;
    cm_reader *reader = cm_reader_open(path, error, sizeof error);
    if (reader == NULL)
        broken("what is converted can be opened");
    while (cm_reader_next(reader, &record) == 1)
        ;
    if (cm_reader_get_state(reader) != CM_TRACE_COMPLETE)
        broken("what is converted is whole");
    cm_reader_close(reader);
}

static void convert(cm_snap *snapshot)
{
    static const char *const meta[] = {"nodes", "none", NULL};
    char path[4096], error[512] = "";
    const char *folder = getenv("FUZZ_FOLDER");
    snprintf(path, sizeof path, "%s/snapshot-%d.cmem", folder != NULL ? folder : "/tmp",
             (int)getpid());
    unlink(path);
    if (cm_snap_convert(snapshot, path, 0600, meta, error, sizeof error))
        read_trace(path);
    else if (error[0] == '\0')
        broken("what cannot be converted has a line");
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static reading first, second;
    read_in(&first, data, size, size > 0 ? size : 1);
    read_in(&second, data, size, size > 0 ? data[0] % 7 + 1 : 1);
    if (first.whole != second.whole || strcmp(first.pickle.error, second.pickle.error) != 0 ||
        first.snapshot.events != second.snapshot.events ||
        first.snapshot.stacks.count != second.snapshot.stacks.count)
        broken("pieces come to the same");
    if (first.whole)
        convert(&first.snapshot);
    cm_pickle_clear(&first.pickle);
    cm_pickle_clear(&second.pickle);
    cm_snap_clear(&first.snapshot);
    cm_snap_clear(&second.snapshot);
    return 0;
}
