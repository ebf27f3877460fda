/* cuDNN's recurrent networks. PyTorch asks where each matrix lies in the weight space and keeps its
 * parameters there, so the layout is computed: first the matrices of all pseudo layers (a layer's
 * two directions follow each other), then their biases. Within a pseudo layer come the input
 * matrices of all gates, the recurrent ones, and the projection if there is one. */

#include "cudnn.h"

#include <stdlib.h>

enum { LSTM = 2, GRU = 3 };                 /* 0 and 1: simple cells */
enum { NO_BIAS = 0, TWO_BIASES = 2 };       /* 1 and 3: one bias, on the input or the recurrence */
enum { BIDIRECTIONAL = 1, PROJECTION = 8 }; /* the latter: linear layer of the projection, LSTM */

typedef struct rnn {
    int cell, bias, direction, type;
    int input, hidden, projection, layers;
} rnn;

typedef struct sequences {
    int type, longest, batch, vector;
} sequences;

static int new_object(void **result, size_t bytes)
{
    if (!result)
        return DNN_NULL_POINTER;
    *result = calloc(1, bytes);
    return *result ? DNN_SUCCESS : DNN_NO_HOST_MEMORY;
}

CM_SIM_EXPORT int cudnnCreateRNNDescriptor(void **network)
{
    CM_SIM_ENTRY;
    return new_object(network, sizeof(rnn));
}

CM_SIM_EXPORT int cudnnDestroyRNNDescriptor(rnn *network)
{
    CM_SIM_ENTRY;
    free(network);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnCreateRNNDataDescriptor(void **data)
{
    CM_SIM_ENTRY;
    return new_object(data, sizeof(sequences));
}

CM_SIM_EXPORT int cudnnDestroyRNNDataDescriptor(sequences *data)
{
    CM_SIM_ENTRY;
    free(data);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnSetRNNDescriptor_v8(rnn *network, int algorithm, int cell, int bias,
                                           int direction, int input_mode, int type, int precision,
                                           int math, int input, int hidden, int projection,
                                           int layers, void *dropout, unsigned flags)
{
    CM_SIM_ENTRY;
    if (!network)
        return DNN_NULL_POINTER;
    if (input < 1 || hidden < 1 || layers < 1 || projection < 0 || projection > hidden)
        return DNN_BAD_PARAM;
    *network = (rnn){.cell = cell,
                     .bias = bias,
                     .direction = direction,
                     .type = type,
                     .input = input,
                     .hidden = hidden,
                     .projection = projection,
                     .layers = layers};
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnSetRNNDataDescriptor(sequences *data, int type, int layout, int longest,
                                            int batch, int vector, const int *lengths, void *fill)
{
    CM_SIM_ENTRY;
    if (!data)
        return DNN_NULL_POINTER;
    if (longest < 1 || batch < 1 || vector < 1)
        return DNN_BAD_PARAM;
    *data = (sequences){.type = type, .longest = longest, .batch = batch, .vector = vector};
    return DNN_SUCCESS;
}

/* --- layout ----------------------------------------------------------------------------------- */

static size_t gates(const rnn *network)
{
    return network->cell == LSTM ? 4 : network->cell == GRU ? 3 : 1;
}

static size_t directions(const rnn *network)
{
    return network->direction == BIDIRECTIONAL ? 2 : 1;
}

static size_t biases(const rnn *network)
{
    return network->bias == NO_BIAS ? 0 : network->bias == TWO_BIASES ? 2 : 1;
}

static bool projected(const rnn *network)
{
    return network->cell == LSTM && network->projection && network->projection != network->hidden;
}

/* What goes from one time to the next. */
static size_t state(const rnn *network)
{
    return (size_t)(projected(network) ? network->projection : network->hidden);
}

static size_t pseudo_layers(const rnn *network)
{
    return (size_t)network->layers * directions(network);
}

static size_t inputs(const rnn *network, size_t pseudo)
{
    return pseudo < directions(network) ? (size_t)network->input
                                        : state(network) * directions(network);
}

/* Elements of a pseudo layer's matrices. */
static size_t matrices(const rnn *network, size_t pseudo)
{
    size_t hidden = (size_t)network->hidden;
    size_t count = gates(network) * hidden * (inputs(network, pseudo) + state(network));
    return count + (projected(network) ? state(network) * hidden : 0);
}

static size_t matrices_before(const rnn *network, size_t pseudo)
{
    size_t count = 0;
    for (size_t i = 0; i < pseudo; i++)
        count += matrices(network, i);
    return count;
}

static size_t layer_biases(const rnn *network)
{
    return biases(network) * gates(network) * (size_t)network->hidden;
}

CM_SIM_EXPORT int cudnnGetRNNWeightSpaceSize(void *handle, const rnn *network, size_t *bytes)
{
    CM_SIM_ENTRY;
    if (!network || !bytes)
        return DNN_NULL_POINTER;
    size_t layers = pseudo_layers(network);
    *bytes = (matrices_before(network, layers) + layers * layer_biases(network)) *
             cm_sim_dnn_element(network->type);
    return DNN_SUCCESS;
}

static void describe(dnn_tensor *tensor, int type, size_t rows, size_t columns)
{
    if (tensor)
        *tensor = (dnn_tensor){.type = type,
                               .dimensions = 3,
                               .size = {1, (int)rows, (int)columns},
                               .stride = {(int)(rows * columns), (int)columns, 1}};
}

/* `linear` numbers a pseudo layer's matrices: input ones by gate, recurrent ones by gate, then the
 * projection. A descriptor without dimensions and a NULL address mean that there is none. */
CM_SIM_EXPORT int cudnnGetRNNWeightParams(void *handle, const rnn *network, int pseudo,
                                          size_t bytes, const void *space, int linear,
                                          dnn_tensor *matrix, void **matrix_address,
                                          dnn_tensor *bias, void **bias_address)
{
    CM_SIM_ENTRY;
    if (!network)
        return DNN_NULL_POINTER;
    if (pseudo < 0 || (size_t)pseudo >= pseudo_layers(network) || linear < 0)
        return DNN_BAD_PARAM;
    if (matrix)
        *matrix = (dnn_tensor){0};
    if (bias)
        *bias = (dnn_tensor){0};
    if (matrix_address)
        *matrix_address = NULL;
    if (bias_address)
        *bias_address = NULL;
    size_t which = (size_t)linear, per = gates(network), hidden = (size_t)network->hidden;
    size_t from = inputs(network, (size_t)pseudo), back = state(network);
    size_t element = cm_sim_dnn_element(network->type);
    size_t at = matrices_before(network, (size_t)pseudo);
    uintptr_t base = (uintptr_t)space;
    if (which < per) {
        describe(matrix, network->type, hidden, from);
        at += which * hidden * from;
    } else if (which < 2 * per) {
        describe(matrix, network->type, hidden, back);
        at += per * hidden * from + (which - per) * hidden * back;
    } else if (which == PROJECTION && projected(network)) {
        describe(matrix, network->type, back, hidden);
        at += per * hidden * (from + back);
    } else {
        return which == PROJECTION ? DNN_SUCCESS : DNN_BAD_PARAM;
    }
    if (matrix_address)
        *matrix_address = (void *)(base + at * element);
    if (which < per * biases(network)) {
        size_t first = matrices_before(network, pseudo_layers(network));
        first += (size_t)pseudo * layer_biases(network) + which * hidden;
        describe(bias, network->type, hidden, 1);
        if (bias_address)
            *bias_address = (void *)(base + first * element);
    }
    return DNN_SUCCESS;
}

/* Model, not cuDNN's own formula. Workspace: all gates' inputs of one layer at all times. Reserve,
 * in training: for each layer and time the gates, the cell state and the output. */
CM_SIM_EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, const rnn *network, int training,
                                            const sequences *x, size_t *workspace, size_t *reserve)
{
    CM_SIM_ENTRY;
    if (!network || !x)
        return DNN_NULL_POINTER;
    size_t each = (size_t)x->longest * (size_t)x->batch * (size_t)network->hidden *
                  directions(network) * cm_sim_dnn_element(network->type);
    if (workspace)
        *workspace = cm_sim_modelled("cuDNN RNN workspace", each * gates(network));
    if (reserve)
        *reserve = training ? cm_sim_modelled("cuDNN RNN reserve",
                                              each * (gates(network) + 2) * (size_t)network->layers)
                            : 0;
    return DNN_SUCCESS;
}
