#define _GNU_SOURCE
#include "driver_image.h"

#include <elf.h>
#include <string.h>

/* --- cubins: ELF files for another machine ---------------------------------------------------- */

/* STO_CUDA_MANAGED, in st_other */
enum { MANAGED = 4 };

static bool inside(size_t offset, size_t bytes, size_t limit)
{
    return offset <= limit && bytes <= limit - offset;
}

static cm_cu_image_result read_symbols(const char *image, size_t limit, const Elf64_Shdr *table,
                                       const Elf64_Shdr *strings, cm_cu_symbol_visit visit,
                                       void *context)
{
    if (!inside(table->sh_offset, table->sh_size, limit) ||
        !inside(strings->sh_offset, strings->sh_size, limit))
        return CM_CU_IMAGE_OPAQUE;
    const char *names = image + strings->sh_offset;
    for (size_t i = 0; i + sizeof(Elf64_Sym) <= table->sh_size; i += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, image + table->sh_offset + i, sizeof symbol);
        int type = ELF64_ST_TYPE(symbol.st_info);
        if (symbol.st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_OBJECT) ||
            symbol.st_name >= strings->sh_size)
            continue;
        const char *name = names + symbol.st_name;
        size_t length = strnlen(name, strings->sh_size - symbol.st_name);
        cm_cu_symbol_kind variable =
            symbol.st_other & MANAGED ? CM_CU_MANAGED_VARIABLE : CM_CU_VARIABLE;
        if (!visit(context, type == STT_FUNC ? CM_CU_KERNEL : variable, name, length,
                   symbol.st_size))
            return CM_CU_IMAGE_STOPPED;
    }
    return CM_CU_IMAGE_READ;
}

static cm_cu_image_result read_elf(const char *image, size_t limit, cm_cu_symbol_visit visit,
                                   void *context)
{
    Elf64_Ehdr header;
    if (limit < sizeof header)
        return CM_CU_IMAGE_OPAQUE;
    memcpy(&header, image, sizeof header);
    size_t count = header.e_shnum;
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr) ||
        !inside(header.e_shoff, count * sizeof(Elf64_Shdr), limit))
        return CM_CU_IMAGE_OPAQUE;
    for (size_t i = 0; i < count; i++) {
        Elf64_Shdr section, strings;
        memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_SYMTAB || section.sh_link >= count)
            continue;
        memcpy(&strings, image + header.e_shoff + section.sh_link * sizeof strings, sizeof strings);
        return read_symbols(image, limit, &section, &strings, visit, context);
    }
    return CM_CU_IMAGE_OPAQUE; /* stripped */
}

/* --- PTX: text -------------------------------------------------------------------------------- */

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%';
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Past spaces and comments. */
static const char *skip(const char *at, const char *end)
{
    while (at < end) {
        if (is_space(*at)) {
            at++;
        } else if (end - at > 1 && at[0] == '/' && at[1] == '/') {
            while (at < end && *at != '\n')
                at++;
        } else if (end - at > 1 && at[0] == '/' && at[1] == '*') {
            const char *close = memmem(at + 2, (size_t)(end - at - 2), "*/", 2);
            at = close ? close + 2 : end;
        } else {
            break;
        }
    }
    return at;
}

static bool word(const char *at, const char *end, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(end - at) >= length && !memcmp(at, text, length) &&
           (at + length == end || !is_name(at[length]));
}

static size_t number(const char *at, const char *end)
{
    size_t value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, (size_t)10, &value) ||
            __builtin_add_overflow(value, (size_t)(*at - '0'), &value))
            return 0;
    return value;
}

/* ".global .align 4 .b8 name[16]": the element's size is the digits of its type, in bits. */
static bool read_variable(const char *at, const char *end, cm_cu_symbol_visit visit, void *context)
{
    size_t element = 1;
    cm_cu_symbol_kind kind = CM_CU_VARIABLE;
    for (at = skip(at, end); at < end && *at == '.'; at = skip(at, end)) {
        const char *directive = at++;
        while (at < end && is_name(*at))
            at++;
        if (word(directive, end, ".align")) {
            at = skip(at, end);
            while (at < end && is_name(*at))
                at++;
        } else if (word(directive, end, ".attribute")) {
            /* ".attribute(.managed)", ".attribute(.managed, .unified(19, 95))" */
            for (int depth = 0; at < end; at++) {
                depth += *at == '(';
                if (word(at, end, ".managed"))
                    kind = CM_CU_MANAGED_VARIABLE;
                if (*at == ')' && --depth == 0)
                    break;
            }
            at += at < end;
        } else {
            const char *digits = directive + 1;
            while (digits < at && !(*digits >= '0' && *digits <= '9'))
                digits++;
            size_t bits = number(digits, at);
            /* .v2 and .v4 multiply what comes after them */
            if (directive[1] == 'v' && bits)
                element *= bits;
            else if (bits >= 8)
                element *= bits / 8;
        }
    }
    const char *name = at;
    while (at < end && is_name(*at))
        at++;
    size_t length = (size_t)(at - name), count = 1;
    for (at = skip(at, end); at < end && *at == '['; at = skip(at, end)) {
        at = skip(at + 1, end);
        count *= number(at, end);
        while (at < end && *at != ']')
            at++;
        at += at < end;
    }
    return !length || visit(context, kind, name, length, element * count);
}

static cm_cu_image_result read_ptx(const char *text, size_t bytes, cm_cu_symbol_visit visit,
                                   void *context)
{
    const char *end = text + bytes, *at = text;
    int depth = 0; /* variables inside functions do not count */
    while ((at = skip(at, end)) < end) {
        if (*at == '"') { /* file names, sections */
            do
                at++;
            while (at < end && *at != '"');
            at += at < end;
            continue;
        }
        depth += *at == '{';
        depth -= *at == '}';
        bool go_on = true;
        const char *rest = at + 1;
        while (rest < end && is_name(*rest) && (is_name(*at) || *at == '.'))
            rest++;
        if (depth == 0 && word(at, end, ".entry")) {
            const char *name = skip(rest, end), *last = name;
            while (last < end && is_name(*last))
                last++;
            go_on = visit(context, CM_CU_KERNEL, name, (size_t)(last - name), 0);
            rest = last;
        } else if (depth == 0 && (word(at, end, ".global") || word(at, end, ".const"))) {
            go_on = read_variable(rest, end, visit, context);
        }
        if (!go_on)
            return CM_CU_IMAGE_STOPPED;
        at = rest;
    }
    return CM_CU_IMAGE_READ;
}

static bool looks_like_ptx(const char *text, size_t bytes)
{
    const char *at = skip(text, text + bytes);
    return word(at, text + bytes, ".version");
}

/* --- all of them ------------------------------------------------------------------------------ */

static cm_cu_image_result read_linked(const char *image, size_t limit, cm_cu_symbol_visit visit,
                                      void *context)
{
    cm_cu_linked header;
    memcpy(&header, image, sizeof header);
    size_t left = header.bytes < limit - sizeof header ? header.bytes : limit - sizeof header;
    const char *at = image + sizeof header;
    cm_cu_image_result all = CM_CU_IMAGE_READ;
    for (size_t bytes; left > sizeof bytes; at += bytes, left -= bytes) {
        memcpy(&bytes, at, sizeof bytes);
        at += sizeof bytes;
        left -= sizeof bytes;
        if (bytes > left)
            return CM_CU_IMAGE_OPAQUE;
        cm_cu_image_result one = cm_cu_image_read(at, bytes, visit, context);
        if (one == CM_CU_IMAGE_STOPPED)
            return one;
        all = one == CM_CU_IMAGE_READ ? all : one;
    }
    return all;
}

cm_cu_image_result cm_cu_image_read(const void *image, size_t limit, cm_cu_symbol_visit visit,
                                    void *context)
{
    /* Where no size is known, a text ends at its zero: no byte behind one is looked at before. */
    const char *bytes = image;
    size_t text = strnlen(bytes, limit);
    if (text >= SELFMAG && !memcmp(bytes, ELFMAG, SELFMAG))
        return read_elf(bytes, limit, visit, context);
    if (text >= sizeof CM_CU_LINKED - 1 && !memcmp(bytes, CM_CU_LINKED, sizeof CM_CU_LINKED - 1) &&
        limit >= sizeof(cm_cu_linked))
        return read_linked(bytes, limit, visit, context);
    if (looks_like_ptx(bytes, text))
        return read_ptx(bytes, text, visit, context);
    return CM_CU_IMAGE_OPAQUE;
}
