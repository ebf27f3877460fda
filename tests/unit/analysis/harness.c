/* Analyses (and extracts a window of) each trace named, in a build with sanitizers. */
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "../../../csrc/analysis/analysis.h"

int main(int argc, char **argv)
{
    char error[512] = "";
    for (int i = 1; i < argc; i++) {
        cm_reader *reader = cm_reader_open(argv[i], error, sizeof error);
        if (reader == NULL)
            continue;
        cm_engine *engine = cm_engine_new(reader);
        for (uint64_t window = 0; engine != NULL && window < 3; window++) {
            static const cm_chart_span spans[] = {{0, UINT64_MAX, 7, 5, 3, ""},
                                                  {100, 5000, 1, 1, 0, "cpu"}};
            cm_analysis_options options = {.window = window,
                                           .of_step = window > 0,
                                           .step = (int64_t)window - 1,
                                           .tables = CM_TABLE(CM_TABLES) - 1,
                                           .charts = spans,
                                           .chart_count = 2,
                                           .timeline_points = 5};
            cm_analysis *analysis = cm_engine_analyze(engine, &options, error, sizeof error);
            for (size_t d = 0; analysis != NULL && window == 0 && d < analysis->device_count; d++) {
                int64_t sum = 0;
                for (size_t c = 0; c < analysis->device[d].contributor_count; c++)
                    sum += analysis->device[d].contributors[c].bytes;
                if (sum != analysis->device[d].peak)
                    return 1;
            }
            for (size_t l = 0; analysis != NULL && l < analysis->ledger_count; l++) {
                const cm_ledger *g = &analysis->ledgers[l];
                int64_t sum = g->tensors + g->rounding + g->cached + g->pool_slack + g->residual +
                              g->driver_rounding;
                const int64_t beside[] = {g->context, g->others, g->host, g->cache};
                for (size_t b = 0; b < sizeof beside / sizeof *beside; b++)
                    sum += beside[b] > 0 ? beside[b] : 0;
                for (size_t d = 0; d < g->line_count; d++)
                    sum += g->line[d].bytes;
                if (sum != g->used)
                    return 2;
            }
            cm_analysis_free(analysis);
            if (cm_engine_extract(engine, "extracted.cmem", window, "torch", "a title", error,
                                  sizeof error))
                unlink("extracted.cmem");
        }
        cm_engine_free(engine);
        cm_reader_close(reader);
    }
    printf("%d traces\n", argc - 1);
    return 0;
}
