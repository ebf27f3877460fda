#include "elf.h"

#include <elf.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { JUMP_SLOT = R_X86_64_JUMP_SLOT, GLOB_DAT = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { JUMP_SLOT = R_AARCH64_JUMP_SLOT, GLOB_DAT = R_AARCH64_GLOB_DAT };
#else
#error "relocation slots are known for x86-64 and aarch64 only"
#endif

/* The segment that holds [address, address + size), or NULL. */
static const cm_elf_header *segment_of(const cm_elf *object, uintptr_t address, size_t size)
{
    for (unsigned i = 0; i < object->header_count; i++) {
        const cm_elf_header *segment = &object->headers[i];
        uintptr_t start = object->base + segment->p_vaddr;

        if (segment->p_type == PT_LOAD && address >= start && address - start <= segment->p_memsz &&
            size <= segment->p_memsz - (address - start))
            return segment;
    }
    return NULL;
}

/* glibc adds the load address to these entries when it maps an object, other loaders leave them. */
static uintptr_t located(const cm_elf *object, Elf64_Addr value)
{
    uintptr_t address = (uintptr_t)value;

    return address < object->base ? object->base + address : address;
}

static void read_dynamic(cm_elf *object, const cm_elf_entry *entry, size_t limit)
{
    uintptr_t symbols = 0, strings = 0, table[2] = {0, 0};
    size_t size[2] = {0, 0}, relative = 0, string_size = 0;
    bool plt_has_addends = true;

    for (; limit != 0 && entry->d_tag != DT_NULL; entry++, limit--) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            symbols = located(object, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            strings = located(object, entry->d_un.d_ptr);
            break;
        case DT_STRSZ:
            string_size = entry->d_un.d_val;
            break;
        case DT_JMPREL:
            table[0] = located(object, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            size[0] = entry->d_un.d_val;
            break;
        case DT_PLTREL:
            plt_has_addends = entry->d_un.d_val == DT_RELA;
            break;
        case DT_RELA:
            table[1] = located(object, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            size[1] = entry->d_un.d_val;
            break;
        case DT_RELACOUNT: /* the number of relocations at the front that name no symbol */
            relative = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
    if (strings == 0 || segment_of(object, strings, string_size) == NULL)
        return;
    const cm_elf_header *segment = segment_of(object, symbols, sizeof(cm_elf_symbol));
    if (symbols == 0 || segment == NULL)
        return;
    object->strings = (const char *)strings;
    object->string_size = string_size;
    object->symbols = (const cm_elf_symbol *)symbols;
    object->symbol_limit =
        (segment->p_memsz - (symbols - object->base - segment->p_vaddr)) / sizeof(cm_elf_symbol);

    for (int i = 0; i < 2; i++) {
        size_t count = size[i] / sizeof(cm_elf_relocation), skip = i == 1 ? relative : 0;

        if (table[i] == 0 || (i == 0 && !plt_has_addends) ||
            segment_of(object, table[i], size[i]) == NULL || skip > count)
            continue;
        object->relocations[i].first = (const cm_elf_relocation *)table[i] + skip;
        object->relocations[i].count = count - skip;
    }
}

bool cm_elf_open(cm_elf *object, uintptr_t base, const cm_elf_header *headers, unsigned count)
{
    *object = (cm_elf){.base = base, .headers = headers, .header_count = count};

    const cm_elf_header *dynamic = NULL;
    for (unsigned i = 0; i < count; i++) {
        if (headers[i].p_type == PT_DYNAMIC)
            dynamic = &headers[i];
        if (headers[i].p_type == PT_GNU_RELRO) {
            uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = base + headers[i].p_vaddr;

            /* The loader rounds down: the last partial page stays writable. */
            object->relro_start = start & ~(page - 1);
            object->relro_end = (start + headers[i].p_memsz) & ~(page - 1);
        }
    }
    if (dynamic == NULL || segment_of(object, base + dynamic->p_vaddr, dynamic->p_memsz) == NULL)
        return false;
    read_dynamic(object, (const cm_elf_entry *)(base + dynamic->p_vaddr),
                 dynamic->p_memsz / sizeof(cm_elf_entry));
    return object->symbols != NULL &&
           (object->relocations[0].first != NULL || object->relocations[1].first != NULL);
}

bool cm_elf_contains(const cm_elf *object, uintptr_t address)
{
    return segment_of(object, address, 1) != NULL;
}

bool cm_elf_slot_writable(const cm_elf *object, uintptr_t slot, bool *relro)
{
    const cm_elf_header *segment = segment_of(object, slot, sizeof(void *));

    if (segment == NULL || slot % sizeof(void *) != 0)
        return false;
    *relro = slot >= object->relro_start && slot < object->relro_end;
    return *relro || (segment->p_flags & PF_W) != 0;
}

bool cm_elf_is_unbound(const cm_elf *object, const cm_elf_match *match, uintptr_t held)
{
    const unsigned char *code = (const unsigned char *)held;
    const cm_elf_header *segment = segment_of(object, held, 16);

    if (match->call == CM_ELF_NO_CALL || segment == NULL || (segment->p_flags & PF_X) == 0)
        return false;
#if defined(__x86_64__)
    static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
    uint32_t number;

    /* push $number; jmp to the first entry */
    if (memcmp(code, endbr64, sizeof endbr64) == 0)
        code += sizeof endbr64;
    memcpy(&number, code + 1, sizeof number);
    return code[0] == 0x68 && number == match->call;
#else
    /* Every slot starts at the first entry: stp x16, x30, [sp, #-16]!, perhaps after a bti. */
    uint32_t first, second;

    memcpy(&first, code, sizeof first);
    memcpy(&second, code + sizeof first, sizeof second);
    return (first == 0xd503245f ? second : first) == 0xa9bf7bf0;
#endif
}

static uint64_t word_at(const char *text)
{
    uint64_t word;

    memcpy(&word, text, sizeof word);
    return word;
}

bool cm_elf_names_add(cm_elf_names *names, const char *text, uint16_t id)
{
    size_t length = strlen(text);
    unsigned h = 0;

    if (length < sizeof(uint64_t) || names->names == CM_ELF_NAMES)
        return false;
    while (h < names->heads && names->head[h].word != word_at(text))
        h++;
    if (h == names->heads) {
        if (h == CM_ELF_HEADS)
            return false;
        names->head[h].word = word_at(text);
        names->head[h].first = names->head[h].end = (uint16_t)names->names;
        names->heads++;
    }
    unsigned at = names->head[h].end;
    memmove(&names->name[at + 1], &names->name[at], (names->names - at) * sizeof names->name[0]);
    names->name[at].text = text;
    names->name[at].length = (uint32_t)length;
    names->name[at].id = id;
    names->names++;
    for (unsigned i = 0; i < names->heads; i++) {
        if (i != h && names->head[i].first >= at && names->head[i].end > names->head[i].first) {
            names->head[i].first++;
            names->head[i].end++;
        }
    }
    names->head[h].end++;
    return true;
}

/* The index of the name that starts at this offset of the string table, or -1. */
static int name_at(const cm_elf *object, const cm_elf_names *names, size_t offset)
{
    if (offset >= object->string_size || object->string_size - offset <= sizeof(uint64_t))
        return -1;
    const char *text = object->strings + offset;
    size_t room = object->string_size - offset;
    uint64_t word = word_at(text);

    for (unsigned h = 0; h < names->heads; h++) {
        if (names->head[h].word != word)
            continue;
        for (unsigned i = names->head[h].first; i < names->head[h].end; i++)
            if (names->name[i].length < room &&
                memcmp(text, names->name[i].text, names->name[i].length + 1) == 0)
                return (int)i;
    }
    return -1;
}

bool cm_elf_each(const cm_elf *object, const cm_elf_names *names,
                 bool (*found)(void *context, const cm_elf_match *match), void *context)
{
    for (int table = 0; table < 2; table++) {
        const cm_elf_relocation *relocation = object->relocations[table].first;

        for (size_t n = object->relocations[table].count; n != 0; n--, relocation++) {
            unsigned type = (unsigned)ELF64_R_TYPE(relocation->r_info);
            size_t index = ELF64_R_SYM(relocation->r_info);

            if ((type != JUMP_SLOT && type != GLOB_DAT) || index == 0 ||
                index >= object->symbol_limit)
                continue;
            const cm_elf_symbol *symbol = &object->symbols[index];
            int name = name_at(object, names, symbol->st_name);
            if (name < 0)
                continue;
            cm_elf_match match = {
                .id = names->name[name].id,
                .slot = object->base + relocation->r_offset,
                .call = table == 0 && type == JUMP_SLOT
                            ? (uint32_t)(relocation - object->relocations[0].first)
                            : CM_ELF_NO_CALL,
            };
            if (!found(context, &match))
                return false;
        }
    }
    return true;
}
