/* Builds Python objects out of C structs by their field tables, and lists the tables. */
#include "py_fields.h"

#include <string.h>

static PyObject *number_array(const void *rows, size_t count, size_t stride, const cm_field *field,
                              size_t shift)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(int64_t)));
    if (bytes == NULL)
        return NULL;
    char *to = PyBytes_AS_STRING(bytes);
    for (size_t i = 0; i < count; i++) {
        const char *from = (const char *)rows + i * stride + field->offset + shift;
        int32_t narrow;
        int64_t wide;
        if (field->kind == CM_FIELD_U32 || field->kind == CM_FIELD_I32) {
            memcpy(&narrow, from, sizeof narrow);
            wide = narrow;
        } else {
            memcpy(&wide, from, sizeof wide);
        }
        memcpy(to + i * sizeof wide, &wide, sizeof wide);
    }
    return bytes;
}

static PyObject *column(const void *rows, size_t count, size_t stride, const cm_field *field)
{
    if (field->kind != CM_FIELD_I64S)
        return number_array(rows, count, stride, field, 0);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < field->count; i++)
        if (cm_py_append(list, number_array(rows, count, stride, field, i * sizeof(int64_t))) < 0)
            Py_CLEAR(list);
    return list;
}

static PyObject *columns(const cm_fields *fields, const void *rows, size_t count)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < fields->count; i++)
        if (cm_py_put(dict, fields->field[i].name,
                      column(rows, count, fields->size, &fields->field[i])) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *enum_name(cm_py_builder *b, const cm_field *field, uint32_t value)
{
    return cm_py_shared_text(b, value < field->count ? field->names[value] : NULL);
}

static PyObject *none_below_zero(int64_t value)
{
    if (value < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(value);
}

static bool is_zero(const void *member, size_t size)
{
    static const char zeros[sizeof(uint64_t)];
    return memcmp(member, zeros, size) == 0;
}

/* The Python object for the member at `at` of `row`. */
static PyObject *value(cm_py_builder *b, const cm_field *field, const void *row, const void *owner)
{
    const char *at = (const char *)row + field->offset;
    const char *other = (const char *)row + field->other_offset;
#define READ(type) (*(const type *)(const void *)at)
#define COUNT (*(const size_t *)(const void *)other)
    switch (field->kind) {
    case CM_FIELD_BOOL:
        return PyBool_FromLong(READ(bool));
    case CM_FIELD_I32:
        return PyLong_FromLong(READ(int32_t));
    case CM_FIELD_U32:
        return PyLong_FromUnsignedLong(READ(uint32_t));
    case CM_FIELD_I64:
        return PyLong_FromLongLong(READ(int64_t));
    case CM_FIELD_U64:
        return PyLong_FromUnsignedLongLong(READ(uint64_t));
    case CM_FIELD_DOUBLE:
        return PyFloat_FromDouble(READ(double));
    case CM_FIELD_OPTIONAL:
        return none_below_zero(READ(int64_t));
    case CM_FIELD_TEXT:
        return cm_py_text(at);
    case CM_FIELD_TEXT_AT:
        return cm_py_text(READ(char *));
    case CM_FIELD_ENUM8:
        return enum_name(b, field, READ(uint8_t));
    case CM_FIELD_ENUM32:
        return enum_name(b, field, READ(uint32_t));
    case CM_FIELD_STACK:
        return cm_py_stack_id(b, READ(uint32_t));
    case CM_FIELD_NODE:
        return cm_py_node_name(b, READ(uint32_t));
    case CM_FIELD_LABEL:
        return cm_py_label(b, READ(uint32_t));
    case CM_FIELD_NAME:
        return cm_py_name(b, READ(uint32_t));
    case CM_FIELD_DEVICE:
        return cm_py_device_name(b, READ(uint32_t));
    case CM_FIELD_LOOP:
        return cm_py_text(b->analysis->steps.loop[READ(uint32_t)].name);
    case CM_FIELD_LINE:
        return cm_py_clock_line(b, READ(uint32_t));
    case CM_FIELD_STRUCT_SEEN:
        if (is_zero(other, field->other_size))
            Py_RETURN_NONE;
        return cm_py_build(b, field->fields, at, owner);
    case CM_FIELD_STRUCT:
        return cm_py_build(b, field->fields, at, owner);
    case CM_FIELD_ARRAY:
        return cm_py_build_list(b, field->fields, READ(void *), COUNT, row);
    case CM_FIELD_SLICE: {
        const char *pool = *(char *const *)(const void *)((const char *)owner + field->pool_offset);
        const char *first = COUNT == 0 ? NULL : pool + READ(size_t) * field->fields->size;
        return cm_py_build_list(b, field->fields, first, COUNT, owner);
    }
    case CM_FIELD_COLUMNS:
        return columns(field->fields, READ(void *), COUNT);
    case CM_FIELD_MADE:
        return field->make(b, row);
    case CM_FIELD_I64S: /* only in columns */
        break;
    }
#undef READ
#undef COUNT
    PyErr_Format(PyExc_SystemError, "field %s has no value", field->name);
    return NULL;
}

static PyObject *build_tuple(cm_py_builder *b, const cm_fields *fields, const void *row,
                             const void *owner)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)fields->count);
    for (size_t i = 0; tuple != NULL && i < fields->count; i++) {
        PyObject *one = value(b, &fields->field[i], row, owner);
        if (one == NULL)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, one);
    }
    return tuple;
}

PyObject *cm_py_build(cm_py_builder *b, const cm_fields *fields, const void *row, const void *owner)
{
    if (fields->is_tuple)
        return build_tuple(b, fields, row, owner);
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < fields->count; i++)
        if (cm_py_put(dict, fields->field[i].name, value(b, &fields->field[i], row, owner)) < 0)
            Py_CLEAR(dict);
    return dict;
}

PyObject *cm_py_build_list(cm_py_builder *b, const cm_fields *fields, const void *rows,
                           size_t count, const void *owner)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < count; i++)
        if (cm_py_append(list,
                         cm_py_build(b, fields, (const char *)rows + i * fields->size, owner)) < 0)
            Py_CLEAR(list);
    return list;
}

/* --- the tables themselves ---------------------------------------------------------------------
 */

static PyObject *type_name(const cm_field *field)
{
    switch (field->kind) {
    case CM_FIELD_BOOL:
        return PyUnicode_FromString("bool");
    case CM_FIELD_I32:
    case CM_FIELD_U32:
    case CM_FIELD_I64:
    case CM_FIELD_U64:
        return PyUnicode_FromString("int");
    case CM_FIELD_DOUBLE:
        return PyUnicode_FromString("float");
    case CM_FIELD_OPTIONAL:
        return PyUnicode_FromString("int | None");
    case CM_FIELD_ENUM8:
    case CM_FIELD_ENUM32:
        for (size_t i = 0; i < field->count; i++)
            if (field->names[i] == NULL)
                return PyUnicode_FromString("str | None");
        return PyUnicode_FromString("str");
    case CM_FIELD_TEXT:
    case CM_FIELD_TEXT_AT:
    case CM_FIELD_NAME:
    case CM_FIELD_DEVICE:
    case CM_FIELD_LOOP:
        return PyUnicode_FromString("str");
    case CM_FIELD_NODE:
    case CM_FIELD_LABEL:
        return PyUnicode_FromString("str | None");
    case CM_FIELD_STACK:
        return PyUnicode_FromString("stack");
    case CM_FIELD_LINE:
        return PyUnicode_FromString("line | None");
    case CM_FIELD_STRUCT:
        return PyUnicode_FromString(field->fields->name);
    case CM_FIELD_STRUCT_SEEN:
        return PyUnicode_FromFormat("%s | None", field->fields->name);
    case CM_FIELD_ARRAY:
    case CM_FIELD_SLICE:
        return PyUnicode_FromFormat("[%s]", field->fields->name);
    case CM_FIELD_COLUMNS:
        return PyUnicode_FromFormat("columns of %s", field->fields->name);
    case CM_FIELD_I64S:
        return PyUnicode_FromFormat("%zu ints", field->count);
    case CM_FIELD_MADE:
        return PyUnicode_FromString(field->type);
    }
    return NULL;
}

/* Adds the table and those of its rows to `all`. */
static bool add_fields(PyObject *all, const cm_fields *fields)
{
    int there = PyMapping_HasKeyString(all, fields->name);
    if (there != 0)
        return there > 0;
    PyObject *rows = PyList_New(0);
    bool fine = rows != NULL && PyDict_SetItemString(all, fields->name, rows) == 0;
    for (size_t i = 0; fine && i < fields->count; i++) {
        const cm_field *f = &fields->field[i];
        fine = cm_py_append(rows, Py_BuildValue("(sNs)", f->name, type_name(f), f->doc)) == 0 &&
               (f->fields == NULL || add_fields(all, f->fields));
    }
    Py_XDECREF(rows);
    return fine;
}

PyDoc_STRVAR(fields_doc, "fields() -> dict\n\n"
                         "Of each object in what analyze() returns, by its name, the fields in "
                         "their order:\n(name, type, doc).");

static PyObject *list_fields(PyObject *module, PyObject *unused)
{
    PyObject *all = PyDict_New();
    if (all != NULL && !add_fields(all, &cm_py_report_fields))
        Py_CLEAR(all);
    return all;
}

PyMethodDef cm_py_fields_methods[] = {
    {"fields", list_fields, METH_NOARGS, fields_doc},
    {NULL, NULL, 0, NULL},
};
