#include "snapshot.h"

bool cm_amounts_add_live(cm_amounts *amounts, const cm_blocks *blocks, int device)
{
    for (const cm_block *b = NULL; (b = cm_blocks_next(blocks, b)) != NULL;)
        if ((device < 0 || b->device == device) &&
            !cm_amounts_add(amounts, b->origin, (cm_amount){b->size, 1}))
            return false;
    return true;
}
