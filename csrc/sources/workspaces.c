/* Workspaces of cuBLAS and cuDNN. PyTorch takes them from its allocator like tensors, and hands
 * them to the library: only that call tells them from tensors. Those of cuBLAS stay for each thread
 * and stream, and come with each matrix product: a thread emits one when it is another one than
 * before. Those of cuDNN are made for a convolution. */
#include "emit.h"
#include "tables.h"

typedef int (*set_fn)(void *handle, void *workspace, size_t size);
typedef int (*product_fn)(void *handle, void *product, void *alpha, void *a, void *a_layout,
                          void *b, void *b_layout, void *beta, void *c, void *c_layout, void *d,
                          void *d_layout, void *algorithm, void *workspace, size_t size,
                          void *stream);
typedef int (*attribute_fn)(void *descriptor, int attribute, int type, int64_t count,
                            const void *values);

enum { SET, PRODUCT, ATTRIBUTE, SYMBOLS };
enum { VARIANT_PACK_WORKSPACE = 1003 }; /* cudnnBackendAttributeName_t */

#define FORWARD(symbol, variant, type) CM_SLOT_ORIGINAL(cm_workspace_symbols[symbol], variant, type)

/* What this thread emitted last for each function, and in which recording. */
typedef struct emitted {
    const void *workspace;
    uint32_t capture;
} emitted;
static __thread emitted last[SYMBOLS] __attribute__((tls_model("initial-exec")));

static void emit_hook(const void *workspace)
{
    cm_producer *t __attribute__((cleanup(cm_emit_leave_hook))) = cm_enter_hook();

    if (t != NULL)
        cm_emit_put_hook(t, (cm_event){.address = (uint64_t)(uintptr_t)workspace,
                                       .kind = CM_EV_LABEL,
                                       .flags = CM_LABEL_WORKSPACE,
                                       .device_type = CM_DEVICE_CUDA,
                                       .device_index = CM_DEVICE_UNKNOWN});
}

static inline void emit_new_hook(int symbol, const void *workspace)
{
    emitted *e = &last[symbol];
    uint32_t capture = atomic_load_explicit(cm_recording, memory_order_relaxed);

    if (capture == 0 || workspace == NULL || (e->workspace == workspace && e->capture == capture))
        return;
    *e = (emitted){workspace, capture};
    emit_hook(workspace);
}

static inline __attribute__((always_inline)) int set_hook(int variant, void *handle,
                                                          void *workspace, size_t size)
{
    emit_new_hook(SET, workspace);
    return FORWARD(SET, variant, set_fn)(handle, workspace, size);
}

static inline __attribute__((always_inline)) int
product_hook(int variant, void *handle, void *product, void *alpha, void *a, void *a_layout,
             void *b, void *b_layout, void *beta, void *c, void *c_layout, void *d, void *d_layout,
             void *algorithm, void *workspace, size_t size, void *stream)
{
    emit_new_hook(PRODUCT, workspace);
    return FORWARD(PRODUCT, variant, product_fn)(handle, product, alpha, a, a_layout, b, b_layout,
                                                 beta, c, c_layout, d, d_layout, algorithm,
                                                 workspace, size, stream);
}

static inline __attribute__((always_inline)) int attribute_hook(int variant, void *descriptor,
                                                                int attribute, int type,
                                                                int64_t count, const void *values)
{
    if (attribute == VARIANT_PACK_WORKSPACE && count == 1 && values != NULL && cm_is_recording() &&
        *(void *const *)values != NULL)
        emit_hook(*(void *const *)values);
    return FORWARD(ATTRIBUTE, variant, attribute_fn)(descriptor, attribute, type, count, values);
}

#define VARIANT(n)                                                                                 \
    static int set_##n(void *handle, void *workspace, size_t size)                                 \
    {                                                                                              \
        return set_hook(n, handle, workspace, size);                                               \
    }                                                                                              \
    static int product_##n(void *handle, void *product, void *alpha, void *a, void *a_layout,      \
                           void *b, void *b_layout, void *beta, void *c, void *c_layout, void *d,  \
                           void *d_layout, void *algorithm, void *workspace, size_t size,          \
                           void *stream)                                                           \
    {                                                                                              \
        return product_hook(n, handle, product, alpha, a, a_layout, b, b_layout, beta, c,          \
                            c_layout, d, d_layout, algorithm, workspace, size, stream);            \
    }                                                                                              \
    static int attribute_##n(void *descriptor, int attribute, int type, int64_t count,             \
                             const void *values)                                                   \
    {                                                                                              \
        return attribute_hook(n, descriptor, attribute, type, count, values);                      \
    }
VARIANT(0)
VARIANT(1)
_Static_assert(CM_SLOT_VARIANTS == 2, "one set of hooks for each variant");

/* Only calls of PyTorch's: the libraries call each other more often. */
#define SYMBOL(function, what, name)                                                               \
    {                                                                                              \
        .source = "cuda", .meaning = what, .names = {function}, .hooks = {name##_0, name##_1},     \
        .library = "libtorch_cuda."                                                                \
    }

cm_slot_symbol cm_workspace_symbols[SYMBOLS] = {
    [SET] = SYMBOL("cublasSetWorkspace_v2", "workspaces of cuBLAS", set),
    [PRODUCT] = SYMBOL("cublasLtMatmul", "workspaces of cuBLASLt", product),
    [ATTRIBUTE] = SYMBOL("cudnnBackendSetAttribute", "workspaces of cuDNN", attribute),
};
const size_t cm_workspace_symbol_count = SYMBOLS;
