/* Everything that reads a trace, over one input: the reader (two passes, definitions, line tables,
 * the ring file's remainder), where a trace ends, the analysis with all its parts, windows cut out,
 * copies with other text, and the sweep that brings a ring home. Compiled with libFuzzer (make
 * fuzz) or with driver.c. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../../csrc/analysis/analysis.h"
#include "../../../csrc/analysis/follow.h"
#include "../../../csrc/recover/recover.h"
#include "../../../csrc/trace/format.h"
#include "../../../csrc/trace/rewrite.h"
#include "../../../csrc/trace/tree_chunk.h"
#include "input.h"
#include "stream.h"

bool fuzz_without_memory;

#define EXTRACTED "extracted.cmem"
#define REWRITTEN "rewritten.cmem"

__attribute__((noreturn)) static void broken(const char *promise)
{
    fprintf(stderr, "broken promise: %s\n", promise);
    abort();
}

static void must_say(const char *error, const char *what)
{
    if (error[0] == '\0')
        broken(what);
}

/* --- the files ------------------------------------------------------------------------------ */

void fuzz_enter_folder(void)
{
    static bool entered;
    char made[] = "/tmp/cuptimem-fuzz-XXXXXX";
    const char *folder = getenv("FUZZ_FOLDER");

    if (entered)
        return;
    entered = true;
    fuzz_empty_tables();
    if (folder == NULL)
        folder = mkdtemp(made);
    if (folder == NULL || chdir(folder) != 0)
        broken("there is a folder to work in");
    /* No home: what a sweep cannot bring home is removed, so that no input depends on another. */
    if (setenv("XDG_STATE_HOME", "/proc/none", 1) != 0)
        broken("the environment can be changed");
}

static void put_file(const char *name, fuzz_part part)
{
    if (part.at == NULL) {
        unlink(name);
        return;
    }
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || (size_t)write(fd, part.at, part.length) != part.length || close(fd) != 0)
        broken("files can be written");
}

static void put_ring(fuzz_part part)
{
    unlink(FUZZ_RING); /* another inode: nothing of the last input is in it */
    if (part.at == NULL || part.length < 4)
        return;
    uint32_t size = fuzz_u32(part.at) % (FUZZ_RING_MAX + 1);
    int fd = open(FUZZ_RING, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0)
        broken("files can be written");
    for (size_t at = 4; part.length - at >= FUZZ_RUN_HEAD;) {
        uint32_t offset = fuzz_u32(part.at + at) % (size + 1);
        size_t length = (size_t)part.at[at + 4] | (size_t)part.at[at + 5] << 8;
        at += FUZZ_RUN_HEAD;
        if (length > part.length - at)
            length = part.length - at;
        size_t fits = length < size - offset ? length : size - offset;
        if (fits > 0 && pwrite(fd, part.at + at, fits, (off_t)offset) != (ssize_t)fits)
            broken("files can be written");
        at += length;
    }
    close(fd);
}

/* --- the reader ----------------------------------------------------------------------------- */

typedef struct pass {
    uint64_t count, sum;
    int last;
} pass;

static void look_at_definitions(cm_reader *reader, uint32_t stack, pass *p)
{
    cm_frame frame;

    for (int depth = 0; cm_reader_stack_frame(reader, stack, &frame); depth++) {
        p->sum += (uint64_t)frame.line * 3 + (uint64_t)frame.column + frame.module;
        p->sum += frame.file != NULL ? strlen(frame.file) + strlen(frame.function) : 0;
        p->sum += frame.module_class != NULL ? strlen(frame.module_class) : 0;
        /* Not in the sum: a second pass knows texts that come behind the event. */
        if (frame.text != NULL && strlen(frame.text) > CM_CHUNK_MAX)
            broken("a source line is longer than a chunk");
        uint32_t parent = cm_reader_stack_parent(reader, stack);
        if (parent >= stack)
            broken("a stack's parent is older than the stack");
        stack = parent;
        if (depth > 64)
            break;
    }
}

static pass read_once(cm_reader *reader)
{
    pass p = {0};
    cm_record record;

    while ((p.last = cm_reader_next(reader, &record)) == 1) {
        const cm_event *e = &record.event;
        p.sum += record.time_ns ^ e->time ^ e->address ^ (uint64_t)e->size ^ e->stack;
        p.sum = p.sum * 31 + e->kind + e->flags + e->device_type + record.thread;
        if (p.count++ % 16 == 0) { /* may be known in a second pass only: not part of the sum */
            pass aside = {0};
            look_at_definitions(reader, e->stack, &aside);
            const char *name = cm_reader_name(reader, e->stack);
            aside.sum += name != NULL ? strlen(name) : 0;
        }
    }
    if (p.last < 0)
        must_say(cm_reader_error(reader), "a damaged trace says why");
    if (cm_reader_get_state(reader) == CM_TRACE_CUT)
        must_say(cm_reader_error(reader), "a trace without its tail says why, in every pass");
    double progress = cm_reader_progress(reader);
    if (!(progress >= 0 && progress <= 1))
        broken("progress lies between 0 and 1");
    for (uint32_t id = 0; id < 8; id++)
        look_at_definitions(reader, cm_reader_stack_count(reader) + id - 4, &p);
    for (size_t i = 0; i <= cm_reader_meta_count(reader); i++) {
        const char *key, *value;
        cm_reader_meta_at(reader, i, &key, &value);
        if ((key == NULL) != (i == cm_reader_meta_count(reader)))
            broken("meta has its count of entries");
        if (key != NULL && cm_reader_meta(reader, key) == NULL)
            broken("meta is found by its key");
    }
    p.sum += cm_reader_lost_events(reader) + cm_reader_lost_stacks(reader) +
             cm_reader_start_realtime_ns(reader) + strlen(cm_reader_end_reason(reader)) +
             (uint64_t)cm_reader_get_state(reader);
    return p;
}

/* What an input gave with enough memory: without, it gives that or a word that it did not. */
static pass enough;

static void check_without_memory(const cm_reader *reader, pass p)
{
    if (p.last == 0 && cm_reader_error(reader)[0] == '\0' &&
        (p.count != enough.count || p.sum != enough.sum))
        broken("what could not be read for want of memory is told");
}

static void read_twice(cm_reader *reader, bool first_time)
{
    pass first = read_once(reader);
    /* After a sweep, which may have been impossible, nothing is known. */
    if (first_time && fuzz_without_memory)
        check_without_memory(reader, first);
    else if (first_time)
        enough = first;
    cm_reader_rewind(reader);
    pass second = read_once(reader);
    if (!fuzz_without_memory &&
        (first.count != second.count || first.last != second.last || first.sum != second.sum))
        broken("a second pass gives what the first gave");
}

/* --- what reads behind it -------------------------------------------------------------------- */

static uint64_t sum_of_table(const cm_table *table)
{
    uint64_t sum = (uint64_t)table->rest_bytes;
    for (size_t i = 0; i < table->contributor_count; i++)
        sum += (uint64_t)table->contributors[i].bytes;
    return sum;
}

static void check_tables(const cm_device_report *device, uint32_t tables)
{
    const int64_t totals[] = {[CM_TABLE_START] = device->start,
                              [CM_TABLE_END] = device->end,
                              [CM_TABLE_ABOVE] = device->above,
                              [CM_TABLE_KEPT] = device->kept,
                              [CM_TABLE_ALLOCATED] = device->allocated};
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++)
        if (tables & CM_TABLE(i) && sum_of_table(&device->table[i]) != (uint64_t)totals[i])
            broken("a table sums to its device's total");
    if (device->above < device->kept || device->above > device->peak)
        broken("the peak above the start is between what is kept and the peak");
    if (tables & CM_TABLE(CM_TABLE_TEMPORARY) &&
        device->table[CM_TABLE_TEMPORARY].rest_bytes != device->table[CM_TABLE_STEPPED].rest_bytes)
        broken("what is only counted in steps was freed in them");
}

static void check_chart(const cm_chart *chart, const cm_chart_span *asked)
{
    if (chart->interval_count > asked->intervals || chart->entry_count > asked->entries ||
        chart->block_count > 2 * (size_t)asked->blocks)
        broken("a chart is bounded");
    for (size_t i = 0; i < chart->entry_count; i++)
        if (chart->entry[i].contributor >= chart->contributor_count ||
            chart->entry[i].interval >= chart->interval_count)
            broken("an entry of a chart names a contributor and an interval");
    for (size_t i = 0; i < chart->block_count; i++)
        if (chart->block[i].contributor >= chart->contributor_count)
            broken("a block of a chart names its contributor");
}

static void check_analysis(const cm_analysis *analysis, const cm_analysis_options *options)
{
    for (size_t i = 0; i < analysis->chart_count; i++)
        check_chart(&analysis->charts[i], &options->charts[analysis->charts[i].span]);
    bool of_step = options->of_step;
    for (size_t d = 0; d < analysis->device_count; d++) {
        const cm_device_report *device = &analysis->device[d];
        uint64_t sum = 0; /* wraps, as hostile sizes do */
        for (size_t c = 0; c < device->contributor_count; c++)
            sum += (uint64_t)device->contributors[c].bytes;
        if (!of_step && sum != (uint64_t)device->peak)
            broken("the contributors of a peak sum to it");
        if (!of_step)
            check_tables(device, options->tables);
        if (device->oom_count > CM_OOMS_KEPT || device->name[sizeof device->name - 1] != '\0')
            broken("a device report is bounded");
    }
    for (size_t i = 0; i < analysis->step_count; i++) {
        const cm_step_report *step = &analysis->step[i];
        uint64_t sum = (uint64_t)step->rest_bytes;
        for (size_t c = 0; c < step->contributor_count; c++)
            sum += (uint64_t)analysis->step_contributors[step->first_contributor + c].bytes;
        if (step->device >= analysis->device_count || sum != (uint64_t)step->peak)
            broken("a step names its device, and its contributors sum to its peak");
    }
    for (size_t i = 0; i < analysis->leak_count + analysis->suspect_count; i++) {
        bool sure = i < analysis->leak_count;
        const cm_leak *leak =
            sure ? &analysis->leaks[i] : &analysis->suspects[i - analysis->leak_count];
        uint64_t bytes = 0, count = 0;
        for (size_t k = 0; k < leak->part_count; k++) {
            bytes += (uint64_t)analysis->leak_parts[leak->first_part + k].bytes;
            count += analysis->leak_parts[leak->first_part + k].count;
        }
        if (leak->part_count > 0 && (bytes != (uint64_t)leak->bytes || count != leak->count))
            broken("the parts of a leak sum to it");
        bool placed = leak->kind == CM_LEAK_NODES || leak->device < analysis->device_count;
        if (!placed || sure != (leak->reason == CM_SUSPECT_NOT))
            broken("a leak names a device, a suspect its reason");
    }
    for (size_t i = 0; i < analysis->ledger_count; i++) {
        const cm_ledger *l = &analysis->ledgers[i];
        int64_t sum =
            l->tensors + l->rounding + l->cached + l->pool_slack + l->residual + l->driver_rounding;
        sum += (l->context > 0 ? l->context : 0) + (l->others > 0 ? l->others : 0);
        for (size_t k = 0; k < l->line_count; k++)
            sum += l->line[k].bytes;
        if (sum != l->used)
            broken("a ledger sums to what is used");
    }
}

/* What an analysis found, as a number; and those of this input with enough memory. */
static uint64_t digests[2];

static uint64_t digest(const cm_analysis *analysis)
{
    uint64_t sum = analysis->events;

    for (size_t d = 0; d < analysis->device_count; d++) {
        const cm_device_report *device = &analysis->device[d];
        sum = sum * 31 + (uint64_t)device->peak + device->allocations + device->contributor_count;
        sum = sum * 31 + (uint64_t)device->end + device->timeline_count + device->oom_count;
    }
    for (size_t i = 0; i < analysis->ledger_count; i++)
        sum = sum * 31 + (uint64_t)analysis->ledgers[i].residual + analysis->ledgers[i].line_count;
    sum = sum * 31 + analysis->driver.allocations + analysis->driver.record_check.matched;
    sum = sum * 31 + analysis->fragmentation_count + analysis->kernels.ran + analysis->curve_count;
    sum = sum * 31 + analysis->step_count + analysis->survivor_count + analysis->rss_count;
    sum = sum * 31 + analysis->survivor_end_count + analysis->live_nodes + analysis->leak_count;
    return sum * 31 + analysis->suspect_count + (uint64_t)analysis->backward.resolved;
}

static void compare_analysis(const cm_analysis *analysis, uint64_t window)
{
    uint64_t now = digest(analysis);

    if (!fuzz_without_memory)
        digests[window] = now;
    else if (analysis->reason[0] == '\0' && now != digests[window])
        broken("what could not be analyzed for want of memory is told");
}

static bool stop_half_way(double share, void *context)
{
    (void)context;
    return share < 0.5;
}

static void analyze(cm_reader *reader, bool compared, cm_analysis_options options)
{
    char error[160] = "";
    cm_analysis *analysis = cm_analyze(reader, &options, error, sizeof error);

    if (analysis != NULL) {
        check_analysis(analysis, &options);
        if (compared)
            compare_analysis(analysis, options.window);
    } else if (options.progress == NULL) {
        must_say(error, "an analysis that failed says why");
    }
    cm_analysis_free(analysis);
}

static void extract(cm_engine *engine, uint64_t window)
{
    char error[160] = "";
    struct stat st;

    if (!cm_engine_extract(engine, EXTRACTED, window, "a,b.c", "", error, sizeof error)) {
        must_say(error, "a window that could not be cut out says why");
        if (stat(EXTRACTED, &st) == 0)
            broken("no file is left of a window that could not be cut out");
        return;
    }
    cm_reader *cut = cm_reader_open(EXTRACTED, error, sizeof error);
    if (cut == NULL && !fuzz_without_memory)
        broken("a window's trace opens");
    if (cut != NULL) {
        pass p = read_once(cut);
        if (!fuzz_without_memory && p.last < 0)
            broken("a window's trace is sound");
        analyze(cut, false, (cm_analysis_options){.timeline_points = 3});
    }
    cm_reader_close(cut);
    unlink(EXTRACTED);
}

/* The digest of a window; 0 where it could not be had. */
static uint64_t digest_window(cm_engine *engine, uint64_t window)
{
    const cm_analysis_options options = {.window = window, .timeline_points = 5};
    char error[160] = "";
    cm_analysis *analysis = cm_engine_analyze(engine, &options, error, sizeof error);
    uint64_t found = analysis == NULL ? 0 : digest(analysis) | 1;

    if (analysis == NULL)
        must_say(error, "an analysis that failed says why");
    cm_analysis_free(analysis);
    return found;
}

/* One window after the other, cut out before it is analysed and not, says what each says alone. */
static void read_windows(cm_reader *reader)
{
    enum { WINDOWS = 3 };
    static const uint64_t order[] = {1, 2, 0, 2, 1};
    uint64_t alone[WINDOWS];
    cm_engine *engine;

    for (uint64_t window = 0; window < WINDOWS; window++) {
        engine = cm_engine_new(reader);
        alone[window] = engine == NULL ? 0 : digest_window(engine, window);
        cm_engine_free(engine);
    }
    engine = cm_engine_new(reader);
    for (size_t i = 0; engine != NULL && i < sizeof order / sizeof order[0]; i++) {
        if (i % 2 == 0)
            extract(engine, order[i]);
        cm_reader_close_file(reader); /* as between two calls from Python */
        if (!cm_reader_reopen(reader))
            broken("a file that is still there is taken up");
        cm_engine_follow(engine);
        uint64_t now = digest_window(engine, order[i]);
        if (!fuzz_without_memory && now != alone[order[i]])
            broken("a window reads otherwise behind another one");
    }
    cm_engine_free(engine);
}

typedef struct replacement {
    bool other;      /* text, else the same */
    uint64_t before; /* failure; 0: none */
} replacement;

static cm_rewritten replace_text(void *context, cm_text kind, const char *key, size_t key_length,
                                 const char **text, size_t *length)
{
    static const char other[] = "/home/somewhere/else/a_longer_name.py";
    replacement *r = context;
    uint64_t sum = *length;

    for (size_t i = 0; i < *length; i++) /* all of it is readable */
        sum += (uint8_t)(*text)[i];
    if (r->before > 0 && --r->before == 0)
        return CM_REWRITTEN_FAILED;
    if (!r->other)
        return CM_REWRITTEN_TEXT;
    /* A copy that names no ring finds none. */
    if (kind == CM_TEXT_META && key_length >= 4 && memcmp(key, "ring", 4) == 0)
        return CM_REWRITTEN_DROP;
    if (kind != CM_TEXT_META && sum % 2 == 0) {
        *text = other;
        *length = sum % sizeof other;
    }
    return CM_REWRITTEN_TEXT;
}

static uint64_t count_events(const char *path)
{
    char error[96] = "";
    cm_reader *reader = cm_reader_open(path, error, sizeof error);
    cm_record record;
    uint64_t count = 0;
    int last;

    if (reader == NULL && !fuzz_without_memory)
        broken("a copy opens");
    if (reader == NULL)
        return 0;
    while ((last = cm_reader_next(reader, &record)) == 1)
        count++;
    if (last < 0 && !fuzz_without_memory)
        broken("a copy is sound");
    cm_reader_close(reader);
    return count;
}

static void rewrite(replacement how, bool lines)
{
    char error[96] = "";
    bool fails = how.before > 0;
    const cm_rewriter rewriter = {.replace = replace_text, .context = &how, .lines = lines};
    cm_reader *reader = cm_reader_open(FUZZ_TRACE, error, sizeof error);
    struct stat st;

    if (reader == NULL) {
        must_say(error, "a refused trace says why");
        return;
    }
    bool fine = cm_rewrite(reader, REWRITTEN, &rewriter, error, sizeof error);
    if (!fine && !(fails && how.before == 0))
        must_say(error, "a trace that could not be copied says why");
    if (!fine && stat(REWRITTEN, &st) == 0)
        broken("no file is left of a copy that failed");
    if (fine) {
        uint64_t copied = count_events(REWRITTEN);
        if (!fuzz_without_memory && copied != count_events(FUZZ_TRACE))
            broken("a copy has every event");
    }
    cm_reader_close(reader);
    unlink(REWRITTEN);
}

static bool see_tree(void *context, const cm_process_tree *tree)
{
    if (tree->count > CM_TREE_PROCESSES || tree->files > CM_TREE_FILES + 1 ||
        tree->opens > CM_TREE_OPEN)
        broken("a tree sample has no more than its tables");
    for (uint32_t i = 0; i < tree->count; i++)
        if (memchr(tree->process[i].name, 0, CM_TREE_NAME) == NULL)
            broken("a process's name ends");
    return true;
}

static void read_trees(cm_reader *reader)
{
    static cm_process_tree tree;
    const char *wrong = cm_tree_read_all(reader, &tree, see_tree, NULL);

    if (wrong != NULL)
        must_say(wrong, "a damaged tree sample says so");
}

static void read_trace(bool thorough)
{
    char error[96] = ""; /* too short for some lines */
    cm_reader *reader = cm_reader_open(FUZZ_TRACE, error, sizeof error);

    if (reader == NULL) {
        must_say(error, "a refused trace says why");
        return;
    }
    read_twice(reader, thorough);
    read_trees(reader);
    analyze(reader, thorough, (cm_analysis_options){.tables = CM_TABLE(CM_TABLES) - 1});
    if (thorough) {
        static const cm_chart_span spans[] = {{0, UINT64_MAX, 9, 16, 4, ""},
                                              {1000, 1000000, 3, 2, 0, "cpu"}};
        analyze(reader, true,
                (cm_analysis_options){.window = 1,
                                      .charts = spans,
                                      .chart_count = 2,
                                      .of_step = true,
                                      .tables = CM_TABLE(CM_TABLES) - 1,
                                      .timeline_points = 5});
        analyze(reader, false,
                (cm_analysis_options){.of_step = true, .step = -1, .progress = stop_half_way});
        read_windows(reader);
        for (uint64_t window = 0; window < 2; window++) {
            const char *promise = fuzz_stream(reader, window);
            if (promise != NULL)
                broken(promise);
        }
    }
    cm_reader_close(reader);
}

static int64_t alive_of(const cm_follow *follow)
{
    const cm_amounts *live = cm_follow_live(follow);
    int64_t bytes = 0;
    for (size_t i = 0; i < live->capacity; i++)
        bytes += live->of[i].bytes;
    return bytes;
}

static bool follow_on(cm_follow *follow)
{
    char error[160] = "";
    size_t count, again = 0;
    cm_follow_got got;
    while ((got = cm_follow_read(follow, 1000, &count, error, sizeof error)) != CM_FOLLOW_AT_END &&
           got != CM_FOLLOW_FAILED)
        if (got == CM_FOLLOW_AGAIN && ++again > 3)
            broken("a file that does not change is read again once");
    if (got == CM_FOLLOW_FAILED) {
        must_say(error, "a follower that failed says why");
        return false;
    }
    int64_t bytes = alive_of(follow);
    const cm_replay *replay = cm_follow_replay(follow);
    for (size_t i = 0; i < replay->device_count; i++) {
        bytes -= replay->device[i].live;
        if (cm_follow_peak(follow, (uint16_t)i) < replay->device[i].live)
            broken("a peak is not below what is alive");
    }
    if (bytes != 0)
        broken("what is alive by origin sums to what is alive");
    return true;
}

/* A file that grows: its first half, then all of it. */
static void follow_growing(fuzz_part trace)
{
    char error[160] = "";
    put_file(FUZZ_TRACE, (fuzz_part){trace.at, trace.length / 2});
    cm_follow *follow = cm_follow_open(FUZZ_TRACE, NULL, error, sizeof error);
    bool goes_on = follow != NULL && follow_on(follow);
    put_file(FUZZ_TRACE, trace);
    if (goes_on)
        follow_on(follow);
    cm_follow_close(follow);
}

/* libFuzzer's own limit is wall time, which other programs on the machine use up. */
static void check_time(clock_t begun)
{
    const char *most = getenv("FUZZ_CPU_SECONDS");

    if (most != NULL && clock() - begun > strtol(most, NULL, 10) * CLOCKS_PER_SEC)
        broken("an input takes little time");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    clock_t begun = clock();
    fuzz_input input = fuzz_parse(data, size);
    cm_trace_end end;

    fuzz_enter_folder();
    put_file(FUZZ_TRACE, input.trace);
    put_file(FUZZ_SIDE, input.side);
    put_ring(input.ring);
    follow_growing(input.trace);
    if (cm_trace_end_read(FUZZ_TRACE, 0, &end))
        free(end.ring);
    read_trace(true);
    rewrite((replacement){.other = false}, true);
    rewrite((replacement){.other = true}, false);
    rewrite((replacement){.other = true, .before = 1 + size % 8}, true);
    if (input.ring.at != NULL) {
        cm_orphan_sweep(".");
        read_trace(false);
    }
    check_time(begun);
    return 0;
}
