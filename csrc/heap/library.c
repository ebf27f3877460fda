#include "library.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct cm_library {
    char *own; /* the names, each followed by a 0 */
    const char *end;
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

/* Code written by torch.compile, in any cache folder: ab/cab<the rest of a hash>.py. */
static bool is_generated(const char *file)
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

cm_library *cm_library_new(const char *own)
{
    cm_library *library = malloc(sizeof *library);
    char *names = strdup(own != NULL ? own : "");
    if (library == NULL || names == NULL) {
        free(library);
        free(names);
        return NULL;
    }
    *library = (cm_library){names, names + strlen(names)};
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
    free(library);
}

bool cm_library_has(const cm_library *library, const char *file)
{
    if (strncmp(file, "<frozen ", 8) == 0 || strncmp(file, "<eval_with_key>", 15) == 0)
        return true;
    const char *inside =
        NULL; /* the innermost such folder counts: packages are inside Python's own */
    for (const char *c = file; *c != '\0'; c++) {
        size_t folder = is_slash(*c) ? install_folder(c + 1) : 0;
        if (folder > 0)
            inside = c + 1 + folder + 1;
    }
    if (inside != NULL)
        return !is_own(library, inside) || is_generated(file);
    return is_generated(file);
}
