#include "attribution.h"

#include <string.h>

#include "../base/grow.h"
#include "../base/idmap.h"
#include "../base/moved.h"
#include "../base/own_frame.h"

/* Flags of a code. */
enum {
    JUDGED = 1,
    TORCH = 2,
    OPTIM = 4,
    DATA = 8,
    LIBRARY = 16,
    ENGINE = 32,
    NN = 64,
    STEPPER = 128, /* calls the `step` of an optimizer, perhaps of one outside of PyTorch */
    LOADS = 256,
    BUCKETS = 512,
    CLOSURE = 1024, /* by its name, a function that a program gives to an optimizer */
    APPLIES = 2048, /* of a file of nn.Module's: calls a function for each tensor of modules */
    MOVES = 4096,   /* is that function */
    FETCHES = 8192  /* puts a weight on the device for a call */
};
/* Flags of a stack, besides TORCH for its innermost frame. */
enum {
    NO_USER = 1,   /* see cm_attribution_library_alone */
    PLAIN_CALL = 4 /* innermost frame in a library, but no module, optimizer or data set */
};
enum { BUILDS = 8, IN_DATA = 16, IN_BUCKETS = 32, MADE_NODE = 64, IN_OPTIMIZER = 128 };
/* What the innermost frame that decides has begun: one of these. */
enum {
    INNER = 7 * 256,
    INNER_NONE = 0,
    INNER_FORWARD = 1 * 256,
    INNER_OPTIM = 2 * 256,    /* code of torch/optim */
    INNER_STEPPER = 3 * 256,  /* about to call a `step` */
    INNER_FOREIGN = 4 * 256,  /* an optimizer of the user's */
    INNER_PACKAGED = 5 * 256, /* an optimizer of another package */
    INNER_LOAD = 6 * 256
};
enum { MOVED_PARAMETER = 2048, MOVED_BUFFER = 4096 };
enum { INHERITED = INNER | IN_DATA | IN_OPTIMIZER };

enum { ROOTS = 4 };

struct cm_attribution {
    const cm_reader *reader;
    const cm_library *library;
    uint16_t *code, *stack;
    size_t code_capacity, stack_capacity;
    uint32_t judged;   /* stacks */
    char *root[ROOTS]; /* ".../torch/" */
    size_t roots;
    cm_idmap lines;       /* hash of (file, line) -> line number */
    uint32_t *line_stack; /* line number - 1 -> stack */
    size_t line_count, line_capacity;
    bool failed;
};

cm_attribution *cm_attribution_new(const cm_reader *reader, const cm_library *library)
{
    cm_attribution *attribution = calloc(1, sizeof *attribution);
    if (attribution == NULL)
        return NULL;
    attribution->reader = reader;
    attribution->library = library;
    return attribution;
}

cm_attribution *cm_attribution_copy(const cm_attribution *attribution, const cm_library *library)
{
    cm_attribution *copy = cm_attribution_new(attribution->reader, library);
    if (copy == NULL)
        return NULL;
    copy->judged = attribution->judged;
    copy->failed = attribution->failed;
    copy->code_capacity = attribution->code_capacity;
    copy->stack_capacity = attribution->stack_capacity;
    bool fine = cm_copy((void **)&copy->code, attribution->code, attribution->code_capacity,
                        sizeof *copy->code) &&
                cm_copy((void **)&copy->stack, attribution->stack, attribution->stack_capacity,
                        sizeof *copy->stack);
    for (size_t i = 0; fine && i < attribution->roots; i++) {
        copy->root[i] = strdup(attribution->root[i]);
        copy->roots += fine = copy->root[i] != NULL;
    }
    if (fine)
        return copy;
    cm_attribution_free(copy);
    return NULL;
}

void cm_attribution_forget_lines(cm_attribution *attribution)
{
    cm_idmap_clear(&attribution->lines);
    attribution->line_count = 0;
}

void cm_attribution_free(cm_attribution *attribution)
{
    if (attribution == NULL)
        return;
    free(attribution->code);
    free(attribution->stack);
    for (size_t i = 0; i < attribution->roots; i++)
        free(attribution->root[i]);
    cm_idmap_clear(&attribution->lines);
    free(attribution->line_stack);
    free(attribution);
}

static size_t root_length(const char *file)
{
    static const char *const installed[] = {"/site-packages/torch/", "/dist-packages/torch/"};
    for (size_t i = 0; i < sizeof installed / sizeof installed[0]; i++) {
        const char *found = strstr(file, installed[i]);
        if (found != NULL)
            return (size_t)(found - file) + strlen(installed[i]);
    }
    /* A build in its source tree, recognised by files that only PyTorch has. */
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

static const char *inside_torch(const cm_attribution *attribution, const char *file)
{
    for (size_t i = 0; i < attribution->roots; i++) {
        size_t length = strlen(attribution->root[i]);
        if (strncmp(file, attribution->root[i], length) == 0)
            return file + length;
    }
    return NULL;
}

/* 1: a new root; 0: nothing new; -1: out of memory. */
static int learn_root(cm_attribution *attribution, const char *file)
{
    size_t length = attribution->roots < ROOTS ? root_length(file) : 0;
    if (length == 0 || inside_torch(attribution, file) != NULL)
        return 0;
    char *root = malloc(length + 1);
    if (root == NULL)
        return -1;
    memcpy(root, file, length);
    root[length] = '\0';
    attribution->root[attribution->roots++] = root;
    return 1;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool has_end(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The same files save, too. */
static bool is_load(const char *function)
{
    return function != NULL && strstr(function, "load") != NULL;
}

/* Of nn/modules/module.py: Module.to.<locals>.convert, Module.cuda.<locals>.<lambda>. */
static uint16_t flags_of_module(const char *function)
{
    if (function == NULL)
        return 0;
    return has_end(function, "._apply")                                   ? APPLIES
           : has_end(function, ".convert")                                ? MOVES
           : has_end(function, "<lambda>") && begins(function, "Module.") ? MOVES
                                                                          : 0;
}

/* Of a file below PyTorch's root. */
static uint16_t flags_inside(const char *file, const char *function)
{
    if (begins(file, "optim/"))
        return strcmp(file, "optim/swa_utils.py") == 0      ? 0 /* copies of a model */
               : strcmp(file, "optim/optimizer.py") == 0    ? OPTIM | STEPPER
               : strcmp(file, "optim/lr_scheduler.py") == 0 ? OPTIM | STEPPER
                                                            : OPTIM;
    if (begins(file, "utils/data/"))
        return DATA;
    if (strcmp(file, "nn/parallel/distributed.py") == 0 || begins(file, "distributed/fsdp/") ||
        (strcmp(file, "distributed/utils.py") == 0 && function != NULL &&
         strcmp(function, "_alloc_storage") == 0))
        return BUCKETS;
    if (strcmp(file, "nn/modules/module.py") == 0)
        return NN | flags_of_module(function);
    if (begins(file, "nn/modules/") || strcmp(file, "nn/init.py") == 0 ||
        strcmp(file, "nn/parameter.py") == 0)
        return NN;
    if (strcmp(file, "autograd/__init__.py") == 0) /* backward, grad */
        return ENGINE;
    bool of_files =
        strcmp(file, "serialization.py") == 0 || strcmp(file, "jit/_serialization.py") == 0;
    return of_files && is_load(function) ? LOADS : 0;
}

/* A nested function, a lambda, or one that is called so. */
static bool is_closure(const char *function)
{
    return strstr(function, "<locals>") != NULL || strstr(function, "<lambda>") != NULL ||
           strstr(function, "losure") != NULL;
}

/* Flags of a frame's code; -1: out of memory, -2: a new root makes earlier flags stale. */
static int judge_code(cm_attribution *attribution, const cm_frame *frame)
{
    if (frame->code < attribution->code_capacity && attribution->code[frame->code] != 0)
        return attribution->code[frame->code];
    if (!cm_grow_zeroed((void **)&attribution->code, &attribution->code_capacity,
                        (size_t)frame->code + 1, sizeof *attribution->code))
        return -1;
    uint16_t flags = JUDGED;
    if (frame->file != NULL) {
        int learnt = learn_root(attribution, frame->file);
        if (learnt != 0)
            return learnt < 0 ? -1 : -2;
        const char *inside = inside_torch(attribution, frame->file);
        if (inside != NULL)
            flags |= TORCH | flags_inside(inside, frame->function);
        else if (has_end(frame->file, "/safetensors/torch.py") && is_load(frame->function))
            flags |= LOADS;
        else if (has_end(frame->file, "/accelerate/utils/modeling.py") && frame->function != NULL &&
                 strcmp(frame->function, "set_module_tensor_to_device") == 0)
            flags |= FETCHES;
        if (cm_library_has(attribution->library, frame->file))
            flags |= LIBRARY;
    }
    if (frame->function != NULL && is_closure(frame->function))
        flags |= CLOSURE;
    attribution->code[frame->code] = flags;
    return flags;
}

/* What a frame of no module, no optimizer of PyTorch and no loader begins below `inner`. */
static uint16_t inner_of_other(uint16_t inner, int code)
{
    if (code & TORCH)
        return inner;
    switch (inner) {
    case INNER_OPTIM: /* it calls nothing else outside of PyTorch */
        return INNER_NONE;
    case INNER_STEPPER:
        return code & LIBRARY ? INNER_PACKAGED : INNER_FOREIGN;
    case INNER_FOREIGN:
        return code & CLOSURE ? INNER_NONE : inner;
    case INNER_PACKAGED:
        return code & CLOSURE || !(code & LIBRARY) ? INNER_NONE : inner;
    case INNER_LOAD:
        return code & LIBRARY ? inner : INNER_NONE;
    default:
        return inner;
    }
}

static uint16_t inner_of(uint16_t inner, int code, const cm_frame *frame)
{
    if (frame->module != 0 || frame->module_class != NULL)
        return INNER_FORWARD;
    if (code & STEPPER && inner != INNER_OPTIM)
        return INNER_STEPPER;
    if (code & OPTIM)
        return INNER_OPTIM;
    return code & LOADS ? INNER_LOAD : inner_of_other(inner, code);
}

/* Flags of a stack, by its innermost frame and the flags of its parent. */
static uint16_t judge_frame(uint16_t parent, bool outermost, int code, const cm_frame *frame)
{
    /* So far, from the outermost frame or the engine's caller. */
    bool library = outermost || parent & NO_USER;
    uint16_t inner = inner_of(parent & INNER, code, frame);
    uint16_t flags = (uint16_t)((parent & INHERITED & ~INNER) | inner | (code & TORCH));
    bool called = frame->module != 0 || frame->module_class != NULL;
    if (code & NN || (code & TORCH && parent & BUILDS))
        flags |= BUILDS;
    if (code & DATA)
        flags |= IN_DATA;
    if (code & OPTIM)
        flags |= IN_OPTIMIZER;
    if (code & BUCKETS)
        flags |= IN_BUCKETS;
    if (!called && !(code & (OPTIM | DATA)) && code & (LIBRARY | TORCH))
        flags |= PLAIN_CALL;
    if (code & ENGINE || (code & LIBRARY && library))
        flags |= NO_USER;
    return flags;
}

/* By the line of Module._apply that called the frame; a class may have its own _apply around. */
static uint16_t moved_by(cm_attribution *attribution, uint32_t parent)
{
    cm_frame frame;
    int32_t line = 0;
    for (uint32_t at = parent; at >= CM_STACK_FIRST;) {
        if (!cm_reader_stack_frame(attribution->reader, at, &frame) || frame.truncated ||
            frame.file == NULL)
            return 0;
        int code = attribution->code[frame.code];
        if (line == 0 && !(code & APPLIES))
            return 0;
        if (line != 0 && code & NN && has_end(frame.file, "/nn/modules/module.py")) {
            uint8_t moved = cm_moved_at(line, frame.line);
            return moved == CM_LABEL_MOVED_PARAMETER ? MOVED_PARAMETER
                   : moved == CM_LABEL_MOVED_BUFFER  ? MOVED_BUFFER
                                                     : 0;
        }
        line = line != 0 ? line : frame.line;
        uint32_t next = cm_reader_stack_parent(attribution->reader, at);
        if (next >= at)
            return 0;
        at = next;
    }
    return 0;
}

bool cm_attribution_update(cm_attribution *attribution)
{
    uint32_t count = cm_reader_stack_count(attribution->reader);
    if (!cm_grow_zeroed((void **)&attribution->stack, &attribution->stack_capacity,
                        (size_t)CM_STACK_FIRST + count, sizeof *attribution->stack))
        return false;
    /* A parent is defined before its child, so its flags are there. */
    while (attribution->judged < count) {
        uint32_t id = CM_STACK_FIRST + attribution->judged;
        uint32_t parent = cm_reader_stack_parent(attribution->reader, id);
        uint16_t flags = parent < id ? attribution->stack[parent] & INHERITED : 0;
        cm_frame frame;
        if (cm_reader_stack_frame(attribution->reader, id, &frame) && !frame.truncated) {
            int code = judge_code(attribution, &frame);
            if (code == -1)
                return false;
            if (code == -2) {
                memset(attribution->code, 0,
                       attribution->code_capacity * sizeof *attribution->code);
                attribution->judged = 0;
                continue;
            }
            flags = judge_frame(parent < id ? attribution->stack[parent] : 0,
                                parent >= id || parent == CM_STACK_NONE, code, &frame);
            if (code & FETCHES)
                flags |= MOVED_PARAMETER;
            else if (code & MOVES && parent < id)
                flags |= moved_by(attribution, parent);
        }
        attribution->stack[id] = flags | (attribution->stack[id] & MADE_NODE);
        attribution->judged++;
    }
    return true;
}

static CM_OWN_FRAME uint16_t judge_and_find(cm_attribution *attribution, uint32_t stack)
{
    if (stack < CM_STACK_FIRST)
        return 0; /* no frames */
    if (!cm_attribution_update(attribution)) {
        attribution->failed = true;
        return 0;
    }
    return stack < CM_STACK_FIRST + attribution->judged ? attribution->stack[stack] : 0;
}

static inline uint16_t flags_of(cm_attribution *attribution, uint32_t stack)
{
    bool judged = stack >= CM_STACK_FIRST && stack - CM_STACK_FIRST < attribution->judged;
    return judged ? attribution->stack[stack] : judge_and_find(attribution, stack);
}

bool cm_attribution_ok(const cm_attribution *attribution)
{
    return !attribution->failed;
}

static bool made_node(cm_attribution *attribution, uint32_t stack)
{
    for (;;) {
        uint16_t flags = flags_of(attribution, stack);
        if (flags & MADE_NODE || !(flags & PLAIN_CALL))
            return flags & MADE_NODE;
        uint32_t parent = cm_reader_stack_parent(attribution->reader, stack);
        if (parent >= stack)
            return false;
        stack = parent;
    }
}

cm_phase cm_attribution_phase(cm_attribution *attribution, uint32_t stack)
{
    uint16_t flags = flags_of(attribution, stack), inner = flags & INNER;
    if (flags & IN_DATA)
        return CM_PHASE_DATA;
    if (inner == INNER_FORWARD)
        return CM_PHASE_FORWARD;
    if (made_node(attribution, stack)) /* also in a closure: optimizers themselves make none */
        return CM_PHASE_FORWARD;
    bool optimizer = inner >= INNER_OPTIM && inner <= INNER_PACKAGED;
    return optimizer ? CM_PHASE_OPTIMIZER : CM_PHASE_OTHER;
}

bool cm_attribution_in_module(cm_attribution *attribution, uint32_t stack)
{
    return (flags_of(attribution, stack) & INNER) == INNER_FORWARD;
}

bool cm_attribution_in_optimizer(cm_attribution *attribution, uint32_t stack)
{
    return flags_of(attribution, stack) & IN_OPTIMIZER;
}

bool cm_attribution_loads(cm_attribution *attribution, uint32_t stack)
{
    return (flags_of(attribution, stack) & INNER) == INNER_LOAD;
}

cm_category cm_attribution_moved(cm_attribution *attribution, uint32_t stack)
{
    uint16_t flags = flags_of(attribution, stack);
    return flags & MOVED_PARAMETER ? CM_CATEGORY_PARAMETER
           : flags & MOVED_BUFFER  ? CM_CATEGORY_BUFFER
                                   : CM_CATEGORY_UNKNOWN;
}

bool cm_attribution_buckets(cm_attribution *attribution, uint32_t stack)
{
    return flags_of(attribution, stack) & IN_BUCKETS;
}

bool cm_attribution_library_alone(void *attribution, uint32_t stack)
{
    return flags_of(attribution, stack) & NO_USER;
}

bool cm_attribution_builds(cm_attribution *attribution, uint32_t stack)
{
    return flags_of(attribution, stack) & BUILDS;
}

void cm_attribution_made_node(cm_attribution *attribution, uint32_t stack)
{
    flags_of(attribution, stack);
    if (stack >= CM_STACK_FIRST && stack < CM_STACK_FIRST + attribution->judged)
        attribution->stack[stack] |= MADE_NODE;
}

uint32_t cm_attribution_outside(cm_attribution *attribution, uint32_t stack)
{
    uint32_t at = stack;
    while (at >= CM_STACK_FIRST && flags_of(attribution, at) & TORCH) {
        uint32_t parent = cm_reader_stack_parent(attribution->reader, at);
        if (parent >= at)
            break;
        at = parent;
    }
    return at >= CM_STACK_FIRST ? at : stack;
}

static bool same_text(const char *one, const char *other)
{
    return strcmp(one ? one : "", other ? other : "") == 0;
}

/* Where two stacks part. common: what they share; in_one_call: frames a and b of one function are
 * above that. false: they share nothing. */
typedef struct parting {
    uint32_t common, one;
    cm_frame a, b;
    bool in_one_call;
} parting;

static bool find_parting(const cm_attribution *attribution, uint32_t one, uint32_t other,
                         parting *p)
{
    const cm_reader *reader = attribution->reader;
    uint32_t parts[2] = {CM_STACK_NONE, CM_STACK_NONE}, at[2] = {one, other};
    while (at[0] != at[1]) {
        int deeper = at[0] < at[1]; /* a parent has the smaller id */
        uint32_t parent = cm_reader_stack_parent(reader, at[deeper]);
        if (at[deeper] < CM_STACK_FIRST || parent >= at[deeper])
            return false;
        parts[deeper] = at[deeper];
        at[deeper] = parent;
    }
    p->common = at[0];
    p->one = parts[0];
    p->in_one_call = cm_reader_stack_frame(reader, parts[0], &p->a) &&
                     cm_reader_stack_frame(reader, parts[1], &p->b) && !p->a.truncated &&
                     !p->b.truncated && same_text(p->a.file, p->b.file) &&
                     same_text(p->a.function, p->b.function);
    return true;
}

int cm_attribution_order(const cm_attribution *attribution, uint32_t one, uint32_t other)
{
    parting p;
    if (!find_parting(attribution, one, other, &p) || !p.in_one_call)
        return 0;
    return (p.a.line > p.b.line) - (p.a.line < p.b.line);
}

uint32_t cm_attribution_shared(const cm_attribution *attribution, uint32_t stack, uint32_t other)
{
    parting p;
    if (!find_parting(attribution, stack, other, &p))
        return stack;
    return p.in_one_call ? p.one : p.common;
}

static bool same_line(const cm_attribution *attribution, uint32_t stack, const cm_frame *frame)
{
    cm_frame other;
    return cm_reader_stack_frame(attribution->reader, stack, &other) && other.line == frame->line &&
           same_text(other.file, frame->file);
}

bool cm_attribution_shares_line(cm_attribution *attribution, uint32_t one, uint32_t other)
{
    cm_frame frame;
    one = cm_attribution_outside(attribution, one);
    other = cm_attribution_outside(attribution, other);
    return cm_reader_stack_parent(attribution->reader, one) ==
               cm_reader_stack_parent(attribution->reader, other) &&
           cm_reader_stack_frame(attribution->reader, one, &frame) &&
           same_line(attribution, other, &frame);
}

bool cm_attribution_line(cm_attribution *attribution, uint32_t stack, uint32_t *line)
{
    cm_frame frame;
    uint32_t outside = cm_attribution_outside(attribution, stack);
    *line = 0;
    if (!cm_reader_stack_frame(attribution->reader, outside, &frame))
        return true;
    uint64_t key = (uint64_t)(int64_t)frame.line;
    for (const char *c = frame.file ? frame.file : ""; *c != '\0'; c++)
        key = (key ^ (unsigned char)*c) * 0x100000001b3u;
    key >>= 1;
    uint32_t found;
    while (cm_idmap_get(&attribution->lines, key, &found)) {
        if (same_line(attribution, attribution->line_stack[found - 1], &frame)) {
            *line = found;
            return true;
        }
        key++; /* another line with the same hash */
    }
    if (!cm_grow((void **)&attribution->line_stack, &attribution->line_capacity,
                 attribution->line_count + 1, sizeof *attribution->line_stack) ||
        !cm_idmap_put(&attribution->lines, key, (uint32_t)attribution->line_count + 1))
        return false;
    attribution->line_stack[attribution->line_count++] = outside;
    *line = (uint32_t)attribution->line_count;
    return true;
}

uint32_t cm_attribution_line_stack(const cm_attribution *attribution, uint32_t line)
{
    return line > 0 && line <= attribution->line_count ? attribution->line_stack[line - 1]
                                                       : CM_STACK_NONE;
}
