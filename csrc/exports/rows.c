#include "rows.h"

void cm_rows_clear(cm_rows *rows)
{
    cm_live_clear(&rows->live);
}

static bool put(cm_rows *rows, const cm_row *row)
{
    rows->count++;
    return rows->put(rows->context, row);
}

static cm_row row_of(const cm_live_block *b)
{
    return (cm_row){.device = b->device,
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

static bool put_freed(cm_rows *rows, const cm_item *item, const cm_replay *replay)
{
    cm_live_block block;
    if (!cm_live_take(&rows->live, item->device, item->address, &block))
        return true;
    cm_row r = row_of(&block);
    r.has_requested = cm_live_requested(replay, item, &r.requested);
    r.has_free = true;
    r.freed_ns = item->time_ns;
    r.freed_step = rows->step;
    return put(rows, &r);
}

static bool put_counted(cm_rows *rows, const cm_item *item)
{
    const cm_row r = {.device = (uint16_t)item->device,
                      .origin = CM_ROW_COUNTED,
                      .thread = item->thread,
                      .bytes = item->bytes,
                      .count = item->address,
                      .has_free = true,
                      .freed_ns = item->time_ns,
                      .step = rows->step,
                      .freed_step = rows->step,
                      .when = CM_ROW_FOLDED};
    return put(rows, &r);
}

bool cm_rows_add(cm_rows *rows, const cm_item *item, const cm_replay *replay, int32_t next_step)
{
    cm_live_block *block;
    switch (item->kind) {
    case CM_ITEM_START:
    case CM_ITEM_ALLOC:
        return cm_live_add(&rows->live, item, replay) != NULL;
    case CM_ITEM_FREE:
        return put_freed(rows, item, replay);
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
        return put_counted(rows, item);
    default:
        return true;
    }
}

bool cm_rows_end(cm_rows *rows, size_t most, bool *over)
{
    uint32_t next = 0;
    for (size_t i = 0; i < most && (next = cm_live_next(&rows->live, rows->last)) != 0; i++) {
        const cm_row r = row_of(&rows->live.block[next - 1]);
        if (!put(rows, &r))
            return false;
        rows->last = next;
    }
    *over = next == 0;
    return true;
}
