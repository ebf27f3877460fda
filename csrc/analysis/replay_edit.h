/* The highest sum of lives of blocks (lives.h), also with some of them replaced by others: what a
 * change of the program would have made of the peak. Any thread; a list is read only. */
#ifndef CM_ANALYSIS_REPLAY_EDIT_H
#define CM_ANALYSIS_REPLAY_EDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Without length (0 <= end <= birth) it counts nowhere; end -1: it does not end. */
typedef struct cm_edit_life {
    int64_t birth, end, bytes;
} cm_edit_life;

typedef struct cm_edit_peak {
    int64_t bytes, position; /* position: the first at which it is reached */
} cm_edit_peak;

typedef struct cm_edit_base cm_edit_base;

/* NULL: out of memory. */
cm_edit_base *cm_edit_base_new(const int64_t *birth, const int64_t *end, const int64_t *bytes,
                               size_t count);
void cm_edit_base_free(cm_edit_base *base);
size_t cm_edit_base_count(const cm_edit_base *base);

/* removed: indices below the base's count, in any order, maybe twice; added: what is there in their
 * place. At equal positions ends come before births. One merge of the base's sorted events with the
 * added ones. false: out of memory. */
bool cm_edit_replay(const cm_edit_base *base, const int64_t *removed, size_t removed_count,
                    const cm_edit_life *added, size_t added_count, cm_edit_peak *out);

#endif
