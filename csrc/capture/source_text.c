#define _GNU_SOURCE
#include "source_text.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "../base/library.h"
#include "../trace/defs.h"
#include "../trace/lines.h"
#include "../base/event.h"
#include "source_file.h"
#include "source_line.h"

enum {
    SHARE_OF_TRACE = 32,
    STACKS_MAX = 1 << 18, /* followed; as many as frames/intern.c remembers */
    ASKED_MAX = 1 << 12,
    KEPT_FILE_MAX = 512 << 10, /* of the program's own */
    KEPT_MAX = 4 << 20,
    READ_AT_ONCE = 4 << 20,
    JOBS_MAX = 64,
    PYC_HEADER = 16
};

typedef enum source_state {
    NEW,
    READABLE, /* as in `is`, and as it was compiled */
    ASKED,    /* no file has it: Python may */
    UNKNOWN
} source_state;

typedef struct source {
    const char *name; /* of the definitions */
    char *path;       /* the same, absolute */
    cm_source_identity is;
    source_state state;
    uint32_t codes;  /* how many were defined when it last was READABLE */
    bool changed;    /* since: only kept bytes count */
    bool recompiled; /* and that was compiled, here or elsewhere: later codes may be of it */
    bool young;      /* changed since the process began: known from the compiled file */
    char encoding[CM_SOURCE_ENCODING]; /* "" not known yet */
    uint8_t *kept;                     /* its bytes, or NULL */
    size_t text;                       /* bytes of it that the trace has */
    uint8_t *bytes;                    /* during a turn */
} source;

typedef struct want {
    uint32_t source, code;
    cm_position at;
} want;

typedef struct answered {
    uint32_t code, line, length;
    char text[CM_SOURCE_LINE_MAX];
} answered;

static struct {
    cm_defs *defs; /* NULL: nothing is followed (any more) */
    cm_lines *lines;
    uint32_t stacks;       /* seen */
    cm_idmap by_name, had; /* address of the name -> source; code and line */
    source *source;
    size_t sources, source_capacity;
    want *want;
    size_t wants, want_capacity, next; /* next: those before it are done */
    size_t total, total_max, kept;
    bool full;
    char folder[PATH_MAX], cache_tag[64];
} follow;

static int64_t process_began_ns; /* of this program: a forked child has its parent's modules */
static _Atomic uint64_t memory;

/* Questions to Python and its answers. A leaf: its holder takes no other mutex. */
static struct {
    pthread_mutex_t mutex;
    uint32_t capture; /* codes count from 1 in each */
    cm_asked *asked;
    size_t count, capacity;
    answered *answered;
    size_t answers, answer_capacity;
} exchange = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool asks;

/* --- begin and end -------------------------------------------------------------------------- */

static void free_asked(void)
{
    for (size_t i = 0; i < exchange.count; i++) {
        free(exchange.asked[i].file);
        free(exchange.asked[i].bytes);
    }
    free(exchange.asked);
    free(exchange.answered);
    exchange.asked = NULL;
    exchange.answered = NULL;
    exchange.count = exchange.capacity = exchange.answers = exchange.answer_capacity = 0;
    atomic_store(&asks, false);
}

static void stop_following(void)
{
    for (size_t i = 0; i < follow.sources; i++) {
        free(follow.source[i].path);
        free(follow.source[i].kept);
    }
    free(follow.source);
    free(follow.want);
    cm_idmap_clear(&follow.by_name);
    cm_idmap_clear(&follow.had);
    cm_lines_free(follow.lines);
    cm_defs_free(follow.defs);
    memset(&follow, 0, sizeof follow);
    atomic_store(&memory, 0);
}

void cm_sourcetext_begin(uint64_t max_size, const char *cache_tag, int64_t began_ns)
{
    cm_sourcetext_end();
    if (process_began_ns == 0)
        process_began_ns = began_ns;
    follow.total_max = CM_SOURCE_ALL_MAX;
    if (max_size / SHARE_OF_TRACE < follow.total_max)
        follow.total_max = (size_t)(max_size / SHARE_OF_TRACE);
    if (getcwd(follow.folder, sizeof follow.folder) == NULL)
        follow.folder[0] = '\0';
    snprintf(follow.cache_tag, sizeof follow.cache_tag, "%s", cache_tag != NULL ? cache_tag : "");
    follow.defs = cm_defs_new();
    follow.lines = cm_lines_new();
    if (follow.defs == NULL || follow.lines == NULL)
        stop_following();
}

void cm_sourcetext_end(void)
{
    stop_following();
    pthread_mutex_lock(&exchange.mutex);
    exchange.capture++;
    free_asked();
    pthread_mutex_unlock(&exchange.mutex);
}

void cm_sourcetext_forget(void)
{
    /* The parent's memory is not freed: its collector may have been inside the allocator. */
    memset(&follow, 0, sizeof follow);
    uint32_t capture = exchange.capture;
    memset(&exchange, 0, sizeof exchange);
    pthread_mutex_init(&exchange.mutex, NULL);
    exchange.capture = capture + 1;
    atomic_store(&asks, false);
    atomic_store(&memory, 0);
}

uint64_t cm_sourcetext_memory(void)
{
    return atomic_load(&memory);
}

/* --- what is wanted ------------------------------------------------------------------------- */

static bool find_source(const char *name, uint32_t *number)
{
    uint64_t key = (uint64_t)(uintptr_t)name;
    if (cm_idmap_get(&follow.by_name, key, number))
        return true;
    if (!cm_grow((void **)&follow.source, &follow.source_capacity, follow.sources + 1,
                 sizeof *follow.source) ||
        !cm_idmap_put(&follow.by_name, key, (uint32_t)follow.sources))
        return false;
    follow.source[follow.sources] = (source){.name = name};
    *number = (uint32_t)follow.sources++;
    return true;
}

static bool want_line(const cm_stack_def *stack)
{
    const cm_code_def *code = cm_defs_code(follow.defs, stack->code);
    want w = {.code = stack->code};
    uint32_t there;

    if (code == NULL ||
        !cm_linetable_find(code->line_table, code->line_table_length, code->first_line,
                           stack->offset, &w.at) ||
        w.at.line <= 0)
        return true;
    uint64_t key = (uint64_t)w.code << 32 | (uint32_t)w.at.line;
    if (cm_idmap_get(&follow.had, key, &there))
        return true;
    if (!cm_idmap_put(&follow.had, key, 0) || !find_source(code->file, &w.source))
        return false;
    if (!cm_grow((void **)&follow.want, &follow.want_capacity, follow.wants + 1,
                 sizeof *follow.want))
        return false;
    follow.want[follow.wants++] = w;
    return true;
}

void cm_sourcetext_add(const void *records, size_t length)
{
    if (follow.defs == NULL || length == 0)
        return;
    bool fine = cm_defs_add(follow.defs, records, length) == NULL;
    uint32_t count = cm_defs_stack_count(follow.defs);
    for (; fine && follow.stacks < count; follow.stacks++)
        fine = want_line(cm_defs_stack(follow.defs, CM_STACK_FIRST + follow.stacks));
    if (!fine || count > STACKS_MAX)
        stop_following(); /* later lines have no text */
}

/* --- which file is what was compiled -------------------------------------------------------- */

static bool find_compiled(const char *path, char out[PATH_MAX])
{
    const char *name = strrchr(path, '/'), *end = strrchr(path, '.');
    if (follow.cache_tag[0] == '\0' || name == NULL || end == NULL || end < name ||
        strcmp(end, ".py") != 0)
        return false;
    return snprintf(out, PATH_MAX, "%.*s/__pycache__%.*s.%s.pyc", (int)(name - path), path,
                    (int)(end - name), name, follow.cache_tag) < PATH_MAX;
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* magic, flags (0: by the source's time), time, size */
static bool was_compiled_from(const uint8_t header[PYC_HEADER], const cm_source_identity *is)
{
    return u32_at(header + 4) == 0 &&
           u32_at(header + 8) == (uint32_t)(is->modified_ns / 1000000000) &&
           u32_at(header + 12) == (uint32_t)is->bytes;
}

/* Whether Python's compiled file is of the source as it is now. */
static bool is_compiled(const char *path, const cm_source_identity *is)
{
    uint8_t header[PYC_HEADER];
    char compiled[PATH_MAX];
    cm_source_job job = {.path = compiled, .bytes = header, .length = sizeof header};
    if (!find_compiled(path, compiled) || cm_source_stat(compiled, &job.is) != CM_SOURCE_FILE)
        return false;
    cm_source_read(&job, 1);
    return job.done && was_compiled_from(header, is);
}

static bool make_path(source *s)
{
    if (s->path != NULL)
        return true;
    if (s->name[0] == '/')
        s->path = strdup(s->name);
    else if (asprintf(&s->path, "%s/%s", follow.folder, s->name) < 0)
        s->path = NULL;
    return s->path != NULL;
}

static source_state check_first(source *s)
{
    if (s->name[0] == '<')
        return ASKED;
    if (!make_path(s))
        return UNKNOWN;
    cm_source_found found = cm_source_stat(s->path, &s->is);
    if (found == CM_SOURCE_MISSING)
        return ASKED;
    if (found != CM_SOURCE_FILE || s->is.bytes == 0 || s->is.bytes > CM_SOURCE_READ_MAX)
        return UNKNOWN;
    s->young = s->is.modified_ns > process_began_ns || s->is.changed_ns > process_began_ns;
    return !s->young || cm_library_is_generated(s->path) || is_compiled(s->path, &s->is) ? READABLE
                                                                                         : UNKNOWN;
}

static void check_again(source *s)
{
    cm_source_identity is;
    if (s->changed && s->recompiled)
        return;
    cm_source_found found = cm_source_stat(s->path, &is);
    if (!s->changed && found == CM_SOURCE_FILE && cm_source_same(&is, &s->is)) {
        s->codes = cm_defs_code_count(follow.defs);
        return;
    }
    s->changed = true;
    s->recompiled = found == CM_SOURCE_FILE && is_compiled(s->path, &is);
}

static void check(source *s)
{
    if (s->state == READABLE) {
        check_again(s);
    } else if (s->state == NEW) {
        s->state = check_first(s);
        s->codes = cm_defs_code_count(follow.defs);
    }
}

/* Whether this code was compiled from the file as it is or as it is kept. */
static bool is_of(const source *s, const want *w)
{
    return w->code <= s->codes || (s->changed && !s->recompiled);
}

/* --- lines ---------------------------------------------------------------------------------- */

static bool put(uint32_t code, uint32_t line, size_t *of_file, const char *text, size_t length)
{
    if (of_file != NULL && *of_file + length > CM_SOURCE_FILE_MAX)
        return true;
    if (follow.total + length > follow.total_max) {
        follow.full = true;
        return true;
    }
    size_t added = cm_lines_add(follow.lines, code, line, text, length);
    if (of_file != NULL)
        *of_file += length;
    follow.total += added;
    return added != 0;
}

static void ask(const want *w, const uint8_t *bytes, size_t length, const char *encoding)
{
    const source *s = &follow.source[w->source];
    cm_asked a = {.code = w->code, .at = w->at, .file = strdup(s->name)};
    a.ambiguous = strcmp(s->name, "<string>") == 0; /* -c, and any text given to exec */
    if (bytes != NULL) {
        a.length = length <= CM_SOURCE_LINE_MAX ? length : CM_SOURCE_LINE_MAX;
        a.bytes = malloc(a.length + 1);
        snprintf(a.encoding, sizeof a.encoding, "%s", encoding);
        if (a.bytes != NULL)
            memcpy(a.bytes, bytes, a.length);
    }
    pthread_mutex_lock(&exchange.mutex);
    bool room = exchange.count < ASKED_MAX && a.file != NULL &&
                (bytes == NULL || a.bytes != NULL) &&
                cm_grow((void **)&exchange.asked, &exchange.capacity, exchange.count + 1,
                        sizeof *exchange.asked);
    if (room) {
        a.capture = exchange.capture;
        exchange.asked[exchange.count++] = a;
        atomic_store(&asks, true);
    }
    pthread_mutex_unlock(&exchange.mutex);
    if (!room) {
        free(a.file);
        free(a.bytes);
    }
}

static bool take_line(source *s, const want *w, cm_source_lines *lines)
{
    char text[CM_SOURCE_LINE_MAX];
    size_t length;
    const uint8_t *bytes = cm_source_lines_find(lines, (uint32_t)w->at.line, &length);

    if (bytes == NULL || !is_of(s, w))
        return true;
    if (!cm_source_is_utf8(s->encoding)) {
        if (!s->young && !s->changed) /* columns count bytes of UTF-8 */
            ask(w, bytes, length, s->encoding);
        return true;
    }
    if ((s->young || s->changed) && !cm_source_fits(bytes, length, &w->at))
        return true;
    length = cm_source_copy(bytes, length, text, sizeof text);
    return put(w->code, (uint32_t)w->at.line, &s->text, text, length);
}

static int by_source_and_line(const void *left, const void *right)
{
    const want *a = left, *b = right;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return a->at.line < b->at.line ? -1 : a->at.line > b->at.line;
}

/* Takes the lines of one source, in order. */
static bool take_lines(source *s, const want *w, size_t count)
{
    const uint8_t *bytes = s->bytes != NULL ? s->bytes : s->kept;
    bool fine = true;

    if (s->state == ASKED) {
        for (size_t i = 0; i < count; i++)
            ask(&w[i], NULL, 0, "");
        return true;
    }
    if (s->state != READABLE || bytes == NULL)
        return true;
    if (s->encoding[0] == '\0')
        cm_source_encoding(bytes, (size_t)s->is.bytes, s->encoding);
    cm_source_lines lines = cm_source_lines_of(bytes, (size_t)s->is.bytes);
    for (size_t i = 0; fine && i < count; i++)
        fine = take_line(s, &w[i], &lines);
    return fine;
}

/* --- one turn ------------------------------------------------------------------------------- */

/* Keeps its bytes in memory, if there is room. Installed packages and Python itself are not edited
 * while a program runs. */
static void keep(source *s)
{
    size_t length = (size_t)s->is.bytes;
    if (s->bytes == NULL || cm_library_inside(s->path) != NULL || length > KEPT_FILE_MAX ||
        follow.kept + length > KEPT_MAX)
        return;
    s->kept = s->bytes;
    s->bytes = NULL;
    follow.kept += length;
}

/* One turn: sorts the wants and takes what a moment is enough for. */
static bool take_turn(size_t count)
{
    cm_source_job job[JOBS_MAX];
    uint32_t of[JOBS_MAX];
    size_t jobs = 0, bytes = 0, i = 0, end;
    want *w = follow.want + follow.next;
    bool fine = true;

    cm_sort(w, count, sizeof *w, by_source_and_line);
    for (; i < count && jobs < JOBS_MAX && bytes < READ_AT_ONCE; i = end) {
        source *s = &follow.source[w[i].source];
        for (end = i + 1; end < count && w[end].source == w[i].source; end++)
            ;
        check(s);
        if (s->state != READABLE || s->kept != NULL || s->changed)
            continue;
        size_t length = (size_t)s->is.bytes;
        s->bytes = malloc(length);
        if (s->bytes == NULL)
            continue;
        of[jobs] = w[i].source;
        job[jobs++] = (cm_source_job){s->path, s->is, s->bytes, length, false};
        bytes += length;
    }
    size_t done = i;
    cm_source_read(job, jobs);
    for (size_t j = 0; j < jobs; j++) {
        source *s = &follow.source[of[j]];
        if (!job[j].done) { /* it was removed or changed meanwhile */
            free(s->bytes);
            s->bytes = NULL;
        }
        keep(s);
    }
    for (i = 0; fine && i < done; i = end) {
        source *s = &follow.source[w[i].source];
        for (end = i + 1; end < done && w[end].source == w[i].source; end++)
            ;
        fine = take_lines(s, &w[i], end - i);
    }
    for (size_t j = 0; j < jobs; j++) {
        free(follow.source[of[j]].bytes);
        follow.source[of[j]].bytes = NULL;
    }
    follow.next += done;
    return fine;
}

static bool take_answers(void)
{
    pthread_mutex_lock(&exchange.mutex);
    answered *list = exchange.answered;
    size_t count = exchange.answers;
    exchange.answered = NULL;
    exchange.answers = exchange.answer_capacity = 0;
    pthread_mutex_unlock(&exchange.mutex);
    bool fine = true;
    for (size_t i = 0; fine && i < count; i++)
        fine = put(list[i].code, list[i].line, NULL, list[i].text, list[i].length);
    free(list);
    return fine;
}

bool cm_sourcetext_next(bool all, const void **chunk, size_t *length)
{
    if (follow.defs == NULL)
        return false;
    bool fine = take_answers();
    while (fine && follow.next < follow.wants) {
        fine = take_turn(follow.wants - follow.next);
        if (!all)
            break;
    }
    if (follow.next == follow.wants)
        follow.next = follow.wants = 0;
    atomic_store(&memory, follow.kept + cm_defs_bytes(follow.defs));
    bool some = cm_lines_finish(follow.lines, chunk, length);
    if ((!fine || follow.full) && !some)
        stop_following(); /* later lines have no text */
    return some;
}

/* --- Python's part -------------------------------------------------------------------------- */

bool cm_sourcetext_asks(void)
{
    return atomic_load(&asks);
}

size_t cm_sourcetext_take_asked(cm_asked **list)
{
    pthread_mutex_lock(&exchange.mutex);
    size_t count = exchange.count;
    *list = exchange.asked;
    exchange.asked = NULL;
    exchange.count = exchange.capacity = 0;
    atomic_store(&asks, false);
    pthread_mutex_unlock(&exchange.mutex);
    return count;
}

bool cm_sourcetext_is_answered(void)
{
    pthread_mutex_lock(&exchange.mutex);
    bool some = exchange.answers > 0;
    pthread_mutex_unlock(&exchange.mutex);
    return some;
}

bool cm_sourcetext_answer(const cm_asked *asked, const char *text, size_t length)
{
    cm_source_lines lines = cm_source_lines_of((const uint8_t *)text, length);
    const uint8_t *line = cm_source_lines_find(&lines, 1, &length);
    bool fine = true;

    if (line == NULL || asked->at.line <= 0 ||
        (asked->ambiguous && !cm_source_fits(line, length, &asked->at)))
        return true;
    pthread_mutex_lock(&exchange.mutex);
    if (asked->capture == exchange.capture && exchange.answers < ASKED_MAX) {
        fine = cm_grow((void **)&exchange.answered, &exchange.answer_capacity, exchange.answers + 1,
                       sizeof *exchange.answered);
        if (fine) {
            answered *a = &exchange.answered[exchange.answers++];
            *a = (answered){.code = asked->code, .line = (uint32_t)asked->at.line};
            a->length = (uint32_t)cm_source_copy(line, length, a->text, sizeof a->text);
        }
    }
    pthread_mutex_unlock(&exchange.mutex);
    return fine;
}
