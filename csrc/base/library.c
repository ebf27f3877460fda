#include "library.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TEMP_LETTERS = 8 /* random ones in a name of Python's tempfile */ };

struct cm_library {
    char *own; /* the names, each followed by a 0 */
    const char *end;
    char *script; /* absolute, or "" */
};

static bool is_slash(char c)
{
    return c == '/' || c == '\\';
}

/* "python3.<digits>" with an optional t, and then a slash. */
static bool is_python_folder(const char *c)
{
    if (strncmp(c, "python3.", 8) != 0 || !isdigit((unsigned char)c[8]))
        return false;
    for (c += 8; isdigit((unsigned char)*c);)
        c++;
    return is_slash(*c) || (*c == 't' && is_slash(c[1]));
}

/* The length of a folder for installed packages or Python's own modules; 0: not one. */
static size_t install_folder(const char *c)
{
    static const char *const folders[] = {"site-packages", "dist-packages"};

    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(c, folders[i], length) == 0 && is_slash(c[length]))
            return length;
    }
    if (strncmp(c, "lib", 3) != 0)
        return 0;
    const char *version = c + (strncmp(c + 3, "64", 2) == 0 ? 5 : 3);
    if (!is_slash(*version) || !is_python_folder(version + 1))
        return 0;
    return (size_t)(version - c) + 1 + strcspn(version + 1, "/\\");
}

bool cm_library_is_generated(const char *file)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
    enum { HASH = 40 /* at least, after the folder's two letters */ };
    const char *name = file + strlen(file);

    while (name > file && !is_slash(name[-1]))
        name--;
    if (name - file < 4 || !is_slash(name[-4]) || name[0] != 'c' ||
        strncmp(name + 1, name - 3, 2) != 0)
        return false;
    size_t length = strspn(name, alphabet);
    return length >= HASH + 3 && strcmp(name + length, ".py") == 0;
}

/* Prefixes of names that libraries give to code that they compile from text. */
static bool is_compiled_text(const char *file)
{
    static const char *const prefixes[] = {
        "<frozen ",      "<eval_with_key>",     "<attrs generated ", "<decorator-gen-",
        "<makefun-gen-", "<@beartype(",         "<magic-timeit>",    "<lambdifygenerated-",
        "<timeit-src>",  "<__array_function__",
    };
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (strncmp(file, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* Whether these are the characters of a name that Python's tempfile makes. */
static bool is_random(const char *c)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    return strspn(c, alphabet) >= TEMP_LETTERS;
}

static bool is_temp_folder(const char *part, size_t length)
{
    return (length == 3 && strncasecmp(part, "tmp", 3) == 0) ||
           (length == 4 && strncasecmp(part, "temp", 4) == 0);
}

/* Of a path with a part that Python's tempfile named: its length up to that part's end; else 0.
 * Such a part is tmp and eight characters below a folder for temporary files, or a file with the
 * name of a module and eight characters: package.module_a1b2c3d4.py. */
static size_t temporary_part(const char *file)
{
    bool below_temp = false;
    const char *part = file;

    for (;;) {
        size_t length = strcspn(part, "/\\");
        const char *end = part + length;
        bool last = *end == '\0';
        size_t stem = last && length > 3 && strncmp(end - 3, ".py", 3) == 0 ? length - 3 : length;
        if (below_temp && stem == 3 + TEMP_LETTERS && strncmp(part, "tmp", 3) == 0 &&
            is_random(part + 3))
            return (size_t)(end - file);
        if (last)
            return stem < length && stem > 1 + TEMP_LETTERS &&
                           part[stem - TEMP_LETTERS - 1] == '_' &&
                           is_random(part + stem - TEMP_LETTERS) &&
                           memchr(part, '.', stem - TEMP_LETTERS - 1) != NULL
                       ? (size_t)(end - file)
                       : 0;
        below_temp = below_temp || is_temp_folder(part, length);
        part = end + 1;
    }
}

/* The program itself may lie in such a folder, as copies of it do. */
static bool is_temporary(const cm_library *library, const char *file)
{
    size_t length = temporary_part(file);
    return length > 0 && strncmp(file, library->script, length) != 0;
}

/* Whether a file, by its path inside the installation folder, belongs to a package: a.b is the
 * folder a/b and the file a/b with any ending. */
static bool is_of(const char *inside, const char *package)
{
    for (; *package != '\0'; package++, inside++)
        if (*package == '.' ? !is_slash(*inside) : *package != *inside)
            return false;
    return is_slash(*inside) || (*inside == '.' && strpbrk(inside, "/\\") == NULL);
}

const char *cm_library_names(const char *meta)
{
    enum { MOST = 1024 };
    if (meta == NULL || strlen(meta) > MOST)
        return "";
    for (const char *c = meta; *c != '\0'; c++)
        if ((unsigned char)*c < 0x80 && !isalnum((unsigned char)*c) && strchr("_.,", *c) == NULL)
            return "";
    return meta;
}

static bool is_own(const cm_library *library, const char *inside)
{
    for (const char *name = library->own; name < library->end; name += strlen(name) + 1)
        if (*name != '\0' && is_of(inside, name))
            return true;
    return false;
}

/* The script by its path from the root; "" where that is not known. */
static char *absolute(const char *script, const char *directory)
{
    if (script == NULL || *script == '\0' || (*script != '/' && directory == NULL))
        return strdup("");
    if (*script == '/')
        return strdup(script);
    char *path = malloc(strlen(directory) + strlen(script) + 2);
    if (path != NULL)
        sprintf(path, "%s/%s", directory, script);
    return path;
}

cm_library *cm_library_new(const char *own, const char *script, const char *directory)
{
    cm_library *library = malloc(sizeof *library);
    char *names = strdup(own != NULL ? own : "");
    char *path = absolute(script, directory);
    if (library == NULL || names == NULL || path == NULL) {
        free(library);
        free(names);
        free(path);
        return NULL;
    }
    *library = (cm_library){names, names + strlen(names), path};
    for (char *c = names; c < library->end; c++)
        if (*c == ',')
            *c = '\0';
    return library;
}

void cm_library_free(cm_library *library)
{
    if (library == NULL)
        return;
    free(library->own);
    free(library->script);
    free(library);
}

const char *cm_library_inside(const char *file)
{
    const char *inside = NULL;
    for (const char *c = file; *c != '\0'; c++) {
        size_t folder = is_slash(*c) ? install_folder(c + 1) : 0;
        if (folder > 0)
            inside = c + 1 + folder + 1;
    }
    return inside;
}

bool cm_library_has(const cm_library *library, const char *file)
{
    if (is_compiled_text(file))
        return true;
    const char *inside = cm_library_inside(file);
    if (inside != NULL)
        return !is_own(library, inside) || cm_library_is_generated(file);
    return cm_library_is_generated(file) || is_temporary(library, file);
}
