/* Analyses the windows named, one after the other as one engine does: what each takes, a line each.
 * "kept in memory, asked in the first reading, asked in the second, records decoded". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../../csrc/analysis/analysis.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

static uint64_t taken;
static unsigned early, late;

void *__wrap_malloc(size_t size)
{
    taken += size;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    taken += count * size;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    taken += size;
    return __real_realloc(memory, size);
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
        uint64_t before = cm_reader_decoded(reader);
        cm_analysis *analysis = cm_engine_analyze(engine, &options, error, sizeof error);
        printf("%d %" PRIu64 " %u %u %" PRIu64 "\n", analysis != NULL, taken, early, late,
               cm_reader_decoded(reader) - before);
        cm_analysis_free(analysis);
    }
    cm_engine_free(engine);
    cm_reader_close(reader);
    return 0;
}
