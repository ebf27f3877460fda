#include "attribution.h"

#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"

/* Of a code. */
enum { JUDGED = 1, TORCH = 2, OPTIM = 4, DATA = 8, LIBRARY = 16, ENGINE = 32, NN = 64 };
/* Of a stack, besides TORCH for its innermost frame. */
enum {
    NO_USER = 1,   /* see cm_places_library_alone */
    PLAIN_CALL = 4 /* its innermost frame is a library's, of no module, optimizer or data set */
};
enum { BUILDS = 8, IN_DATA = 16, INNER_FORWARD = 32, INNER_OPTIM = 64, MADE_NODE = 128 };

enum { ROOTS = 4 };

struct cm_places {
    const cm_reader *reader;
    const cm_library *library;
    uint8_t *code, *stack;
    size_t code_capacity, stack_capacity;
    uint32_t judged;   /* stacks */
    char *root[ROOTS]; /* ".../torch/" */
    size_t roots;
    cm_idmap lines;       /* hash of (file, line) -> line number */
    uint32_t *line_stack; /* line number - 1 -> stack */
    size_t line_count, line_capacity;
    bool failed;
};

cm_places *cm_places_new(const cm_reader *reader, const cm_library *library)
{
    cm_places *places = calloc(1, sizeof *places);
    if (places == NULL)
        return NULL;
    places->reader = reader;
    places->library = library;
    return places;
}

cm_places *cm_places_copy(const cm_places *places, const cm_library *library)
{
    cm_places *copy = cm_places_new(places->reader, library);
    if (copy == NULL)
        return NULL;
    copy->judged = places->judged;
    copy->failed = places->failed;
    copy->code_capacity = places->code_capacity;
    copy->stack_capacity = places->stack_capacity;
    bool fine = cm_copy((void **)&copy->code, places->code, places->code_capacity, 1) &&
                cm_copy((void **)&copy->stack, places->stack, places->stack_capacity, 1);
    for (size_t i = 0; fine && i < places->roots; i++) {
        copy->root[i] = strdup(places->root[i]);
        copy->roots += fine = copy->root[i] != NULL;
    }
    if (fine)
        return copy;
    cm_places_free(copy);
    return NULL;
}

void cm_places_forget_lines(cm_places *places)
{
    cm_idmap_clear(&places->lines);
    places->line_count = 0;
}

void cm_places_free(cm_places *places)
{
    if (places == NULL)
        return;
    free(places->code);
    free(places->stack);
    for (size_t i = 0; i < places->roots; i++)
        free(places->root[i]);
    cm_idmap_clear(&places->lines);
    free(places->line_stack);
    free(places);
}

static size_t root_length(const char *file)
{
    static const char *const installed[] = {"/site-packages/torch/", "/dist-packages/torch/"};
    for (size_t i = 0; i < sizeof installed / sizeof installed[0]; i++) {
        const char *found = strstr(file, installed[i]);
        if (found != NULL)
            return (size_t)(found - file) + strlen(installed[i]);
    }
    /* A build in its source tree: only by files that PyTorch alone has there. */
    static const char *const own[] = {
        "/torch/nn/modules/module.py",     "/torch/optim/optimizer.py",
        "/torch/utils/data/dataloader.py", "/torch/_tensor.py",
        "/torch/utils/_contextlib.py",     "/torch/autograd/__init__.py"};
    size_t length = strlen(file);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        size_t tail = strlen(own[i]);
        if (length >= tail && strcmp(file + length - tail, own[i]) == 0)
            return length - tail + strlen("/torch/");
    }
    return 0;
}

static const char *inside_torch(const cm_places *places, const char *file)
{
    for (size_t i = 0; i < places->roots; i++) {
        size_t length = strlen(places->root[i]);
        if (strncmp(file, places->root[i], length) == 0)
            return file + length;
    }
    return NULL;
}

/* 1: a root that was not known; 0: nothing new; -1: out of memory. */
static int learn_root(cm_places *places, const char *file)
{
    size_t length = places->roots < ROOTS ? root_length(file) : 0;
    if (length == 0 || inside_torch(places, file) != NULL)
        return 0;
    char *root = malloc(length + 1);
    if (root == NULL)
        return -1;
    memcpy(root, file, length);
    root[length] = '\0';
    places->root[places->roots++] = root;
    return 1;
}

/* Flags of a frame's code; -1: out of memory, -2: a root was learnt, what was judged is stale. */
static int judge_code(cm_places *places, const cm_frame *frame)
{
    if (frame->code < places->code_capacity && places->code[frame->code] != 0)
        return places->code[frame->code];
    size_t before = places->code_capacity;
    if (!cm_grow((void **)&places->code, &places->code_capacity, (size_t)frame->code + 1, 1))
        return -1;
    memset(places->code + before, 0, places->code_capacity - before);
    uint8_t flags = JUDGED;
    if (frame->file != NULL) {
        int learnt = learn_root(places, frame->file);
        if (learnt != 0)
            return learnt < 0 ? -1 : -2;
        const char *inside = inside_torch(places, frame->file);
        if (inside != NULL) {
            flags |= TORCH;
            if (strncmp(inside, "optim/", 6) == 0)
                flags |= OPTIM;
            else if (strncmp(inside, "utils/data/", 11) == 0)
                flags |= DATA;
            else if (strncmp(inside, "nn/", 3) == 0)
                flags |= NN;
            else if (strcmp(inside, "autograd/__init__.py") == 0) /* backward, grad */
                flags |= ENGINE;
        }
        if (cm_library_has(places->library, frame->file))
            flags |= LIBRARY;
    }
    places->code[frame->code] = flags;
    return flags;
}

bool cm_places_update(cm_places *places)
{
    uint32_t count = cm_reader_stack_count(places->reader);
    size_t before = places->stack_capacity;
    if (!cm_grow((void **)&places->stack, &places->stack_capacity, (size_t)CM_STACK_FIRST + count,
                 1))
        return false;
    memset(places->stack + before, 0, places->stack_capacity - before);
    /* A parent is defined before its child, so its flags are there. */
    while (places->judged < count) {
        uint32_t id = CM_STACK_FIRST + places->judged;
        uint32_t parent = cm_reader_stack_parent(places->reader, id);
        uint8_t flags = places->stack[id] & MADE_NODE;
        bool library = true; /* so far, from the outermost frame or the engine's caller on */
        if (parent < id) {
            flags |= places->stack[parent] & (IN_DATA | INNER_FORWARD | INNER_OPTIM);
            library = parent == CM_STACK_NONE || places->stack[parent] & NO_USER;
        }
        cm_frame frame;
        if (cm_reader_stack_frame(places->reader, id, &frame) && !frame.truncated) {
            int code = judge_code(places, &frame);
            if (code == -1)
                return false;
            if (code == -2) {
                memset(places->code, 0, places->code_capacity);
                places->judged = 0;
                continue;
            }
            flags |= code & TORCH;
            if (code & NN || (code & TORCH && parent < id && places->stack[parent] & BUILDS))
                flags |= BUILDS;
            if (code & DATA)
                flags |= IN_DATA;
            if (frame.module != 0 || frame.module_class != NULL)
                flags = (uint8_t)((flags & ~INNER_OPTIM) | INNER_FORWARD);
            else if (code & OPTIM)
                flags = (uint8_t)((flags & ~INNER_FORWARD) | INNER_OPTIM);
            else if (code & (LIBRARY | TORCH) && !(code & DATA))
                flags |= PLAIN_CALL;
            if (code & ENGINE || (code & LIBRARY && library))
                flags |= NO_USER;
        }
        places->stack[id] = flags;
        places->judged++;
    }
    return true;
}

static uint8_t flags_of(cm_places *places, uint32_t stack)
{
    if (stack < CM_STACK_FIRST)
        return 0; /* no frames: nothing to tell by */
    if (stack >= CM_STACK_FIRST + places->judged && !cm_places_update(places)) {
        places->failed = true;
        return 0;
    }
    return stack < CM_STACK_FIRST + places->judged ? places->stack[stack] : 0;
}

bool cm_places_ok(const cm_places *places)
{
    return !places->failed;
}

static bool made_node(cm_places *places, uint32_t stack)
{
    for (;;) {
        uint8_t flags = flags_of(places, stack);
        if (flags & MADE_NODE || !(flags & PLAIN_CALL))
            return flags & MADE_NODE;
        uint32_t parent = cm_reader_stack_parent(places->reader, stack);
        if (parent >= stack)
            return false;
        stack = parent;
    }
}

cm_phase cm_places_phase(cm_places *places, uint32_t stack)
{
    uint8_t flags = flags_of(places, stack);
    if (flags & IN_DATA)
        return CM_PHASE_DATA;
    if (flags & INNER_FORWARD)
        return CM_PHASE_FORWARD;
    if (made_node(places, stack)) /* in a closure, too: optimizers themselves make none */
        return CM_PHASE_FORWARD;
    return flags & INNER_OPTIM ? CM_PHASE_OPTIMIZER : CM_PHASE_OTHER;
}

bool cm_places_library_alone(void *places, uint32_t stack)
{
    return flags_of(places, stack) & NO_USER;
}

bool cm_places_builds(cm_places *places, uint32_t stack)
{
    return flags_of(places, stack) & BUILDS;
}

void cm_places_made_node(cm_places *places, uint32_t stack)
{
    flags_of(places, stack);
    if (stack >= CM_STACK_FIRST && stack < CM_STACK_FIRST + places->judged)
        places->stack[stack] |= MADE_NODE;
}

uint32_t cm_places_outside(cm_places *places, uint32_t stack)
{
    uint32_t at = stack;
    while (at >= CM_STACK_FIRST && flags_of(places, at) & TORCH) {
        uint32_t parent = cm_reader_stack_parent(places->reader, at);
        if (parent >= at)
            break;
        at = parent;
    }
    return at >= CM_STACK_FIRST ? at : stack;
}

static bool same_line(const cm_places *places, uint32_t stack, const cm_frame *frame)
{
    cm_frame other;
    return cm_reader_stack_frame(places->reader, stack, &other) && other.line == frame->line &&
           strcmp(other.file ? other.file : "", frame->file ? frame->file : "") == 0;
}

bool cm_places_line(cm_places *places, uint32_t stack, uint32_t *line)
{
    cm_frame frame;
    uint32_t outside = cm_places_outside(places, stack);
    *line = 0;
    if (!cm_reader_stack_frame(places->reader, outside, &frame))
        return true;
    uint64_t key = (uint64_t)(int64_t)frame.line;
    for (const char *c = frame.file ? frame.file : ""; *c != '\0'; c++)
        key = (key ^ (unsigned char)*c) * 0x100000001b3u;
    key >>= 1;
    uint32_t found;
    while (cm_idmap_get(&places->lines, key, &found)) {
        if (same_line(places, places->line_stack[found - 1], &frame)) {
            *line = found;
            return true;
        }
        key++; /* another line with the same hash */
    }
    if (!cm_grow((void **)&places->line_stack, &places->line_capacity, places->line_count + 1,
                 sizeof *places->line_stack) ||
        !cm_idmap_put(&places->lines, key, (uint32_t)places->line_count + 1))
        return false;
    places->line_stack[places->line_count++] = outside;
    *line = (uint32_t)places->line_count;
    return true;
}

uint32_t cm_places_line_stack(const cm_places *places, uint32_t line)
{
    return line > 0 && line <= places->line_count ? places->line_stack[line - 1] : CM_STACK_NONE;
}
