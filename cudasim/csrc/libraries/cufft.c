/* cuFFT: plans. PyTorch allocates the work area, so its size is part of the peak: NVIDIA documents
 * it as most often as large as the data. */

#include "libraries.h"

#include <pthread.h>
#include <stdlib.h>

enum { SUCCESS = 0, INVALID_PLAN = 1, ALLOC_FAILED = 2, INVALID_VALUE = 4 };

/* Plans are small numbers: a free one is NULL here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void **plans;
static int plan_count;

static int free_number(void)
{
    for (int i = 0; i < plan_count; i++)
        if (!plans[i])
            return i;
    int more = plan_count ? 2 * plan_count : 16;
    void **grown = realloc(plans, (size_t)more * sizeof *plans);
    if (!grown)
        return -1;
    plans = grown;
    for (int i = plan_count; i < more; i++)
        plans[i] = NULL;
    int number = plan_count;
    plan_count = more;
    return number;
}

CM_SIM_EXPORT int cufftCreate(int *plan)
{
    CM_SIM_ENTRY;
    if (!plan)
        return INVALID_VALUE;
    void *charge = cm_sim_handle_new("cuFFT");
    if (!charge)
        return ALLOC_FAILED;
    pthread_mutex_lock(&lock);
    int number = free_number();
    if (number >= 0)
        plans[number] = charge;
    pthread_mutex_unlock(&lock);
    if (number < 0) {
        cm_sim_handle_free(charge);
        return ALLOC_FAILED;
    }
    *plan = number + 1;
    return SUCCESS;
}

/* NULL: no such plan. */
static void *find(int plan, bool take)
{
    pthread_mutex_lock(&lock);
    void *found = plan > 0 && plan <= plan_count ? plans[plan - 1] : NULL;
    if (take && found)
        plans[plan - 1] = NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

CM_SIM_EXPORT int cufftDestroy(int plan)
{
    CM_SIM_ENTRY;
    void *charge = find(plan, true);
    if (!charge)
        return INVALID_PLAN;
    cm_sim_handle_free(charge);
    return SUCCESS;
}

#define ACCEPT(name, ...)                                                                          \
    CM_SIM_EXPORT int name(int plan, __VA_ARGS__)                                                  \
    {                                                                                              \
        CM_SIM_ENTRY;                                                                              \
        return find(plan, false) ? SUCCESS : INVALID_PLAN;                                         \
    }
ACCEPT(cufftSetStream, void *stream)
ACCEPT(cufftSetWorkArea, void *area)
ACCEPT(cufftSetAutoAllocation, int automatic)
ACCEPT(cufftXtExec, void *input, void *output, int direction)

CM_SIM_EXPORT int cufftXtMakePlanMany(int plan, int rank, const long long *sizes,
                                      const long long *in_embedding, long long in_stride,
                                      long long in_distance, int in_type,
                                      const long long *out_embedding, long long out_stride,
                                      long long out_distance, int out_type, long long batch,
                                      size_t *bytes, int compute)
{
    CM_SIM_ENTRY;
    if (!find(plan, false))
        return INVALID_PLAN;
    if (!sizes || !bytes || rank < 1 || batch < 1)
        return INVALID_VALUE;
    size_t elements = (size_t)batch;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 1)
            return INVALID_VALUE;
        elements *= (size_t)sizes[i];
    }
    *bytes = cm_sim_modelled("cuFFT work area", elements * cm_sim_data_type(compute));
    return SUCCESS;
}

CM_SIM_EXPORT int cufftGetVersion(int *version)
{
    CM_SIM_ENTRY;
    if (!version)
        return INVALID_VALUE;
    *version = CM_SIM_CUFFT_VERSION;
    return SUCCESS;
}

CM_SIM_EXPORT int cufftGetProperty(int property, int *value)
{
    CM_SIM_ENTRY;
    return cm_sim_property(CM_SIM_CUFFT_VERSION, 1000, property, value, INVALID_VALUE);
}
