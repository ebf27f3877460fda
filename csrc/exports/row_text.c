#include "row_text.h"

void cm_row_text_clear(cm_row_text *text)
{
    free(text->name);
    free(text->out.bytes);
    text->name = NULL;
    text->names = 0;
    text->out = (cm_text){0};
}

static const cm_row_name *name_of(cm_row_text *t, const cm_row *r, cm_row_name *counted)
{
    if (r->origin == CM_ROW_COUNTED)
        return t->namer(t->context, &t->out, r->device, r->origin, counted) ? counted : NULL;
    if (!cm_grow_zeroed((void **)&t->name, &t->names, (size_t)r->origin + 1, sizeof *t->name))
        return NULL;
    cm_row_name *name = &t->name[r->origin];
    if (name->head.bytes == NULL && !t->namer(t->context, &t->out, r->device, r->origin, name))
        return NULL;
    return name;
}

bool cm_row_text_put(void *text, const cm_row *r)
{
    cm_row_text *t = text;
    cm_text *out = &t->out;
    const cm_row_format *f = t->format;
    const struct {
        bool known;
        uint64_t value;
    } number[CM_ROW_GAPS] = {
        {r->has_requested, (uint64_t)r->requested},
        {true, r->count},
        {r->has_address, r->address},
        {r->has_time, r->time_ns},
        {r->has_free, r->freed_ns},
        {r->step >= 0, (uint64_t)r->step},
        {r->has_free && r->freed_step >= 0, (uint64_t)r->freed_step},
    };
    cm_row_name counted;
    const cm_row_name *name = name_of(t, r, &counted);
    if (name == NULL)
        return false;
    cm_text_piece(out, name->head);
    cm_text_signed(out, r->bytes);
    for (size_t i = 0; i < CM_ROW_GAPS; i++) {
        cm_text_piece(out, f->gap[i]);
        if (!number[i].known)
            cm_text_piece(out, f->none);
        else if (i == 0) /* a damaged trace may say anything */
            cm_text_signed(out, r->requested);
        else
            cm_text_decimal(out, number[i].value);
    }
    cm_text_piece(out, name->about);
    cm_text_decimal(out, r->thread);
    cm_text_piece(out, f->end[r->when]);
    return !out->failed;
}
