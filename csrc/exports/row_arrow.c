#include "row_arrow.h"

typedef enum column_kind { TEXT, I64, U64, I32, U32 } column_kind;

/* Texts are in the order of their dictionaries. */
static const struct {
    const char *name;
    column_kind kind;
} columns[CM_ARROW_COLUMNS] = {
    {"device", TEXT},    {"bytes", I64},     {"requested", I64}, {"count", U64},
    {"address", U64},    {"time_ns", I64},   {"freed_ns", I64},  {"step", I32},
    {"freed_step", I32}, {"phase", TEXT},    {"operator", TEXT}, {"category", TEXT},
    {"module", TEXT},    {"saved_by", TEXT}, {"file", TEXT},     {"line", I32},
    {"function", TEXT},  {"where", TEXT},    {"stack", TEXT},    {"origin", TEXT},
    {"thread", U32},     {"when", TEXT},
};
static const struct {
    const char *format;
    size_t size;
} kinds[] = {
    [TEXT] = {"i", 4}, [I64] = {"l", 8}, [U64] = {"L", 8}, [I32] = {"i", 4}, [U32] = {"I", 4}};
static const char *const whens[CM_ROW_WHENS] = {"allocated", "found", "before start", "compacted"};

void cm_arrow_clear(cm_arrow *a)
{
    free(a->name);
    for (size_t i = 0; i < CM_ARROW_COLUMNS; i++) {
        free(a->column[i].value);
        free(a->column[i].valid);
    }
    for (size_t i = 0; i < CM_ARROW_DICTIONARIES; i++) {
        free(a->dictionary[i].all.bytes);
        free(a->dictionary[i].entry);
        free(a->dictionary[i].text.bytes);
        free(a->dictionary[i].offset);
    }
    *a = (cm_arrow){0};
}

int32_t cm_arrow_text_add(cm_arrow *a, size_t dictionary, const char *text, size_t length)
{
    cm_arrow_dictionary *d = &a->dictionary[dictionary];
    if (d->entries >= INT32_MAX ||
        !cm_grow((void **)&d->entry, &d->capacity, d->entries + 1, sizeof *d->entry))
        return -1;
    d->entry[d->entries] = (struct cm_arrow_entry){.begin = d->all.length, .length = length};
    cm_text_put(&d->all, text, length);
    return d->all.failed ? -1 : (int32_t)d->entries++;
}

/* The number of a text among those of the batch. -1: out of memory. */
static int32_t number_of(cm_arrow *a, cm_arrow_dictionary *d, int32_t text)
{
    struct cm_arrow_entry *e = &d->entry[text];
    if (e->batch == a->batch)
        return e->number;
    if (!cm_grow((void **)&d->offset, &d->offset_capacity, d->offsets + 2, sizeof *d->offset))
        return -1;
    d->offset[0] = 0;
    cm_text_put(&d->text, d->all.bytes + e->begin, e->length);
    d->offset[d->offsets + 1] = (int64_t)d->text.length;
    e->batch = a->batch;
    e->number = (int32_t)d->offsets++;
    return d->text.failed ? -1 : e->number;
}

static bool put(cm_arrow *a, size_t at, bool known, int64_t value)
{
    cm_arrow_column *c = &a->column[at];
    size_t size = kinds[columns[at].kind].size;
    if (!cm_grow(&c->value, &c->capacity, a->rows + 1, size) ||
        !cm_grow((void **)&c->valid, &c->valid_capacity, a->rows + 1, 1))
        return false;
    if (!known)
        value = 0;
    if (size == 8)
        ((int64_t *)c->value)[a->rows] = value;
    else /* to uint32_t, the same bits as of int32_t */
        ((uint32_t *)c->value)[a->rows] = (uint32_t)value;
    c->valid[a->rows] = known;
    c->nulls += !known;
    return true;
}

static const cm_arrow_name *name_of(cm_arrow *a, const cm_row *r, cm_arrow_name *counted)
{
    if (r->origin == CM_ROW_COUNTED)
        return a->namer(a->context, r->device, r->origin, counted) ? counted : NULL;
    if (!cm_grow_zeroed((void **)&a->name, &a->names, (size_t)r->origin + 1, sizeof *a->name))
        return NULL;
    cm_arrow_name *name = &a->name[r->origin];
    if (!name->known && !a->namer(a->context, r->device, r->origin, name))
        return NULL;
    name->known = true;
    return name;
}

static bool put_numbers(cm_arrow *a, const cm_row *r, int32_t line)
{
    /* A damaged trace may say any time; as a signed one it is what it is in csv up to 292 years. */
    return put(a, 1, true, r->bytes) && put(a, 2, r->has_requested, r->requested) &&
           put(a, 3, true, (int64_t)r->count) && put(a, 4, r->has_address, (int64_t)r->address) &&
           put(a, 5, r->has_time, (int64_t)r->time_ns) &&
           put(a, 6, r->has_free, (int64_t)r->freed_ns) && put(a, 7, r->step >= 0, r->step) &&
           put(a, 8, r->has_free && r->freed_step >= 0, r->freed_step) &&
           put(a, 15, line >= 0, line) && put(a, 20, true, r->thread);
}

bool cm_arrow_put(void *arrow, const cm_row *r)
{
    cm_arrow *a = arrow;
    cm_arrow_name counted = {0};
    const cm_arrow_name *name = name_of(a, r, &counted);
    if (name == NULL || !put_numbers(a, r, name->line))
        return false;
    cm_arrow_dictionary *when = &a->dictionary[CM_ARROW_TEXTS];
    while (when->entries < CM_ROW_WHENS) {
        const char *text = whens[when->entries];
        if (cm_arrow_text_add(a, CM_ARROW_TEXTS, text, strlen(text)) < 0)
            return false;
    }
    for (size_t at = 0, d = 0; at < CM_ARROW_COLUMNS; at++) {
        if (columns[at].kind != TEXT)
            continue;
        int32_t text = d < CM_ARROW_TEXTS ? name->text[d] : (int32_t)r->when;
        int32_t number = text < 0 ? 0 : number_of(a, &a->dictionary[d], text);
        if (number < 0 || !put(a, at, text >= 0, number))
            return false;
        d++;
    }
    a->rows++;
    return true;
}

bool cm_arrow_is_full(const cm_arrow *a)
{
    size_t bytes = 0;
    for (size_t i = 0; i < CM_ARROW_DICTIONARIES; i++)
        bytes += a->dictionary[i].text.length;
    return a->rows >= CM_ARROW_FULL || bytes >= CM_ARROW_LARGE;
}

/* --- schema --------------------------------------------------------------------------------- */

static void release_schema(struct ArrowSchema *s)
{
    for (int64_t i = 0; s->children != NULL && i < s->n_children; i++) {
        if (s->children[i] != NULL && s->children[i]->release != NULL)
            s->children[i]->release(s->children[i]);
        free(s->children[i]);
    }
    free(s->children);
    if (s->dictionary != NULL && s->dictionary->release != NULL)
        s->dictionary->release(s->dictionary);
    free(s->dictionary);
    s->release = NULL;
}

static struct ArrowSchema *new_schema(const char *format, const char *name)
{
    struct ArrowSchema *s = malloc(sizeof *s);
    if (s != NULL)
        *s = (struct ArrowSchema){.format = format,
                                  .name = name,
                                  .flags = ARROW_FLAG_NULLABLE,
                                  .release = release_schema};
    return s;
}

static struct ArrowSchema *column_schema(size_t at)
{
    struct ArrowSchema *s = new_schema(kinds[columns[at].kind].format, columns[at].name);
    if (s == NULL || columns[at].kind != TEXT)
        return s;
    s->dictionary = new_schema("U", "");
    if (s->dictionary != NULL)
        return s;
    free(s);
    return NULL;
}

bool cm_arrow_schema(struct ArrowSchema *out)
{
    *out = (struct ArrowSchema){.format = "+s", .name = "", .release = release_schema};
    out->children = calloc(CM_ARROW_COLUMNS, sizeof *out->children);
    bool fine = out->children != NULL;
    out->n_children = fine ? CM_ARROW_COLUMNS : 0;
    for (size_t at = 0; fine && at < CM_ARROW_COLUMNS; at++)
        fine = (out->children[at] = column_schema(at)) != NULL;
    if (!fine)
        release_schema(out);
    return fine;
}

/* --- a batch -------------------------------------------------------------------------------- */

/* What an array owns. */
typedef struct held {
    const void *buffer[3]; /* of malloc */
} held;

static void release_array(struct ArrowArray *a)
{
    held *h = a->private_data;
    for (int64_t i = 0; i < a->n_buffers; i++)
        free((void *)h->buffer[i]);
    for (int64_t i = 0; a->children != NULL && i < a->n_children; i++) {
        if (a->children[i] != NULL && a->children[i]->release != NULL)
            a->children[i]->release(a->children[i]);
        free(a->children[i]);
    }
    free(a->children);
    if (a->dictionary != NULL && a->dictionary->release != NULL)
        a->dictionary->release(a->dictionary);
    free(a->dictionary);
    free(h);
    a->release = NULL;
}

static bool begin_array(struct ArrowArray *a, size_t length, int64_t buffers)
{
    held *h = calloc(1, sizeof *h);
    *a = (struct ArrowArray){.length = (int64_t)length, .n_buffers = buffers, .private_data = h};
    if (h == NULL)
        return false;
    a->buffers = h->buffer;
    a->release = release_array;
    return true;
}

/* Bits from bytes, in their place. */
static void pack(uint8_t *valid, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        uint8_t bit = (uint8_t)(valid[i] << (i & 7));
        valid[i >> 3] = (i & 7) == 0 ? bit : (uint8_t)(valid[i >> 3] | bit);
    }
}

/* Moves the texts of the batch into an array. */
static bool take_texts(cm_arrow_dictionary *d, struct ArrowArray *out)
{
    if (!cm_grow((void **)&d->offset, &d->offset_capacity, d->offsets + 1, sizeof *d->offset) ||
        !begin_array(out, d->offsets, 3))
        return false;
    d->offset[0] = 0;
    held *h = out->private_data;
    h->buffer[1] = d->offset;
    h->buffer[2] = d->text.bytes != NULL ? d->text.bytes : calloc(1, 1);
    d->offset = NULL;
    d->text = (cm_text){0};
    d->offsets = d->offset_capacity = 0;
    return h->buffer[2] != NULL;
}

static bool take_column(cm_arrow *a, size_t at, struct ArrowArray *out)
{
    cm_arrow_column *c = &a->column[at];
    if (!begin_array(out, a->rows, 2))
        return false;
    pack(c->valid, a->rows);
    held *h = out->private_data;
    h->buffer[0] = c->valid;
    h->buffer[1] = c->value;
    out->null_count = c->nulls;
    *c = (cm_arrow_column){0};
    return true;
}

static bool take_columns(cm_arrow *a, struct ArrowArray *out)
{
    for (size_t at = 0, d = 0; at < CM_ARROW_COLUMNS; at++) {
        struct ArrowArray *child = out->children[at] = calloc(1, sizeof *child);
        if (child == NULL || !take_column(a, at, child))
            return false;
        if (columns[at].kind != TEXT)
            continue;
        child->dictionary = calloc(1, sizeof *child->dictionary);
        if (child->dictionary == NULL || !take_texts(&a->dictionary[d++], child->dictionary))
            return false;
    }
    return true;
}

bool cm_arrow_take(cm_arrow *a, struct ArrowArray *out)
{
    if (!begin_array(out, a->rows, 1))
        return false;
    out->children = calloc(CM_ARROW_COLUMNS, sizeof *out->children);
    out->n_children = out->children != NULL ? CM_ARROW_COLUMNS : 0;
    if (out->children == NULL || !take_columns(a, out)) {
        release_array(out);
        return false;
    }
    a->rows = 0;
    a->batch++;
    return true;
}
