/* Reports as plain Python objects: one dict of numbers, tuples and strings per trace. */
#include "py_build.h"

#include <stdbool.h>
#include <string.h>

#include "../analysis/analysis.h"
#include "../heap/node_name.h"
#include "../heap/library.h"
#include "../base/clock.h"

const char *const cm_py_phases[] = {"other",    "data",      "forward",
                                    "backward", "optimizer", "before start"};
const char *const cm_py_states[] = {"complete", "recording", "recovered", "cut"};
/* Part of the report, and of its JSON. */
static const char *const confidence_names[] = {"low", "medium", "high"};
static const char *const reason_names[] = {
    [CM_SUSPECT_NOT] = "",
    [CM_SUSPECT_FEW] = "few births",
    [CM_SUSPECT_STOPPED] = "stopped",
    [CM_SUSPECT_EPOCH] = "one epoch",
    [CM_SUSPECT_GARBAGE] = "garbage",
    [CM_SUSPECT_LOST] = "events lost",
    [CM_SUSPECT_UNCOLLECTED] = "no collection",
    [CM_SUSPECT_LATE] = "late garbage",
    [CM_SUSPECT_FILLING] = "filling",
    [CM_SUSPECT_NEGLIGIBLE] = "negligible",
};
static const char *const relation_names[] = {
    [CM_LEAK_ALONE] = "",
    [CM_LEAK_RETAINED] = "retained by the graph",
    [CM_LEAK_SAME_STEPS] = "made in the same steps",
    [CM_LEAK_FOLLOWS] = "grows with it",
};
static const char *const table_names[] = {
    [CM_TABLE_START] = "start",         [CM_TABLE_END] = "end",
    [CM_TABLE_ABOVE] = "above",         [CM_TABLE_KEPT] = "kept",
    [CM_TABLE_ALLOCATED] = "allocated", [CM_TABLE_STEPPED] = "stepped",
    [CM_TABLE_TEMPORARY] = "temporary"};
const char *const cm_py_categories[CM_CATEGORIES] = {[CM_CATEGORY_UNKNOWN] = "unknown",
                                                     [CM_CATEGORY_PARAMETER] = "parameter",
                                                     [CM_CATEGORY_BUFFER] = "buffer",
                                                     [CM_CATEGORY_GRADIENT] = "gradient",
                                                     [CM_CATEGORY_OPTIMIZER_STATE] =
                                                         "optimizer state",
                                                     [CM_CATEGORY_INPUT] = "input",
                                                     [CM_CATEGORY_ACTIVATION] = "activation",
                                                     [CM_CATEGORY_TEMPORARY] = "temporary",
                                                     [CM_CATEGORY_BEFORE_START] = "before start"};
static const char *const tick_names[] = {NULL, "step", "optimizer", "data", "module", "backward"};

typedef cm_py_builder builder;

/* Text from a file need not be UTF-8; it must not fail here. */
PyObject *cm_py_text(const char *bytes)
{
    if (bytes == NULL)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)strlen(bytes), "replace");
}

/* The same object for the same string of the reader: file names occur in every frame. */
static PyObject *shared_text(builder *b, const char *bytes)
{
    if (bytes == NULL)
        Py_RETURN_NONE;
    PyObject *key = PyLong_FromVoidPtr((void *)bytes);
    if (key == NULL)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(b->strings, key));
    if (found == NULL && !PyErr_Occurred()) {
        found = cm_py_text(bytes);
        if (found != NULL && PyDict_SetItem(b->strings, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

static PyObject *none_below_zero(int64_t value)
{
    if (value < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

PyObject *cm_py_fail(const char *message)
{
    PyObject *reason = cm_py_text(message);
    if (reason != NULL) {
        PyErr_SetObject(cm_py_error, reason);
        Py_DECREF(reason);
    }
    return NULL;
}

int cm_py_append(PyObject *list, PyObject *item)
{
    int status = item == NULL ? -1 : PyList_Append(list, item);
    Py_XDECREF(item);
    return status;
}

int cm_py_put(PyObject *dict, const char *key, PyObject *value)
{
    int status = value == NULL ? -1 : PyDict_SetItemString(dict, key, value);
    Py_XDECREF(value);
    return status;
}

static PyObject *finish_list(PyObject *list, bool fine)
{
    if (!fine)
        Py_CLEAR(list);
    return list;
}

static PyObject *frame_tuple(builder *b, const cm_frame *frame)
{
    if (frame->truncated)
        return Py_BuildValue("(OsiiiiOKs)", Py_None, "...", -1, -1, -1, -1, Py_None, 0ULL, "");
    return Py_BuildValue(
        "(NNiiiiNKN)", shared_text(b, frame->file), shared_text(b, frame->function), frame->line,
        frame->end_line, frame->column, frame->end_column, shared_text(b, frame->module_class),
        (unsigned long long)frame->module, shared_text(b, frame->text != NULL ? frame->text : ""));
}

/* The innermost frame of a stack, made once: stacks share their outer frames. NULL without an
 * exception: there is none. */
static PyObject *innermost(builder *b, uint32_t stack)
{
    cm_frame frame;
    PyObject *key = PyLong_FromUnsignedLong(stack);
    if (key == NULL)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(b->frames, key));
    if (found == NULL && !PyErr_Occurred() && cm_reader_stack_frame(b->reader, stack, &frame)) {
        found = frame_tuple(b, &frame);
        if (found != NULL && PyDict_SetItem(b->frames, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

void cm_py_allow(builder *b)
{
    /* A quarter of a million frames for the smallest trace, and eight for each byte. */
    b->left = ((uint64_t)64 << 20) + 2048 * cm_reader_bytes(b->reader);
    b->unshown = 0;
}

static uint32_t allowed(builder *b, uint32_t stack)
{
    uint32_t cost = cm_reader_stack_cost(b->reader, stack);
    if (cost > b->left) {
        b->unshown++;
        return CM_STACK_LOST;
    }
    b->left -= cost;
    return stack;
}

static PyObject *frame_list(builder *b, uint32_t stack)
{
    PyObject *frames = PyList_New(0), *frame = NULL;
    while (frames != NULL && (frame = innermost(b, stack)) != NULL) {
        if (cm_py_append(frames, frame) < 0)
            Py_CLEAR(frames);
        stack = cm_reader_stack_parent(b->reader, stack);
    }
    return finish_list(frames, frames != NULL && !PyErr_Occurred());
}

PyObject *cm_py_stack(builder *b, uint32_t stack)
{
    return frame_list(b, allowed(b, stack));
}

PyObject *cm_py_stack_id(builder *b, uint32_t stack)
{
    stack = allowed(b, stack);
    PyObject *key = PyLong_FromUnsignedLong(stack);
    if (key == NULL)
        return NULL;
    int there = PyDict_Contains(b->stacks, key);
    if (there == 0) {
        PyObject *frames = frame_list(b, stack);
        there = frames == NULL ? -1 : PyDict_SetItem(b->stacks, key, frames);
        Py_XDECREF(frames);
    }
    if (there < 0)
        Py_CLEAR(key);
    return key;
}

PyObject *cm_py_node_name(builder *b, uint32_t name)
{
    if (name == 0)
        Py_RETURN_NONE;
    PyObject *key = PyLong_FromUnsignedLong(name);
    if (key == NULL)
        return NULL;
    PyObject *found = Py_XNewRef(PyDict_GetItemWithError(b->names, key));
    if (found == NULL && !PyErr_Occurred()) {
        char label[256];
        const char *rtti =
            name == CM_NAME_ACCUMULATION ? "AccumulateGrad" : cm_reader_name(b->reader, name);
        cm_label_node(rtti != NULL ? rtti : "", label, sizeof label);
        found = cm_py_text(label);
        if (found != NULL && PyDict_SetItem(b->names, key, found) < 0)
            Py_CLEAR(found);
    }
    Py_DECREF(key);
    return found;
}

/* What a walk has said, or None. */
PyObject *cm_py_label(cm_py_builder *b, uint32_t name)
{
    return shared_text(b, name == 0 ? NULL : cm_reader_name(b->reader, name));
}

PyObject *cm_py_contributors(builder *b, const cm_contributor *c, size_t count)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < count; i++)
        fine = cm_py_append(list, Py_BuildValue(
                                      "(LKNNsNsNN)", (long long)c[i].bytes,
                                      (unsigned long long)c[i].count, cm_py_stack_id(b, c[i].stack),
                                      cm_py_stack_id(b, c[i].origin_stack),
                                      cm_py_phases[c[i].phase], cm_py_node_name(b, c[i].name),
                                      cm_py_categories[c[i].category], cm_py_label(b, c[i].module),
                                      cm_py_node_name(b, c[i].saved_by))) == 0;
    return finish_list(list, fine);
}

static PyObject *tensor_list(builder *b, const cm_device_report *d)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < d->tensor_count; i++) {
        const cm_tensor *t = &d->tensors[i];
        fine = cm_py_append(list, Py_BuildValue("(NsLNN)", cm_py_label(b, t->text),
                                                cm_py_categories[t->category], (long long)t->bytes,
                                                cm_py_label(b, t->module),
                                                cm_py_stack_id(b, t->stack))) == 0;
    }
    return finish_list(list, fine);
}

static PyObject *oom_row(builder *b, const cm_oom *oom)
{
    return Py_BuildValue(
        "(KLLNNNNLNNN)", (unsigned long long)oom->time_ns, (long long)oom->requested,
        (long long)oom->allocated, cm_py_stack_id(b, oom->stack), none_below_zero(oom->step),
        cm_py_contributors(b, oom->contributors, oom->contributor_count),
        PyBool_FromLong(oom->left), (long long)oom->reserved, cm_py_stack_id(b, oom->origin_stack),
        cm_py_node_name(b, oom->name),
        oom->memory.segment_total == 0 ? Py_NewRef(Py_None) : cm_py_fragmentation(b, &oom->memory));
}

static PyObject *oom_list(builder *b, const cm_device_report *d)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < d->oom_count; i++)
        fine = cm_py_append(list, oom_row(b, &d->ooms[i])) == 0;
    return finish_list(list, fine);
}

static PyObject *timeline_list(const cm_device_report *d)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < d->timeline_count; i++) {
        const cm_timeline_point *p = &d->timeline[i];
        fine = cm_py_append(list, Py_BuildValue("(KLLN)", (unsigned long long)p->time_ns,
                                                (long long)p->min, (long long)p->max,
                                                none_below_zero(p->reserved))) == 0;
    }
    return finish_list(list, fine);
}

static PyObject *segments_dict(const cm_segment_totals *s)
{
    if (!s->seen)
        Py_RETURN_NONE;
    return Py_BuildValue("{s:K,s:L,s:L}", "count", (unsigned long long)s->count, "bytes",
                         (long long)s->bytes, "peak", (long long)s->peak);
}

static PyObject *check_dict(const cm_totals_check *c)
{
    return Py_BuildValue("{s:L,s:L,s:K,s:K}", "told", (long long)c->told, "live",
                         (long long)c->live, "checked", (unsigned long long)c->checked, "differ",
                         (unsigned long long)c->differ);
}

/* {name: (contributors, (rest bytes, rest count))} of the tables that were asked for. */
static PyObject *table_dict(builder *b, const cm_device_report *d)
{
    PyObject *dict = PyDict_New();
    bool fine = dict != NULL;
    for (size_t i = 0; fine && i < CM_TABLES; i++) {
        const cm_table *t = &d->table[i];
        if (b->tables & CM_TABLE(i))
            fine = cm_py_put(dict, table_names[i],
                             Py_BuildValue(
                                 "(N(LK))",
                                 cm_py_contributors(b, t->contributors, t->contributor_count),
                                 (long long)t->rest_bytes, (unsigned long long)t->rest_count)) == 0;
    }
    return finish_list(dict, fine);
}

static PyObject *device_dict(builder *b, const cm_device_report *d)
{
    return Py_BuildValue(
        "{s:s,s:L,s:L,s:K,s:N,s:(LKN),s:L,s:L,s:K,s:K,s:L,s:L,s:N,s:N,s:N,s:K,s:N,s:L,s:N,s:N,s:N,"
        "s:N}",
        "device", d->name, "start", (long long)d->start, "peak", (long long)d->peak, "peak_time_ns",
        (unsigned long long)d->peak_time_ns, "peak_step", none_below_zero(d->peak_step), "above",
        (long long)d->above, (unsigned long long)d->above_time_ns, none_below_zero(d->above_step),
        "kept", (long long)d->kept, "end", (long long)d->end, "allocations",
        (unsigned long long)d->allocations, "frees", (unsigned long long)d->frees, "allocated",
        (long long)d->allocated, "freed", (long long)d->freed, "reserved_peak",
        none_below_zero(d->reserved_peak), "contributors",
        cm_py_contributors(b, d->contributors, d->contributor_count), "ooms", oom_list(b, d),
        "ooms_total", (unsigned long long)d->oom_total, "timeline", timeline_list(d),
        "requested_peak", (long long)d->requested_peak, "segments", segments_dict(&d->segments),
        "check", check_dict(&d->check), "tables", table_dict(b, d), "tensors", tensor_list(b, d));
}

static PyObject *device_list(builder *b)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < b->analysis->device_count; i++)
        fine = cm_py_append(list, device_dict(b, &b->analysis->device[i])) == 0;
    return finish_list(list, fine);
}

static PyObject *step_dict(builder *b, const cm_step_report *s)
{
    const cm_analysis *a = b->analysis;
    return Py_BuildValue(
        "{s:I,s:s,s:s,s:K,s:K,s:K,s:L,s:L,s:L,s:L,s:L,s:K,s:N,s:N,s:(LK)}", "index", s->index,
        "loop", a->steps.loop[s->loop].name, "device", a->device[s->device].name, "begin_ns",
        (unsigned long long)s->begin_ns, "end_ns", (unsigned long long)s->end_ns, "peak_ns",
        (unsigned long long)s->peak_ns, "start", (long long)s->start, "peak", (long long)s->peak,
        "end", (long long)s->end, "allocated", (long long)s->allocated, "freed",
        (long long)s->freed, "allocations", (unsigned long long)s->allocations, "reserved",
        none_below_zero(s->reserved), "contributors",
        cm_py_contributors(b, a->step_contributors + s->first_contributor, s->contributor_count),
        "rest", (long long)s->rest_bytes, (unsigned long long)s->rest_count);
}

static PyObject *step_list(builder *b)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < b->analysis->step_count; i++)
        fine = cm_py_append(list, step_dict(b, &b->analysis->step[i])) == 0;
    return finish_list(list, fine);
}

/* (file, line, function) of a clock's line, or None. */
static PyObject *where(builder *b, uint32_t line)
{
    cm_frame frame;
    uint32_t stack = line < b->analysis->line_count ? b->analysis->line_stack[line] : CM_STACK_NONE;
    if (!cm_reader_stack_frame(b->reader, stack, &frame))
        Py_RETURN_NONE;
    return Py_BuildValue("(NiN)", shared_text(b, frame.file), frame.line,
                         shared_text(b, frame.function));
}

/* (kind, where, steps) of a better clock that ticked too rarely, or None. */
static PyObject *passed_clock(builder *b)
{
    const cm_steps *steps = &b->analysis->steps;
    if (steps->passed_kind == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(sNI)", tick_names[steps->passed_kind], where(b, steps->passed_line),
                         steps->passed_steps);
}

/* (updates, where, joined) of an iteration, or None. */
static PyObject *clock_rate(builder *b)
{
    const cm_steps *steps = &b->analysis->steps;
    if (steps->updates == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("(INN)", steps->updates, where(b, steps->updates_line),
                         PyBool_FromLong(steps->joined));
}

static PyObject *clock_dict(builder *b)
{
    const cm_steps *steps = &b->analysis->steps;
    PyObject *changes = PyList_New(0), *loops = PyList_New(0);
    bool fine = changes != NULL && loops != NULL;
    for (size_t i = 0; fine && i < steps->change_count; i++) {
        const cm_clock_change *c = &steps->change[i];
        fine = cm_py_append(changes, Py_BuildValue("{s:I,s:s,s:N,s:s}", "step", c->step, "kind",
                                                   tick_names[c->kind], "where", where(b, c->line),
                                                   "loop", steps->loop[c->loop].name)) == 0;
    }
    for (size_t i = 0; fine && i < steps->loop_count; i++) {
        const cm_clock_loop *l = &steps->loop[i];
        fine = cm_py_append(loops, Py_BuildValue("{s:s,s:s,s:N,s:K}", "loop", l->name, "kind",
                                                 tick_names[l->kind], "where", where(b, l->line),
                                                 "steps", (unsigned long long)l->steps)) == 0;
    }
    if (!fine) {
        Py_XDECREF(changes);
        Py_XDECREF(loops);
        return NULL;
    }
    return Py_BuildValue("{s:z,s:N,s:N,s:N,s:N,s:N}", "kind",
                         steps->kind ? tick_names[steps->kind] : NULL, "where",
                         where(b, steps->line), "changes", changes, "loops", loops, "passed",
                         passed_clock(b), "rate", clock_rate(b));
}

static PyObject *survivor_list(builder *b, const cm_survivor *s, size_t count)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < count; i++)
        fine = cm_py_append(
                   list, Py_BuildValue("(sNLKLL)", b->analysis->device[s[i].device].name,
                                       cm_py_stack_id(b, s[i].stack), (long long)s[i].bytes,
                                       (unsigned long long)s[i].count, (long long)s[i].first_step,
                                       (long long)s[i].last_step)) == 0;
    return finish_list(list, fine);
}

static PyObject *part_list(builder *b, const cm_leak *leak)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < leak->part_count; i++) {
        const cm_leak_part *p = &b->analysis->leak_parts[leak->first_part + i];
        fine = cm_py_append(list, Py_BuildValue("(LKN)", (long long)p->bytes,
                                                (unsigned long long)p->count,
                                                cm_py_stack_id(b, p->stack))) == 0;
    }
    return finish_list(list, fine);
}

/* Those of one leak beside each other, in the order of the trace. */
static int compare_holders(const void *a, const void *b)
{
    const cm_holder *x = *(const cm_holder *const *)a, *y = *(const cm_holder *const *)b;
    if (x->stack != y->stack)
        return x->stack < y->stack ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int compare_places(const void *a, const void *b)
{
    const cm_holder *x = *(const cm_holder *const *)a, *y = *(const cm_holder *const *)b;
    return x < y ? -1 : x > y;
}

static bool sort_holders(builder *b)
{
    const cm_analysis *a = b->analysis;
    b->holders = PyMem_New(const cm_holder *, a->holder_count + 1);
    if (b->holders == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < a->holder_count; i++)
        b->holders[i] = &a->holders[i];
    qsort(b->holders, a->holder_count, sizeof *b->holders, compare_holders);
    return true;
}

/* Appends those of one stack of the leak to `found`, where that is not NULL; their number. */
static size_t holders_of(const builder *b, const cm_leak *leak, uint32_t stack,
                         const cm_holder **found)
{
    size_t low = 0, high = b->analysis->holder_count, count = 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->holders[middle]->stack < stack)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < b->analysis->holder_count && b->holders[low]->stack == stack; low++) {
        const cm_holder *h = b->holders[low];
        if (h->kind != leak->kind || (h->kind != CM_LEAK_NODES && h->device != leak->device))
            continue;
        if (found != NULL)
            found[count] = h;
        count++;
    }
    return count;
}

/* Of the leak's own stack and those of its parts. */
static size_t find_holders(const builder *b, const cm_leak *leak, const cm_holder **found)
{
    size_t count = holders_of(b, leak, leak->stack, found);
    for (size_t i = 0; i < leak->part_count; i++) {
        uint32_t stack = b->analysis->leak_parts[leak->first_part + i].stack;
        if (stack != leak->stack)
            count += holders_of(b, leak, stack, found == NULL ? NULL : found + count);
    }
    return count;
}

/* Of the latest search that found any. */
static PyObject *holder_list(builder *b, const cm_leak *leak)
{
    size_t count = find_holders(b, leak, NULL), first = 0;
    const cm_holder **found = PyMem_New(const cm_holder *, count + 1);
    if (found == NULL)
        return PyErr_NoMemory();
    find_holders(b, leak, found);
    qsort(found, count, sizeof *found, compare_places);
    for (size_t i = count; i > 0 && first == 0; i--)
        if (found[i - 1]->first)
            first = i - 1;
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = first; fine && i < count; i++)
        if (i == first || found[i] != found[i - 1]) /* parts may share a stack */
            fine = cm_py_append(list, Py_BuildValue("(NKL)", cm_py_label(b, found[i]->path),
                                                    (unsigned long long)found[i]->count,
                                                    (long long)found[i]->bytes)) == 0;
    PyMem_Free(found);
    return finish_list(list, fine);
}

static PyObject *leak_list(builder *b, const cm_leak *leak, size_t count);

static PyObject *leak_dict(builder *b, const cm_leak *leak)
{
    const cm_analysis *a = b->analysis;
    return Py_BuildValue(
        "{s:s,s:s,s:L,s:K,s:d,s:d,s:d,s:L,s:L,s:s,s:N,s:N,s:s,s:s,s:s,s:s,s:N,s:s,s:N,s:N}", "kind",
        leak->kind == CM_LEAK_NODES ? "nodes" : "bytes", "device",
        leak->device < a->device_count ? a->device[leak->device].name : "cpu", "bytes",
        (long long)leak->bytes, "count", (unsigned long long)leak->count, "bytes_per_step",
        leak->bytes_per_step, "count_per_step", leak->count_per_step, "total_bytes_per_step",
        leak->total_bytes_per_step, "first_step", (long long)leak->first_step, "last_step",
        (long long)leak->last_step, "loop", a->steps.loop[leak->loop].name, "stack",
        cm_py_stack_id(b, leak->stack), "retained", cm_py_stack_id(b, leak->retained_stack),
        "signature", leak->signature == CM_LEAK_GROWING ? "growing" : "survivors", "cause",
        leak->cycle ? "cycle" : "", "confidence", confidence_names[leak->confidence], "reason",
        reason_names[leak->reason], "parts", part_list(b, leak), "relation",
        relation_names[leak->relation], "keeps",
        leak_list(b, a->kept + leak->first_kept, leak->kept_count), "holders",
        holder_list(b, leak));
}

static PyObject *leak_list(builder *b, const cm_leak *leak, size_t count)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < count; i++)
        fine = cm_py_append(list, leak_dict(b, &leak[i])) == 0;
    return finish_list(list, fine);
}

static PyObject *kept_block_list(builder *b)
{
    const cm_analysis *a = b->analysis;
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < a->kept_block_count; i++) {
        const cm_kept_block *k = &a->kept_blocks[i];
        fine = cm_py_append(list, Py_BuildValue("(KLLsN)", (unsigned long long)k->address,
                                                (long long)k->size, (long long)k->step,
                                                a->device[k->device].name,
                                                cm_py_stack_id(b, k->stack))) == 0;
    }
    return finish_list(list, fine);
}

static PyObject *host_read_list(builder *b)
{
    const cm_analysis *a = b->analysis;
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < a->host_read_count; i++) {
        const cm_host_read *r = &a->host_reads[i];
        fine = cm_py_append(list, Py_BuildValue(
                                      "{s:N,s:K,s:L,s:s,s:N}", "stack", cm_py_stack_id(b, r->stack),
                                      "count", (unsigned long long)r->count, "bytes",
                                      (long long)r->bytes, "device", a->device[r->device].name,
                                      "written", PyBool_FromLong(r->written))) == 0;
    }
    return finish_list(list, fine);
}

static PyObject *rss_list(const cm_analysis *a)
{
    PyObject *list = PyList_New(0);
    bool fine = list != NULL;
    for (size_t i = 0; fine && i < a->rss_count; i++)
        fine = cm_py_append(list, Py_BuildValue("(KL)", (unsigned long long)a->rss[i].time_ns,
                                                (long long)a->rss[i].bytes)) == 0;
    return finish_list(list, fine);
}

PyObject *cm_py_meta(const cm_reader *reader)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < cm_reader_meta_count(reader); i++) {
        const char *key, *value;
        cm_reader_meta_at(reader, i, &key, &value);
        PyObject *name = cm_py_text(key), *what = cm_py_text(value);
        if (name == NULL || what == NULL || PyDict_SetItem(dict, name, what) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(name);
        Py_XDECREF(what);
    }
    return dict;
}

/* None where the trace has every event. */
static PyObject *folded_dict(const cm_analysis *a)
{
    if (a->folded.events == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("{s:L,s:L,s:K}", "from_step", (long long)a->folded.from_step, "to_step",
                         (long long)a->folded.to_step, "events",
                         (unsigned long long)a->folded.events);
}

static PyObject *lost_dict(const builder *b)
{
    const cm_analysis *a = b->analysis;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "events", (unsigned long long)a->lost_events, "stacks",
        (unsigned long long)a->lost_stacks, "unknown_frees", (unsigned long long)a->unknown_frees,
        "replaced", (unsigned long long)a->replaced, "seeds_skipped",
        (unsigned long long)a->seeds_skipped, "cut",
        (unsigned long long)(cm_reader_cut_stacks(b->reader) + cm_reader_cut_texts(b->reader)),
        "unshown", (unsigned long long)b->unshown);
}

static PyObject *backward_dict(const cm_analysis *a)
{
    const cm_backward_bytes *w = &a->backward;
    return Py_BuildValue("{s:L,s:L,s:L,s:L}", "bytes", (long long)w->bytes, "resolved",
                         (long long)w->resolved, "accumulation", (long long)w->accumulation,
                         "unresolved", (long long)w->unresolved);
}

static bool fill(builder *b, PyObject *d)
{
    const cm_analysis *a = b->analysis;
    return cm_py_put(d, "schema", PyLong_FromLong(2)) == 0 &&
           cm_py_put(d, "complete", PyBool_FromLong(a->state == CM_TRACE_COMPLETE)) == 0 &&
           cm_py_put(d, "state", cm_py_text(cm_py_states[a->state])) == 0 &&
           cm_py_put(d, "reason", cm_py_text(a->reason)) == 0 &&
           cm_py_put(d, "meta", cm_py_meta(b->reader)) == 0 &&
           cm_py_put(d, "code", cm_py_text(a->code)) == 0 &&
           cm_py_put(d, "step_asked", none_below_zero(a->step_asked)) == 0 &&
           cm_py_put(d, "start_realtime_ns", PyLong_FromUnsignedLongLong(a->start_realtime_ns)) ==
               0 &&
           cm_py_put(d, "begin_ns", PyLong_FromUnsignedLongLong(a->begin_ns)) == 0 &&
           cm_py_put(d, "duration_ns", PyLong_FromUnsignedLongLong(a->duration_ns)) == 0 &&
           cm_py_put(d, "events", PyLong_FromUnsignedLongLong(a->events)) == 0 &&
           cm_py_put(d, "folded", folded_dict(a)) == 0 &&
           cm_py_put(d, "allocations", PyLong_FromUnsignedLongLong(a->allocations)) == 0 &&
           cm_py_put(d, "threads", PyLong_FromUnsignedLongLong(a->threads)) == 0 &&
           cm_py_put(d, "devices", device_list(b)) == 0 && cm_py_put(d, "rss", rss_list(a)) == 0 &&
           cm_py_put(d, "steps", step_list(b)) == 0 && cm_py_put(d, "clock", clock_dict(b)) == 0 &&
           cm_py_put(d, "survivors", survivor_list(b, a->survivors, a->survivor_count)) == 0 &&
           cm_py_put(d, "survivors_at_end",
                     survivor_list(b, a->survivors_end, a->survivor_end_count)) == 0 &&
           cm_py_put(d, "host_reads", host_read_list(b)) == 0 &&
           cm_py_put(d, "kept_blocks", kept_block_list(b)) == 0 &&
           cm_py_put(d, "leaks", leak_list(b, a->leaks, a->leak_count)) == 0 &&
           cm_py_put(d, "suspects", leak_list(b, a->suspects, a->suspect_count)) == 0 &&
           cm_py_put(d, "live_nodes", PyLong_FromUnsignedLongLong(a->live_nodes)) == 0 &&
           cm_py_put(d, "backward", backward_dict(a)) == 0 && cm_py_put_ledger(b, d) &&
           cm_py_put(d, "charts", cm_py_charts(b)) == 0 &&
           cm_py_put(d, "lost", lost_dict(b)) == 0 && /* last: stacks may have been left out */
           cm_py_put(d, "stacks", Py_NewRef(b->stacks)) == 0;
}

static PyObject *build(const cm_reader *reader, const cm_analysis *analysis, uint32_t tables)
{
    builder b = {.reader = reader,
                 .analysis = analysis,
                 .tables = tables,
                 .stacks = PyDict_New(),
                 .frames = PyDict_New(),
                 .names = PyDict_New(),
                 .strings = PyDict_New()};
    PyObject *dict = PyDict_New();
    cm_py_allow(&b);
    if (b.stacks == NULL || b.frames == NULL || b.names == NULL || b.strings == NULL ||
        dict == NULL || !sort_holders(&b) || !fill(&b, dict))
        Py_CLEAR(dict);
    Py_XDECREF(b.stacks);
    Py_XDECREF(b.frames);
    PyMem_Free(b.holders);
    Py_XDECREF(b.names);
    Py_XDECREF(b.strings);
    return dict;
}

/* --- progress and interruption ------------------------------------------------------------- */

enum { ASK_EVERY_NS = 100000000 }; /* ten times a second */

cm_py_watcher cm_py_watch(PyObject *callback)
{
    return (cm_py_watcher){callback == Py_None ? NULL : callback,
                           cm_clock_monotonic_ns() + ASK_EVERY_NS};
}

/* Called without the GIL. false with an exception set, or because the callback said so. */
bool cm_py_watched(double share, void *context)
{
    cm_py_watcher *w = context;
    uint64_t now = cm_clock_monotonic_ns();
    if (now < w->next_ns)
        return true;
    w->next_ns = now + ASK_EVERY_NS;
    PyGILState_STATE state = PyGILState_Ensure();
    bool go_on = PyErr_CheckSignals() == 0;
    if (go_on && w->callback != NULL) {
        PyObject *answer = PyObject_CallFunction(w->callback, "d", share < 1 ? share : 1.0);
        /* A callback without an answer does not mean to cancel. */
        int truth = answer == NULL ? -1 : answer == Py_None ? 1 : PyObject_IsTrue(answer);
        Py_XDECREF(answer);
        go_on = truth > 0;
        if (truth == 0)
            PyErr_SetNone(PyExc_KeyboardInterrupt);
    }
    PyGILState_Release(state);
    return go_on;
}

/* --- a trace that is read on ---------------------------------------------------------------- */

static const char capsule_name[] = "cuptimem trace";

/* Guarded by the GIL but, while it is `used` by one thread without it, reader, engine, before. */
typedef struct source {
    cm_reader *reader; /* NULL: to be opened */
    cm_engine *engine;
    uint64_t before, decoded; /* records: by the readers before this one; in all, when last used */
    bool used;
    char path[];
} source;

static void close_source(source *s)
{
    cm_engine_free(s->engine);
    if (s->reader != NULL)
        s->before += cm_reader_decoded(s->reader);
    cm_reader_close(s->reader);
    s->engine = NULL;
    s->reader = NULL;
}

static void forget_source(PyObject *capsule)
{
    source *s = PyCapsule_GetPointer(capsule, capsule_name);
    close_source(s);
    PyMem_Free(s);
}

PyDoc_STRVAR(trace_doc,
             "trace(path) -> object\n\n"
             "A trace for analyze() and extract(): what they have read of it is not read "
             "again, also\nwhen the file grows. Windows that are asked for in their order "
             "cost one reading\nof it together.");

static PyObject *new_source(PyObject *module, PyObject *path)
{
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    size_t size = (size_t)PyBytes_GET_SIZE(bytes) + 1;
    source *s = PyMem_Malloc(sizeof *s + size);
    if (s == NULL) {
        Py_DECREF(bytes);
        return PyErr_NoMemory();
    }
    *s = (source){0};
    memcpy(s->path, PyBytes_AS_STRING(bytes), size);
    Py_DECREF(bytes);
    PyObject *capsule = PyCapsule_New(s, capsule_name, forget_source);
    if (capsule == NULL)
        PyMem_Free(s);
    return capsule;
}

PyDoc_STRVAR(trace_decoded_doc,
             "trace_decoded(trace) -> int\n\n"
             "Records that were decoded, those that were read twice counted twice.");

static PyObject *trace_decoded(PyObject *module, PyObject *capsule)
{
    source *s = PyCapsule_GetPointer(capsule, capsule_name);
    if (s == NULL)
        return NULL;
    return PyLong_FromUnsignedLongLong(s->decoded);
}

/* Of a trace or a path: the caller releases the object. One that is in use (by another thread, or
 * by what a signal's handler interrupted) is in use by another reader: this one reads for itself.
 */
static PyObject *use_source(PyObject *named, source **out)
{
    if (!PyCapsule_IsValid(named, capsule_name)) {
        named = new_source(NULL, named);
    } else {
        *out = PyCapsule_GetPointer(named, capsule_name);
        if (!(*out)->used) {
            Py_INCREF(named);
        } else {
            PyObject *path = PyUnicode_DecodeFSDefault((*out)->path);
            named = path == NULL ? NULL : new_source(NULL, path);
            Py_XDECREF(path);
        }
    }
    if (named != NULL) {
        *out = PyCapsule_GetPointer(named, capsule_name);
        (*out)->used = true;
    }
    return named;
}

/* Without the GIL. */
static bool open_source(source *s, char *error, size_t error_size)
{
    if (s->reader != NULL &&
        (!cm_reader_take_up(s->reader) || (s->engine != NULL && !cm_engine_follow(s->engine))))
        close_source(s);
    if (s->reader == NULL)
        s->reader = cm_reader_open(s->path, error, error_size);
    if (s->reader == NULL)
        return false;
    if (s->engine == NULL)
        s->engine = cm_engine_new(s->reader);
    if (s->engine == NULL)
        snprintf(error, error_size, "out of memory");
    return s->engine != NULL;
}

static void leave_source(source *s)
{
    if (s->reader != NULL)
        cm_reader_let_go(s->reader);
    s->decoded = s->before + (s->reader != NULL ? cm_reader_decoded(s->reader) : 0);
    s->used = false;
}

PyDoc_STRVAR(
    analyze_doc,
    "analyze(path, *, window=0, step=None, points=0, ledger_at_ns=-1, min_rate=-1.0,\n"
    "        progress=None, code=None, tables=(), again=False, charts=()) -> dict\n\n"
    "What the trace (a path, or trace(path)) says, as plain numbers (bytes, nanoseconds since\n"
    "its start). With\n"
    "`window` only that window; with `step` (-1 is the last) the devices' contributors, and the\n"
    "`tables` that were named, are those of that step; with `ledger_at_ns` there is a ledger of\n"
    "the moment nearest to it, too; with `min_rate` what grows by fewer bytes a step is\n"
    "negligible; with `again` the same window is soon asked for once more. code: packages that "
    "count as the user's own, with commas\n"
    "between them (None: those that the trace names). charts: spans to draw, (begin ns, end ns,\n"
    "intervals, entries, blocks[, device]) each, cuptimem/report/chart.py.\n"
    "progress(share) is called at most ten times a second; False cancels\n"
    "with KeyboardInterrupt. Raises Error with one line for what cannot be read.");

static bool find_tables(PyObject *names, uint32_t *wanted)
{
    PyObject *list = names == NULL ? PyTuple_New(0) : PySequence_Fast(names, "tables is a list");
    bool fine = list != NULL;
    for (Py_ssize_t i = 0; fine && i < PySequence_Fast_GET_SIZE(list); i++) {
        PyObject *name = PySequence_Fast_GET_ITEM(list, i);
        uint32_t found = 0;
        for (size_t kind = 0; kind < CM_TABLES && PyUnicode_Check(name); kind++)
            if (PyUnicode_CompareWithASCIIString(name, table_names[kind]) == 0)
                found = CM_TABLE(kind);
        *wanted |= found;
        fine = found != 0;
        if (!fine)
            PyErr_Format(PyExc_ValueError, "no table %R", name);
    }
    Py_XDECREF(list);
    return fine;
}

static PyObject *analyze(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"path",     "window", "step",   "points", "ledger_at_ns", "min_rate",
                            "progress", "code",   "tables", "again",  "charts",       NULL};
    PyObject *named, *progress = Py_None;
    PyObject *step = Py_None, *tables = NULL, *charts = NULL;
    unsigned long long window = 0;
    long long ledger_at = -1;
    double min_rate = -1;
    Py_ssize_t points = 0;
    int again = 0;
    const char *code = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|$KOnLdOzOpO", names, &named, &window,
                                     &step, &points, &ledger_at, &min_rate, &progress, &code,
                                     &tables, &again, &charts))
        return NULL;
    if (points < 0 || points > 1 << 24) {
        PyErr_SetString(PyExc_ValueError, "points is out of range");
        return NULL;
    }
    bool of_step = step != Py_None;
    long long number = of_step ? PyLong_AsLongLong(step) : 0;
    uint32_t wanted = 0;
    cm_chart_span spans[CM_CHART_SPANS_MAX];
    size_t span_count = 0;
    source *s;
    if ((of_step && number == -1 && PyErr_Occurred()) || !find_tables(tables, &wanted) ||
        !cm_py_chart_spans(charts, spans, &span_count) || (named = use_source(named, &s)) == NULL)
        return NULL;
    char error[512] = "";
    cm_py_watcher w = cm_py_watch(progress);
    cm_analysis_options options = {.window = window,
                                   .again = again != 0,
                                   .of_step = of_step,
                                   .step = number,
                                   .tables = wanted,
                                   .charts = spans,
                                   .chart_count = span_count,
                                   .timeline_points = (size_t)points,
                                   .ledger_at_ns = ledger_at,
                                   .code = code,
                                   .has_min_rate = min_rate >= 0,
                                   .min_rate = min_rate,
                                   .progress = cm_py_watched,
                                   .progress_context = &w};
    cm_analysis *analysis = NULL;
    PyObject *result = NULL;

    PyThreadState *saved = PyEval_SaveThread();
    if (open_source(s, error, sizeof error))
        analysis = cm_engine_analyze(s->engine, &options, error, sizeof error);
    PyEval_RestoreThread(saved);

    if (analysis != NULL)
        result = build(s->reader, analysis, options.tables);
    else if (!PyErr_Occurred())
        cm_py_fail(error);
    cm_analysis_free(analysis);
    leave_source(s);
    Py_DECREF(named);
    return result;
}

PyDoc_STRVAR(extract_doc, "extract(source, target, window, code=\"\")\n\nWrites what that window "
                          "saw as a trace of its own, "
                          "with what was alive when it\nopened; `code` is what it names as the "
                          "user's own. Raises Error with one line, and leaves no file "
                          "then; the target must not exist.");

static PyObject *extract(PyObject *module, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"source", "target", "window", "code", NULL};
    PyObject *named, *target;
    unsigned long long window;
    const char *code = "";
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO&K|s", names, &named,
                                     PyUnicode_FSConverter, &target, &window, &code))
        return NULL;
    char error[512] = "";
    source *s;
    named = use_source(named, &s);
    if (named == NULL) {
        Py_DECREF(target);
        return NULL;
    }
    PyThreadState *saved = PyEval_SaveThread();
    bool fine =
        open_source(s, error, sizeof error) &&
        cm_engine_extract(s->engine, PyBytes_AS_STRING(target), window, code, error, sizeof error);
    PyEval_RestoreThread(saved);

    leave_source(s);
    Py_DECREF(named);
    Py_DECREF(target);
    if (!fine)
        return cm_py_fail(error);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(is_library_doc,
             "is_library(file, code=\"\") -> bool\n\nWhether code in this file belongs to an "
             "installed package that is not among those\nof `code` (with commas between them), to "
             "Python or to torch.compile.");

static PyObject *is_library(PyObject *module, PyObject *arguments)
{
    PyObject *file;
    const char *code = "";
    if (!PyArg_ParseTuple(arguments, "U|s", &file, &code))
        return NULL;
    PyObject *bytes = PyUnicode_AsEncodedString(file, "utf-8", "surrogateescape");
    if (bytes == NULL)
        return NULL;
    cm_library *library = cm_library_new(code);
    PyObject *found = library == NULL
                          ? PyErr_NoMemory()
                          : PyBool_FromLong(cm_library_has(library, PyBytes_AS_STRING(bytes)));
    cm_library_free(library);
    Py_DECREF(bytes);
    return found;
}

PyMethodDef cm_py_analysis_methods[] = {
    {"analyze", (PyCFunction)(void (*)(void))analyze, METH_VARARGS | METH_KEYWORDS, analyze_doc},
    {"extract", (PyCFunction)(void (*)(void))extract, METH_VARARGS | METH_KEYWORDS, extract_doc},
    {"trace", new_source, METH_O, trace_doc},
    {"trace_decoded", trace_decoded, METH_O, trace_decoded_doc},
    {"is_library", is_library, METH_VARARGS, is_library_doc},
    {NULL, NULL, 0, NULL},
};
