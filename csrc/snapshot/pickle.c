#include "pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../base/grow.h"
#include "line.h"

enum { LINE_MAX_BYTES = 1 << 16 }; /* of an argument in text, as protocol 0 has them */

/* What one instruction has left. */
typedef enum outcome { DONE, MORE, FAILED, STOPPED } outcome;

typedef struct window {
    const uint8_t *at, *end;
} window;

static outcome fail(cm_pickle *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->error, sizeof p->error, format, arguments);
    va_end(arguments);
    return FAILED;
}

static outcome no_memory(cm_pickle *p)
{
    return fail(p, "needs more memory than there is, at byte %llu", (unsigned long long)p->offset);
}

static outcome misplaced(cm_pickle *p, const char *what)
{
    return fail(p, "is a damaged pickle: %s at byte %llu has nothing to work on", what,
                (unsigned long long)p->offset);
}

/* --- refused instructions ------------------------------------------------------------------- */

static const char *name_of(uint8_t code)
{
    switch (code) {
#define NAME(byte, name)                                                                           \
    case byte:                                                                                     \
        return name;
        NAME('c', "GLOBAL")
        NAME(0x93, "STACK_GLOBAL")
        NAME('R', "REDUCE")
        NAME('b', "BUILD")
        NAME('i', "INST")
        NAME('o', "OBJ")
        NAME(0x81, "NEWOBJ")
        NAME(0x92, "NEWOBJ_EX")
        NAME('P', "PERSID")
        NAME('Q', "BINPERSID")
        NAME(0x82, "EXT1")
        NAME(0x83, "EXT2")
        NAME(0x84, "EXT4")
        NAME('0', "POP")
        NAME('1', "POP_MARK")
        NAME('2', "DUP")
        NAME(0x8f, "EMPTY_SET")
        NAME(0x90, "ADDITEMS")
        NAME(0x91, "FROZENSET")
        NAME(0x96, "BYTEARRAY8")
        NAME(0x97, "NEXT_BUFFER")
        NAME(0x98, "READONLY_BUFFER")
#undef NAME
    default:
        return NULL;
    }
}

static outcome refuse(cm_pickle *p, uint8_t code)
{
    const char *name = name_of(code);
    if (name == NULL)
        return fail(p, "is no pickle: byte %llu (0x%02x) is no instruction",
                    (unsigned long long)p->offset, code);
    return fail(p, "is refused: its instruction %s at byte %llu is not plain data", name,
                (unsigned long long)p->offset);
}

/* --- the stack ------------------------------------------------------------------------------ */

static inline outcome push(cm_pickle *p, cm_value value)
{
    if (__builtin_expect(p->count == p->capacity, 0) &&
        !cm_grow((void **)&p->stack, &p->capacity, p->count + 1, sizeof *p->stack))
        return no_memory(p);
    p->stack[p->count++] = value;
    return DONE;
}

static inline outcome push_number(cm_pickle *p, uint64_t number)
{
    return push(p, (cm_value){.number = number, .kind = CM_VALUE_NUMBER});
}

static outcome push_kind(cm_pickle *p, cm_value_kind kind)
{
    return push(p, (cm_value){.kind = (uint8_t)kind});
}

static outcome push_mark(cm_pickle *p)
{
    outcome got = push(p, (cm_value){.number = p->mark, .kind = CM_VALUE_MARK});
    p->mark = p->count;
    return got;
}

/* Takes the newest mark, and gives the first value above it; SIZE_MAX: there is none. */
static inline size_t above_mark(cm_pickle *p)
{
    if (p->mark == 0)
        return SIZE_MAX;
    size_t first = p->mark;
    p->mark = (size_t)p->stack[first - 1].number;
    return first;
}

static inline void remember(cm_pickle *p, const cm_value *value)
{
    if (value->memo != 0)
        p->memo[value->memo - 1] = cm_keep(value);
}

static outcome close_dict(cm_pickle *p, cm_value *value)
{
    size_t first = value->number >> 32, count = (uint32_t)value->number;
    const cm_value *pairs = count > 0 ? p->pair + first : NULL;
    if (!cm_snap_add_dict(p->snapshot, pairs, count, value))
        return no_memory(p);
    if (count > 0)
        p->pairs = first;
    remember(p, value);
    return DONE;
}

/* A value that becomes a part of another one changes no more. */
static inline outcome close_value(cm_pickle *p, cm_value *value)
{
    if (__builtin_expect(value->kind < CM_VALUE_OPEN, 1))
        return DONE;
    if (value->kind == CM_VALUE_DICT)
        return close_dict(p, value);
    if (!cm_snap_close_list(p->snapshot, value))
        return no_memory(p);
    remember(p, value);
    return DONE;
}

static outcome close_values(cm_pickle *p, size_t first)
{
    unsigned kinds = 0;
    for (size_t i = first; i < p->count; i++)
        kinds |= p->stack[i].kind;
    if (__builtin_expect((kinds & CM_VALUE_OPEN) == 0, 1))
        return DONE;
    /* From the top: dicts and lists that are still open lie in their arrays in this order. */
    for (size_t i = p->count; i > first; i--)
        if (close_value(p, &p->stack[i - 1]) != DONE)
            return FAILED;
    return DONE;
}

/* --- lists and dicts ------------------------------------------------------------------------ */

static outcome append_from(cm_pickle *p, size_t first, size_t list)
{
    cm_value *to = &p->stack[list];
    size_t count = p->count - first;
    bool is = false;
    if (to->kind == CM_VALUE_LIST && count > 1 &&
        !cm_snap_stack(p->snapshot, to, p->stack + first, count, &is))
        return no_memory(p);
    if (!is && close_values(p, first) != DONE)
        return FAILED;
    if (!is && !cm_snap_extend(p->snapshot, to, p->stack + first, count))
        return no_memory(p);
    if (to->kind == CM_VALUE_STACK)
        remember(p, to);
    p->count = list + 1;
    return DONE;
}

static outcome append(cm_pickle *p)
{
    if (p->count < 2 || p->stack[p->count - 1].kind == CM_VALUE_MARK)
        return misplaced(p, "APPEND");
    return append_from(p, p->count - 1, p->count - 2);
}

static outcome appends(cm_pickle *p)
{
    size_t first = above_mark(p);
    if (first == SIZE_MAX || first < 2)
        return misplaced(p, "APPENDS");
    return append_from(p, first, first - 2);
}

/* A list or tuple of all above the mark. */
static outcome collect(cm_pickle *p, bool list)
{
    size_t first = above_mark(p);
    if (first == SIZE_MAX)
        return misplaced(p, list ? "LIST" : "TUPLE");
    if (!list) {
        if (close_values(p, first) != DONE)
            return FAILED;
        p->count = first;
        p->stack[first - 1] = (cm_value){.kind = CM_VALUE_OTHER};
        return DONE;
    }
    p->stack[first - 1] = (cm_value){.kind = CM_VALUE_LIST};
    return append_from(p, first, first - 1);
}

static outcome tuple_of(cm_pickle *p, size_t count)
{
    if (p->count < count || p->mark > p->count - count) /* a mark is no item */
        return misplaced(p, "TUPLE");
    if (close_values(p, p->count - count) != DONE)
        return FAILED;
    p->count -= count;
    return push_kind(p, CM_VALUE_OTHER);
}

/* Keeps pairs of a dict that gets more. */
static outcome keep_pairs(cm_pickle *p, cm_value *dict, const cm_value *pairs, size_t count)
{
    size_t first = dict->number >> 32, held = (uint32_t)dict->number;
    if (count == 0)
        return DONE;
    if (held == 0)
        first = p->pairs;
    if (first + held != p->pairs || p->pairs + count > UINT32_MAX)
        return fail(p, "is a damaged pickle: the dict at byte %llu is changed while it is used",
                    (unsigned long long)p->offset);
    if (!cm_grow((void **)&p->pair, &p->pair_capacity, p->pairs + count, sizeof *p->pair))
        return no_memory(p);
    memcpy(p->pair + p->pairs, pairs, count * sizeof *pairs);
    p->pairs += count;
    dict->number = (uint64_t)first << 32 | (held + count);
    return DONE;
}

static outcome set_from(cm_pickle *p, size_t first, size_t dict, bool whole)
{
    size_t count = p->count - first;
    if (count % 2 != 0)
        return misplaced(p, "SETITEMS");
    if (close_values(p, first) != DONE)
        return FAILED;
    cm_value *to = &p->stack[dict];
    outcome result = DONE;
    if (whole && to->kind == CM_VALUE_DICT && (uint32_t)to->number == 0) {
        if (!cm_snap_add_dict(p->snapshot, p->stack + first, count, to))
            return no_memory(p);
        remember(p, to);
    } else if (to->kind == CM_VALUE_DICT) {
        result = keep_pairs(p, to, p->stack + first, count);
    }
    p->count = dict + 1;
    return result;
}

static outcome set_item(cm_pickle *p)
{
    if (p->count < 3 || p->stack[p->count - 1].kind == CM_VALUE_MARK ||
        p->stack[p->count - 2].kind == CM_VALUE_MARK)
        return misplaced(p, "SETITEM");
    return set_from(p, p->count - 2, p->count - 3, false);
}

/* Few dicts get items in several portions: of a whole snapshot, which is at the bottom, and of more
 * than the thousand that one instruction sets. */
static outcome set_items(cm_pickle *p)
{
    enum { PORTION = 1000 };
    size_t first = above_mark(p);
    if (first == SIZE_MAX || first < 2)
        return misplaced(p, "SETITEMS");
    return set_from(p, first, first - 2, first > 2 && p->count - first < 2 * PORTION);
}

static outcome dict_of(cm_pickle *p)
{
    size_t first = above_mark(p);
    if (first == SIZE_MAX)
        return misplaced(p, "DICT");
    p->stack[first - 1] = (cm_value){.kind = CM_VALUE_DICT};
    return set_from(p, first, first - 1, p->count > first);
}

/* --- the memo ------------------------------------------------------------------------------- */

/* Numbers are those that were stored before, or the next ones. A pickle that leaves out more than
 * it has bytes was not written by a pickler. */
static outcome put(cm_pickle *p, uint64_t index)
{
    if (p->count == 0 || p->stack[p->count - 1].kind == CM_VALUE_MARK)
        return misplaced(p, "PUT");
    if (index > p->offset || index >= UINT32_MAX)
        return fail(p,
                    "is a damaged pickle: byte %llu stores number %llu, and there are not as many",
                    (unsigned long long)p->offset, (unsigned long long)index);
    if (index >= p->memo_count) {
        if (index >= p->memo_capacity &&
            !cm_grow((void **)&p->memo, &p->memo_capacity, (size_t)index + 1, sizeof *p->memo))
            return no_memory(p);
        memset(p->memo + p->memo_count, 0, (index - p->memo_count) * sizeof *p->memo);
        p->memo_count = (size_t)index + 1;
    }
    cm_value *value = &p->stack[p->count - 1];
    value->memo = (uint32_t)index + 1;
    p->memo[index] = cm_keep(value);
    return DONE;
}

static inline outcome get(cm_pickle *p, uint64_t index)
{
    if (__builtin_expect(index >= p->memo_count, 0))
        return fail(p, "is a damaged pickle: byte %llu refers to number %llu, which is not stored",
                    (unsigned long long)p->offset, (unsigned long long)index);
    return push(p, cm_kept_value(p->memo[index]));
}

/* --- arguments ------------------------------------------------------------------------------ */

static inline bool number(window *w, size_t bytes, uint64_t *value)
{
    if (__builtin_expect((size_t)(w->end - w->at) < bytes, 0))
        return false;
    uint64_t x = 0;
    memcpy(&x, w->at, bytes); /* little-endian, as the hosts of this project are */
    *value = x;
    w->at += bytes;
    return true;
}

/* The text up to the end of the line; MORE: it is not all there. */
static outcome line(cm_pickle *p, window *w, const uint8_t **text, size_t *length)
{
    size_t left = (size_t)(w->end - w->at);
    const uint8_t *end = left > 0 ? memchr(w->at, '\n', left) : NULL;
    if (end == NULL ? left >= LINE_MAX_BYTES : end - w->at > LINE_MAX_BYTES)
        return fail(p, "is refused: the line at byte %llu is longer than 64 KiB",
                    (unsigned long long)p->offset);
    if (end == NULL)
        return MORE;
    *text = w->at;
    *length = (size_t)(end - w->at);
    w->at = end + 1;
    return DONE;
}

/* A whole number in a line, with an L behind it where it was a long one. */
static bool parse_number(const uint8_t *text, size_t length, uint64_t *value)
{
    bool negative = length > 0 && text[0] == '-';
    uint64_t x = 0;
    size_t i = negative;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++)
        x = x * 10 + (uint64_t)(text[i] - '0');
    *value = negative ? 0 - x : x;
    return i > negative && (i == length || (text[i] == 'L' && i + 1 == length));
}

static outcome line_number(cm_pickle *p, window *w, uint64_t *value)
{
    const uint8_t *text;
    size_t length;
    outcome got = line(p, w, &text, &length);
    if (got == DONE && !parse_number(text, length, value))
        return fail(p, "is a damaged pickle: the number at byte %llu is none",
                    (unsigned long long)p->offset);
    return got;
}

static outcome push_text(cm_pickle *p, const uint8_t *bytes, size_t length)
{
    uint32_t id;
    if (!cm_snap_add_text(p->snapshot, bytes, length, &id))
        return no_memory(p);
    return push(p, (cm_value){.number = id, .kind = CM_VALUE_TEXT});
}

/* A text with its length before it. What is longer than a text can be is passed over. */
static inline outcome text(cm_pickle *p, window *w, size_t bytes)
{
    uint64_t length;
    if (!number(w, bytes, &length))
        return MORE;
    size_t kept = length < CM_SNAP_TEXT_MAX ? (size_t)length : CM_SNAP_TEXT_MAX;
    if ((size_t)(w->end - w->at) < kept)
        return MORE;
    const uint8_t *from = w->at;
    w->at += kept;
    p->skip = length - kept;
    return push_text(p, from, kept);
}

static outcome text_line(cm_pickle *p, window *w, bool quoted)
{
    const uint8_t *from;
    size_t length;
    uint8_t *plain;
    outcome got = line(p, w, &from, &length);
    if (got != DONE)
        return got;
    plain = malloc(2 * length + 1);
    if (plain == NULL)
        return no_memory(p);
    length = quoted ? cm_line_quoted(from, length, plain) : cm_line_unicode(from, length, plain);
    got = push_text(p, plain, length < CM_SNAP_TEXT_MAX ? length : CM_SNAP_TEXT_MAX);
    free(plain);
    return got;
}

/* Passes over what is not kept. */
static outcome unkept(cm_pickle *p, window *w, size_t bytes)
{
    uint64_t length;
    if (!number(w, bytes, &length))
        return MORE;
    p->skip = length;
    return push_kind(p, CM_VALUE_OTHER);
}

static outcome unkept_line(cm_pickle *p, window *w)
{
    const uint8_t *text;
    size_t length;
    outcome got = line(p, w, &text, &length);
    return got == DONE ? push_kind(p, CM_VALUE_OTHER) : got;
}

/* A number of 1 to 8 bytes, or 9 of which the last is the sign of an unsigned one. */
static inline outcome long_number(cm_pickle *p, window *w, size_t bytes)
{
    uint64_t length, value = 0;
    if (!number(w, bytes, &length))
        return MORE;
    if (length > 9) {
        p->skip = length;
        return push_kind(p, CM_VALUE_OTHER);
    }
    if ((size_t)(w->end - w->at) < length)
        return MORE;
    size_t kept = length < 8 ? (size_t)length : 8;
    memcpy(&value, w->at, kept);
    if (kept > 0 && kept < 8 && w->at[kept - 1] & 0x80)
        value |= ~UINT64_C(0) << 8 * kept;
    w->at += length;
    return push_number(p, value);
}

static outcome protocol(cm_pickle *p, window *w)
{
    uint64_t version;
    if (!number(w, 1, &version))
        return MORE;
    if (version > 5)
        return fail(p, "is a pickle of protocol %u, and protocols are known up to 5",
                    (unsigned)version);
    return DONE;
}

static outcome stop(cm_pickle *p)
{
    if (p->count != 1)
        return misplaced(p, "STOP");
    if (close_value(p, &p->stack[0]) != DONE)
        return FAILED;
    if (cm_snap_finish(p->snapshot, &p->stack[0]))
        return STOPPED;
    return fail(p, "is a pickle, but no memory snapshot of PyTorch's: it has no segments");
}

/* --- instructions --------------------------------------------------------------------------- */

static inline outcome step_numbered(cm_pickle *p, window *w, size_t bytes,
                                    outcome (*then)(cm_pickle *, uint64_t))
{
    uint64_t value;
    return number(w, bytes, &value) ? then(p, value) : MORE;
}

static outcome step_line(cm_pickle *p, window *w, outcome (*then)(cm_pickle *, uint64_t))
{
    uint64_t value = 0;
    outcome got = line_number(p, w, &value);
    return got == DONE ? then(p, value) : got;
}

static outcome step_int(cm_pickle *p, window *w)
{
    uint64_t value;
    return number(w, 4, &value) ? push_number(p, (uint64_t)(int64_t)(int32_t)value) : MORE;
}

static outcome step(cm_pickle *p, window *w)
{
    uint64_t value;
    uint8_t code = *w->at++;
    switch (code) {
    case 'h': /* BINGET */
        return number(w, 1, &value) ? get(p, value) : MORE;
    case 'j': /* LONG_BINGET */
        return number(w, 4, &value) ? get(p, value) : MORE;
    case 'K': /* BININT1 */
        return number(w, 1, &value) ? push_number(p, value) : MORE;
    case 'M': /* BININT2 */
        return number(w, 2, &value) ? push_number(p, value) : MORE;
    case 'J': /* BININT */
        return step_int(p, w);
    case 0x8a: /* LONG1 */
        return long_number(p, w, 1);
    case 0x8b: /* LONG4 */
        return long_number(p, w, 4);
    case 0x94: /* MEMOIZE */
        return put(p, p->memo_count);
    case 'q': /* BINPUT */
        return step_numbered(p, w, 1, put);
    case 'r': /* LONG_BINPUT */
        return step_numbered(p, w, 4, put);
    case '(': /* MARK */
        return push_mark(p);
    case '}': /* EMPTY_DICT */
        return push_kind(p, CM_VALUE_DICT);
    case ']': /* EMPTY_LIST */
        return push_kind(p, CM_VALUE_LIST);
    case 'u': /* SETITEMS */
        return set_items(p);
    case 's': /* SETITEM */
        return set_item(p);
    case 'e': /* APPENDS */
        return appends(p);
    case 'a': /* APPEND */
        return append(p);
    case 0x8c: /* SHORT_BINUNICODE */
    case 'U':  /* SHORT_BINSTRING */
        return text(p, w, 1);
    case 'X': /* BINUNICODE */
    case 'T': /* BINSTRING */
        return text(p, w, 4);
    case 0x8d: /* BINUNICODE8 */
        return text(p, w, 8);
    case 0x86: /* TUPLE2 */
        return tuple_of(p, 2);
    case 0x85: /* TUPLE1 */
        return tuple_of(p, 1);
    case 0x87: /* TUPLE3 */
        return tuple_of(p, 3);
    case ')': /* EMPTY_TUPLE */
        return tuple_of(p, 0);
    case 't': /* TUPLE */
        return collect(p, false);
    case 'l': /* LIST */
        return collect(p, true);
    case 'd': /* DICT */
        return dict_of(p);
    case 'N': /* NONE */
        return push_number(p, 0);
    case 0x88: /* NEWTRUE */
        return push_number(p, 1);
    case 0x89: /* NEWFALSE */
        return push_number(p, 0);
    case 'G': /* BINFLOAT */
        return number(w, 8, &value) ? push_kind(p, CM_VALUE_OTHER) : MORE;
    case 'C': /* SHORT_BINBYTES */
        return unkept(p, w, 1);
    case 'B': /* BINBYTES */
        return unkept(p, w, 4);
    case 0x8e: /* BINBYTES8 */
        return unkept(p, w, 8);
    case 0x95: /* FRAME */
        return number(w, 8, &value) ? DONE : MORE;
    case 0x80: /* PROTO */
        return protocol(p, w);
    case 'I': /* INT, also I00 and I01: booleans */
    case 'L': /* LONG */
        return step_line(p, w, push_number);
    case 'F': /* FLOAT */
        return unkept_line(p, w);
    case 'V': /* UNICODE */
        return text_line(p, w, false);
    case 'S': /* STRING */
        return text_line(p, w, true);
    case 'g': /* GET */
        return step_line(p, w, get);
    case 'p': /* PUT */
        return step_line(p, w, put);
    case '.': /* STOP */
        return stop(p);
    default:
        return refuse(p, code);
    }
}

/* Instructions that put one short thing on the stack, which most are, up to the first other one. */
static const uint8_t *step_simple(cm_pickle *p, const uint8_t *at, const uint8_t *end)
{
    enum { LONGEST = 10 };
    if (end - at < LONGEST || p->stack == NULL)
        return at;
    cm_value *top = p->stack + p->count;
    const uint8_t *from = at, *safe = end - LONGEST;
    size_t room = p->capacity - p->count, memo_count = p->memo_count;
    uint64_t value;
    uint32_t index;
    if (room < (size_t)(safe - at)) /* each puts at most one value for each byte */
        safe = at + room;
    while (at < safe) {
        switch (*at) {
        case 'h': /* BINGET */
            if (at[1] >= memo_count)
                goto other;
            *top++ = cm_kept_value(p->memo[at[1]]);
            at += 2;
            continue;
        case 'j': /* LONG_BINGET: many in a row are the frames of a stack */
            do {
                memcpy(&index, at + 1, sizeof index);
                if (index >= memo_count)
                    goto other;
                *top++ = cm_kept_value(p->memo[index]);
                at += 5;
            } while (*at == 'j' && at < safe);
            continue;
        case 'K': /* BININT1 */
            *top++ = (cm_value){.number = at[1], .kind = CM_VALUE_NUMBER};
            at += 2;
            continue;
        case 0x8a: /* LONG1 */
            if (at[1] == 0 || at[1] > 8)
                goto other;
            memcpy(&value, at + 2, sizeof value);
            value <<= 64 - 8 * at[1];
            *top++ = (cm_value){.number = (uint64_t)((int64_t)value >> (64 - 8 * at[1])),
                                .kind = CM_VALUE_NUMBER};
            at += 2 + at[1];
            continue;
        case 0x94: /* MEMOIZE */
            if (top == p->stack || top[-1].kind == CM_VALUE_MARK || memo_count >= p->memo_capacity)
                goto other;
            p->memo[memo_count++] = cm_keep(&top[-1]);
            top[-1].memo = (uint32_t)memo_count;
            at++;
            continue;
        case '(': /* MARK */
            *top++ = (cm_value){.number = p->mark, .kind = CM_VALUE_MARK};
            p->mark = (size_t)(top - p->stack);
            at++;
            continue;
        case '}': /* EMPTY_DICT */
            *top++ = (cm_value){.kind = CM_VALUE_DICT};
            at++;
            continue;
        case ']': /* EMPTY_LIST */
            *top++ = (cm_value){.kind = CM_VALUE_LIST};
            at++;
            continue;
        default:
            goto other;
        }
    }
other:
    p->count = (size_t)(top - p->stack);
    p->memo_count = memo_count;
    p->offset += (uint64_t)(at - from);
    return at;
}

size_t cm_pickle_feed(cm_pickle *p, const uint8_t *bytes, size_t length)
{
    window w = {bytes, bytes + length};
    if (p->error[0] != '\0' || p->over)
        return length;
    for (;;) {
        if (__builtin_expect(p->skip > 0, 0)) {
            size_t left = (size_t)(w.end - w.at);
            size_t passed = p->skip < left ? (size_t)p->skip : left;
            w.at += passed;
            p->skip -= passed;
            p->offset += passed;
        }
        w.at = step_simple(p, w.at, w.end);
        if (w.at == w.end)
            return length;
        const uint8_t *from = w.at;
        outcome got = step(p, &w);
        if (got == MORE)
            return (size_t)(from - bytes);
        p->offset += (uint64_t)(w.at - from);
        if (got == DONE)
            continue;
        p->over = got == STOPPED;
        return length;
    }
}

bool cm_pickle_end(cm_pickle *p)
{
    if (!p->over && p->error[0] == '\0')
        fail(p, "is cut off: it ends at byte %llu, before its data does",
             (unsigned long long)p->offset);
    return p->over;
}

void cm_pickle_clear(cm_pickle *p)
{
    free(p->stack);
    free(p->memo);
    free(p->pair);
    p->stack = p->pair = NULL;
    p->memo = NULL;
}
