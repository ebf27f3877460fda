/* Hooks on torch.profiler's calls of CUPTI, which give up what it is about to ask for.
 *
 * The old interfaces allow one subscriber and one set of buffers in a process. Until the middle of
 * 2026 torch.profiler (Kineto, in libtorch_cpu) subscribes at its first profile and for good, and
 * records no GPU if that fails; later releases use the activity interface alone. */
#include <stddef.h>
#include <stdint.h>

#include "../tables.h"
#include "cupti.h"

enum { SUBSCRIBE, REGISTER, ENABLE, FINALIZE, SYMBOLS };

typedef int (*subscribe_fn)(void **subscriber, void *callback, void *userdata);
typedef int (*register_fn)(void *request, void *complete);
typedef int (*enable_fn)(int kind);
typedef int (*finalize_fn)(void);

#define FORWARD(symbol, variant, type) CM_SLOT_ORIGINAL(cm_cupti_symbols[symbol], variant, type)

static const char who[] = "torch.profiler";

#define VARIANT(n)                                                                                 \
    static int subscribe_##n(void **subscriber, void *callback, void *userdata)                    \
    {                                                                                              \
        cm_cupti_give_up(CM_CUPTI_CLAIM_ALL, who);                                                 \
        return FORWARD(SUBSCRIBE, n, subscribe_fn)(subscriber, callback, userdata);                \
    }                                                                                              \
    static int register_##n(void *request, void *complete)                                         \
    {                                                                                              \
        cm_cupti_give_up(CM_CUPTI_CLAIM_RECORDS, who);                                             \
        return FORWARD(REGISTER, n, register_fn)(request, complete);                               \
    }                                                                                              \
    static int enable_##n(int kind)                                                                \
    {                                                                                              \
        cm_cupti_give_up(CM_CUPTI_CLAIM_RECORDS, who);                                             \
        return FORWARD(ENABLE, n, enable_fn)(kind);                                                \
    }                                                                                              \
    /* Detaches every client without notice. */                                                    \
    static int finalize_##n(void)                                                                  \
    {                                                                                              \
        cm_cupti_give_up(CM_CUPTI_CLAIM_ALL, who);                                                 \
        return FORWARD(FINALIZE, n, finalize_fn)();                                                \
    }
VARIANT(0)
VARIANT(1)
_Static_assert(CM_SLOT_VARIANTS == 2, "one set of hooks for each variant");

#define SYMBOL(function, name)                                                                     \
    {                                                                                              \
        .source = "cupti", .meaning = "torch.profiler asks for CUPTI", .names = {function},        \
        .hooks = {name##_0, name##_1}, .library = "libtorch_cpu."                                  \
    }

cm_slot_symbol cm_cupti_symbols[SYMBOLS] = {
    [SUBSCRIBE] = SYMBOL("cuptiSubscribe", subscribe),
    [REGISTER] = SYMBOL("cuptiActivityRegisterCallbacks", register),
    [ENABLE] = SYMBOL("cuptiActivityEnable", enable),
    [FINALIZE] = SYMBOL("cuptiFinalize", finalize),
};
const size_t cm_cupti_symbol_count = SYMBOLS;
