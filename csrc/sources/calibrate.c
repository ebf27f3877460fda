#include "calibrate.h"

#include <stdatomic.h>
#include <string.h>

#include "sources.h"
#include "tables.h"

enum {
    OBJECT_HEADER = 16,       /* of a Python object, before the node pointer */
    SEARCH_START = 8,         /* after the vtable pointer */
    SEARCH_END = 120,         /* a node is more than 400 bytes */
    THREAD_AFTER_NUMBER = 24, /* after the topological number and a flag; checked below */
    ENOUGH_NODES = 4
};

typedef struct layout {
    long pointer, number; /* offsets; -1: not found */
} layout;

/* THPCppFunction_sequence_nr: node = object->cdata; return PyLong(node->sequence_nr_). */
static layout from_getter(void)
{
    layout found = {-1, -1};
#if defined(__x86_64__)
    const unsigned char *code =
        cm_slots_find("_ZN5torch8autograd26THPCppFunction_sequence_nrEP7_objectS2_");
    static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

    if (code == NULL)
        return found;
    if (memcmp(code, endbr64, sizeof endbr64) == 0)
        code += sizeof endbr64;
    /* mov pointer(%rdi),%rax; mov number(%rax),%rdi, both with one byte of displacement */
    if (code[0] == 0x48 && code[1] == 0x8b && code[2] == 0x47 && code[3] < 0x80 &&
        code[4] == 0x48 && code[5] == 0x8b && code[6] == 0x78 && code[7] < 0x80) {
        found.pointer = code[3];
        found.number = code[7];
    }
#endif
    return found;
}

static uint64_t word(uintptr_t address)
{
    return *(const uint64_t *)address;
}

static bool usable(const cm_calibration_node *nodes, size_t count)
{
    if (count < ENOUGH_NODES)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].number == 0 || nodes[i].number == UINT64_MAX)
            return false;
        for (size_t k = 0; k < i; k++)
            if (nodes[k].number == nodes[i].number)
                return false;
    }
    return true;
}

/* The one offset at which every node has its number: -1 if there is none, -2 if several. */
static long from_nodes(const cm_calibration_node *nodes, size_t count, long pointer)
{
    long found = -1;

    for (long offset = SEARCH_START; offset <= SEARCH_END; offset += 8) {
        size_t matches = 0;
        for (size_t i = 0; i < count; i++)
            matches += word(word(nodes[i].object + (uintptr_t)pointer) + (uintptr_t)offset) ==
                       nodes[i].number;
        if (matches == count)
            found = found == -1 ? offset : -2;
    }
    return found;
}

const char *cm_autograd_calibrate(const cm_calibration_node *nodes, size_t count)
{
    layout getter = from_getter();
    long pointer = getter.pointer > 0 ? getter.pointer : OBJECT_HEADER;
    long number = getter.number;
    cm_autograd_thread_id_fn thread_id = atomic_load(&cm_autograd_thread_id);

    cm_autograd_set_offsets(-1, -1);
    if (thread_id == NULL)
        return "at::RecordFunction::currentThreadId was not found: nodes cannot be told apart";
    if (count != 0) {
        if (!usable(nodes, count))
            return "too few autograd nodes with distinct numbers to find their layout";
        long seen = from_nodes(nodes, count, pointer);
        if (seen == -1)
            return "no field of an autograd node holds its sequence number";
        if (seen == -2)
            return "several fields of an autograd node look like its sequence number";
        if (number != -1 && number != seen)
            return "living autograd nodes and the getter's code disagree about the node's layout";
        number = seen;
        uint64_t self = thread_id();
        for (size_t i = 0; i < count; i++) {
            uintptr_t node = word(nodes[i].object + (uintptr_t)pointer);
            if (word(node + (uintptr_t)number + THREAD_AFTER_NUMBER) != self)
                return "an autograd node does not hold its creator's thread where it is expected";
        }
    }
    if (number == -1)
        return "the layout of autograd's nodes could not be read from its code, and no living "
               "nodes were given";
    cm_autograd_set_offsets(number, number + THREAD_AFTER_NUMBER);
    return NULL;
}
