#include "rows.h"

void cm_rows_clear(cm_rows *rows)
{
    cm_live_clear(&rows->live);
    free(rows->name);
    rows->name = NULL;
    rows->names = 0;
}

typedef struct row {
    uint16_t device;
    uint32_t origin, thread;
    int64_t bytes, requested;
    uint64_t count, address, time_ns, freed_ns;
    int32_t step, freed_step; /* -1: none */
    bool has_requested, has_address, has_time, has_free;
    cm_row_when when;
} row;

static const cm_row_name *name_of(cm_rows *rows, cm_text *out, const row *r, cm_row_name *counted)
{
    if (r->origin == CM_ROW_COUNTED)
        return rows->namer(rows->context, out, r->device, r->origin, counted) ? counted : NULL;
    if (!cm_grow_zeroed((void **)&rows->name, &rows->names, (size_t)r->origin + 1,
                        sizeof *rows->name))
        return NULL;
    cm_row_name *name = &rows->name[r->origin];
    if (name->head.bytes == NULL && !rows->namer(rows->context, out, r->device, r->origin, name))
        return NULL;
    return name;
}

static bool put_row(cm_rows *rows, cm_text *out, const row *r)
{
    const cm_row_format *f = rows->format;
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
    const cm_row_name *name = name_of(rows, out, r, &counted);
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
    rows->count++;
    return !out->failed;
}

static row row_of(const cm_live_block *b)
{
    return (row){.device = b->device,
                 .origin = b->origin,
                 .thread = b->thread,
                 .bytes = b->bytes,
                 .requested = b->requested,
                 .has_requested = b->requested_known,
                 .count = 1,
                 .address = b->address,
                 .has_address = true,
                 .time_ns = b->time_ns,
                 .has_time = !b->started,
                 .step = b->step,
                 .when = b->started    ? CM_ROW_BEFORE_START
                         : b->reported ? CM_ROW_ALLOCATED
                                       : CM_ROW_FOUND};
}

static bool put_freed(cm_rows *rows, cm_text *out, const cm_item *item, const cm_replay *replay)
{
    cm_live_block block;
    if (!cm_live_take(&rows->live, item->device, item->address, &block))
        return true;
    row r = row_of(&block);
    r.has_requested = cm_live_requested(replay, item, &r.requested);
    r.has_free = true;
    r.freed_ns = item->time_ns;
    r.freed_step = rows->step;
    return put_row(rows, out, &r);
}

static bool put_counted(cm_rows *rows, cm_text *out, const cm_item *item)
{
    const row r = {.device = (uint16_t)item->device,
                   .origin = CM_ROW_COUNTED,
                   .thread = item->thread,
                   .bytes = item->bytes,
                   .count = item->address,
                   .has_free = true,
                   .freed_ns = item->time_ns,
                   .step = rows->step,
                   .freed_step = rows->step,
                   .when = CM_ROW_FOLDED};
    return put_row(rows, out, &r);
}

bool cm_rows_add(cm_rows *rows, cm_text *out, const cm_item *item, const cm_replay *replay,
                 int32_t next_step)
{
    cm_live_block *block;
    switch (item->kind) {
    case CM_ITEM_START:
    case CM_ITEM_ALLOC:
        return cm_live_add(&rows->live, item, replay) != NULL;
    case CM_ITEM_FREE:
        return put_freed(rows, out, item, replay);
    case CM_ITEM_REQUESTED:
        block = cm_live_find(&rows->live, item->device, item->address);
        if (block != NULL) {
            block->requested = item->bytes;
            block->requested_known = true;
        }
        return true;
    case CM_ITEM_STEP:
        rows->step = next_step;
        return true;
    case CM_ITEM_COMPACTED:
        return put_counted(rows, out, item);
    default:
        return true;
    }
}

bool cm_rows_end(cm_rows *rows, cm_text *out, size_t most, bool *over)
{
    uint32_t next = 0;
    for (size_t i = 0; i < most && (next = cm_live_next(&rows->live, rows->last)) != 0; i++) {
        const row r = row_of(&rows->live.block[next - 1]);
        if (!put_row(rows, out, &r))
            return false;
        rows->last = next;
    }
    *over = next == 0;
    return true;
}
