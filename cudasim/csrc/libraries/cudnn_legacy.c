/* cuDNN's older interface, as far as PyTorch still calls it: convolutions (where the backend
 * interface is switched off), batch normalization, CTC loss, dropout. What only computes, and
 * descriptors that are never read, are in tables/cudnn.txt. RNNs: cudnn_rnn.c. */

#include "cudnn.h"

#include <stdlib.h>
#include <string.h>

/* --- convolution ------------------------------------------------------------------------------ */

typedef struct performance {
    int algorithm, status;
    float time; /* ms */
    size_t memory;
    int determinism, math;
    int reserved[3];
} performance;

static size_t convolution(const dnn_tensor *x, const dnn_tensor *w, const dnn_tensor *y)
{
    size_t allowance = 0;
    if (x && w && y)
        allowance = cm_sim_dnn_copy(cm_sim_dnn_elements(x), x->type, false) +
                    cm_sim_dnn_copy(cm_sim_dnn_elements(w), w->type, true) +
                    cm_sim_dnn_copy(cm_sim_dnn_elements(y), y->type, false);
    return cm_sim_dnn_workspace("cuDNN convolution workspace", allowance);
}

static int workspace(const dnn_tensor *x, const dnn_tensor *w, const dnn_tensor *y, size_t *bytes)
{
    if (!bytes)
        return DNN_NULL_POINTER;
    *bytes = convolution(x, w, y);
    return DNN_SUCCESS;
}

/* One algorithm: number 1 is a deterministic one that every direction has. */
static int best(const dnn_tensor *x, const dnn_tensor *w, const dnn_tensor *y, int wanted,
                int *found, performance *results)
{
    if (!found || !results)
        return DNN_NULL_POINTER;
    if (wanted < 1)
        return DNN_BAD_PARAM;
    results[0] =
        (performance){.algorithm = 1, .time = 1, .memory = convolution(x, w, y), .determinism = 1};
    *found = 1;
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void *handle, const dnn_tensor *x,
                                                          const dnn_tensor *w, const void *how,
                                                          const dnn_tensor *y, int algorithm,
                                                          size_t *bytes)
{
    CM_SIM_ENTRY;
    return workspace(x, w, y, bytes);
}

CM_SIM_EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void *handle, const dnn_tensor *w,
                                                               const dnn_tensor *dy,
                                                               const void *how,
                                                               const dnn_tensor *dx, int algorithm,
                                                               size_t *bytes)
{
    CM_SIM_ENTRY;
    return workspace(dx, w, dy, bytes);
}

CM_SIM_EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *handle, const dnn_tensor *x,
                                                                 const dnn_tensor *dy,
                                                                 const void *how,
                                                                 const dnn_tensor *dw,
                                                                 int algorithm, size_t *bytes)
{
    CM_SIM_ENTRY;
    return workspace(x, dw, dy, bytes);
}

CM_SIM_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, const dnn_tensor *x,
                                                         const dnn_tensor *w, const void *how,
                                                         const dnn_tensor *y, int wanted,
                                                         int *found, performance *results)
{
    CM_SIM_ENTRY;
    return best(x, w, y, wanted, found, results);
}

CM_SIM_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, const dnn_tensor *w,
                                                              const dnn_tensor *dy, const void *how,
                                                              const dnn_tensor *dx, int wanted,
                                                              int *found, performance *results)
{
    CM_SIM_ENTRY;
    return best(dx, w, dy, wanted, found, results);
}

CM_SIM_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, const dnn_tensor *x,
                                                                const dnn_tensor *dy,
                                                                const void *how,
                                                                const dnn_tensor *dw, int wanted,
                                                                int *found, performance *results)
{
    CM_SIM_ENTRY;
    return best(x, dw, dy, wanted, found, results);
}

CM_SIM_EXPORT int
cudnnFindConvolutionForwardAlgorithmEx(void *handle, const dnn_tensor *x, const void *x_data,
                                       const dnn_tensor *w, const void *w_data, const void *how,
                                       const dnn_tensor *y, void *y_data, int wanted, int *found,
                                       performance *results, void *space, size_t bytes)
{
    CM_SIM_ENTRY;
    return best(x, w, y, wanted, found, results);
}

CM_SIM_EXPORT int cudnnFindConvolutionBackwardDataAlgorithmEx(
    void *handle, const dnn_tensor *w, const void *w_data, const dnn_tensor *dy,
    const void *dy_data, const void *how, const dnn_tensor *dx, void *dx_data, int wanted,
    int *found, performance *results, void *space, size_t bytes)
{
    CM_SIM_ENTRY;
    return best(dx, w, dy, wanted, found, results);
}

CM_SIM_EXPORT int cudnnFindConvolutionBackwardFilterAlgorithmEx(
    void *handle, const dnn_tensor *x, const void *x_data, const dnn_tensor *dy,
    const void *dy_data, const void *how, const dnn_tensor *dw, void *dw_data, int wanted,
    int *found, performance *results, void *space, size_t bytes)
{
    CM_SIM_ENTRY;
    return best(x, dw, dy, wanted, found, results);
}

/* --- batch normalization ---------------------------------------------------------------------- */

enum { ONLY_NORMALIZE = 0, CHANNEL = 1 };

/* Model: two sums per channel in single precision, whichever direction. */
static int sums(const dnn_tensor *x, size_t *bytes)
{
    if (!x || !bytes)
        return DNN_NULL_POINTER;
    size_t channels = x->dimensions > CHANNEL ? (size_t)x->size[CHANNEL] : 0;
    *bytes = cm_sim_modelled("cuDNN batch normalization workspace", 2 * channels * sizeof(float));
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    void *handle, int mode, int operations, const dnn_tensor *x, const dnn_tensor *z,
    const dnn_tensor *y, const dnn_tensor *scale, const void *activation, size_t *bytes)
{
    CM_SIM_ENTRY;
    return sums(x, bytes);
}

CM_SIM_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    void *handle, int mode, int operations, const dnn_tensor *x, const dnn_tensor *y,
    const dnn_tensor *dy, const dnn_tensor *dz, const dnn_tensor *dx, const dnn_tensor *scale,
    const void *activation, size_t *bytes)
{
    CM_SIM_ENTRY;
    return sums(x, bytes);
}

/* Model: nothing, or where an activation is fused in, a bit per element for those that it let
 * through. */
CM_SIM_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode,
                                                                       int operations,
                                                                       const void *activation,
                                                                       const dnn_tensor *x,
                                                                       size_t *bytes)
{
    CM_SIM_ENTRY;
    if (!x || !bytes)
        return DNN_NULL_POINTER;
    size_t size = operations == ONLY_NORMALIZE ? 0 : (cm_sim_dnn_elements(x) + 7) / 8;
    *bytes = cm_sim_modelled("cuDNN batch normalization reserve", size);
    return DNN_SUCCESS;
}

/* --- CTC loss --------------------------------------------------------------------------------- */

typedef struct ctc {
    int longest; /* label; 0: not set */
} ctc;

CM_SIM_EXPORT int cudnnCreateCTCLossDescriptor(ctc **loss)
{
    CM_SIM_ENTRY;
    if (!loss)
        return DNN_NULL_POINTER;
    *loss = calloc(1, sizeof **loss);
    return *loss ? DNN_SUCCESS : DNN_NO_HOST_MEMORY;
}

CM_SIM_EXPORT int cudnnDestroyCTCLossDescriptor(ctc *loss)
{
    CM_SIM_ENTRY;
    free(loss);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnSetCTCLossDescriptorEx(ctc *loss, int type, int mode, int gradient)
{
    CM_SIM_ENTRY;
    if (!loss)
        return DNN_NULL_POINTER;
    *loss = (ctc){0};
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnSetCTCLossDescriptor_v9(ctc *loss, int type, int mode, int gradient,
                                               int longest)
{
    CM_SIM_ENTRY;
    if (!loss)
        return DNN_NULL_POINTER;
    *loss = (ctc){.longest = longest};
    return DNN_SUCCESS;
}

/* Model: the forward and backward variables of the published algorithm, time x batch x (twice the
 * longest label and one) in single precision. */
static int tables(const dnn_tensor *probabilities, int longest, size_t *bytes)
{
    if (!probabilities || !bytes)
        return DNN_NULL_POINTER;
    if (probabilities->dimensions < 2 || longest < 0)
        return DNN_BAD_PARAM;
    size_t rows = (size_t)probabilities->size[0] * (size_t)probabilities->size[1];
    *bytes = cm_sim_modelled("cuDNN CTC loss workspace",
                             2 * rows * (2 * (size_t)longest + 1) * sizeof(float));
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnGetCTCLossWorkspaceSize(void *handle, const dnn_tensor *probabilities,
                                               const dnn_tensor *gradients, const int *labels,
                                               const int *label_lengths, const int *input_lengths,
                                               int algorithm, const ctc *loss, size_t *bytes)
{
    CM_SIM_ENTRY;
    int longest = 0; /* lengths lie on the host here */
    for (int i = 0; label_lengths && probabilities && i < probabilities->size[1]; i++)
        longest = label_lengths[i] > longest ? label_lengths[i] : longest;
    return tables(probabilities, longest, bytes);
}

CM_SIM_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(void *handle, int algorithm, const ctc *loss,
                                                  const dnn_tensor *probabilities,
                                                  const dnn_tensor *gradients, size_t *bytes)
{
    CM_SIM_ENTRY;
    return loss ? tables(probabilities, loss->longest, bytes) : DNN_NULL_POINTER;
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* Model: a random number generator of 48 bytes for 512 threads of each multiprocessor. */
CM_SIM_EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes)
{
    CM_SIM_ENTRY;
    if (!bytes)
        return DNN_NULL_POINTER;
    const cm_sim_config *config = cm_sim_config_get();
    int device = cm_sim_current_device();
    int sms = device < config->devices ? config->device[device].sms : 1;
    *bytes = cm_sim_modelled("cuDNN dropout states", (size_t)sms * 512 * 48);
    return DNN_SUCCESS;
}
