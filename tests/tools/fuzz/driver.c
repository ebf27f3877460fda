/* The harness without libFuzzer: for gcc, for the tests, and for memory that runs out.
 *
 *   driver replay FILE...               each input once
 *   driver mutate SEED COUNT FILE...    COUNT mutations, of mutations too, always the same ones
 *   driver write FOLDER SEED COUNT FILE...
 *                                       mutations as files FOLDER/0, FOLDER/1, ..., which are not
 *                                       run; of one that the reader refuses no more are made
 *   driver oom MOST FILE...             each input again and again, the k-th allocation failing: at
 *                                       most MOST values of k an input, spread over all there are;
 *                                       linked with --wrap for malloc, calloc, realloc,
 *                                       aligned_alloc and strdup
 *   driver read FILE                    one pass over a trace: its events, state and end
 *
 * Whatever an input is, it takes at most BASE_BYTES and BYTES_PER_BYTE for each of its own bytes,
 * and CPU_SECONDS (docs/trace-format.md; with the sanitizers, and the harness reads it thirty
 * times).
 *
 * The input that is being run lies in `current` in the working folder. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "../../../csrc/trace/reader.h"
#include "blind.h"
#include "input.h"

enum { INPUTS = 4096, MOST_BYTES = 1 << 17 };
/* Besides what grows with an input: decoders, clocks, two copies of a ring, covers of 2^20 rings.
 */
enum { BASE_BYTES = 48 << 20, BYTES_PER_BYTE = 1000, CPU_SECONDS = 60 };

typedef struct input {
    uint8_t *bytes;
    size_t length;
} input;

__attribute__((noreturn)) static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(2);
}

/* --- memory that runs out --------------------------------------------------------------------- */

static struct {
    uint64_t calls, fails_at; /* 0: never */
    bool for_good;            /* every later one fails as well */
    size_t held, most;        /* bytes */
} memory;

static void *taken(void *block)
{
    memory.held += block == NULL ? 0 : malloc_usable_size(block);
    if (memory.held > memory.most)
        memory.most = memory.held;
    return block;
}

static bool fails(void)
{
    memory.calls++;
    return memory.fails_at != 0 &&
           (memory.calls == memory.fails_at || (memory.for_good && memory.calls > memory.fails_at));
}

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails() ? NULL : taken(__real_##name arguments);                                    \
    }

WRAP(void *, malloc, (size_t size), (size))
WRAP(void *, calloc, (size_t n, size_t size), (n, size))
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
WRAP(char *, strdup, (const char *text), (text))

void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size)
{
    size_t before = old == NULL ? 0 : malloc_usable_size(old);
    void *block = fails() ? NULL : __real_realloc(old, size);
    if (block != NULL)
        memory.held -= before;
    return taken(block);
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    memory.held -= block == NULL ? 0 : malloc_usable_size(block);
    __real_free(block);
}

/* --- inputs ----------------------------------------------------------------------------------- */

static input load(const char *path)
{
    FILE *file = fopen(path, "rb");
    input it = {malloc(MOST_BYTES), 0};

    if (file == NULL || it.bytes == NULL)
        die("cannot read an input");
    it.length = fread(it.bytes, 1, MOST_BYTES, file);
    fclose(file);
    return it;
}

static void run(const input *it)
{
    FILE *file = fopen("current", "wb");

    if (file == NULL || fwrite(it->bytes, 1, it->length, file) != it->length || fclose(file) != 0)
        die("cannot write");
    /* A copy of exactly its size: the sanitizer sees what lies behind. */
    uint8_t *copy = malloc(it->length + 1);
    if (copy == NULL)
        die("out of memory");
    memcpy(copy, it->bytes, it->length);
    size_t before = memory.held;
    memory.most = before;
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){.it_value.tv_sec = CPU_SECONDS}, NULL);
    LLVMFuzzerTestOneInput(copy, it->length);
    if (memory.most - before > BASE_BYTES + it->length * BYTES_PER_BYTE)
        die("broken promise: memory is bounded by the bytes of the input");
    free(copy);
}

static void too_long(int signal)
{
    static const char said[] = "broken promise: time is bounded by the bytes of the input\n";
    (void)signal;
    _exit(write(STDERR_FILENO, said, sizeof said - 1) < 0 ? 3 : 2);
}

/* What libFuzzer does, roughly. */
/* --- modes ------------------------------------------------------------------------------------ */

static void save(const input *it, const char *folder, uint64_t number)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%llu", folder, (unsigned long long)number);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(it->bytes, 1, it->length, file) != it->length || fclose(file) != 0)
        die("cannot write");
}

/* Whether the trace of an input is read to its end. Mutations of one that is refused are, too. */
static bool is_read(const input *it)
{
    const fuzz_part trace = fuzz_parse(it->bytes, it->length).trace;
    char error[96];
    cm_record record;
    int last = 1;

    if (trace.at == NULL)
        return false;
    save(&(input){(uint8_t *)trace.at, trace.length}, ".", 0);
    cm_reader *reader = cm_reader_open("0", error, sizeof error);
    while (reader != NULL && last == 1)
        last = cm_reader_next(reader, &record);
    cm_reader_close(reader);
    return last == 0;
}

/* folder: where to write them; NULL: they are run. */
static int mutate(const char *folder, uint64_t seed, uint64_t count, const input *inputs, size_t n)
{
    static uint8_t bytes[MOST_BYTES], crossed[MOST_BYTES];
    size_t length = 0;

    fuzz_draw_from(seed);
    for (uint64_t i = 0; i < count; i++) {
        const input *from = &inputs[fuzz_draw() % n];
        if (length == 0 || length > MOST_BYTES / 2 || fuzz_draw() % 4 == 0) {
            memcpy(bytes, from->bytes, from->length);
            length = from->length;
        } else if (fuzz_draw() % 8 == 0) {
            length = LLVMFuzzerCustomCrossOver(bytes, length, from->bytes, from->length, crossed,
                                               sizeof crossed, (unsigned)fuzz_draw());
            memcpy(bytes, crossed, length);
        }
        length = LLVMFuzzerCustomMutator(bytes, length, sizeof bytes, (unsigned)fuzz_draw());
        const input mutation = {bytes, length};
        if (folder == NULL) {
            run(&mutation);
            continue;
        }
        save(&mutation, folder, i);
        if (!is_read(&mutation))
            length = 0;
    }
    printf("%llu mutations\n", (unsigned long long)count);
    return 0;
}

static int run_out(uint64_t most, const input *inputs, size_t n)
{
    uint64_t runs = 0;

    for (size_t i = 0; i < n; i++) {
        memory.fails_at = 0;
        memory.calls = 0;
        run(&inputs[i]);
        uint64_t all = memory.calls, step = all > most ? all / most : 1;
        fuzz_without_memory = true;
        /* The first call is run's own. */
        for (uint64_t k = 2; k <= all; k += step, runs++) {
            memory.fails_at = k;
            memory.for_good = runs % 2 == 1;
            memory.calls = 0;
            run(&inputs[i]);
        }
        fuzz_without_memory = false;
        memory.fails_at = 0;
    }
    printf("%llu failures of memory\n", (unsigned long long)runs);
    return 0;
}

static int read_one(const char *path)
{
    char error[256];
    cm_record record;
    unsigned long long events = 0;
    int last;
    cm_reader *reader = cm_reader_open(path, error, sizeof error);

    if (reader == NULL)
        return printf("refused %s\n", error) < 0;
    while ((last = cm_reader_next(reader, &record)) == 1)
        events++;
    printf("events %llu state %d last %d\n", events, cm_reader_get_state(reader), last);
    cm_reader_close(reader);
    return 0;
}

int main(int count, char **words)
{
    static input inputs[INPUTS];
    const char *mode = count > 2 ? words[1] : "";
    bool mutates = strcmp(mode, "mutate") == 0, runs_out = strcmp(mode, "oom") == 0;
    bool writes = strcmp(mode, "write") == 0;
    int first = writes ? 5 : mutates ? 4 : runs_out ? 3 : 2;
    int result = 0;
    size_t n = 0;

    if (strcmp(mode, "read") == 0)
        return read_one(words[2]);
    if ((!mutates && !writes && !runs_out && strcmp(mode, "replay") != 0) || count <= first)
        die("usage: see driver.c");
    for (int i = first; i < count && n < INPUTS; i++)
        inputs[n++] = load(words[i]);
    uint64_t last = strtoull(words[first - 1], NULL, 10); /* SEED COUNT, or MOST */
    fuzz_enter_folder();
    signal(SIGVTALRM, too_long);
    if (mutates || writes) {
        uint64_t seed = strtoull(words[first - 2], NULL, 10);
        result = mutate(writes ? words[2] : NULL, seed, last, inputs, n);
    } else if (runs_out) {
        result = run_out(last, inputs, n);
    } else {
        for (size_t i = 0; i < n; i++)
            run(&inputs[i]);
        printf("%zu inputs\n", n);
    }
    while (n > 0)
        free(inputs[--n].bytes);
    return result;
}
