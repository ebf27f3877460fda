/* The texts of definitions: UTF-8 of bounded length, with a hash that identifies equal ones. */
#ifndef CM_FRAMES_TEXT_H
#define CM_FRAMES_TEXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { CM_TEXT_MAX = 4096 }; /* bytes; longer ones are cut at a character */

typedef struct cm_text {
    uint64_t hash;
    uint32_t length;
    char bytes[CM_TEXT_MAX];
} cm_text;

/* 64 bits of any bytes; never 0. */
uint64_t cm_text_hash(const void *bytes, size_t length);

/* Copies a live str without the GIL: reads only its immutable parts, never the cached UTF-8, which
 * another thread may be making. Anything but a plain compact str (a subclass, a legacy string,
 * NULL) becomes "?". Surrogates become U+FFFD, so the result is valid UTF-8. */
void cm_text_copy_str(cm_text *text, PyObject *str);

/* Copies the bytes of a C string. */
void cm_text_copy(cm_text *text, const char *source);

#endif
