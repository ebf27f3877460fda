#include "reported.h"

#include "check.h"
#include "objects/calls.h"

atomic_bool cm_sim_cupti_on;
static told_call calls[4];
static int count;

void told_begin(void)
{
    memset(calls, 0, sizeof calls);
    count = 0;
    atomic_store(&cm_sim_cupti_on, true);
}

const told_call *told_end(void)
{
    atomic_store(&cm_sim_cupti_on, false);
    EQUAL(count, 1);
    EQUAL(calls[0].entered, 1);
    EQUAL(calls[0].left, 1);
    return &calls[0];
}

void cm_sim_driver_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                         const void *parameters, const char *symbol)
{
    CHECK(count < 4);
    told_call *now = &calls[count++];
    now->id = id;
    now->device = device;
    now->entered++;
    snprintf(now->name, sizeof now->name, "%s", name);
    snprintf(now->symbol, sizeof now->symbol, "%s", symbol ? symbol : "");
    /* Only as much as the first of them, see there; of these that is an int. */
    bool small =
        id == CM_CBID_cuDevicePrimaryCtxRelease_v2 || id == CM_CBID_cuDevicePrimaryCtxReset_v2;
    if (parameters)
        memcpy(now->parameters, parameters, small ? sizeof(int) : 8);
    call->correlation = (uint32_t)count;
    call->driver_parameters = parameters;
}

void cm_sim_driver_exit(cm_sim_call *call, int result)
{
    told_call *now = &calls[call->correlation - 1];
    now->left++;
    now->result = result;
}

static told_record *record(const cm_sim_call *call, char kind)
{
    told_call *now = &calls[call->correlation - 1];
    CHECK(now->entered == 1 && now->left == 0); /* within the call */
    CHECK(now->records < 4);
    now->record[now->records].kind = kind;
    return &now->record[now->records++];
}

void cm_sim_record_memory(const cm_sim_call *call, const cm_sim_memory_event *what)
{
    told_record *made = record(call, 'm');
    made->operation = what->operation;
    made->what = what->kind;
    made->address = (uintptr_t)what->address;
    made->bytes = what->bytes;
    made->stream = what->stream;
}

void cm_sim_record_kernel(const cm_sim_call *call, const char *name, const unsigned grid[3],
                          const unsigned block[3], unsigned shared, void *stream)
{
    told_record *made = record(call, 'k');
    snprintf(made->name, sizeof made->name, "%s", name);
    made->grid = grid[0];
    made->block = block[0];
    made->shared = shared;
    made->stream = stream;
}

void cm_sim_record_copy(const cm_sim_call *call, int kind, size_t bytes, void *stream)
{
    told_record *made = record(call, 'c');
    made->what = kind;
    made->bytes = bytes;
    made->stream = stream;
}

void cm_sim_record_set(const cm_sim_call *call, int value, size_t bytes, void *stream)
{
    told_record *made = record(call, 's');
    made->what = value;
    made->bytes = bytes;
    made->stream = stream;
}

/* Of the call that is being told. */
void cm_sim_record_pool(int operation, const void *pool, int device, size_t bytes)
{
    (void)device;
    CHECK(count > 0 && calls[count - 1].entered == 1 && calls[count - 1].left == 0);
    CHECK(calls[count - 1].records < 4);
    told_record *made = &calls[count - 1].record[calls[count - 1].records++];
    made->kind = 'p';
    made->operation = operation;
    made->address = (uintptr_t)pool;
    made->bytes = bytes;
}

/* The contexts that were told of: made ones and ended ones. */
unsigned told_contexts[3];

void cm_sim_notify_context(int what, void *context)
{
    CHECK(context && (what == CM_SIM_CONTEXT_MADE || what == CM_SIM_CONTEXT_ENDS));
    told_contexts[what]++;
}

/* Everybody is told of everything. */
bool cm_sim_driver_listens(uint32_t id)
{
    (void)id;
    return true;
}

bool cm_sim_kernels_reported(int device)
{
    (void)device;
    return true;
}

/* The runtime is not called here. */
void cm_sim_runtime_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                          const void *parameters, const char *symbol)
{
    (void)call, (void)device, (void)id, (void)parameters, (void)symbol;
    fprintf(stderr, "a runtime call: %s\n", name);
    abort();
}

void cm_sim_runtime_exit(cm_sim_call *call, int result)
{
    (void)call, (void)result;
    abort();
}
