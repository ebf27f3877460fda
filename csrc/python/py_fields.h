/* Field tables: the fields of a result struct that become part of a Python object, one row each.
 * A row's kind follows from the C type of its member, or is checked against it: a type without a
 * kind does not compile. All strings of docs are part of docs/json.md. */
#ifndef CM_PYTHON_FIELDS_H
#define CM_PYTHON_FIELDS_H

#include "py_build.h"

#include <stddef.h>

typedef enum cm_field_kind {
    CM_FIELD_BOOL,
    CM_FIELD_I32,
    CM_FIELD_U32,
    CM_FIELD_I64,
    CM_FIELD_U64,
    CM_FIELD_DOUBLE,
    CM_FIELD_OPTIONAL,    /* int64_t; negative: None */
    CM_FIELD_TEXT,        /* char[] */
    CM_FIELD_TEXT_AT,     /* char *; NULL: None */
    CM_FIELD_ENUM8,       /* index into names, whose NULL is None */
    CM_FIELD_ENUM32,      /* the same */
    CM_FIELD_STACK,       /* stack id; its frames are put into the report's stacks */
    CM_FIELD_NODE,        /* name id of an autograd node's type; 0: None */
    CM_FIELD_LABEL,       /* name id of a text that a walk recorded; 0: None */
    CM_FIELD_NAME,        /* name id of a library or kernel; 0: "" */
    CM_FIELD_DEVICE,      /* index into the analysis' devices: the device's name */
    CM_FIELD_LOOP,        /* index into the step clock's loops: the loop's name */
    CM_FIELD_LINE,        /* line of the step clock: (file, line, function) or None */
    CM_FIELD_STRUCT,      /* object of `fields` */
    CM_FIELD_STRUCT_SEEN, /* the same; None where the member at other_offset is 0 */
    CM_FIELD_ARRAY,       /* list of `fields` */
    CM_FIELD_SLICE,       /* list of `fields`, elements of an array of the owner */
    CM_FIELD_COLUMNS,     /* dictionary: 64-bit integers in a bytes object for each of `fields` */
    CM_FIELD_I64S,        /* int64_t[]; only in columns: a list of them */
    CM_FIELD_MADE         /* what `make` returns, of Python type `type` */
} cm_field_kind;

typedef struct cm_fields cm_fields;
typedef PyObject *(*cm_field_maker)(cm_py_builder *b, const void *row);

typedef struct cm_field {
    const char *name, *doc;
    cm_field_kind kind;
    size_t offset;       /* of the member; of a slice: of the index of its first element */
    size_t other_offset; /* of the count; of the member that is 0 if absent */
    size_t other_size;
    size_t pool_offset; /* slices: of the array in the owner */
    const cm_fields *fields;
    const char *const *names;
    size_t count; /* of names, of integers */
    cm_field_maker make;
    const char *type;
} cm_field;

struct cm_fields {
    const char *name; /* of the object, for docs */
    const cm_field *field;
    size_t count, size; /* fields; bytes of the C struct */
    bool is_tuple;      /* else a dictionary */
};

#define CM_MEMBER(struct_, member) (((const struct_ *)0)->member)
/* `kind` if the member has the type `type`; otherwise it does not compile. */
#define CM_KIND(struct_, member, type, kind) _Generic(CM_MEMBER(struct_, member), type : kind)

#define CM_PLAIN(struct_, member, name_, doc_)                                                     \
    {                                                                                              \
        .name = name_, .doc = doc_, .offset = offsetof(struct_, member),                           \
        .kind = _Generic(CM_MEMBER(struct_, member), bool                                          \
                         : CM_FIELD_BOOL, int32_t                                                  \
                         : CM_FIELD_I32, uint32_t                                                  \
                         : CM_FIELD_U32, int64_t                                                   \
                         : CM_FIELD_I64, uint64_t                                                  \
                         : CM_FIELD_U64, double                                                    \
                         : CM_FIELD_DOUBLE)                                                        \
    }

#define CM_SPECIAL(struct_, member, type_, kind_, name_, doc_)                                     \
    {                                                                                              \
        .name = name_, .doc = doc_, .offset = offsetof(struct_, member),                           \
        .kind = CM_KIND(struct_, member, type_, kind_)                                             \
    }
#define CM_OPTIONAL(s, m, n, d) CM_SPECIAL(s, m, int64_t, CM_FIELD_OPTIONAL, n, d)
#define CM_STACK(s, m, n, d) CM_SPECIAL(s, m, uint32_t, CM_FIELD_STACK, n, d)
#define CM_NODE(s, m, n, d) CM_SPECIAL(s, m, uint32_t, CM_FIELD_NODE, n, d)
#define CM_LABEL(s, m, n, d) CM_SPECIAL(s, m, uint32_t, CM_FIELD_LABEL, n, d)
#define CM_NAME(s, m, n, d) CM_SPECIAL(s, m, uint32_t, CM_FIELD_NAME, n, d)
#define CM_DEVICE(s, m, n, d) CM_SPECIAL(s, m, uint32_t, CM_FIELD_DEVICE, n, d)
#define CM_LOOP(s, m, n, d) CM_SPECIAL(s, m, uint32_t, CM_FIELD_LOOP, n, d)
#define CM_LINE(s, m, n, d) CM_SPECIAL(s, m, uint32_t, CM_FIELD_LINE, n, d)
#define CM_TEXT_AT(s, m, n, d) CM_SPECIAL(s, m, char *, CM_FIELD_TEXT_AT, n, d)
#define CM_TEXT(s, m, n, d)                                                                        \
    {                                                                                              \
        .name = n, .doc = d, .offset = offsetof(s, m),                                             \
        .kind = _Generic(&CM_MEMBER(s, m), const char(*)[sizeof CM_MEMBER(s, m)]                   \
                         : CM_FIELD_TEXT)                                                          \
    }

#define CM_ENUM(s, m, names_, n, d)                                                                \
    {                                                                                              \
        .name = n, .doc = d, .offset = offsetof(s, m), .names = names_,                            \
        .count = sizeof(names_) / sizeof *(names_),                                                \
        .kind = _Generic(CM_MEMBER(s, m), bool                                                     \
                         : CM_FIELD_ENUM8, uint8_t                                                 \
                         : CM_FIELD_ENUM8, uint32_t                                                \
                         : CM_FIELD_ENUM32)                                                        \
    }

/* Of the same struct under another name: a group of its fields. */
#define CM_GROUP(fields_, n, d)                                                                    \
    {                                                                                              \
        .name = n, .doc = d, .kind = CM_FIELD_STRUCT, .fields = &(fields_)                         \
    }
#define CM_GROUP_SEEN(s, seen, fields_, n, d)                                                      \
    {                                                                                              \
        .name = n, .doc = d, .kind = CM_FIELD_STRUCT_SEEN, .fields = &(fields_),                   \
        .other_offset = offsetof(s, seen), .other_size = sizeof CM_MEMBER(s, seen)                 \
    }
#define CM_STRUCT(s, m, type_, fields_, n, d)                                                      \
    {                                                                                              \
        .name = n, .doc = d, .offset = offsetof(s, m),                                             \
        .kind = CM_KIND(s, m, type_, CM_FIELD_STRUCT), .fields = &(fields_)                        \
    }
#define CM_STRUCT_SEEN(s, m, seen, type_, fields_, n, d)                                           \
    {                                                                                              \
        .name = n, .doc = d, .offset = offsetof(s, m),                                             \
        .kind = CM_KIND(s, m, type_, CM_FIELD_STRUCT_SEEN), .fields = &(fields_),                  \
        .other_offset = offsetof(s, seen), .other_size = sizeof CM_MEMBER(s, seen)                 \
    }
#define CM_ARRAY_KIND(s, m, count_, type_, fields_, kind_, n, d)                                   \
    {                                                                                              \
        .name = n, .doc = d, .offset = offsetof(s, m), .kind = CM_KIND(s, m, type_ *, kind_),      \
        .fields = &(fields_), .other_offset = offsetof(s, count_),                                 \
        .other_size = CM_KIND(s, count_, size_t, sizeof(size_t))                                   \
    }
#define CM_ARRAY(s, m, c, t, f, n, d) CM_ARRAY_KIND(s, m, c, t, f, CM_FIELD_ARRAY, n, d)
#define CM_COLUMNS(s, m, c, t, f, n, d) CM_ARRAY_KIND(s, m, c, t, f, CM_FIELD_COLUMNS, n, d)
/* The owner is the struct of the nearest array around this one. */
#define CM_SLICE(s, first, count_, owner, pool, type_, fields_, n, d)                              \
    {                                                                                              \
        .name = n, .doc = d, .offset = offsetof(s, first),                                         \
        .kind = CM_KIND(owner, pool, type_ *, CM_FIELD_SLICE), .fields = &(fields_),               \
        .other_offset = offsetof(s, count_),                                                       \
        .other_size = CM_KIND(s, count_, size_t, sizeof(size_t)),                                  \
        .pool_offset = offsetof(owner, pool)                                                       \
    }
#define CM_I64S(s, m, n, d)                                                                        \
    {                                                                                              \
        .name = n, .doc = d, .offset = offsetof(s, m),                                             \
        .count = sizeof CM_MEMBER(s, m) / sizeof(int64_t),                                         \
        .kind = CM_KIND(s, m, const int64_t *, CM_FIELD_I64S)                                      \
    }
#define CM_MADE(type_, make_, n, d)                                                                \
    {                                                                                              \
        .name = n, .doc = d, .kind = CM_FIELD_MADE, .make = make_, .type = type_                   \
    }

/* The same, of objects with a table of their own. */
#define CM_MADE_OF(type_, make_, fields_, n, d)                                                    \
    {                                                                                              \
        .name = n, .doc = d, .kind = CM_FIELD_MADE, .make = make_, .fields = &(fields_),           \
        .type = type_                                                                              \
    }

#define CM_FIELDS(variable, name_, struct_, tuple_, rows)                                          \
    const cm_fields variable = {.name = name_,                                                     \
                                .field = rows,                                                     \
                                .count = sizeof(rows) / sizeof *(rows),                            \
                                .size = sizeof(struct_),                                           \
                                .is_tuple = tuple_}

/* The object of one struct. owner: where its slices lie. */
PyObject *cm_py_build(cm_py_builder *b, const cm_fields *fields, const void *row,
                      const void *owner);
PyObject *cm_py_build_list(cm_py_builder *b, const cm_fields *fields, const void *rows,
                           size_t count, const void *owner);

/* What cm_analyze() gives; the tables of everything in it are reached from here. */
extern const cm_fields cm_py_report_fields, cm_py_contributor_fields;

#endif
