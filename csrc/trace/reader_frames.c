/* Looking up stacks, frames and names in the definitions read so far. */
#include "reader_parts.h"

#include "format.h"

int cm_reader_read_lines(cm_reader *reader)
{
    if (cm_reader_was_read_ahead(reader))
        return 0;
    const char *wrong =
        cm_defs_add_lines(reader->defs, reader->chunks.payload, reader->chunks.length, false);
    return wrong == NULL ? 0 : cm_reader_fail(reader, "%s", wrong);
}

uint32_t cm_reader_stack_count(const cm_reader *reader)
{
    return cm_defs_stack_count(reader->defs);
}

uint32_t cm_reader_stack_parent(const cm_reader *reader, uint32_t stack)
{
    const cm_stack_def *def = cm_defs_stack(reader->defs, stack);
    return def == NULL ? CM_STACK_NONE : def->parent;
}

bool cm_reader_stack_frame(const cm_reader *reader, uint32_t stack, cm_frame *out)
{
    const cm_stack_def *def = cm_defs_stack(reader->defs, stack);
    cm_position at = {-1, -1, -1, -1};

    *out = (cm_frame){.line = -1, .end_line = -1, .column = -1, .end_column = -1};
    if (def == NULL)
        return false;
    const cm_code_def *code = cm_defs_code(reader->defs, def->code);
    if (code != NULL) {
        cm_defs_position(code, def->offset, &at);
        out->file = code->file;
        out->function = code->function;
        out->first_line = code->first_line;
        if (at.line > 0)
            out->text = cm_defs_line(reader->defs, def->code, (uint32_t)at.line);
    }
    out->line = at.line;
    out->end_line = at.end_line;
    out->column = at.column;
    out->end_column = at.end_column;
    out->code = def->code;
    out->module = def->module;
    out->module_class = cm_defs_string(reader->defs, def->class_name);
    out->truncated = (def->flags & CM_DEFF_TRUNCATED) != 0;
    return true;
}

uint32_t cm_reader_stack_cost(const cm_reader *reader, uint32_t stack)
{
    const cm_stack_def *def = cm_defs_stack(reader->defs, stack);
    return def == NULL ? 0 : def->cost;
}

uint64_t cm_reader_cut_stacks(const cm_reader *reader)
{
    return cm_defs_get_cut(reader->defs).stacks;
}

uint64_t cm_reader_cut_texts(const cm_reader *reader)
{
    return cm_defs_get_cut(reader->defs).texts;
}

uint64_t cm_reader_bytes(const cm_reader *reader)
{
    return reader->chunks.size + reader->chunks.tail_size;
}

const char *cm_reader_name(const cm_reader *reader, uint32_t name)
{
    return cm_defs_name(reader->defs, name);
}
