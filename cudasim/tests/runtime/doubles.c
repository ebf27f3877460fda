/* In CUPTI's place: keeps what the surfaces tell it. */
#include "doubles.h"

atomic_bool cm_sim_cupti_on;
told history[HISTORY];
int history_count;

static told *add(const char *what, const char *name)
{
    told *one = &history[history_count < HISTORY ? history_count++ : HISTORY - 1];
    memset(one, 0, sizeof *one);
    snprintf(one->what, sizeof one->what, "%s %s", what, name ? name : "?");
    return one;
}

bool cm_sim_runtime_listens(uint32_t id)
{
    (void)id;
    return true;
}

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

void cm_sim_runtime_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                          const void *parameters, const char *symbol)
{
    static uint32_t correlations;
    told *one = add("runtime", name);
    call->correlation = ++correlations;
    call->runtime = true;
    call->runtime_name = name;
    one->correlation = call->correlation;
    one->id = id;
    one->parameters = parameters;
    one->symbol = symbol;
    one->device = device;
}

void cm_sim_runtime_exit(cm_sim_call *call, int result)
{
    told *one = add("runtime exit", call->runtime_name);
    one->correlation = call->correlation;
    one->result = result;
}

void cm_sim_driver_enter(cm_sim_call *call, int device, uint32_t id, const char *name,
                         const void *parameters, const char *symbol)
{
    told *one = add("driver", name);
    call->driver_name = name;
    call->driver_parameters = parameters;
    one->correlation = call->correlation;
    one->id = id;
    one->parameters = parameters;
    one->symbol = symbol;
    one->device = device;
}

void cm_sim_driver_exit(cm_sim_call *call, int result)
{
    told *one = add("driver exit", call->driver_name);
    one->correlation = call->correlation;
    one->result = result;
    one->first = *(const uint64_t *)call->driver_parameters;
    if (!strcmp(call->driver_name, "cuMemAlloc_v2"))
        one->address = *(void **)(uintptr_t)one->first;
}

void cm_sim_record_memory(const cm_sim_call *call, const cm_sim_memory_event *what)
{
    told *one = add("memory", what->operation == 1 ? "allocation" : "release");
    one->correlation = call->correlation;
    one->id = (uint32_t)what->kind;
    one->device = what->device;
    one->address = what->address;
    one->bytes = what->bytes;
    one->stream = what->stream;
}

/* Of the call that was told last. */
void cm_sim_record_pool(int operation, const void *of, int device, size_t bytes)
{
    static const char *const names[] = {"?", "created", "destroyed", "trimmed"};
    told *one = add("pool", names[operation]);
    one->device = device;
    one->address = of;
    one->bytes = bytes;
}

void cm_sim_notify_context(int what, void *context)
{
    if (cm_sim_cupti_wanted())
        add("context", what == CM_SIM_CONTEXT_MADE ? "made" : "ends")->address = context;
}

void cm_sim_record_kernel(const cm_sim_call *call, const char *name, const unsigned grid[3],
                          const unsigned block[3], unsigned shared, void *on)
{
    told *one = add("kernel", name);
    one->correlation = call->correlation;
    one->id = grid[0] * block[0];
    one->bytes = shared;
    one->stream = on;
}

void cm_sim_record_copy(const cm_sim_call *call, int kind, size_t bytes, void *on)
{
    told *one = add("copy", "");
    one->correlation = call->correlation;
    one->id = (uint32_t)kind;
    one->bytes = bytes;
    one->stream = on;
}

void cm_sim_record_set(const cm_sim_call *call, int value, size_t bytes, void *on)
{
    told *one = add("set", "");
    one->correlation = call->correlation;
    one->id = (uint32_t)value;
    one->bytes = bytes;
    one->stream = on;
}
