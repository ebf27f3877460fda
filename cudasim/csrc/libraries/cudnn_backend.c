/* cuDNN's backend (graph) interface: descriptors are bags of attributes, an engine runs any graph.
 *
 * THE WORKSPACE MODEL. How much scratch memory a convolution or an attention takes is cuDNN's own
 * choice, from nothing to gigabytes, and the largest part of a simulated peak that is not known.
 * config.conv_workspace is what each gets:
 *
 *   0 or more   that many bytes. 0 is the lower bound: most fused kernels for channels-last
 *               tensors need none.
 *   -1          (CUPTIMEM_SIM_CONV_WORKSPACE is unset) an allowance, the upper end of what is
 *               reported: as if the operation kept a copy of each of its tensors in another layout.
 *               For a convolution: input and output in their own type, and the filter in its own
 *               type or single precision, whichever is larger (its gradient is summed in that).
 *               For any other graph that multiplies matrices (attention): its largest tensor in
 *               single precision. Each copy begins at a multiple of 256 bytes.
 *
 * A convolution that takes one has further engines, each with half of the one before and the last
 * with none, as implicit products of matrices need none: PyTorch tries them in turn until one finds
 * room, and catches what its allocator throws until then. cm_sim_passed_over counts that.
 *
 * Graphs without either (pointwise, normalization) need nothing. Each answer is noted as modelled;
 * the scratch that cuDNN's front end, compiled into PyTorch, adds by itself is real. */

#include "cudnn.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ENGINES = 5 }; /* of a convolution with a workspace */

enum {
    KIND_ENGINE = 2,
    KIND_ENGINE_CONFIG = 3,
    KIND_HEURISTIC = 4,
    KIND_PLAN = 5,
    KIND_CONVOLUTION_FIRST = 10, /* forward, backward filter, backward data */
    KIND_CONVOLUTION_LAST = 12,
    KIND_GRAPH = 15,
    KIND_TENSOR = 17,
    KIND_MATMUL = 19,
    KIND_ATTENTION = 41,
    KIND_MOE = 42,
    KIND_ATTENTION_BACKWARD = 43,
    KIND_MOE_BACKWARD = 48
};

enum {
    HEURISTIC_GRAPH = 201,
    HEURISTIC_RESULTS = 202,
    CONFIG_ENGINE = 300,
    CONFIG_WORKSPACE = 303,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    PLAN_JSON = 405,
    GRAPH_OPERATIONS = 801,
    GRAPH_ENGINES = 802,
    TENSOR_TYPE = 901,
    TENSOR_SIZES = 902,
    TENSOR_VIRTUAL = 907,
    ENGINE_GRAPH = 1300,
    ENGINE_INDEX = 1301
};

/* Types of attributes. */
enum { HANDLE = 0, BOOLEAN = 2, INT64 = 3, DOUBLE = 5, POINTER = 6, NUMERICAL_NOTE = 11 };
enum { DESCRIPTOR = 15, BEHAVIOR_NOTE = 19, CHAR = 24, FRACTION = 26 };

/* An attribute that is a descriptor is held: PyTorch may destroy it right after setting it. */
typedef struct descriptor {
    int kind, holders;
    bool finalized;
    cm_sim_attribute *attributes;
    struct descriptor *next, *previous; /* of executed plans */
} descriptor;

static descriptor *executed; /* PyTorch keeps them to execute them again */
static int64_t passed_over;

/* One lock for the reference counts: descriptors are shared between plans, plans between threads.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t size_of(int type)
{
    switch (type) {
    case HANDLE:
    case INT64:
    case DOUBLE:
    case POINTER:
    case DESCRIPTOR:
        return 8;
    case BOOLEAN:
    case CHAR:
        return 1;
    case FRACTION:
        return 16;
    default: /* enumerations, int32, float */
        return 4;
    }
}

static descriptor **children(const cm_sim_attribute *attribute)
{
    return (descriptor **)(void *)attribute->data;
}

static void hold(const cm_sim_attribute *attribute)
{
    for (int64_t i = 0; attribute->type == DESCRIPTOR && i < attribute->count; i++)
        if (children(attribute)[i])
            children(attribute)[i]->holders++;
}

static void release(descriptor *what);

static void release_children(const cm_sim_attribute *attribute)
{
    for (int64_t i = 0; attribute->type == DESCRIPTOR && i < attribute->count; i++)
        release(children(attribute)[i]);
}

static void drop_attributes(descriptor *what)
{
    for (cm_sim_attribute *each = what->attributes; each; each = each->next)
        release_children(each);
    cm_sim_attribute_drop(&what->attributes);
}

/* Graphs have a few levels, so it may call itself. */
static void release(descriptor *what)
{
    if (what && --what->holders == 0) {
        if (what->next)
            what->next->previous = what->previous;
        if (what->previous)
            what->previous->next = what->next;
        else if (what == executed)
            executed = what->next;
        drop_attributes(what);
        free(what);
    }
}

static descriptor *create(int kind)
{
    descriptor *made = calloc(1, sizeof *made);
    if (made)
        *made = (descriptor){.kind = kind, .holders = 1};
    return made;
}

static int set(descriptor *what, int name, int type, int64_t count, const void *data)
{
    const cm_sim_attribute *old = cm_sim_attribute_get(what->attributes, name);
    cm_sim_attribute *kept = NULL; /* until the new ones are held: they may be the same */
    if (old && old->type == DESCRIPTOR &&
        !cm_sim_attribute_set(&kept, name, old->type, old->count, old->data, old->bytes))
        return DNN_NO_HOST_MEMORY;
    if (!cm_sim_attribute_set(&what->attributes, name, type, count, data,
                              (size_t)count * size_of(type))) {
        cm_sim_attribute_drop(&kept);
        return DNN_NO_HOST_MEMORY;
    }
    hold(cm_sim_attribute_get(what->attributes, name));
    if (kept)
        release_children(kept);
    cm_sim_attribute_drop(&kept);
    return DNN_SUCCESS;
}

/* Copies the attributes of `from` to `to`: the caller's descriptors are filled so. */
static int fill(descriptor *to, const descriptor *from)
{
    if (to == from)
        return DNN_SUCCESS;
    for (const cm_sim_attribute *each = from->attributes; each; each = each->next) {
        int status = set(to, each->name, each->type, each->count, each->data);
        if (status != DNN_SUCCESS)
            return status;
    }
    to->finalized = true;
    return DNN_SUCCESS;
}

/* --- workspace -------------------------------------------------------------------------------- */

size_t cm_sim_dnn_copy(size_t elements, int type, bool filter)
{
    size_t element = cm_sim_dnn_element(type);
    if (filter && element < sizeof(float))
        element = sizeof(float);
    return (elements * element + 255) & ~(size_t)255;
}

static size_t granted(size_t allowance)
{
    int64_t asked = cm_sim_config_get()->conv_workspace;
    return asked >= 0 ? (size_t)asked : allowance;
}

size_t cm_sim_dnn_workspace(const char *what, size_t allowance)
{
    return cm_sim_modelled(what, granted(allowance));
}

/* The first descriptor that an attribute names. */
static const descriptor *child(const descriptor *what, int name)
{
    const cm_sim_attribute *found = what ? cm_sim_attribute_get(what->attributes, name) : NULL;
    return found && found->type == DESCRIPTOR && found->count ? children(found)[0] : NULL;
}

/* false: a tensor that never is in memory. */
static bool tensor(const descriptor *what, size_t *elements, int *type)
{
    const cm_sim_attribute *sizes = cm_sim_attribute_get(what->attributes, TENSOR_SIZES);
    const cm_sim_attribute *kind = cm_sim_attribute_get(what->attributes, TENSOR_TYPE);
    const cm_sim_attribute *hidden = cm_sim_attribute_get(what->attributes, TENSOR_VIRTUAL);
    if (!sizes || sizes->type != INT64 || !kind || kind->bytes < sizeof *type ||
        (hidden && hidden->bytes && hidden->data[0]))
        return false;
    memcpy(type, kind->data, sizeof *type);
    *elements = 1;
    for (int64_t i = 0; i < sizes->count; i++) {
        int64_t size;
        memcpy(&size, sizes->data + i * (int64_t)sizeof size, sizeof size);
        *elements *= size > 0 ? (size_t)size : 0;
    }
    return true;
}

typedef struct sums {
    size_t all, largest; /* bytes of copies: of all tensors, of the largest in single precision */
} sums;

/* The attribute that is a convolution's filter: forward, backward data, backward filter. */
static bool is_filter(int name)
{
    return name == 703 || name == 709 || name == 714;
}

static void add_operation(const descriptor *operation, sums *total)
{
    for (const cm_sim_attribute *each = operation->attributes; each; each = each->next)
        for (int64_t i = 0; each->type == DESCRIPTOR && i < each->count; i++) {
            const descriptor *of = children(each)[i];
            size_t elements;
            int type;
            if (!of || of->kind != KIND_TENSOR || !tensor(of, &elements, &type))
                continue;
            total->all += cm_sim_dnn_copy(elements, type, is_filter(each->name));
            size_t single = cm_sim_dnn_copy(elements, type, true);
            total->largest = single > total->largest ? single : total->largest;
        }
}

typedef struct need {
    const char *name; /* of the workspace; NULL: none */
    size_t most;      /* bytes that the first engine takes */
    int64_t engines;
} need;

static need need_of(const descriptor *graph)
{
    const cm_sim_attribute *operations =
        graph ? cm_sim_attribute_get(graph->attributes, GRAPH_OPERATIONS) : NULL;
    sums convolution = {0}, product = {0};
    bool convolves = false, multiplies = false;
    for (int64_t i = 0; operations && operations->type == DESCRIPTOR && i < operations->count;
         i++) {
        const descriptor *operation = children(operations)[i];
        int kind = operation ? operation->kind : -1;
        if (kind >= KIND_CONVOLUTION_FIRST && kind <= KIND_CONVOLUTION_LAST) {
            convolves = true;
            add_operation(operation, &convolution);
        } else if (kind == KIND_MATMUL || kind == KIND_ATTENTION ||
                   kind == KIND_ATTENTION_BACKWARD || kind == KIND_MOE ||
                   kind == KIND_MOE_BACKWARD) {
            multiplies = true;
            add_operation(operation, &product);
        }
    }
    if (convolves) {
        size_t most = granted(convolution.all);
        return (need){"cuDNN convolution workspace", most, most > 0 ? ENGINES : 1};
    }
    if (multiplies)
        return (need){"cuDNN attention workspace", granted(product.largest), 1};
    return (need){NULL, 0, 1};
}

static const descriptor *engine_of(const descriptor *what)
{
    const descriptor *config = what->kind == KIND_PLAN ? child(what, PLAN_CONFIG) : what;
    return child(config, CONFIG_ENGINE);
}

static int64_t engine_index(const descriptor *engine)
{
    const cm_sim_attribute *found =
        engine ? cm_sim_attribute_get(engine->attributes, ENGINE_INDEX) : NULL;
    int64_t index = 0;
    if (found && found->type == INT64 && found->count)
        memcpy(&index, found->data, sizeof index);
    return index > 0 && index < ENGINES ? index : 0;
}

static size_t workspace(const descriptor *what)
{
    const descriptor *engine = engine_of(what);
    need found = need_of(child(engine, ENGINE_GRAPH));
    int64_t index = engine_index(engine);
    if (!found.name)
        return 0;
    return cm_sim_modelled(found.name, index == ENGINES - 1 ? 0 : found.most >> index);
}

/* --- plans that find no room for their workspace ---------------------------------------------- */

/* Whether two descriptors say the same. Graphs have a few levels, so it may call itself. */
static bool same(const descriptor *one, const descriptor *other)
{
    if (!one || !other || one->kind != other->kind)
        return one == other;
    const cm_sim_attribute *a = one->attributes, *b = other->attributes;
    for (; a && b; a = a->next, b = b->next) {
        if (a->name != b->name || a->type != b->type || a->count != b->count)
            return false;
        if (a->type == HANDLE || a->type == POINTER)
            continue;
        if (a->type != DESCRIPTOR && memcmp(a->data, b->data, a->bytes) != 0)
            return false;
        for (int64_t i = 0; a->type == DESCRIPTOR && i < a->count; i++)
            if (!same(children(a)[i], children(b)[i]))
                return false;
    }
    return a == b;
}

/* A plan is made right after the device refused its thread something. PyTorch's allocator threw,
 * and a convolution caught that, where a plan before it has just been tried: that of the engine
 * before it, or one that PyTorch kept for the same graph. */
static bool passes_over(const descriptor *plan)
{
    const descriptor *engine = engine_of(plan), *graph = child(engine, ENGINE_GRAPH);
    if (need_of(graph).engines == 1)
        return false;
    if (engine_index(engine) > 0)
        return true;
    for (const descriptor *each = executed; each; each = each->next)
        if (same(child(engine_of(each), ENGINE_GRAPH), graph))
            return true;
    return false;
}

CM_SIM_EXPORT int64_t cm_sim_passed_over(void)
{
    pthread_mutex_lock(&lock);
    int64_t count = passed_over;
    pthread_mutex_unlock(&lock);
    return count;
}

/* --- entry points ----------------------------------------------------------------------------- */

CM_SIM_EXPORT int cudnnBackendCreateDescriptor(int kind, descriptor **result)
{
    CM_SIM_ENTRY;
    if (!result)
        return DNN_NULL_POINTER;
    *result = create(kind);
    return *result ? DNN_SUCCESS : DNN_NO_HOST_MEMORY;
}

CM_SIM_EXPORT int cudnnBackendDestroyDescriptor(descriptor *what)
{
    CM_SIM_ENTRY;
    pthread_mutex_lock(&lock);
    release(what);
    pthread_mutex_unlock(&lock);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnBackendFinalize(descriptor *what)
{
    CM_SIM_ENTRY;
    if (!what)
        return DNN_NULL_POINTER;
    pthread_mutex_lock(&lock);
    if (what->kind == KIND_PLAN && cm_sim_was_refused() && passes_over(what))
        passed_over++;
    what->finalized = true;
    pthread_mutex_unlock(&lock);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnBackendExecute(void *handle, descriptor *plan, const descriptor *pack)
{
    CM_SIM_ENTRY;
    if (!handle || !plan || !pack)
        return DNN_NULL_POINTER;
    if (!plan->finalized)
        return DNN_NOT_FINALIZED;
    pthread_mutex_lock(&lock);
    if (plan != executed && !plan->previous) {
        plan->next = executed;
        if (executed)
            executed->previous = plan;
        executed = plan;
    }
    pthread_mutex_unlock(&lock);
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnBackendSetAttribute(descriptor *what, int name, int type, int64_t count,
                                           const void *data)
{
    CM_SIM_ENTRY;
    if (!what || (!data && count))
        return DNN_NULL_POINTER;
    if (count < 0)
        return DNN_BAD_PARAM;
    pthread_mutex_lock(&lock);
    int status = set(what, name, type, count, data);
    pthread_mutex_unlock(&lock);
    return status;
}

/* Attributes that can be read without having been set. *count: how many there are. */
static int unset(const descriptor *what, int name, int type, int64_t wanted, int64_t *count,
                 void *data)
{
    *count = 0;
    if (type == DESCRIPTOR || type == NUMERICAL_NOTE || type == BEHAVIOR_NOTE)
        return DNN_SUCCESS; /* no knobs, no notes, no intermediate results */
    *count = 1;
    int64_t number = 0;
    if (name == PLAN_WORKSPACE || name == CONFIG_WORKSPACE)
        number = (int64_t)workspace(what);
    else if (name == GRAPH_ENGINES)
        number = need_of(what).engines;
    else if (name == PLAN_JSON && what->kind == KIND_PLAN) {
        *count = 3;
        if (data && wanted > 0)
            memcpy(data, "{}", wanted < 3 ? (size_t)wanted : 3);
        return DNN_SUCCESS;
    }
    if (data && wanted > 0) {
        memset(data, 0, size_of(type));
        memcpy(data, &number, size_of(type) < sizeof number ? size_of(type) : sizeof number);
    }
    return DNN_SUCCESS;
}

/* The configuration of an engine for a graph. */
static int configure(descriptor *config, const cm_sim_attribute *graph, int64_t index)
{
    if (!config || config->kind != KIND_ENGINE_CONFIG)
        return DNN_BAD_PARAM;
    descriptor *engine = create(KIND_ENGINE);
    if (!engine)
        return DNN_NO_HOST_MEMORY;
    engine->finalized = true;
    int status = set(engine, ENGINE_GRAPH, graph->type, graph->count, graph->data);
    if (status == DNN_SUCCESS)
        status = set(engine, ENGINE_INDEX, INT64, 1, &index);
    if (status == DNN_SUCCESS)
        status = set(config, CONFIG_ENGINE, DESCRIPTOR, 1, &engine);
    release(engine); /* its configuration holds it now */
    config->finalized = status == DNN_SUCCESS;
    return status;
}

/* The results of a heuristic: the engines, the one with the largest workspace first. */
static int suggest(const descriptor *heuristic, int64_t wanted, int64_t *count, descriptor **into)
{
    const cm_sim_attribute *graph = cm_sim_attribute_get(heuristic->attributes, HEURISTIC_GRAPH);
    *count = need_of(child(heuristic, HEURISTIC_GRAPH)).engines;
    if (!into || wanted < 1)
        return DNN_SUCCESS;
    if (!graph)
        return DNN_BAD_PARAM;
    if (wanted < *count)
        *count = wanted;
    int status = DNN_SUCCESS;
    for (int64_t i = 0; i < *count && status == DNN_SUCCESS; i++)
        status = configure(into[i], graph, i);
    return status;
}

static int get(const descriptor *what, int name, int type, int64_t wanted, int64_t *count,
               void *data)
{
    if (what->kind == KIND_HEURISTIC && name == HEURISTIC_RESULTS)
        return suggest(what, wanted, count, data);
    const cm_sim_attribute *found = cm_sim_attribute_get(what->attributes, name);
    if (!found)
        return unset(what, name, type, wanted, count, data);
    *count = found->count;
    int64_t given = !data ? 0 : wanted < found->count ? wanted : found->count;
    if (found->type != DESCRIPTOR) {
        if (given > 0)
            memcpy(data, found->data, (size_t)given * size_of(found->type));
        return DNN_SUCCESS;
    }
    for (int64_t i = 0; i < given; i++) {
        descriptor *into = ((descriptor **)data)[i];
        int status = into && children(found)[i] ? fill(into, children(found)[i]) : DNN_NULL_POINTER;
        if (status != DNN_SUCCESS)
            return status;
    }
    return DNN_SUCCESS;
}

CM_SIM_EXPORT int cudnnBackendGetAttribute(const descriptor *what, int name, int type,
                                           int64_t wanted, int64_t *count, void *data)
{
    CM_SIM_ENTRY;
    if (!what)
        return DNN_NULL_POINTER;
    int64_t ignored;
    pthread_mutex_lock(&lock);
    int status = get(what, name, type, wanted, count ? count : &ignored, data);
    pthread_mutex_unlock(&lock);
    return status;
}
