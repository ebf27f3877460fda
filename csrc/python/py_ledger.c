/* The driver level of a report: ledgers, fragmentation, kernels. -1 stands for unknown bytes. */
#include "py_build.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../heap/driver_map.h"

static const char *const ledger_names[] = {"peak", "end", "asked"};
static const char *const fragment_names[] = {"peak", "oom", "end"};

/* A list of what make(i) gives. */
typedef PyObject *(*maker)(cm_py_builder *b, const void *item);

static PyObject *make_list(cm_py_builder *b, const void *items, size_t count, size_t size,
                           maker make)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++)
        if (cm_py_append(list, make(b, (const char *)items + i * size)) < 0)
            Py_CLEAR(list);
    return list;
}

#define LIST(b, items, count, make) make_list(b, items, count, sizeof *(items), make)

/* Of a library or a kernel; "" where it is not known. */
static PyObject *name_text(cm_py_builder *b, uint32_t name)
{
    const char *found = name != 0 ? cm_reader_name(b->reader, name) : NULL;
    return cm_py_text(found != NULL ? found : "");
}

static const char *meta(cm_py_builder *b, const char *key)
{
    const char *value = cm_reader_meta(b->reader, key);
    return value != NULL ? value : "";
}

static PyObject *line(cm_py_builder *b, const void *item)
{
    const cm_driver_line *l = item;
    return Py_BuildValue("{s:s,s:N,s:N,s:L,s:K,s:N,s:N}", "kind", cm_driver_kind_name(l->kind),
                         "library", name_text(b, l->library), "stack", cm_py_stack_id(b, l->stack),
                         "bytes", (long long)l->bytes, "count", (unsigned long long)l->count,
                         "torch", PyBool_FromLong(l->torch), "backward",
                         PyBool_FromLong(l->backward));
}

static PyObject *device(cm_py_builder *b, const void *item)
{
    const cm_driver_device *d = item;
    return Py_BuildValue("{s:i,s:L,s:L,s:N}", "device", d->index, "bytes", (long long)d->bytes,
                         "peak", (long long)d->peak, "live", LIST(b, d->line, d->line_count, line));
}

static PyObject *host(cm_py_builder *b)
{
    const cm_driver_device *d = &b->analysis->driver.host;
    return Py_BuildValue("{s:L,s:L,s:N}", "bytes", (long long)d->bytes, "peak", (long long)d->peak,
                         "live", LIST(b, d->line, d->line_count, line));
}

static PyObject *witness(cm_py_builder *b)
{
    const cm_witness_totals *w = &b->analysis->driver.witness;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K}", "records", (unsigned long long)w->records,
                         "matched", (unsigned long long)w->matched, "missing",
                         (unsigned long long)w->missing, "differ", (unsigned long long)w->differ,
                         "alone", (unsigned long long)w->alone, "dropped",
                         strtoull(meta(b, "driver.dropped"), NULL, 10));
}

static PyObject *driver(cm_py_builder *b)
{
    const cm_driver_report *d = &b->analysis->driver;
    const char *mode = meta(b, "driver");
    return Py_BuildValue(
        "{s:N,s:N,s:N,s:K,s:K,s:K,s:K,s:K,s:N,s:N,s:N}", "mode",
        cm_py_text(*mode != '\0' ? mode : "none"), "reason", cm_py_text(meta(b, "driver.reason")),
        "cupti", cm_py_text(meta(b, "driver.cupti")), "allocations",
        (unsigned long long)d->allocations, "frees", (unsigned long long)d->frees, "unknown_frees",
        (unsigned long long)d->unknown_frees, "failed_frees", (unsigned long long)d->failed_frees,
        "replaced", (unsigned long long)d->replaced, "witness", witness(b), "devices",
        LIST(b, d->device, d->device_count, device), "host", host(b));
}

static PyObject *ledger(cm_py_builder *b, const void *item)
{
    const cm_ledger *l = item;
    return Py_BuildValue(
        "{s:i,s:K,s:L,s:s,s:N,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:N,s:L,s:L,s:L,s:L,s:L,s:N}",
        "device", l->device, "time_ns", (unsigned long long)l->time_ns, "step", (long long)l->step,
        "what", ledger_names[l->what], "quiet", PyBool_FromLong(l->quiet), "used",
        (long long)l->used, "total", (long long)l->total, "own", (long long)l->own, "others",
        (long long)l->others, "driver_reserved", (long long)l->driver_reserved, "tensors",
        (long long)l->tensors, "rounding", (long long)l->rounding, "cached", (long long)l->cached,
        "driver", LIST(b, l->line, l->line_count, line), "driver_rounding",
        (long long)l->driver_rounding, "pool_slack", (long long)l->pool_slack, "pool_short",
        (long long)l->pool_short, "context", (long long)l->context, "residual",
        (long long)l->residual, "context_measured", PyBool_FromLong(l->context_measured));
}

static PyObject *point(cm_py_builder *b, const void *item)
{
    const cm_device_point *p = item;
    return Py_BuildValue("(KLLLL)", (unsigned long long)p->time_ns, (long long)p->used,
                         (long long)p->driver, (long long)p->reserved, (long long)p->allocated);
}

static PyObject *curve(cm_py_builder *b, const void *item)
{
    const cm_device_curve *c = item;
    return Py_BuildValue("{s:i,s:N}", "device", c->device, "points",
                         LIST(b, c->point, c->count, point));
}

static PyObject *segment_pin(cm_py_builder *b, const void *item)
{
    const cm_pin *p = item;
    return Py_BuildValue("{s:N,s:L,s:K}", "stack", cm_py_stack_id(b, p->stack), "bytes",
                         (long long)p->bytes, "count", (unsigned long long)p->count);
}

static PyObject *pin(cm_py_builder *b, const void *item)
{
    const cm_pin *p = item;
    return Py_BuildValue("{s:N,s:L,s:K,s:L,s:K}", "stack", cm_py_stack_id(b, p->stack), "bytes",
                         (long long)p->bytes, "count", (unsigned long long)p->count, "pinned",
                         (long long)p->pinned, "segments", (unsigned long long)p->segments);
}

static PyObject *segment(cm_py_builder *b, const cm_fragmentation *f, const cm_fragment_segment *s)
{
    return Py_BuildValue("{s:K,s:L,s:L,s:L,s:N}", "address", (unsigned long long)s->address, "size",
                         (long long)s->size, "allocated", (long long)s->allocated, "largest_free",
                         (long long)s->largest_free, "pins",
                         LIST(b, f->segment_pin + s->first_pin, s->pin_count, segment_pin));
}

static PyObject *segments(cm_py_builder *b, const cm_fragmentation *f)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < f->segment_count; i++)
        if (cm_py_append(list, segment(b, f, &f->segment[i])) < 0)
            Py_CLEAR(list);
    return list;
}

PyObject *cm_py_fragmentation(cm_py_builder *b, const cm_fragmentation *f)
{
    return Py_BuildValue(
        "{s:i,s:s,s:K,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:N,s:K,s:N}", "device", f->device,
        "what", fragment_names[f->what], "time_ns", (unsigned long long)f->time_ns, "reserved",
        (long long)f->reserved, "allocated", (long long)f->allocated, "requested",
        (long long)f->requested, "largest_free_block", (long long)f->largest_free_block,
        "free_on_device", (long long)f->free_on_device, "largest_request",
        (long long)f->largest_request, "asked", (long long)f->asked, "too_small",
        (long long)f->too_small, "empty_cache_returns", (long long)f->empty_cache_returns,
        "expandable_returns", (long long)f->expandable_returns, "segments", segments(b, f),
        "segments_total", (unsigned long long)f->segment_total, "pins",
        LIST(b, f->pin, f->pin_count, pin));
}

static PyObject *fragmentation(cm_py_builder *b, const void *item)
{
    return cm_py_fragmentation(b, item);
}

static PyObject *kernel(cm_py_builder *b, const void *item)
{
    const cm_kernel *k = item;
    return Py_BuildValue("{s:N,s:K,s:L}", "name", name_text(b, k->name), "count",
                         (unsigned long long)k->count, "ns", (long long)k->ns);
}

static PyObject *wait_item(cm_py_builder *b, const void *item)
{
    const cm_wait *w = item;
    return Py_BuildValue("{s:N,s:L,s:K,s:L,s:N}", "stack", cm_py_stack_id(b, w->stack), "bytes",
                         (long long)w->bytes, "count", (unsigned long long)w->count, "wait_ns",
                         (long long)w->wait_ns, "kernel", name_text(b, w->name));
}

static PyObject *held(cm_py_builder *b, const void *item)
{
    const cm_held *h = item;
    return Py_BuildValue("{s:N,s:L,s:K,s:K}", "stack", cm_py_stack_id(b, h->stack), "bytes",
                         (long long)h->bytes, "count", (unsigned long long)h->count, "stream",
                         (unsigned long long)h->stream);
}

static PyObject *kernels(cm_py_builder *b)
{
    const cm_kernels *k = &b->analysis->kernels;
    if (!k->seen)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:L,s:L,s:K,s:N,s:N,s:N,s:N}", "launches",
        (unsigned long long)k->launches, "ran", (unsigned long long)k->ran, "dropped",
        (unsigned long long)k->dropped, "unrecorded", (unsigned long long)k->unrecorded,
        "unlaunched", (unsigned long long)k->unlaunched, "unjudged",
        (unsigned long long)k->unjudged, "wait_least_ns", (long long)k->wait_least_ns, "ns",
        (long long)k->ns, "names_total", (unsigned long long)k->name_total, "names",
        LIST(b, k->name, k->name_count, kernel), "early",
        LIST(b, k->early, k->early_count, wait_item), "late",
        LIST(b, k->late, k->late_count, wait_item), "held", LIST(b, k->held, k->held_count, held));
}

bool cm_py_put_ledger(cm_py_builder *b, PyObject *dict)
{
    const cm_analysis *a = b->analysis;
    return cm_py_put(dict, "driver", driver(b)) == 0 &&
           cm_py_put(dict, "ledger", LIST(b, a->ledgers, a->ledger_count, ledger)) == 0 &&
           cm_py_put(dict, "device_timeline", LIST(b, a->curves, a->curve_count, curve)) == 0 &&
           cm_py_put(dict, "fragmentation",
                     LIST(b, a->fragmentation, a->fragmentation_count, fragmentation)) == 0 &&
           cm_py_put(dict, "kernels", kernels(b)) == 0;
}
