/* Accounts to the byte. Run with two H100 of 1 GiB, contexts of 300 MiB. */
#include "check.h"

#define CONTEXT (300 * MIB)

static void context(void)
{
    size_t free_bytes, total;

    CHECK(!cm_sim_has_context(0));
    EQUAL(used(0), 0);
    EQUAL(cm_sim_memory_info(0, &free_bytes, &total), CM_SIM_OK);
    CHECK(cm_sim_has_context(0));
    EQUAL(total, GIB);
    EQUAL(free_bytes, GIB - CONTEXT);
    EQUAL(cm_sim_context(0), CM_SIM_OK); /* once */
    EQUAL(used(0), CONTEXT);
    EQUAL(on(0)->context, CONTEXT);
    CHECK(!cm_sim_has_context(1));
    EQUAL(used(1), 0);
    EQUAL(note(CM_SIM_NOTE_MODELLED, "CUDA context")->bytes, CONTEXT);
    EQUAL(cm_sim_context(2), CM_SIM_INVALID_DEVICE);
    EQUAL(cm_sim_context(-1), CM_SIM_INVALID_DEVICE);
}

static void large_in_units_of_two_mib(void)
{
    static const struct {
        size_t bytes, charged;
    } sizes[] = {{MIB, 2 * MIB},         {2 * MIB - 1, 2 * MIB}, {2 * MIB, 2 * MIB},
                 {2 * MIB + 1, 4 * MIB}, {20 * MIB, 20 * MIB},   {21 * MIB + 512, 22 * MIB}};
    size_t expected = CONTEXT;
    void *made[6];

    for (int i = 0; i < 6; i++) {
        cm_sim_block block;
        made[i] = alloc(0, sizes[i].bytes);
        expected += sizes[i].charged;
        EQUAL(used(0), expected);
        EQUAL((uintptr_t)made[i] % (2 * MIB), 0);
        CHECK(cm_sim_find((char *)made[i] + sizes[i].bytes - 1, &block));
        EQUAL(block.address, (uintptr_t)made[i]);
        EQUAL(block.bytes, sizes[i].bytes);
        EQUAL(block.charged, sizes[i].charged);
        EQUAL(block.device, 0);
        EQUAL(block.kind, CM_SIM_DEVICE);
    }
    size_t most = expected;
    for (int i = 0; i < 6; i++) {
        cm_sim_block block;
        CHECK(cm_sim_is_device(made[i]));
        EQUAL(cm_sim_free(made[i], &block), CM_SIM_OK);
        EQUAL(block.bytes, sizes[i].bytes);
        expected -= sizes[i].charged;
        EQUAL(used(0), expected);
        CHECK(!cm_sim_is_device(made[i]));
        CHECK(!cm_sim_find(made[i], NULL));
    }
    EQUAL(used(0), CONTEXT);
    EQUAL(on(0)->peak, most);
    EQUAL(on(0)->allocs, 6);
    EQUAL(on(0)->frees, 6);
}

static void small_out_of_slabs(void)
{
    enum { EACH = 2 * 1024 * 1024 / 512 };
    static char *made[EACH + 1];

    for (int i = 0; i < EACH; i++) { /* 1 to 512 bytes: a unit each */
        made[i] = alloc(0, (size_t)(1 + i % 512));
        EQUAL((uintptr_t)made[i] % 512, 0);
        EQUAL(used(0), CONTEXT + 2 * MIB);
    }
    for (int i = 1; i < EACH; i++)
        EQUAL(made[i] - made[i - 1], 512);
    made[EACH] = alloc(0, 1); /* the slab is full */
    EQUAL(used(0), CONTEXT + 4 * MIB);

    /* A hole of three units takes what fits, and nothing larger. */
    for (int i = 100; i < 103; i++)
        EQUAL(cm_sim_free(made[i], NULL), CM_SIM_OK);
    char *larger = alloc(0, 4 * 512);
    CHECK(larger != made[100]);
    char *fits = alloc(0, 3 * 512 - 7);
    EQUAL((uintptr_t)fits, (uintptr_t)made[100]);
    cm_sim_block block;
    CHECK(cm_sim_find(fits + 1500, &block));
    EQUAL(block.address, (uintptr_t)fits);
    EQUAL(block.bytes, 3 * 512 - 7);
    EQUAL(block.charged, 3 * 512);
    EQUAL(used(0), CONTEXT + 4 * MIB);

    EQUAL(cm_sim_free(fits, NULL), CM_SIM_OK);
    for (int i = 0; i < EACH; i++)
        if (i < 100 || i >= 103)
            EQUAL(cm_sim_free(made[i], NULL), CM_SIM_OK);
    EQUAL(used(0), CONTEXT + 2 * MIB); /* the first slab is empty and gone */
    CHECK(!cm_sim_is_device(made[0]));
    EQUAL(cm_sim_free(larger, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(made[EACH], NULL), CM_SIM_OK);
    EQUAL(used(0), CONTEXT);
    EQUAL(on(0)->allocs, on(0)->frees);
}

static void slabs_by_kind(void)
{
    void *pool, *array;

    alloc(0, 1);
    EQUAL(cm_sim_alloc(0, CM_SIM_POOL, 1, NULL, &pool), CM_SIM_OK);
    EQUAL(cm_sim_alloc(0, CM_SIM_ARRAY, MIB - 1, NULL, &array), CM_SIM_OK);
    EQUAL(used(0), CONTEXT + 6 * MIB);
    cm_sim_block block;
    CHECK(cm_sim_find(pool, &block));
    EQUAL(block.kind, CM_SIM_POOL);
}

static void several_devices(void)
{
    char *first = alloc(0, 100 * MIB), *second = alloc(1, 200 * MIB);
    cm_sim_block block;

    EQUAL(used(0), CONTEXT + 100 * MIB);
    EQUAL(used(1), CONTEXT + 200 * MIB);
    CHECK(cm_sim_find(second, &block));
    EQUAL(block.device, 1);
    EQUAL(cm_sim_free(first, NULL), CM_SIM_OK);
    EQUAL(used(0), CONTEXT);
    EQUAL(used(1), CONTEXT + 200 * MIB);
    EQUAL(cm_sim_free(second, NULL), CM_SIM_OK);
    EQUAL(on(1)->peak, CONTEXT + 200 * MIB);
    EQUAL(on(0)->peak, CONTEXT + 100 * MIB);
    EQUAL(cm_sim_current_device(), 0);
    cm_sim_set_current_device(1);
    EQUAL(cm_sim_current_device(), 1);
}

static void full(void)
{
    void *none = &none;

    /* 724 MiB are left: exactly they fit. */
    char *all = alloc(0, 724 * MIB);
    EQUAL(used(0), GIB);
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 1, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    CHECK(none == NULL);
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 5 * MIB, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, SIZE_MAX, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    cm_sim_physical *handle;
    EQUAL(cm_sim_create(0, 2 * MIB, &handle), CM_SIM_OUT_OF_MEMORY);
    CHECK(handle == NULL);
    EQUAL(on(0)->refused, 4);
    EQUAL(on(0)->refused_least, 1);
    EQUAL(on(0)->refused_used, GIB);
    EQUAL(on(0)->limited, 0);
    EQUAL(used(0), GIB);
    EQUAL(cm_sim_free(all, NULL), CM_SIM_OK);
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 724 * MIB + 1, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(on(0)->peak, GIB);
    EQUAL(on(0)->allocs, 1);
}

/* It takes what else leaves free; its other pages lie in the host. */
static void managed(void)
{
    const char *name = "managed memory in the host";
    void *pages, *more, *block, *none;

    EQUAL(cm_sim_alloc(0, CM_SIM_MANAGED, 100 * MIB, NULL, &pages), CM_SIM_OK);
    EQUAL(used(0), CONTEXT + 100 * MIB);
    EQUAL(cm_sim_alloc(0, CM_SIM_MANAGED, 3 * GIB, NULL, &more), CM_SIM_OK);
    EQUAL(used(0), GIB);
    EQUAL(note(CM_SIM_NOTE_MODELLED, name)->bytes, CONTEXT + 100 * MIB + 2 * GIB);
    block = alloc(0, 500 * MIB);
    EQUAL(used(0), GIB);
    EQUAL(on(0)->refused, 0);
    EQUAL(note(CM_SIM_NOTE_MODELLED, name)->bytes, CONTEXT + 600 * MIB + 2 * GIB);
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 500 * MIB, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(cm_sim_alloc(0, CM_SIM_MANAGED, SIZE_MAX, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    EQUAL(on(0)->refused, 2);
    EQUAL(cm_sim_free(more, NULL), CM_SIM_OK);
    EQUAL(used(0), CONTEXT + 600 * MIB);
    EQUAL(cm_sim_free(block, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(pages, NULL), CM_SIM_OK);
    EQUAL(used(0), CONTEXT);
    EQUAL(on(0)->peak, GIB);
}

static void context_does_not_fit(void)
{
    size_t free_bytes, total; /* run with 100 MiB */
    void *none;

    EQUAL(cm_sim_context(0), CM_SIM_OUT_OF_MEMORY);
    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 1, NULL, &none), CM_SIM_OUT_OF_MEMORY);
    CHECK(none == NULL);
    EQUAL(cm_sim_memory_info(0, &free_bytes, &total), CM_SIM_OUT_OF_MEMORY);
    CHECK(!cm_sim_has_context(0));
    EQUAL(used(0), 0);
    EQUAL(on(0)->refused, 3);
}

static void errors(void)
{
    void *made = alloc(0, 3 * MIB), *small = alloc(0, 1000), *none = &none;
    cm_sim_block block = {.bytes = 7};

    EQUAL(cm_sim_alloc(0, CM_SIM_DEVICE, 0, NULL, &none), CM_SIM_OK);
    CHECK(none == NULL);
    EQUAL(cm_sim_free(NULL, &block), CM_SIM_OK);
    EQUAL(block.bytes, 0);
    EQUAL(cm_sim_free((char *)made + 512, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_free((char *)small + 512, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_free((char *)small + 1, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_free(&block, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_free((void *)-4096, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_alloc(7, CM_SIM_DEVICE, 1, NULL, &none), CM_SIM_INVALID_DEVICE);
    EQUAL(cm_sim_alloc(0, CM_SIM_MAPPED, 1, NULL, &none), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_alloc(0, 99, 1, NULL, &none), CM_SIM_INVALID_VALUE);
    EQUAL(cm_sim_free(made, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(made, NULL), CM_SIM_INVALID_VALUE); /* twice */
    alloc(0, 1);                                          /* the slab stays */
    EQUAL(cm_sim_free(small, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(small, NULL), CM_SIM_INVALID_VALUE);
    EQUAL(used(0), CONTEXT + 2 * MIB);
    EQUAL(on(0)->frees, 2);
    CHECK(!cm_sim_is_device(&block));
    CHECK(!cm_sim_is_device(NULL));
    CHECK(!cm_sim_is_device((void *)-1));
}

static void libraries(void)
{
    void *blas = cm_sim_handle_new("cuBLAS"), *second = cm_sim_handle_new("cuBLAS");
    void *fft = cm_sim_handle_new("cuFFT");

    CHECK(blas != NULL && second != NULL && fft != NULL);
    for (int i = 0; i < CM_SIM_HANDLE; i++)
        EQUAL(((unsigned char *)blas)[i], 0);
    EQUAL(used(0), CONTEXT + 16 * MIB);
    EQUAL(on(0)->library, 16 * MIB);
    EQUAL(on(0)->peak_library, 16 * MIB);
    cm_sim_handle_free(blas);
    cm_sim_handle_free(fft);
    cm_sim_handle_free(NULL);
    EQUAL(on(0)->library, 8 * MIB);
    char *more = alloc(0, 100 * MIB); /* a higher peak, with less in libraries */
    EQUAL(on(0)->peak_library, 8 * MIB);
    EQUAL(note(CM_SIM_NOTE_MODELLED, "cuBLAS")->bytes, 16 * MIB);
    CHECK(note(CM_SIM_NOTE_MODELLED, "cuFFT") == NULL);
    cm_sim_set_current_device(1);
    void *there = cm_sim_handle_new("cuDNN");
    EQUAL(on(1)->library, 8 * MIB);
    cm_sim_set_current_device(0);
    cm_sim_handle_free(there); /* where it was made, whatever is current */
    EQUAL(on(1)->library, 0);
    EQUAL(used(1), CONTEXT);
    cm_sim_handle_free(second);
    EQUAL(used(0), CONTEXT + 100 * MIB);
    char *rest = alloc(0, 620 * MIB);
    CHECK(cm_sim_handle_new("cuBLAS") == NULL); /* 4 MiB are left */
    EQUAL(on(0)->refused, 1);
    EQUAL(cm_sim_free(more, NULL), CM_SIM_OK);
    EQUAL(cm_sim_free(rest, NULL), CM_SIM_OK);
}

static void many(void)
{
    enum { COUNT = 20000 };
    static void *made[COUNT];
    uint64_t seed = 1;

    for (int i = 0; i < COUNT; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        made[i] = alloc(0, (seed >> 33) % 20000 + 1);
    }
    for (int i = 0; i < COUNT; i++) {
        cm_sim_block block;
        CHECK(cm_sim_find(made[i], &block));
        EQUAL(block.address, (uintptr_t)made[i]);
    }
    for (int i = 0; i < COUNT; i++) /* in another order */
        EQUAL(cm_sim_free(made[i * 7 % COUNT], NULL), CM_SIM_OK);
    EQUAL(used(0), CONTEXT);
}

static const test_case cases[] = {
    {"context", context},
    {"large_in_units_of_two_mib", large_in_units_of_two_mib},
    {"small_out_of_slabs", small_out_of_slabs},
    {"slabs_by_kind", slabs_by_kind},
    {"several_devices", several_devices},
    {"full", full},
    {"managed", managed},
    {"context_does_not_fit", context_does_not_fit},
    {"errors", errors},
    {"libraries", libraries},
    {"many", many},
};
MAIN(cases)
