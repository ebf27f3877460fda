/* Workspaces of cuBLAS and cuDNN. PyTorch takes them from its allocator like tensors, and hands
 * them to the library: only that call tells them from tensors. Those of cuBLAS stay for each thread
 * and stream, and come with each matrix product: a thread emits one when it is another one than
 * before. Those of cuDNN are made for a convolution, or a pass of a recurrent network; what such a
 * network reserves for its backward pass is saved by autograd, and so an activation. */
#include <string.h>

#include "emit.h"
#include "tables.h"

typedef int (*set_fn)(void *handle, void *workspace, size_t size);
typedef int (*product_fn)(void *handle, void *product, void *alpha, void *a, void *a_layout,
                          void *b, void *b_layout, void *beta, void *c, void *c_layout, void *d,
                          void *d_layout, void *algorithm, void *workspace, size_t size,
                          void *stream);
typedef int (*attribute_fn)(void *descriptor, int attribute, int type, int64_t count,
                            const void *values);

typedef int (*forward_fn)(void *handle, void *network, int mode, const int32_t *lengths,
                          void *x_layout, void *x, void *y_layout, void *y, void *h_layout,
                          void *hx, void *hy, void *c_layout, void *cx, void *cy,
                          size_t weight_size, void *weights, size_t size, void *workspace,
                          size_t reserve_size, void *reserve);
typedef int (*data_fn)(void *handle, void *network, const int32_t *lengths, void *y_layout, void *y,
                       void *dy, void *x_layout, void *dx, void *h_layout, void *hx, void *dhy,
                       void *dhx, void *c_layout, void *cx, void *dcy, void *dcx,
                       size_t weight_size, void *weights, size_t size, void *workspace,
                       size_t reserve_size, void *reserve);
typedef int (*weights_fn)(void *handle, void *network, int mode, const int32_t *lengths,
                          void *x_layout, void *x, void *h_layout, void *hx, void *y_layout,
                          void *y, size_t weight_size, void *weights, size_t size, void *workspace,
                          size_t reserve_size, void *reserve);

typedef int (*dropout_fn)(void *descriptor, void *handle, float share, void *states, size_t size,
                          unsigned long long seed);

enum {
    SET,
    PRODUCT,
    ATTRIBUTE,
    FORWARD_PASS,
    DATA_PASS,
    WEIGHTS_PASS,
    NEW_DROPOUT,
    OLD_DROPOUT,
    SYMBOLS
};
enum { VARIANT_PACK_WORKSPACE = 1003 }; /* cudnnBackendAttributeName_t */

#define FORWARD(symbol, variant, type) CM_SLOT_ORIGINAL(cm_workspace_symbols[symbol], variant, type)

/* What this thread emitted last for each function, in which recording. */
static __thread struct {
    const void *workspace[SYMBOLS];
    uint32_t capture;
} last __attribute__((tls_model("initial-exec")));

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
    uint32_t capture = atomic_load_explicit(cm_recording, memory_order_relaxed);

    if (capture == 0 || workspace == NULL)
        return;
    if (last.capture != capture) {
        memset(last.workspace, 0, sizeof last.workspace);
        last.capture = capture;
    }
    if (last.workspace[symbol] == workspace)
        return;
    last.workspace[symbol] = workspace;
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

static inline void emit_pass_hook(const void *workspace)
{
    if (workspace != NULL && cm_is_recording())
        emit_hook(workspace);
}

static inline __attribute__((always_inline)) int
forward_hook(int variant, void *handle, void *network, int mode, const int32_t *lengths,
             void *x_layout, void *x, void *y_layout, void *y, void *h_layout, void *hx, void *hy,
             void *c_layout, void *cx, void *cy, size_t weight_size, void *weights, size_t size,
             void *workspace, size_t reserve_size, void *reserve)
{
    emit_pass_hook(workspace);
    return FORWARD(FORWARD_PASS, variant, forward_fn)(
        handle, network, mode, lengths, x_layout, x, y_layout, y, h_layout, hx, hy, c_layout, cx,
        cy, weight_size, weights, size, workspace, reserve_size, reserve);
}

static inline __attribute__((always_inline)) int
data_hook(int variant, void *handle, void *network, const int32_t *lengths, void *y_layout, void *y,
          void *dy, void *x_layout, void *dx, void *h_layout, void *hx, void *dhy, void *dhx,
          void *c_layout, void *cx, void *dcy, void *dcx, size_t weight_size, void *weights,
          size_t size, void *workspace, size_t reserve_size, void *reserve)
{
    emit_pass_hook(workspace);
    return FORWARD(DATA_PASS, variant, data_fn)(
        handle, network, lengths, y_layout, y, dy, x_layout, dx, h_layout, hx, dhy, dhx, c_layout,
        cx, dcy, dcx, weight_size, weights, size, workspace, reserve_size, reserve);
}

static inline __attribute__((always_inline)) int
weights_hook(int variant, void *handle, void *network, int mode, const int32_t *lengths,
             void *x_layout, void *x, void *h_layout, void *hx, void *y_layout, void *y,
             size_t weight_size, void *weights, size_t size, void *workspace, size_t reserve_size,
             void *reserve)
{
    emit_pass_hook(workspace);
    return FORWARD(WEIGHTS_PASS, variant,
                   weights_fn)(handle, network, mode, lengths, x_layout, x, h_layout, hx, y_layout,
                               y, weight_size, weights, size, workspace, reserve_size, reserve);
}

/* States of random numbers: PyTorch makes them once and keeps them. */
static inline __attribute__((always_inline)) int dropout_hook(int symbol, int variant,
                                                              void *descriptor, void *handle,
                                                              float share, void *states,
                                                              size_t size, unsigned long long seed)
{
    emit_new_hook(symbol, states);
    return FORWARD(symbol, variant, dropout_fn)(descriptor, handle, share, states, size, seed);
}

#define VARIANT(n)                                                                                 \
    static int forward_##n(void *a, void *b, int c, const int32_t *d, void *e, void *f, void *g,   \
                           void *h, void *i, void *j, void *k, void *l, void *m, void *o,          \
                           size_t p, void *q, size_t r, void *s, size_t t, void *u)                \
    {                                                                                              \
        return forward_hook(n, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u);        \
    }                                                                                              \
    static int data_##n(void *a, void *b, const int32_t *c, void *d, void *e, void *f, void *g,    \
                        void *h, void *i, void *j, void *k, void *l, void *m, void *o, void *p,    \
                        void *q, size_t r, void *s, size_t t, void *u, size_t v, void *w)          \
    {                                                                                              \
        return data_hook(n, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q, r, s, t, u, v, w);     \
    }                                                                                              \
    static int new_dropout_##n(void *a, void *b, float c, void *d, size_t e, unsigned long long f) \
    {                                                                                              \
        return dropout_hook(NEW_DROPOUT, n, a, b, c, d, e, f);                                     \
    }                                                                                              \
    static int old_dropout_##n(void *a, void *b, float c, void *d, size_t e, unsigned long long f) \
    {                                                                                              \
        return dropout_hook(OLD_DROPOUT, n, a, b, c, d, e, f);                                     \
    }                                                                                              \
    static int weights_##n(void *a, void *b, int c, const int32_t *d, void *e, void *f, void *g,   \
                           void *h, void *i, void *j, size_t k, void *l, size_t m, void *o,        \
                           size_t p, void *q)                                                      \
    {                                                                                              \
        return weights_hook(n, a, b, c, d, e, f, g, h, i, j, k, l, m, o, p, q);                    \
    }                                                                                              \
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
    [FORWARD_PASS] = SYMBOL("cudnnRNNForward", "workspaces of cuDNN's RNN", forward),
    [DATA_PASS] = SYMBOL("cudnnRNNBackwardData_v8", "workspaces of cuDNN's RNN", data),
    [WEIGHTS_PASS] = SYMBOL("cudnnRNNBackwardWeights_v8", "workspaces of cuDNN's RNN", weights),
    [NEW_DROPOUT] = SYMBOL("cudnnSetDropoutDescriptor", "states of cuDNN's dropout", new_dropout),
    [OLD_DROPOUT] =
        SYMBOL("cudnnRestoreDropoutDescriptor", "states of cuDNN's dropout", old_dropout),
};
const size_t cm_workspace_symbol_count = SYMBOLS;
