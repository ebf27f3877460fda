#include "nodes.h"

#include <stdlib.h>
#include <string.h>

#include "../base/event.h"
#include "definitions.h"
#include "moved.h"
#include "text.h"

/* "torch::autograd::generated::AddmmBackward0::apply(std::vector<...": the class of the node. */
static size_t node_class(const char *name, size_t length)
{
    static const char apply[] = "::apply(";
    if (!cm_begins(name, length, "torch::autograd::"))
        return 0;
    for (size_t i = 0; i + sizeof apply - 1 <= length && name[i] != '('; i++)
        if (memcmp(name + i, apply, sizeof apply - 1) == 0)
            return i;
    return 0;
}

bool cm_snap_nodes_init(cm_snap_nodes *n, cm_snap *s)
{
    *n = (cm_snap_nodes){.snapshot = s, .stacks = s->stacks.count > 1};
    n->name = calloc(s->frames.count, sizeof *n->name);
    if (n->name == NULL)
        return false;
    for (uint32_t i = 1; i < s->frames.count; i++) {
        size_t length;
        uint32_t id;
        if (!cm_snap_is_native(s, i))
            continue;
        n->native = true;
        const char *name = cm_snap_text(s, cm_snap_frame_at(s, i)->name, &length);
        size_t class_length = node_class(name, length);
        char class[CM_SNAP_TEXT_MAX]; /* adding a text may move the others */
        if (class_length == 0 || class_length > sizeof class)
            continue;
        memcpy(class, name, class_length);
        if (!cm_intern_add(&s->texts, class, class_length, &id))
            return false;
        n->name[i] = id + 1;
    }
    return true;
}

void cm_snap_nodes_clear(cm_snap_nodes *n)
{
    free(n->name);
    *n = (cm_snap_nodes){0};
}

static bool is_engine(const cm_snap *s, uint32_t frame)
{
    size_t length;
    const char *name = cm_snap_text(s, cm_snap_frame_at(s, frame)->name, &length);
    return cm_begins(name, length, "torch::autograd::Engine::");
}

static bool takes_workspace(const cm_snap *s, uint32_t frame)
{
    size_t length;
    const char *name = cm_snap_text(s, cm_snap_frame_at(s, frame)->name, &length);
    return cm_contains(name, length, "setWorkspaceForHandle(") ||
           cm_contains(name, length, "::getNewWorkspace(") || /* 2.6 */
           cm_contains(name, length, "getCUDABlasLtWorkspace");
}

/* The backward of a function that is written in Python, which autograd's thread begins with. */
static bool is_own_backward(const cm_snap *s, uint32_t frame)
{
    size_t length, name_length;
    const cm_snap_frame *f = cm_snap_frame_at(s, frame);
    const char *file = cm_snap_text(s, f->file, &length);
    const char *name = cm_snap_text(s, f->name, &name_length);
    return cm_ends(file, length, "torch/autograd/function.py") &&
           cm_ends(name, name_length, "apply");
}

/* Frames are innermost first. */
static cm_snap_node with_native_frames(const cm_snap_nodes *n, const uint32_t *frame, size_t count)
{
    const cm_snap *s = n->snapshot;
    cm_snap_node node = {0};
    bool python = false;
    for (size_t i = 0; i < count; i++) {
        if (!cm_snap_is_native(s, frame[i])) {
            python = true;
            continue;
        }
        if (!python && takes_workspace(s, frame[i]))
            node.label = CM_LABEL_WORKSPACE;
        if (n->name[frame[i]] != 0 && !node.ran) {
            node.name = n->name[frame[i]] - 1;
            node.in_python = python;
            node.ran = true;
        }
        node.ran |= is_engine(s, frame[i]);
    }
    size_t length;
    const char *name = cm_snap_text(s, node.name, &length);
    node.accumulates = node.name != 0 && cm_ends(name, length, "::AccumulateGrad");
    return node;
}

/* What cuptimem's own export puts in the place of the innermost frame (exports/memory_viz.py). */
static cm_snap_node as_exported(const cm_snap *s, const uint32_t *frame, size_t count)
{
    cm_snap_node node = {0};
    if (count == 0 || !cm_snap_is_exported(s, frame[0]))
        return node;
    const cm_snap_frame *f = cm_snap_frame_at(s, frame[0]);
    size_t length;
    const char *file = cm_snap_text(s, f->file, &length);
    node.charged = node.ran = cm_begins(file, length, "backward");
    *(node.ran ? &node.name : &node.operator) = f->name;
    return node;
}

static cm_snap_node node_of(const cm_snap_nodes *n, uint32_t stack)
{
    size_t count;
    const uint32_t *frame = cm_snap_frames(n->snapshot, stack, &count);
    if (n->snapshot->exporter != 0)
        return as_exported(n->snapshot, frame, count);
    if (n->native)
        return with_native_frames(n, frame, count);
    if (count == 0)
        return (cm_snap_node){.ran = n->stacks};
    bool own = is_own_backward(n->snapshot, frame[count - 1]);
    return (cm_snap_node){.ran = own, .in_python = own};
}

cm_snap_node cm_snap_node_of(const cm_snap_nodes *n, uint32_t stack)
{
    cm_snap_node node = node_of(n, stack);
    if (!node.ran && node.label == 0)
        node.label = cm_snap_moved(n->snapshot, stack);
    return node;
}
