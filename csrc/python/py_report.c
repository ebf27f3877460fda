/* The field tables of a report: each row is a field of the objects that analyze() returns. */
#include "py_fields.h"

#include <stdlib.h>

#include "../base/grow.h"
#include "../heap/driver_map.h"

const char *const cm_py_phases[] = {"other",    "data",      "forward",
                                    "backward", "optimizer", "before start"};
const char *const cm_py_states[] = {"complete", "recording", "recovered", "cut"};
const char *const cm_py_categories[CM_CATEGORIES] = {[CM_CATEGORY_UNKNOWN] = "unknown",
                                                     [CM_CATEGORY_PARAMETER] = "parameter",
                                                     [CM_CATEGORY_BUFFER] = "buffer",
                                                     [CM_CATEGORY_GRADIENT] = "gradient",
                                                     [CM_CATEGORY_OPTIMIZER_STATE] =
                                                         "optimizer state",
                                                     [CM_CATEGORY_INPUT] = "input",
                                                     [CM_CATEGORY_ACTIVATION] = "activation",
                                                     [CM_CATEGORY_TEMPORARY] = "temporary",
                                                     [CM_CATEGORY_BEFORE_START] = "before start",
                                                     [CM_CATEGORY_KEPT] = "kept",
                                                     [CM_CATEGORY_LOADED] = "loaded",
                                                     [CM_CATEGORY_BUCKET] = "bucket",
                                                     [CM_CATEGORY_WORKSPACE] = "workspace",
                                                     [CM_CATEGORY_AUTOCAST] = "autocast cache"};
const char *const cm_py_tables[CM_TABLES] = {
    [CM_TABLE_START] = "start",         [CM_TABLE_END] = "end",
    [CM_TABLE_ABOVE] = "above",         [CM_TABLE_KEPT] = "kept",
    [CM_TABLE_ALLOCATED] = "allocated", [CM_TABLE_STEPPED] = "stepped",
    [CM_TABLE_TEMPORARY] = "temporary"};
static const char *const leak_kinds[] = {"bytes", "nodes"};
static const char *const signatures[] = {"survivors", "growing"};
static const char *const causes[] = {"", "cycle"};
static const char *const confidences[] = {"low", "medium", "high"};
static const char *const reasons[] = {
    [CM_SUSPECT_NOT] = "",
    [CM_SUSPECT_FEW] = "few births",
    [CM_SUSPECT_STOPPED] = "stopped",
    [CM_SUSPECT_EPOCH] = "one epoch",
    [CM_SUSPECT_GARBAGE] = "garbage",
    [CM_SUSPECT_LOST] = "events lost",
    [CM_SUSPECT_UNCOLLECTED] = "no collection",
    [CM_SUSPECT_LATE] = "late garbage",
    [CM_SUSPECT_ENDED] = "freed behind the loop",
    [CM_SUSPECT_PASSED] = "one pass",
    [CM_SUSPECT_CARRIED] = "carried on",
    [CM_SUSPECT_FILLING] = "filling",
    [CM_SUSPECT_NEGLIGIBLE] = "negligible",
};
static const char *const relations[] = {
    [CM_LEAK_ALONE] = "",
    [CM_LEAK_RETAINED] = "retained by the graph",
    [CM_LEAK_SAME_STEPS] = "made in the same steps",
    [CM_LEAK_FOLLOWS] = "grows with it",
};
static const char *const ticks[] = {NULL, "step", "optimizer", "data", "module", "backward"};
static const char *const ledger_moments[] = {"peak", "end", "asked"};
static const char *const fragmentation_moments[] = {"peak", "oom", "end"};

/* --- blocks ------------------------------------------------------------------------------------
 */

#define T cm_contributor
static const cm_field contributor_rows[] = {
    CM_PLAIN(T, bytes, "bytes", "of its live blocks"),
    CM_PLAIN(T, count, "count", "of its live blocks"),
    CM_STACK(T, stack, "stack",
             "the stack it is charged to: for a block made in backward the forward stack of its "
             "node"),
    CM_STACK(T, origin_stack, "origin",
             "its own stack, where that is another one (the call of `backward()`)"),
    CM_ENUM(T, phase, cm_py_phases, "phase",
            "`\"data\"`, `\"forward\"`, `\"backward\"`, `\"optimizer\"`, `\"other\"`, `\"before "
            "start\"`"),
    CM_NODE(T, name, "operator",
            "in backward the type of the autograd node that allocated; elsewhere, and for Python "
            "that a node runs, the operator's full name where `--operators` recorded it"),
    CM_ENUM(T, category, cm_py_categories, "category",
            "`\"parameter\"`, `\"buffer\"`, `\"gradient\"`, `\"optimizer state\"`, `\"input\"`, "
            "`\"loaded\"`, `\"activation\"`, `\"kept\"`, `\"bucket\"`, `\"workspace\"`, "
            "`\"autocast cache\"`, "
            "`\"temporary\"`, `\"before start\"`, `\"unknown\"`"),
    CM_LABEL(T, module, "module",
             "the qualified name of the module that owns them or made them "
             "(`\"encoder.layers.3.self_attn\"`); null where no walk has seen it"),
    CM_NODE(T, saved_by, "saved_by", "of an activation: the autograd node that had saved it"),
};
CM_FIELDS(cm_py_contributor_fields, "contributor", T, true, contributor_rows);
#undef T

#define T cm_tensor
static const cm_field tensor_rows[] = {
    CM_LABEL(T, text, "name",
             "`\"h.0.weight\"` (of a gradient, too), `\"exp_avg of h.0.weight\"`, "
             "with dtype and shape behind a tab"),
    CM_ENUM(T, category, cm_py_categories, "category", "as of a contributor"),
    CM_PLAIN(T, bytes, "bytes", "of its block"),
    CM_LABEL(T, module, "module", "the qualified name of the module that owns it"),
    CM_STACK(T, stack, "stack", "the stack it is charged to"),
};
static CM_FIELDS(tensor_fields, "tensor", T, true, tensor_rows);
#undef T

#define T cm_table
static const cm_field rest_of_table_rows[] = {
    CM_PLAIN(T, rest_bytes, "bytes", "of no contributor"),
    CM_PLAIN(T, rest_count, "count", "blocks of no contributor"),
};
static CM_FIELDS(rest_of_table_fields, "rest", T, true, rest_of_table_rows);
static const cm_field table_rows[] = {
    CM_ARRAY(T, contributors, contributor_count, cm_contributor, cm_py_contributor_fields,
             "contributors", "the largest first"),
    CM_GROUP(rest_of_table_fields, "rest", "without a stack: the trace is past its bound"),
};
static CM_FIELDS(table_fields, "table", T, true, table_rows);
#undef T

#define T cm_kept_block
static const cm_field kept_block_rows[] = {
    CM_PLAIN(T, address, "address", "where it lies"),
    CM_PLAIN(T, size, "bytes", "of the block"),
    CM_OPTIONAL(T, step, "step", "that it was made in; null: in none"),
    CM_DEVICE(T, device, "device", "where it is alive"),
    CM_STACK(T, stack, "stack", "the stack it is charged to"),
    CM_PLAIN(T, backward, "backward", "whether it was made in backward"),
};
static CM_FIELDS(kept_block_fields, "kept_block", T, true, kept_block_rows);
#undef T

#define T cm_survivor
static const cm_field survivor_rows[] = {
    CM_DEVICE(T, device, "device", "where they are alive"),
    CM_STACK(T, stack, "stack", "the stack they are charged to"),
    CM_PLAIN(T, bytes, "bytes", "of the blocks"),
    CM_PLAIN(T, count, "count", "blocks"),
    CM_PLAIN(T, first_step, "first_step", "in which the first was made; -1: before all steps"),
    CM_PLAIN(T, last_step, "last_step", "in which the last was made"),
};
static CM_FIELDS(survivor_fields, "survivor", T, true, survivor_rows);
#undef T

#define T cm_host_read
static const cm_field host_read_rows[] = {
    CM_STACK(T, stack, "stack", "of the line that read values which no kernel computed"),
    CM_PLAIN(T, count, "count", "reads"),
    CM_PLAIN(T, bytes, "bytes", "read"),
    CM_DEVICE(T, device, "device", "the simulated device"),
    CM_PLAIN(T, written, "written",
             "the host had written them, so they are right unless a kernel would have changed "
             "them"),
};
static CM_FIELDS(host_read_fields, "host_read", T, false, host_read_rows);
#undef T

/* --- the driver level --------------------------------------------------------------------------
 */

static const char *meta(cm_py_builder *b, const char *key)
{
    const char *value = cm_reader_meta(b->reader, key);
    return value != NULL ? value : "";
}

static PyObject *cuda_name(int index)
{
    return index >= 0 ? PyUnicode_FromFormat("cuda:%d", index) : PyUnicode_FromString("cuda:?");
}

static PyObject *driver_kind(cm_py_builder *b, const void *row)
{
    return cm_py_shared_text(b, cm_driver_kind_name(((const cm_driver_line *)row)->kind));
}

#define T cm_driver_line
static const cm_field driver_line_rows[] = {
    CM_MADE("str", driver_kind, "kind", "of memory, by the calls that give it"),
    CM_NAME(T, library, "library", "the file name of the one that called CUDA; null if unknown"),
    CM_STACK(T, stack, "stack", "where it was allocated"),
    CM_PLAIN(T, bytes, "bytes", "of the allocations"),
    CM_PLAIN(T, count, "count", "allocations"),
    CM_PLAIN(T, torch, "torch", "PyTorch's allocator holds it"),
    CM_PLAIN(T, backward, "backward",
             "in a backward: charged to the forward line of its autograd node, as blocks are"),
};
static CM_FIELDS(driver_line_fields, "driver_allocations", T, false, driver_line_rows);
#undef T

static PyObject *driver_device_name(cm_py_builder *b, const void *row)
{
    return cuda_name(((const cm_driver_device *)row)->index);
}

static PyObject *host_name(cm_py_builder *b, const void *row)
{
    return PyUnicode_FromString("host");
}

#define T cm_driver_device
#define MEMORY_OF(name_)                                                                           \
    CM_MADE("str", name_, "device", "`\"cuda:0\"`, or `\"host\"`"),                                \
        CM_PLAIN(T, bytes, "bytes", "at the end"), CM_PLAIN(T, peak, "peak", "at most"),           \
        CM_ARRAY(T, line, line_count, cm_driver_line, driver_line_fields, "live",                  \
                 "what is alive at the end, the largest first")
static const cm_field driver_device_rows[] = {MEMORY_OF(driver_device_name)};
static CM_FIELDS(driver_device_fields, "driver_device", T, false, driver_device_rows);
static const cm_field driver_host_rows[] = {MEMORY_OF(host_name)};
static CM_FIELDS(driver_host_fields, "driver_host", T, false, driver_host_rows);
#undef T

static PyObject *dropped_records(cm_py_builder *b, const void *row)
{
    return PyLong_FromUnsignedLongLong(strtoull(meta(b, "driver.dropped"), NULL, 10));
}

#define T cm_record_check
static const cm_field record_check_rows[] = {
    CM_PLAIN(T, records, "records", "CUPTI's own records of memory"),
    CM_PLAIN(T, matched, "matched", "events whose record agrees"),
    CM_PLAIN(T, missing, "missing", "events without a record"),
    CM_PLAIN(T, differ, "differ", "events whose record has another address, size or device"),
    CM_PLAIN(T, alone, "alone", "records without an event"),
    CM_MADE("int", dropped_records, "dropped", "records that CUPTI threw away"),
};
static CM_FIELDS(record_check_fields, "record_check", T, false, record_check_rows);
#undef T

static PyObject *driver_mode(cm_py_builder *b, const void *row)
{
    const char *mode = meta(b, "driver");
    return cm_py_text(*mode != '\0' ? mode : "none");
}

static PyObject *driver_reason(cm_py_builder *b, const void *row)
{
    return cm_py_text(meta(b, "driver.reason"));
}

static PyObject *driver_cupti(cm_py_builder *b, const void *row)
{
    return cm_py_text(meta(b, "driver.cupti"));
}

#define T cm_driver_report
static const cm_field driver_rows[] = {
    CM_MADE("str", driver_mode, "mode",
            "`\"callbacks\"` (CUPTI), `\"slots\"` (patched calls of the CUDA runtime alone), "
            "`\"none\"`, or `\"unknown\"` (a killed program did not record it)"),
    CM_MADE("str", driver_reason, "reason", "why no more; null if nothing is missing"),
    CM_MADE("str", driver_cupti, "cupti",
            "path and version of the library that answered; null if none"),
    CM_PLAIN(T, allocations, "allocations", "of the driver level"),
    CM_PLAIN(T, frees, "frees", "of the driver level"),
    CM_PLAIN(T, unknown_frees, "unknown_frees", "of memory allocated before the recording"),
    CM_PLAIN(T, failed_frees, "failed_frees", "that CUDA refused"),
    CM_PLAIN(T, replaced, "replaced", "allocations at an address that was still taken"),
    CM_STRUCT(T, record_check, cm_record_check, record_check_fields, "record_check",
              "CUPTI's own records of memory against the events"),
    CM_ARRAY(T, device, device_count, cm_driver_device, driver_device_fields, "devices",
             "memory of each device"),
    CM_STRUCT(T, host, cm_driver_device, driver_host_fields, "host", "page-locked memory"),
};
static CM_FIELDS(driver_fields, "driver", T, false, driver_rows);
#undef T

static PyObject *ledger_device(cm_py_builder *b, const void *row)
{
    return cuda_name(((const cm_ledger *)row)->device);
}

#define T cm_ledger
static const cm_field ledger_rows[] = {
    CM_MADE("str", ledger_device, "device", "`\"cuda:0\"`"),
    CM_PLAIN(T, time_ns, "time_ns", "when the driver was asked"),
    CM_OPTIONAL(T, step, "step", "null: outside of any"),
    CM_ENUM(T, what, ledger_moments, "what",
            "`\"peak\"`, `\"end\"`, or `\"asked\"` (the moment next to `--at SECONDS`)"),
    CM_PLAIN(T, quiet, "quiet", "false if memory was allocated or freed while it was asked"),
    CM_PLAIN(T, used, "used", "of the device, by everybody"),
    CM_OPTIONAL(T, total, "total", "of the device"),
    CM_OPTIONAL(T, own, "own",
                "this process's, as NVML reports it; null where NVML was last asked at another "
                "number of used bytes"),
    CM_OPTIONAL(T, others, "others", "other processes', as NVML reports it"),
    CM_OPTIONAL(T, driver_reserved, "driver_reserved",
                "kept by driver and firmware, as NVML reports it: in neither `total` nor `used`"),
    CM_OPTIONAL(T, host, "host",
                "what the machine's processes and kernel have, where the device's memory is the "
                "machine's (GB10); else null"),
    CM_OPTIONAL(T, cache, "page_cache", "the machine's page cache, likewise"),
    CM_PLAIN(T, tensors, "tensors", "requested by live blocks of PyTorch's"),
    CM_PLAIN(T, rounding, "rounding", "what PyTorch's allocator gave these blocks beyond that"),
    CM_PLAIN(T, cached, "cached", "taken from CUDA by PyTorch's allocator and in no block"),
    CM_ARRAY(T, line, line_count, cm_driver_line, driver_line_fields, "driver",
             "allocated from CUDA beside PyTorch's allocator, the largest first"),
    CM_PLAIN(T, driver_rounding, "driver_rounding",
             "of the driver's pages that small allocations share, what is in none of these"),
    CM_PLAIN(T, pool_slack, "pool_slack", "held by CUDA's memory pools and not allocated"),
    CM_PLAIN(T, pool_short, "pool_short",
             "bytes that memory pools report to hold less than is alive in them; part of the "
             "residual"),
    CM_OPTIONAL(T, context, "context", "in use, and of no other part, at the first quiet moment"),
    CM_PLAIN(T, residual, "residual", "used and not accounted for; may be negative"),
    CM_PLAIN(T, context_measured, "context_measured",
             "false if `context` may hold other things that were there before the recording"),
};
static CM_FIELDS(ledger_fields, "ledger", T, false, ledger_rows);
#undef T

#define T cm_device_point
static const cm_field device_point_rows[] = {
    CM_PLAIN(T, time_ns, "time_ns", "when the driver was asked"),
    CM_OPTIONAL(T, used, "used", "by everybody"),
    CM_OPTIONAL(T, driver, "driver", "allocated by this process at driver level"),
    CM_OPTIONAL(T, reserved, "reserved", "of that, by PyTorch's allocator"),
    CM_OPTIONAL(T, allocated, "allocated", "of that, in blocks"),
};
static CM_FIELDS(device_point_fields, "device_point", T, true, device_point_rows);
#undef T

static PyObject *curve_device(cm_py_builder *b, const void *row)
{
    return cuda_name(((const cm_device_curve *)row)->device);
}

#define T cm_device_curve
static const cm_field curve_rows[] = {
    CM_MADE("str", curve_device, "device", "`\"cuda:0\"`"),
    CM_ARRAY(T, point, count, cm_device_point, device_point_fields, "points", "in their order"),
};
static CM_FIELDS(curve_fields, "device_timeline", T, false, curve_rows);
#undef T

/* --- fragmentation -----------------------------------------------------------------------------
 */

#define T cm_pin
#define BLOCKS_OF_STACK                                                                            \
    CM_STACK(T, stack, "stack", "the stack they are charged to"),                                  \
        CM_PLAIN(T, bytes, "bytes", "of its blocks"), CM_PLAIN(T, count, "count", "its blocks")
static const cm_field segment_pin_rows[] = {
    BLOCKS_OF_STACK,
    CM_PLAIN(T, pinned, "pinned", "bytes of the segment that they keep"),
};
static CM_FIELDS(segment_pin_fields, "segment_pin", T, false, segment_pin_rows);
static const cm_field pin_rows[] = {
    BLOCKS_OF_STACK,
    CM_PLAIN(
        T, pinned, "pinned",
        "bytes of the partly used segments that they lie in; of expandable ones, of the partly "
        "used handles"),
    CM_PLAIN(T, segments, "segments", "partly used segments that they lie in"),
};
static CM_FIELDS(pin_fields, "pin", T, false, pin_rows);
#undef T

#define T cm_fragment_range
static const cm_field range_rows[] = {
    CM_PLAIN(T, address, "address", "where it begins"),
    CM_PLAIN(T, size, "size", "in bytes"),
    CM_PLAIN(T, allocated, "allocated", "bytes in blocks"),
    CM_PLAIN(T, largest_free, "largest_free", "bytes of its largest free stretch"),
};
static CM_FIELDS(range_fields, "range", T, false, range_rows);
#undef T

#define T cm_fragment_segment
static const cm_field segment_rows[] = {
    CM_PLAIN(T, address, "address", "where its memory begins"),
    CM_PLAIN(T, size, "size", "of memory, in bytes"),
    CM_PLAIN(T, allocated, "allocated", "bytes in blocks"),
    CM_PLAIN(T, largest_free, "largest_free", "bytes of its largest free stretch"),
    CM_PLAIN(T, expandable, "expandable", "whether memory is mapped into it piece by piece"),
    CM_OPTIONAL(T, addresses, "addresses",
                "of an expandable one, bytes of address space that are reserved for it; null if "
                "unknown"),
    CM_PLAIN(T, unmapped, "unmapped", "bytes of addresses between its ranges, without memory"),
    CM_PLAIN(T, range_total, "ranges_total", "ranges of addresses with memory"),
    CM_SLICE(T, first_range, range_count, cm_fragmentation, range, cm_fragment_range, range_fields,
             "ranges", "of an expandable one, by address, at most 100"),
    CM_SLICE(T, first_pin, pin_count, cm_fragmentation, segment_pin, cm_pin, segment_pin_fields,
             "pins", "the most bytes first, at most eight"),
};
static CM_FIELDS(segment_fields, "segment", T, false, segment_rows);
#undef T

static PyObject *fragmentation_device(cm_py_builder *b, const void *row)
{
    return cuda_name(((const cm_fragmentation *)row)->device);
}

#define T cm_fragmentation
static const cm_field fragmentation_rows[] = {
    CM_MADE("str", fragmentation_device, "device", "`\"cuda:0\"`"),
    CM_ENUM(T, what, fragmentation_moments, "what",
            "`\"oom\"` (the first refused request), `\"peak\"` (of `reserved`), `\"end\"`"),
    CM_PLAIN(T, time_ns, "time_ns", "when"),
    CM_PLAIN(T, reserved, "reserved", "of PyTorch's segments"),
    CM_PLAIN(T, allocated, "allocated", "of that, in blocks"),
    CM_PLAIN(T, requested, "requested", "of that, requested"),
    CM_PLAIN(T, largest_free_block, "largest_free_block", "in one segment"),
    CM_OPTIONAL(T, free_on_device, "free_on_device",
                "at the last quiet moment (the last one where none was quiet), with what this "
                "process allocated and freed since; null if unknown"),
    CM_OPTIONAL(T, largest_request, "largest_request",
                "what would be served: the larger of `free_on_device` with `empty_cache_returns`, "
                "and `largest_free_block`"),
    CM_OPTIONAL(T, asked, "asked", "bytes that were requested and refused; null but for `\"oom\"`"),
    CM_OPTIONAL(T, too_small, "too_small",
                "of the free bytes, those in pieces smaller than that; null but for `\"oom\"`"),
    CM_PLAIN(T, empty_cache_returns, "empty_cache_returns",
             "what `torch.cuda.empty_cache()` would return"),
    CM_PLAIN(T, expandable_returns, "expandable_returns",
             "what it would return with expandable segments"),
    CM_ARRAY(T, segment, segment_count, cm_fragment_segment, segment_fields, "segments",
             "the partly used ones with the most free bytes, at most 20"),
    CM_PLAIN(T, segment_total, "segments_total", "all segments"),
    CM_ARRAY(T, pin, pin_count, cm_pin, pin_fields, "pins",
             "blocks of one stack, and the bytes of the segments that they keep, at most 50"),
};
static CM_FIELDS(fragmentation_fields, "fragmentation", T, false, fragmentation_rows);
#undef T

/* --- kernels -----------------------------------------------------------------------------------
 */

#define T cm_kernel
static const cm_field kernel_rows[] = {
    CM_NAME(T, name, "name", "as the compiler wrote it"),
    CM_PLAIN(T, count, "count", "runs"),
    CM_PLAIN(T, ns, "ns", "of all runs"),
};
static CM_FIELDS(kernel_fields, "kernel", T, false, kernel_rows);
#undef T

#define T cm_wait
static const cm_field wait_rows[] = {
    CM_STACK(T, stack, "stack", "the stack they are charged to"),
    CM_PLAIN(T, bytes, "bytes", "of the blocks"),
    CM_PLAIN(T, count, "count", "blocks"),
    CM_PLAIN(T, wait_ns, "wait_ns", "the longest wait"),
    CM_NAME(T, name, "kernel", "what that wait was for, or since; null if unknown"),
};
static CM_FIELDS(wait_fields, "waiting_blocks", T, false, wait_rows);
#undef T

#define T cm_deferred_free
static const cm_field deferred_free_rows[] = {
    CM_STACK(T, stack, "stack", "the stack they are charged to"),
    CM_PLAIN(T, bytes, "bytes", "of the blocks"),
    CM_PLAIN(T, count, "count", "blocks"),
    CM_PLAIN(T, stream, "stream", "the handle of the stream that they waited for"),
};
static CM_FIELDS(deferred_free_fields, "deferred_frees", T, false, deferred_free_rows);
#undef T

#define T cm_kernels
static const cm_field kernels_rows[] = {
    CM_PLAIN(T, launches, "launches", "pieces of work that were launched"),
    CM_PLAIN(T, ran, "ran", "pieces of work that ran"),
    CM_PLAIN(T, dropped, "dropped", "launches whose work left no record"),
    CM_PLAIN(T, unrecorded, "unrecorded",
             "launches before the first record, or before a compacted stretch that may hold "
             "theirs: unknown"),
    CM_PLAIN(T, unlaunched, "unlaunched", "of `ran`, those whose launch was not seen"),
    CM_PLAIN(T, unjudged, "unjudged",
             "blocks in neither `early` nor `late`, because too many waited for records at a "
             "time"),
    CM_PLAIN(T, wait_least_ns, "wait_least_ns", "what \"long\" is"),
    CM_PLAIN(T, ns, "ns", "of all that ran"),
    CM_PLAIN(T, name_total, "names_total", "different kernels"),
    CM_ARRAY(T, name, name_count, cm_kernel, kernel_fields, "names",
             "the most time first, at most 50"),
    CM_ARRAY(T, early, early_count, cm_wait, wait_fields, "early",
             "blocks allocated long before the first work on their device ran"),
    CM_ARRAY(T, late, late_count, cm_wait, wait_fields, "late",
             "blocks freed long after the last work on their device"),
    CM_ARRAY(T, deferred_frees, deferred_free_count, cm_deferred_free, deferred_free_fields,
             "deferred_frees", "freed blocks that `record_stream` kept from others"),
};
static CM_FIELDS(kernels_fields, "kernels", T, false, kernels_rows);
#undef T

/* --- devices -----------------------------------------------------------------------------------
 */

#define T cm_oom
static const cm_field oom_rows[] = {
    CM_PLAIN(T, time_ns, "time_ns", "when it was refused"),
    CM_PLAIN(T, requested, "requested", "bytes"),
    CM_PLAIN(T, allocated, "allocated", "by the program at that time"),
    CM_STACK(T, stack, "stack", "the stack it is charged to"),
    CM_OPTIONAL(T, step, "step", "null: outside of any"),
    CM_ARRAY(T, contributors, contributor_count, cm_contributor, cm_py_contributor_fields,
             "contributors", "alive then; empty past the first sixteen requests, unless `escaped`"),
    CM_PLAIN(T, escaped, "escaped", "its exception left the program or the profile"),
    CM_OPTIONAL(T, reserved, "reserved", "by PyTorch's allocator; null if unknown"),
    CM_STACK(T, origin_stack, "origin", "its own stack, where that is not `stack`"),
    CM_NODE(T, name, "operator", "the autograd node that ran"),
    CM_STRUCT_SEEN(T, memory, memory.asked, cm_fragmentation, fragmentation_fields, "memory",
                   "of PyTorch and the device then; null past the first sixteen requests"),
    CM_ARRAY(T, tensors, tensor_count, cm_tensor, tensor_fields, "tensors",
             "of what was alive then, what a walk has named or measured, the largest first"),
};
static CM_FIELDS(oom_fields, "oom", T, true, oom_rows);
#undef T

#define T cm_timeline_point
static const cm_field timeline_rows[] = {
    CM_PLAIN(T, time_ns, "time_ns", "when the span begins"),
    CM_PLAIN(T, min, "low", "the fewest live bytes in it"),
    CM_PLAIN(T, max, "high", "the most live bytes in it"),
    CM_OPTIONAL(T, reserved, "reserved", "the most that the allocator held"),
};
static CM_FIELDS(timeline_fields, "timeline_point", T, true, timeline_rows);
#undef T

#define T cm_segment_totals
static const cm_field segment_totals_rows[] = {
    CM_PLAIN(T, count, "count", "at the end"),
    CM_PLAIN(T, bytes, "bytes", "at the end"),
    CM_PLAIN(T, peak, "peak", "at most"),
};
static CM_FIELDS(segment_totals_fields, "segments", T, false, segment_totals_rows);
#undef T

#define T cm_totals_check
static const cm_field totals_check_rows[] = {
    CM_PLAIN(T, reported, "reported",
             "the allocator's total when they last differed, else the last one"),
    CM_PLAIN(T, live, "live", "recorded as alive at that time"),
    CM_PLAIN(T, checked, "checked", "how often"),
    CM_PLAIN(T, differ, "differ", "how often they differed: 0 in a good recording"),
};
static CM_FIELDS(totals_check_fields, "check", T, false, totals_check_rows);
#undef T

#define T cm_device_report
static const cm_field above_rows[] = {
    CM_PLAIN(T, above, "bytes", "the highest sum of live blocks allocated since the start"),
    CM_PLAIN(T, above_time_ns, "time_ns", "when"),
    CM_OPTIONAL(T, above_step, "step", "null: outside of any"),
};
static CM_FIELDS(above_fields, "peak_above_start", T, true, above_rows);

/* {name: table} of the tables that were asked for. */
static PyObject *table_dict(cm_py_builder *b, const void *row)
{
    const T *d = row;
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < CM_TABLES; i++)
        if ((b->tables & CM_TABLE(i)) != 0 &&
            cm_py_put(dict, cm_py_tables[i], cm_py_build(b, &table_fields, &d->table[i], d)) < 0)
            Py_CLEAR(dict);
    return dict;
}

static const cm_field garbage_rows[] = {
    CM_PLAIN(T, garbage.collections, "collections",
             "collections of Python that freed bytes of it, without the one at the end"),
    CM_PLAIN(T, garbage.freed, "freed",
             "bytes that they freed, without what after_oom has of a program that "
             "refused memory has ended: only reference cycles held them"),
    CM_PLAIN(T, garbage.most, "most", "the most that one of them freed before the last step's end"),
    CM_PLAIN(T, garbage.after_oom, "after_oom",
             "of what was alive at the last refused request: freed by collections behind it, up to "
             "the first full one, that at the end too"),
    CM_PLAIN(T, garbage.at_peak, "at_peak",
             "of the bytes at the peak, those that collections behind it freed, up to the first "
             "full one; without what a line's last step before it made, and from behind the last "
             "step only where collections in the loop freed some of the line's blocks, too"),
    CM_ARRAY(T, garbage.contributors, garbage.contributor_count, cm_contributor,
             cm_py_contributor_fields, "contributors", "of `at_peak`, the largest first"),
    CM_ARRAY(T, garbage.freed_contributors, garbage.freed_count, cm_contributor,
             cm_py_contributor_fields, "freed_contributors",
             "of `freed` and `after_oom`, the largest first"),
};
static CM_FIELDS(garbage_fields, "garbage", T, false, garbage_rows);

static const cm_field device_rows[] = {
    CM_TEXT(T, name, "device", "`\"cpu\"`, `\"cuda:0\"`"),
    CM_PLAIN(T, start, "start", "live bytes when the recording began"),
    CM_PLAIN(T, peak, "peak", "the most live bytes"),
    CM_PLAIN(T, peak_time_ns, "peak_time_ns", "when"),
    CM_OPTIONAL(T, peak_step, "peak_step", "null: outside of any"),
    CM_GROUP(above_fields, "above",
             "the highest sum of live blocks that were allocated since the start (blocks from "
             "before it do not count); a lower bound where the trace was compacted"),
    CM_PLAIN(T, kept, "kept", "allocated since the start and alive at the end"),
    CM_PLAIN(T, end, "end", "live bytes at the end"),
    CM_PLAIN(T, allocations, "allocations", "how many"),
    CM_PLAIN(T, frees, "frees", "how many"),
    CM_PLAIN(T, allocated, "allocated", "bytes of all allocations"),
    CM_PLAIN(T, freed, "freed", "bytes of all frees"),
    CM_OPTIONAL(T, reserved_peak, "reserved_peak", "by the allocator; null if unknown"),
    CM_ARRAY(T, contributors, contributor_count, cm_contributor, cm_py_contributor_fields,
             "contributors", "of the peak, the largest first"),
    CM_ARRAY(T, ooms, oom_count, cm_oom, oom_fields, "ooms",
             "refused requests: the first 1,024, and the one that escaped"),
    CM_PLAIN(T, oom_total, "ooms_total", "refused requests: all of them"),
    CM_GROUP(garbage_fields, "garbage", "what Python's collections freed"),
    CM_ARRAY(T, timeline, timeline_count, cm_timeline_point, timeline_fields, "timeline",
             "live bytes over time"),
    CM_OPTIONAL(T, requested_peak, "requested_peak",
                "of the peak's bytes, what the program requested; null where the allocator does "
                "not report it"),
    CM_STRUCT_SEEN(T, segments, segments.seen, cm_segment_totals, segment_totals_fields, "segments",
                   "what PyTorch's caching allocator took from CUDA by cudaMalloc; null where none "
                   "was seen"),
    CM_STRUCT_SEEN(T, check, check.checked, cm_totals_check, totals_check_fields, "check",
                   "the allocator's own total against the recorded heap; null where it reports "
                   "none"),
    CM_MADE_OF("{name: table}", table_dict, table_fields, "tables", "those that were asked for"),
    CM_ARRAY(T, tensors, tensor_count, cm_tensor, tensor_fields, "tensors",
             "of the run's peak, the largest first"),
};
static CM_FIELDS(device_fields, "device", T, false, device_rows);
#undef T

/* --- steps -------------------------------------------------------------------------------------
 */

#define T cm_step_report
static const cm_field rest_of_step_rows[] = {
    CM_PLAIN(T, rest_bytes, "bytes", "of no contributor that is kept"),
    CM_PLAIN(T, rest_count, "count", "blocks of no contributor that is kept"),
};
static CM_FIELDS(rest_of_step_fields, "step_rest", T, true, rest_of_step_rows);
static const cm_field step_rows[] = {
    CM_PLAIN(T, index, "index", "counts from 0"),
    CM_LOOP(T, loop, "loop", "the clock's stretch (training, evaluation)"),
    CM_DEVICE(T, device, "device", "`\"cuda:0\"`"),
    CM_PLAIN(T, begin_ns, "begin_ns", "when it begins"),
    CM_PLAIN(T, end_ns, "end_ns", "when it ends"),
    CM_PLAIN(T, peak_ns, "peak_ns", "when it has the most live bytes"),
    CM_PLAIN(T, start, "start", "live bytes when it begins"),
    CM_PLAIN(T, peak, "peak", "the most live bytes"),
    CM_PLAIN(T, end, "end", "live bytes when it ends"),
    CM_PLAIN(T, allocated, "allocated", "bytes of all allocations in it"),
    CM_PLAIN(T, freed, "freed", "bytes of all frees in it"),
    CM_PLAIN(T, allocations, "allocations", "how many"),
    CM_PLAIN(T, incomplete, "incomplete",
             "it did not end: the last one, which an exception cut short; it counts in no loop"),
    CM_OPTIONAL(T, reserved, "reserved",
                "what the allocator held when the step ended, null where it does not report it"),
    CM_SLICE(T, first_contributor, contributor_count, cm_analysis, step_contributors,
             cm_contributor, cm_py_contributor_fields, "contributors",
             "the ten largest at the step's peak"),
    CM_GROUP(rest_of_step_fields, "rest", "of no contributor that is kept"),
};
static CM_FIELDS(step_fields, "step", T, false, step_rows);
#undef T

#define T cm_clock_change
static const cm_field change_rows[] = {
    CM_PLAIN(T, step, "step", "from this step on"),
    CM_ENUM(T, kind, ticks, "kind", "what counts the steps"),
    CM_LINE(T, line, "where", "the code line that steps"),
    CM_LOOP(T, loop, "loop", "the stretch"),
};
static CM_FIELDS(change_fields, "clock_change", T, false, change_rows);
#undef T

#define T cm_clock_loop
static const cm_field loop_rows[] = {
    CM_TEXT(T, name, "loop", "`\"training\"`, `\"evaluation\"`"),
    CM_ENUM(T, kind, ticks, "kind", "what counts the steps"),
    CM_LINE(T, line, "where", "the code line that steps"),
    CM_PLAIN(T, steps, "steps", "how many"),
    CM_PLAIN(T, trailed, "trailed", "a step has what was allocated behind its last tick"),
};
static CM_FIELDS(loop_fields, "clock_loop", T, false, loop_rows);
#undef T

#define T cm_steps
static const cm_field passed_rows[] = {
    CM_ENUM(T, passed_kind, ticks, "kind", "of the better clock"),
    CM_LINE(T, passed_line, "where", "the code line of it"),
    CM_PLAIN(T, passed_steps, "steps", "how often it ticked"),
};
static CM_FIELDS(passed_fields, "clock_passed", T, true, passed_rows);
static const cm_field rate_rows[] = {
    CM_PLAIN(T, updates, "updates", "of an iteration"),
    CM_LINE(T, updates_line, "where", "the update that ends an iteration"),
    CM_PLAIN(T, joined, "joined", "a step is such an iteration"),
};
static CM_FIELDS(rate_fields, "clock_rate", T, true, rate_rows);
static const cm_field clock_rows[] = {
    CM_ENUM(T, kind, ticks, "kind",
            "`\"step\"`, `\"optimizer\"`, `\"backward\"`, `\"data\"`, `\"module\"` or null"),
    CM_LINE(T, line, "where", "the code line that steps"),
    CM_ARRAY(T, change, change_count, cm_clock_change, change_fields, "changes",
             "every stretch but the first"),
    CM_ARRAY(T, loop, loop_count, cm_clock_loop, loop_fields, "loops", "by their first step"),
    CM_GROUP_SEEN(T, passed_kind, passed_fields, "passed", "a better clock that ticked too rarely"),
    CM_GROUP_SEEN(T, updates, rate_fields, "rate", "several updates make an iteration"),
};
static CM_FIELDS(clock_fields, "clock", T, false, clock_rows);
#undef T

/* --- leaks -------------------------------------------------------------------------------------
 */

#define T cm_leak_part
static const cm_field part_rows[] = {
    CM_PLAIN(T, bytes, "bytes", "of graph nodes: estimated"),
    CM_PLAIN(T, count, "count", "blocks or nodes"),
    CM_STACK(T, stack, "stack", "where they are made"),
};
static CM_FIELDS(part_fields, "leak_part", T, true, part_rows);
#undef T

#define T cm_holder
static const cm_field holder_rows[] = {
    CM_LABEL(T, path, "path", "how the program refers to them; \"others\": the rest"),
    CM_PLAIN(T, count, "count", "blocks or nodes"),
    CM_PLAIN(T, bytes, "bytes", "of nodes: estimated"),
    CM_OPTIONAL(T, step, "step", "in which it was searched; null: in none, mostly at the end"),
};
static CM_FIELDS(holder_fields, "holder", T, true, holder_rows);
#undef T

#define T cm_held_line
static const cm_field held_rows[] = {
    CM_DEVICE(T, device, "device", "where it is alive"),
    CM_STACK(T, stack, "stack", "one that leads to the line"),
    CM_SLICE(T, first_holder, holder_count, cm_analysis, alive_holders, cm_holder, holder_fields,
             "holders", "the most bytes first; their bytes sum to all that was alive of the line"),
};
static CM_FIELDS(held_fields, "held_line", T, false, held_rows);
#undef T

/* Those of one leak beside each other, in the order of the trace. */
static int compare_holders(const void *a, const void *b)
{
    const cm_holder *x = *(const cm_holder *const *)a, *y = *(const cm_holder *const *)b;
    if (x->stack != y->stack)
        return x->stack < y->stack ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int compare_order(const void *a, const void *b)
{
    const cm_holder *x = *(const cm_holder *const *)a, *y = *(const cm_holder *const *)b;
    return x < y ? -1 : x > y;
}

bool cm_py_sort_holders(cm_py_builder *b)
{
    const cm_analysis *a = b->analysis;
    b->holders = PyMem_New(const cm_holder *, a->holder_count + 1);
    if (b->holders == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < a->holder_count; i++)
        b->holders[i] = &a->holders[i];
    cm_sort(b->holders, a->holder_count, sizeof *b->holders, compare_holders);
    return true;
}

/* Appends those of one stack of the leak to `found`, where that is not NULL; their number. What
 * backward made has others than the rest; those of an older recording may be of either. */
static size_t holders_of(const cm_py_builder *b, const cm_leak *leak, uint32_t stack,
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
        if (h->kind != leak->kind || (leak->backward ? h->forward : h->backward) ||
            (h->kind != CM_LEAK_NODES && h->device != leak->device))
            continue;
        if (found != NULL)
            found[count] = h;
        count++;
    }
    return count;
}

/* Of the leak's own stack and those of its parts. */
static size_t find_holders(const cm_py_builder *b, const cm_leak *leak, const cm_holder **found)
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
static PyObject *holder_list(cm_py_builder *b, const void *row)
{
    const cm_leak *leak = row;
    size_t count = find_holders(b, leak, NULL), first = 0;
    const cm_holder **found = PyMem_New(const cm_holder *, count + 1);
    if (found == NULL)
        return PyErr_NoMemory();
    find_holders(b, leak, found);
    cm_sort(found, count, sizeof *found, compare_order);
    for (size_t i = count; i > 0 && first == 0; i--)
        if (found[i - 1]->first)
            first = i - 1;
    PyObject *list = PyList_New(0);
    for (size_t i = first; list != NULL && i < count; i++)
        if ((i == first || found[i] != found[i - 1]) && /* parts may share a stack */
            cm_py_append(list, cm_py_build(b, &holder_fields, found[i], NULL)) < 0)
            Py_CLEAR(list);
    PyMem_Free(found);
    return list;
}

static PyObject *leak_device(cm_py_builder *b, const void *row)
{
    uint32_t device = ((const cm_leak *)row)->device;
    return device < b->analysis->device_count ? cm_py_device_name(b, device)
                                              : PyUnicode_FromString("cpu");
}

static const cm_fields leak_fields;

#define T cm_leak
static const cm_field leak_rows[] = {
    CM_ENUM(T, kind, leak_kinds, "kind",
            "`\"bytes\"` (blocks of tensors) or `\"nodes\"` (nodes of the autograd graph)"),
    CM_MADE("str", leak_device, "device", "`\"cuda:0\"`; of nodes: `\"cpu\"`"),
    CM_PLAIN(T, bytes, "bytes", "alive at the end of the loop's last step, made in its steps"),
    CM_PLAIN(T, count, "count", "the same: blocks or nodes"),
    CM_PLAIN(T, bytes_per_step, "bytes_per_step", "the growth, with a fraction"),
    CM_PLAIN(T, count_per_step, "count_per_step",
             "the growth, with a fraction; 0 where older ones are replaced by larger ones"),
    CM_PLAIN(T, total_bytes_per_step, "total_bytes_per_step",
             "`bytes_per_step` with those of `keeps`"),
    CM_PLAIN(T, first_step, "first_step", "in which the first was made"),
    CM_PLAIN(T, last_step, "last_step", "in which the last was made"),
    CM_LOOP(T, loop, "loop", "the clock's stretch (training, evaluation) that it was judged in"),
    CM_STACK(T, stack, "stack",
             "where they are made: of several the one with the most bytes; `[]` without one"),
    CM_STACK(T, retained_stack, "retained",
             "nodes: the stack that made the youngest survivor of each step, mostly the line that "
             "keeps the graph"),
    CM_PLAIN(T, backward, "backward", "whether its blocks were made in backward"),
    CM_ENUM(T, signature, signatures, "signature",
            "`\"survivors\"` (of all ages) or `\"growing\"` (older ones are replaced by more or "
            "larger ones)"),
    CM_ENUM(T, cycle, causes, "cause",
            "`\"cycle\"`: reference cycles, and no collection ran; else null"),
    CM_ENUM(T, confidence, confidences, "confidence", "`\"high\"`, `\"medium\"`, `\"low\"`"),
    CM_ENUM(
        T, reason, reasons, "reason",
        "null for a leak; for a suspect `\"few births\"`, `\"stopped\"` (also what the next run of "
        "an evaluation replaced), `\"one epoch\"`, `\"garbage\"` (it died in the collection at the "
        "end), `\"no collection\"` (none ran "
        "behind the loop), `\"collections unknown\"` (of a memory snapshot, which does not say "
        "whether one ran), `\"late garbage\"` (it died in the collection at the end, behind "
        "the loop's function, and may have been held until then), `\"freed behind the "
        "loop\"` (of an evaluation, while the program went on), `\"one pass\"` (of an evaluation "
        "that ran once while others went on, or whose older results were freed), "
        "`\"carried on\"` (one value that a variable of an evaluation hands from step to step, as "
        "a cache of keys and values), `\"filling\"` (in a container with a bound that it has not "
        "reached), "
        "`\"events lost\"`, `\"negligible\"` "
        "(less than 1 KiB a step and 1 % of the peak, or than `--min-rate`)"),
    CM_SLICE(T, first_part, part_count, cm_analysis, leak_parts, cm_leak_part, part_fields, "parts",
             "a part per stack, the largest first; they sum to `bytes` and `count`"),
    CM_ENUM(T, relation, relations, "relation",
            "of a row of `keeps`: `\"retained by the graph\"` (its line made nodes of it), `\"made "
            "in the same steps\"`, `\"grows with it\"` (in proportion); else null"),
    CM_SLICE(T, first_kept, kept_count, cm_analysis, kept, cm_leak, leak_fields, "keeps",
             "what grows because of this one, rows like it, the most bytes a step first"),
    CM_MADE_OF(
        "[holder]", holder_list, holder_fields, "holders",
        "how the program refers to `count` of its blocks (nodes), the most bytes first; empty "
        "where nothing was searched, or everything was gone by then"),
};
static CM_FIELDS(leak_fields, "leak", T, false, leak_rows);
#undef T

/* --- charts ------------------------------------------------------------------------------------
 */

#define T cm_chart_interval
static const cm_field interval_rows[] = {
    CM_PLAIN(T, begin_ns, "begin_ns", "when it begins"),
    CM_PLAIN(T, high_ns, "high_ns", "when the live bytes were the most"),
    CM_PLAIN(T, low, "low", "the fewest live bytes"),
    CM_PLAIN(T, high, "high", "the most live bytes"),
    CM_PLAIN(T, reserved, "reserved", "the most that the allocator held; -1 unknown"),
    CM_PLAIN(T, allocated, "allocated", "bytes"),
    CM_PLAIN(T, freed, "freed", "bytes"),
    CM_I64S(T, allocations, "phases", "allocations by phase"),
};
static CM_FIELDS(interval_fields, "chart_intervals", T, false, interval_rows);
#undef T

#define T cm_chart_entry
static const cm_field entry_rows[] = {
    CM_PLAIN(T, contributor, "contributor", "index in the chart's contributors"),
    CM_PLAIN(T, interval, "interval", "index of the interval"),
    CM_PLAIN(T, high, "high", "live bytes when the device had most in it"),
    CM_PLAIN(T, end, "end", "live bytes at its end"),
    CM_PLAIN(T, allocated, "allocated", "bytes in it"),
    CM_PLAIN(T, freed, "freed", "bytes in it"),
};
static CM_FIELDS(entry_fields, "chart_entries", T, false, entry_rows);
#undef T

#define T cm_chart_block
static const cm_field block_rows[] = {
    CM_PLAIN(T, address, "address", "where it lies"),
    CM_PLAIN(T, bytes, "bytes", "of the block"),
    CM_PLAIN(T, begin_ns, "begin_ns", "-1: before the recording"),
    CM_PLAIN(T, end_ns, "end_ns", "-1: alive at the end"),
    CM_PLAIN(T, contributor, "contributor", "index in the chart's contributors"),
    CM_PLAIN(T, step, "step", "that it was made in; -1: none"),
    CM_PLAIN(T, end_step, "end_step", "that it was freed in; -1: none"),
};
static CM_FIELDS(block_fields, "chart_blocks", T, false, block_rows);
#undef T

#define T cm_chart
static const cm_field chart_rows[] = {
    CM_DEVICE(T, device, "device", "`\"cuda:0\"`"),
    CM_PLAIN(T, span, "span", "its number among those that were asked for"),
    CM_PLAIN(T, begin_ns, "begin_ns", "of the span"),
    CM_PLAIN(T, end_ns, "end_ns", "of the span"),
    CM_COLUMNS(T, interval, interval_count, cm_chart_interval, interval_fields, "intervals",
               "a value for each interval"),
    CM_ARRAY(T, contributor, contributor_count, struct cm_contributor, cm_py_contributor_fields,
             "contributors", "those with a row in entries or blocks"),
    CM_COLUMNS(T, entry, entry_count, cm_chart_entry, entry_fields, "entries",
               "a row for each contributor and interval in which it changed"),
    CM_COLUMNS(T, block, block_count, cm_chart_block, block_fields, "blocks",
               "single allocations, by the time of their birth"),
    CM_PLAIN(T, hidden, "hidden", "contributors that never had more may lack entries"),
    CM_PLAIN(T, least_block, "least_block", "all blocks of that size are there"),
    CM_PLAIN(T, least_survivor, "least_survivor",
             "all of that size that were made in the recording and are alive at its end"),
};
static CM_FIELDS(chart_fields, "chart", T, false, chart_rows);
#undef T

/* --- lives of blocks ----------------------------------------------------------------------------
 */

#define T cm_life
static const cm_field life_rows[] = {
    CM_PLAIN(T, birth, "birth", "position; 0: before the recording"),
    CM_PLAIN(T, end, "end", "position; -1: alive at the end"),
    CM_PLAIN(T, bytes, "bytes", "of the block"),
    CM_PLAIN(T, requested, "requested", "of them, without the allocator's rounding"),
    CM_PLAIN(T, contributor, "contributor", "index in the device's contributors"),
    CM_PLAIN(T, step, "step", "that it was made in; -1: before the first"),
    CM_PLAIN(T, end_step, "end_step", "that it ended in; -1: before the first"),
};
static CM_FIELDS(life_fields, "lives_blocks", T, false, life_rows);
#undef T

#define T cm_life_step
static const cm_field life_step_rows[] = {
    CM_PLAIN(T, step, "step", "-1: before the first; the number behind the last: the tail"),
    CM_PLAIN(T, loop, "loop", "index in the clock's loops; -1: none"),
    CM_PLAIN(T, begin, "begin", "position"),
    CM_PLAIN(T, end, "end", "position"),
    CM_PLAIN(T, peak, "peak", "the most live bytes in it"),
    CM_PLAIN(T, nodes_made, "nodes_made", "of the autograd graph"),
    CM_PLAIN(T, nodes_run, "nodes_run", "by backward passes"),
};
static CM_FIELDS(life_step_fields, "lives_steps", T, false, life_step_rows);
#undef T

#define T cm_lives
static const cm_field lives_rows[] = {
    CM_DEVICE(T, device, "device", "`\"cuda:0\"`"),
    CM_PLAIN(T, cut, "cut", "there were too many: the list ends early"),
    CM_COLUMNS(T, life, count, cm_life, life_fields, "blocks",
               "those of the steps around the peaks, by birth"),
    CM_ARRAY(T, contributor, contributor_count, struct cm_contributor, cm_py_contributor_fields,
             "contributors", "of these blocks"),
    CM_COLUMNS(T, step, step_count, cm_life_step, life_step_fields, "steps",
               "stretches of time of which every block is there"),
};
static CM_FIELDS(lives_fields, "lives", T, false, lives_rows);
#undef T

/* --- the report --------------------------------------------------------------------------------
 */

#define T cm_compacted
static const cm_field compacted_rows[] = {
    CM_PLAIN(T, from_step, "from_step", "its first step; -1 is before the first"),
    CM_PLAIN(T, to_step, "to_step", "its last step"),
    CM_PLAIN(T, events, "events", "counted and left out"),
};
static CM_FIELDS(compacted_fields, "compacted", T, false, compacted_rows);
#undef T

#define T cm_backward_bytes
static const cm_field backward_rows[] = {
    CM_PLAIN(T, bytes, "bytes", "allocated while autograd ran: the sum of the others"),
    CM_PLAIN(T, resolved, "resolved", "charged to a forward line"),
    CM_PLAIN(T, accumulation, "accumulation", "by the accumulation of gradients"),
    CM_PLAIN(T, unresolved, "unresolved", "charged to the call of `backward()`"),
};
static CM_FIELDS(backward_fields, "backward", T, false, backward_rows);
#undef T

#define T cm_rss_point
static const cm_field resident_rows[] = {
    CM_PLAIN(T, time_ns, "time_ns", "when"),
    CM_PLAIN(T, bytes, "bytes", "of the process"),
};
static CM_FIELDS(resident_fields, "resident_point", T, true, resident_rows);
#undef T

enum { CM_JSON_SCHEMA = 3 }; /* SCHEMA of cuptimem/output/json.py: tests/house compares */

static PyObject *schema(cm_py_builder *b, const void *row)
{
    return PyLong_FromLong(CM_JSON_SCHEMA);
}

static PyObject *complete(cm_py_builder *b, const void *row)
{
    return PyBool_FromLong(b->analysis->state == CM_TRACE_COMPLETE);
}

static PyObject *meta_dict(cm_py_builder *b, const void *row)
{
    return cm_py_meta(b->reader);
}

static PyObject *cut(cm_py_builder *b, const void *row)
{
    return PyLong_FromUnsignedLongLong(cm_reader_cut_stacks(b->reader) +
                                       cm_reader_cut_texts(b->reader));
}

static PyObject *unshown(cm_py_builder *b, const void *row)
{
    return PyLong_FromUnsignedLongLong(b->unshown);
}

static PyObject *stack_dict(cm_py_builder *b, const void *row)
{
    return Py_NewRef(b->stacks);
}

#define T cm_analysis
static const cm_field lost_rows[] = {
    CM_PLAIN(T, lost_events, "events", "allocations and frees that found no room"),
    CM_PLAIN(T, lost_stacks, "stacks", "stacks that found no room"),
    CM_PLAIN(T, unknown_frees, "unknown_frees", "frees of blocks made before recording"),
    CM_PLAIN(T, replaced, "replaced", "blocks replaced without a free"),
    CM_PLAIN(T, seeds_skipped, "seeds_skipped",
             "storages at the start that could not be inspected"),
    CM_MADE("int", cut, "cut", "stacks and names longer than a trace may hold"),
    CM_MADE("int", unshown, "unshown",
            "references to stacks that are left out ([bounds](trace-format.md#bounds))"),
};
static CM_FIELDS(lost_fields, "lost", T, false, lost_rows);

static const cm_field report_rows[] = {
    CM_MADE("int", schema, "schema", "of the JSON objects"),
    CM_MADE("bool", complete, "complete",
            "true if the program itself ended the recording: it did not die, nor did the recording "
            "end early"),
    CM_ENUM(T, state, cm_py_states, "state",
            "`\"complete\"`; `\"recording\"` (still going on); `\"recovered\"` (killed, but "
            "everything it published is here); `\"cut\"` (the end is missing)"),
    CM_TEXT(T, reason, "reason",
            "why the recording ended early, or what the file lacks; `\"\"` if it did not and "
            "nothing is missing"),
    CM_MADE("{name: text}", meta_dict, "meta", "what the recording says of the process"),
    CM_TEXT_AT(T, code, "code", "installed packages that count as the user's own code"),
    CM_OPTIONAL(T, step_asked, "step_asked", "the step whose contributors were asked for"),
    CM_PLAIN(T, start_realtime_ns, "start_realtime_ns", "since 1970"),
    CM_PLAIN(T, begin_ns, "begin_ns", "where the window begins in the trace"),
    CM_PLAIN(T, duration_ns, "duration_ns", "of the window"),
    CM_PLAIN(T, events, "events", "recorded"),
    CM_STRUCT_SEEN(T, compacted, compacted.events, cm_compacted, compacted_fields, "compacted",
                   "past its bound the trace has of these steps only sums, survivors, and what was "
                   "alive at their peaks; null if it has every event"),
    CM_PLAIN(T, allocations, "allocations", "recorded"),
    CM_PLAIN(T, threads, "threads", "how many allocated or freed"),
    CM_ARRAY(T, device, device_count, cm_device_report, device_fields, "devices",
             "those that were used"),
    CM_ARRAY(T, rss, rss_count, cm_rss_point, resident_fields, "rss", "resident memory over time"),
    CM_ARRAY(T, rest, rest_count, cm_rss_point, resident_fields, "rest",
             "memory in use beside tensors, when a step clock ticked"),
    CM_ARRAY(T, step, step_count, cm_step_report, step_fields, "steps",
             "an entry per step and device"),
    CM_STRUCT(T, steps, cm_steps, clock_fields, "clock", "what counts the steps"),
    CM_ARRAY(T, survivors, survivor_count, cm_survivor, survivor_fields, "survivors",
             "alive at the last step's end; without steps, at the end"),
    CM_ARRAY(T, survivors_end, survivor_end_count, cm_survivor, survivor_fields, "survivors_at_end",
             "alive at the end"),
    CM_ARRAY(T, host_reads, host_read_count, cm_host_read, host_read_fields, "host_reads",
             "on a simulated device: lines that read values which no kernel computed"),
    CM_ARRAY(T, kept_blocks, kept_block_count, cm_kept_block, kept_block_fields, "kept_blocks",
             "with the table `kept`: its blocks, at most 65,536"),
    CM_ARRAY(T, leaks, leak_count, cm_leak, leak_fields, "leaks",
             "verdicts, the most bytes a step first"),
    CM_ARRAY(T, suspects, suspect_count, cm_leak, leak_fields, "suspects",
             "what grew, but may be harmless; each has a `reason`"),
    CM_ARRAY(T, held_lines, held_line_count, cm_held_line, held_fields, "held",
             "who held what was alive at the end, by the user's line, the most bytes first"),
    CM_PLAIN(T, live_nodes, "live_nodes", "autograd nodes alive at the last step's end"),
    CM_STRUCT(T, backward, cm_backward_bytes, backward_fields, "backward",
              "bytes allocated while autograd ran"),
    CM_STRUCT(T, driver, cm_driver_report, driver_fields, "driver", "the driver level"),
    CM_ARRAY(T, ledgers, ledger_count, cm_ledger, ledger_fields, "ledger",
             "of each device at its peak and at the end"),
    CM_ARRAY(T, curves, curve_count, cm_device_curve, curve_fields, "device_timeline",
             "each device as a whole over time"),
    CM_ARRAY(T, fragmentation, fragmentation_count, cm_fragmentation, fragmentation_fields,
             "fragmentation", "of each device at its peak, when it refused, at the end"),
    CM_STRUCT_SEEN(T, kernels, kernels.seen, cm_kernels, kernels_fields, "kernels",
                   "null: not recorded"),
    CM_ARRAY(T, charts, chart_count, cm_chart, chart_fields, "charts", "by span, then device"),
    CM_ARRAY(T, lives, lives_count, cm_lives, lives_fields, "lives",
             "single blocks around the peaks, by device, where they were asked for"),
    /* Behind all that refers to stacks: what could not be shown is counted by now. */
    CM_GROUP(lost_fields, "lost", "what the recording misses, in counts"),
    CM_MADE("{stack: [frame]}", stack_dict, "stacks", "frames by stack, innermost first"),
};
CM_FIELDS(cm_py_report_fields, "report", T, false, report_rows);
#undef T
