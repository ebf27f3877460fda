/* Reading the relocations of a mapped object from its dynamic section. A table that does not lie
 * inside the object's segments is ignored. Any thread; the caller keeps the object mapped. */
#ifndef CM_SOURCES_ELF_H
#define CM_SOURCES_ELF_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef Elf64_Phdr cm_elf_header;
typedef Elf64_Sym cm_elf_symbol;
typedef Elf64_Rela cm_elf_relocation;
typedef Elf64_Dyn cm_elf_entry;

typedef struct cm_elf {
    uintptr_t base;
    const cm_elf_header *headers;
    unsigned header_count;
    const cm_elf_symbol *symbols;
    size_t symbol_limit; /* as many as fit into the segment: the table has no length */
    const char *strings;
    size_t string_size;
    struct {
        const cm_elf_relocation *first;
        size_t count;
    } relocations[2];                 /* of the procedure linkage table, and all others */
    uintptr_t relro_start, relro_end; /* pages that the loader made read-only after relocation */
} cm_elf;

/* false: the object has no dynamic relocations that can be read. */
bool cm_elf_open(cm_elf *object, uintptr_t base, const cm_elf_header *headers, unsigned count);

/* Whether address lies in one of the object's mapped segments. */
bool cm_elf_contains(const cm_elf *object, uintptr_t address);

/* Whether a relocation slot at this address may be written: in writable memory, or in memory that
 * was writable until relocation was over (*relro). */
bool cm_elf_slot_writable(const cm_elf *object, uintptr_t slot, bool *relro);

/* The names to search for. Any other name costs one comparison of eight bytes per distinct
 * beginning. Every name has at least 8 characters. */
enum { CM_ELF_NAMES = 80, CM_ELF_HEADS = 40 };

typedef struct cm_elf_names {
    struct {
        const char *text;
        uint32_t length;
        uint16_t id;
    } name[CM_ELF_NAMES]; /* grouped by head */
    struct {
        uint64_t word;
        uint16_t first, end;
    } head[CM_ELF_HEADS];
    unsigned names, heads;
} cm_elf_names;

/* Adds a name, which must stay valid. false: it is too short, or there are too many. */
bool cm_elf_names_add(cm_elf_names *names, const char *text, uint16_t id);

/* A slot that the loader binds to one of the names. */
typedef struct cm_elf_match {
    uint16_t id;
    uintptr_t slot;
    uint32_t call; /* number among the object's lazily bound calls; CM_ELF_NO_CALL: bound at load */
} cm_elf_match;

#define CM_ELF_NO_CALL UINT32_MAX

/* Whether a slot with this value is not yet bound: the value is the stub through which the first
 * call reaches the loader. */
bool cm_elf_is_unbound(const cm_elf *object, const cm_elf_match *match, uintptr_t held);

/* Calls `found` for every such slot. Returns false as soon as `found` does. */
bool cm_elf_each(const cm_elf *object, const cm_elf_names *names,
                 bool (*found)(void *context, const cm_elf_match *match), void *context);

#endif
