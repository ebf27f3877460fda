/* The offsets of CPython's fields that a walk reads: the thread's top frame and six of a frame.
 * They hold for one minor version and its GIL build. offsets.c asserts them against that version's
 * headers; cm_offsets_check compares them with those that the running interpreter publishes;
 * selftest.h compares whole walks with the public API.
 *
 * A thread reads only its own frames, from inside a call that it makes. No other thread pushes,
 * pops or advances them, and each holds a reference to its code. */
#ifndef CM_FRAMES_OFFSETS_H
#define CM_FRAMES_OFFSETS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if PY_VERSION_HEX < 0x030b0000
#error "cuptimem needs CPython 3.11 or later"
#endif

/* The first unsupported version: its frames are unknown. */
#define CM_OFFSETS_END 0x03100000

/* NULL if walking is possible, else the reason (static string). GIL held. */
const char *cm_offsets_check(void);

#if PY_VERSION_HEX < 0x030c0000
enum {
    CM_OFFSET_CFRAME = 56,      /* PyThreadState.cframe */
    CM_OFFSET_CFRAME_FRAME = 8, /* _PyCFrame.current_frame */
    CM_OFFSET_OF_OBJECT = 24,   /* PyFrameObject.f_frame */
    CM_OFFSET_GLOBALS = 8,
    CM_OFFSET_NAMESPACE = 24, /* f_locals */
    CM_OFFSET_EXECUTABLE = 32,
    CM_OFFSET_PREVIOUS = 48,
    CM_OFFSET_IP = 56, /* prev_instr */
    CM_OFFSET_OWNER = 69,
    CM_OFFSET_LOCALS = 72
};
#elif PY_VERSION_HEX < 0x030d0000
enum {
    CM_OFFSET_CFRAME = 56,
    CM_OFFSET_CFRAME_FRAME = 0,
    CM_OFFSET_OF_OBJECT = 24,
    CM_OFFSET_GLOBALS = 24,
    CM_OFFSET_NAMESPACE = 40,
    CM_OFFSET_EXECUTABLE = 0,
    CM_OFFSET_PREVIOUS = 8,
    CM_OFFSET_IP = 56, /* prev_instr */
    CM_OFFSET_OWNER = 70,
    CM_OFFSET_LOCALS = 72
};
#elif PY_VERSION_HEX < 0x030e0000
enum {
    CM_OFFSET_FRAME = 72, /* PyThreadState.current_frame */
    CM_OFFSET_EXECUTABLE = 0,
    CM_OFFSET_PREVIOUS = 8,
    CM_OFFSET_IP = 56, /* instr_ptr */
    CM_OFFSET_OWNER = 70,
    CM_OFFSET_LOCALS = 72
};
#else
enum {
    CM_OFFSET_FRAME = 72,
    CM_OFFSET_EXECUTABLE = 0,
    CM_OFFSET_PREVIOUS = 8,
    CM_OFFSET_IP = 56, /* instr_ptr */
    CM_OFFSET_OWNER = 74,
    CM_OFFSET_LOCALS = 80
};
#endif

/* From 3.12 on, frames of no Python function have this owner or a higher one. */
enum { CM_OWNER_GENERATOR = 1, CM_OWNER_NOT_PYTHON = 3 };

/* A code object's instructions follow its last field. */
enum { CM_OFFSET_BYTECODE = offsetof(PyCodeObject, co_code_adaptive) };

#define CM_FRAME_FIELD(type, base, offset) (*(type const *)((const char *)(base) + (offset)))

/* References on the stack and in frames carry tag bits from 3.14 on. */
static inline uint64_t cm_frame_untag(uint64_t reference)
{
#if PY_VERSION_HEX >= 0x030e0000
    return reference & ~(uint64_t)7;
#else
    return reference;
#endif
}

static inline const char *cm_frame_previous(const char *frame)
{
    return CM_FRAME_FIELD(char *, frame, CM_OFFSET_PREVIOUS);
}

/* The calling thread's innermost frame, or NULL: no thread state, or nothing running in it. */
static inline const char *cm_frame_top(void)
{
    /* Not cached, for PyGILState_Release deletes the thread state and the next Ensure makes
     * another. Not _PyThreadState_UncheckedGet: without the GIL, 3.11 returns another thread's. */
    const char *thread = (const char *)PyGILState_GetThisThreadState();

    if (thread == NULL)
        return NULL;
#if PY_VERSION_HEX < 0x030d0000
    const char *cframe = CM_FRAME_FIELD(char *, thread, CM_OFFSET_CFRAME);
    return cframe == NULL ? NULL : CM_FRAME_FIELD(char *, cframe, CM_OFFSET_CFRAME_FRAME);
#elif PY_VERSION_HEX < 0x030f0000
    return CM_FRAME_FIELD(char *, thread, CM_OFFSET_FRAME);
#else
    /* The outermost frame is the thread state's own (base_frame): no function runs in it. */
    const char *frame = CM_FRAME_FIELD(char *, thread, CM_OFFSET_FRAME);
    return frame == NULL || cm_frame_previous(frame) == NULL ? NULL : frame;
#endif
}

/* The instruction pointer: it lies in the code object, so it identifies code and offset. */
static inline uint64_t cm_frame_ip(const char *frame)
{
    return CM_FRAME_FIELD(uint64_t, frame, CM_OFFSET_IP);
}

/* The first local variable, which is `self` in a method. */
static inline uint64_t cm_frame_first_local(const char *frame)
{
    return cm_frame_untag(CM_FRAME_FIELD(uint64_t, frame, CM_OFFSET_LOCALS));
}

static inline int cm_frame_owner(const char *frame)
{
    return CM_FRAME_FIELD(char, frame, CM_OFFSET_OWNER);
}

/* The frame's code, or NULL if the frame is of no Python function. */
static inline PyCodeObject *cm_frame_code(const char *frame)
{
    if (cm_frame_owner(frame) >= CM_OWNER_NOT_PYTHON)
        return NULL;
    PyObject *executable =
        (PyObject *)cm_frame_untag(CM_FRAME_FIELD(uint64_t, frame, CM_OFFSET_EXECUTABLE));
    return executable != NULL && Py_IS_TYPE(executable, &PyCode_Type) ? (PyCodeObject *)executable
                                                                      : NULL;
}

/* The last instruction in code units (f_lasti / 2); negative before the first one. */
static inline int64_t cm_frame_offset(const PyCodeObject *code, uint64_t ip)
{
    return ((int64_t)(ip - (uint64_t)code) - CM_OFFSET_BYTECODE) / 2;
}

/* False while the frame is being made (its cells, its generator): no Python API shows it then. */
static inline bool cm_frame_is_complete(const char *frame, const PyCodeObject *code, int64_t offset)
{
    return cm_frame_owner(frame) == CM_OWNER_GENERATOR || offset >= code->_co_firsttraceable;
}

#endif
