/* Analyses the windows named, one after the other as one engine does: what each takes, a line each.
 * "fine, bytes taken, asked in the first reading, asked in the second, records decoded, most bytes
 * in use at once". */
#include <inttypes.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../../csrc/analysis/analysis.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void __wrap_free(void *memory);

static _Atomic uint64_t taken, used, most; /* the decode thread takes memory, too */
static unsigned early, late;

static void *use(void *memory)
{
    uint64_t now = atomic_fetch_add(&used, malloc_usable_size(memory)) + malloc_usable_size(memory);
    if (now > most)
        most = now;
    return memory;
}

void *__wrap_malloc(size_t size)
{
    taken += size;
    return use(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    taken += count * size;
    return use(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    taken += size;
    used -= malloc_usable_size(memory);
    return use(__real_realloc(memory, size));
}

void __wrap_free(void *memory)
{
    used -= malloc_usable_size(memory);
    __real_free(memory);
}

static bool asked(double share, void *context)
{
    share < 0.35 ? early++ : late++;
    return true;
}

int main(int argc, char **argv)
{
    char error[512] = "";
    cm_reader *reader = cm_reader_open(argv[1], error, sizeof error);
    cm_engine *engine = reader == NULL ? NULL : cm_engine_new(reader);
    for (int i = 2; engine != NULL && i < argc; i++) {
        const cm_analysis_options options = {
            .window = strtoull(argv[i], NULL, 10), .progress = asked, .progress_context = NULL};
        taken = early = late = 0;
        most = used;
        uint64_t before = cm_reader_decoded(reader);
        cm_analysis *analysis = cm_engine_analyze(engine, &options, error, sizeof error);
        printf("%d %" PRIu64 " %u %u %" PRIu64 " %" PRIu64 "\n", analysis != NULL, taken, early,
               late, cm_reader_decoded(reader) - before, most);
        cm_analysis_free(analysis);
    }
    cm_engine_free(engine);
    cm_reader_close(reader);
    return 0;
}
