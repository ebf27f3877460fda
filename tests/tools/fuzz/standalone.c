/* A harness without libFuzzer, for gcc: `standalone SEED COUNT FILE...` runs each input, then COUNT
 * mutations of them, and of mutations too, always the same ones. What it runs lies in `current` in
 * $FUZZ_FOLDER. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUTS = 256, MOST_BYTES = 1 << 13, DEPTH = 8 };

typedef struct input {
    uint8_t bytes[MOST_BYTES];
    size_t length;
} input;

__attribute__((noreturn)) static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(2);
}

static void run(const input *it)
{
    const char *folder = getenv("FUZZ_FOLDER");
    char path[4096];

    snprintf(path, sizeof path, "%s/current", folder != NULL ? folder : ".");
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(it->bytes, 1, it->length, file) != it->length || fclose(file) != 0)
        die("cannot write");
    /* A copy of exactly its size: the sanitizer sees what lies behind. */
    uint8_t *copy = malloc(it->length + 1);
    if (copy == NULL)
        die("out of memory");
    memcpy(copy, it->bytes, it->length);
    LLVMFuzzerTestOneInput(copy, it->length);
    free(copy);
}

int main(int count, char **words)
{
    static input inputs[INPUTS], mutation;
    size_t n = 0;

    if (count < 4)
        die("usage: see standalone.c");
    for (int i = 3; i < count && n < INPUTS; i++, n++) {
        FILE *file = fopen(words[i], "rb");
        if (file == NULL)
            die("cannot read an input");
        inputs[n].length = fread(inputs[n].bytes, 1, MOST_BYTES, file);
        fclose(file);
        run(&inputs[n]);
    }
    fuzz_draw_from(strtoull(words[1], NULL, 10));
    unsigned long long most = strtoull(words[2], NULL, 10);
    for (unsigned long long i = 0; i < most; i++) {
        if (i % DEPTH == 0)
            mutation = inputs[fuzz_draw() % n];
        mutation.length = LLVMFuzzerMutate(mutation.bytes, mutation.length, MOST_BYTES);
        run(&mutation);
    }
    printf("%zu inputs, %llu mutations\n", n, most);
    return 0;
}
