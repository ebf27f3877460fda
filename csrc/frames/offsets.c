#include "offsets.h"

#include <string.h>

#if defined(Py_GIL_DISABLED)

const char *cm_offsets_check(void)
{
    return "Python stacks are not supported on a free-threaded Python yet";
}

#elif PY_VERSION_HEX >= CM_OFFSETS_END

const char *cm_offsets_check(void)
{
    return "Python stacks are supported on CPython 3.11 to 3.15, not on this later version";
}

#else

#define Py_BUILD_CORE 1
#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030d0000
#include "internal/pycore_runtime.h"
#endif
#undef Py_BUILD_CORE

#define SAME(type, field, offset)                                                                  \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field " is elsewhere")

SAME(_PyInterpreterFrame, previous, CM_OFFSET_PREVIOUS);
SAME(_PyInterpreterFrame, owner, CM_OFFSET_OWNER);
SAME(_PyInterpreterFrame, localsplus, CM_OFFSET_LOCALS);
#if PY_VERSION_HEX < 0x030d0000
SAME(PyThreadState, cframe, CM_OFFSET_CFRAME);
SAME(_PyCFrame, current_frame, CM_OFFSET_CFRAME_FRAME);
SAME(PyFrameObject, f_frame, CM_OFFSET_OF_OBJECT);
SAME(_PyInterpreterFrame, f_globals, CM_OFFSET_GLOBALS);
SAME(_PyInterpreterFrame, f_locals, CM_OFFSET_NAMESPACE);
SAME(_PyInterpreterFrame, f_code, CM_OFFSET_EXECUTABLE);
SAME(_PyInterpreterFrame, prev_instr, CM_OFFSET_IP);
#else
SAME(PyThreadState, current_frame, CM_OFFSET_FRAME);
SAME(_PyInterpreterFrame, f_executable, CM_OFFSET_EXECUTABLE);
SAME(_PyInterpreterFrame, instr_ptr, CM_OFFSET_IP);
#endif
_Static_assert((int)FRAME_OWNED_BY_GENERATOR == (int)CM_OWNER_GENERATOR, "owner numbers changed");
#if PY_VERSION_HEX >= 0x030e0000
_Static_assert((int)FRAME_OWNED_BY_INTERPRETER == (int)CM_OWNER_NOT_PYTHON,
               "owner numbers changed");
#elif PY_VERSION_HEX >= 0x030c0000
_Static_assert((int)FRAME_OWNED_BY_CSTACK == (int)CM_OWNER_NOT_PYTHON, "owner numbers changed");
#endif

#if PY_VERSION_HEX >= 0x030d0000
/* Compares the offsets with those published for debuggers. That structure's layout is fixed within
 * a minor version only, so its cookie is checked first. A pre-release with another layout publishes
 * other numbers and is refused. */
static const char *check_published(void)
{
    const _Py_DebugOffsets *published = &_PyRuntime.debug_offsets;

    if (memcmp(published->cookie, _Py_Debug_Cookie, sizeof published->cookie) != 0 ||
        published->version >> 16 != PY_VERSION_HEX >> 16)
        return "this Python does not publish its frame layout as its headers promise";
    if (published->free_threaded)
        return "Python stacks are not supported on a free-threaded Python yet";
    if (published->thread_state.current_frame != CM_OFFSET_FRAME ||
        published->interpreter_frame.executable != CM_OFFSET_EXECUTABLE ||
        published->interpreter_frame.previous != CM_OFFSET_PREVIOUS ||
        published->interpreter_frame.instr_ptr != CM_OFFSET_IP ||
        published->interpreter_frame.owner != CM_OFFSET_OWNER ||
        published->interpreter_frame.localsplus != CM_OFFSET_LOCALS ||
        published->code_object.co_code_adaptive != CM_OFFSET_BYTECODE)
        return "this Python's frames are laid out differently from those of its version";
    return NULL;
}
#endif

const char *cm_offsets_check(void)
{
    if (PyCode_Type.tp_basicsize != CM_OFFSET_BYTECODE)
        return "this Python's code objects are laid out differently from those of its version";
#if PY_VERSION_HEX >= 0x030d0000
    return check_published();
#else
    return NULL;
#endif
}

#endif
