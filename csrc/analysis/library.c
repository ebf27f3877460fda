#include "library.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

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

/* A folder that packages, or Python's own modules, are installed into. */
static bool is_install_folder(const char *c)
{
    static const char *const folders[] = {"site-packages", "dist-packages"};

    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        size_t length = strlen(folders[i]);
        if (strncmp(c, folders[i], length) == 0 && is_slash(c[length]))
            return true;
    }
    if (strncmp(c, "lib", 3) != 0)
        return false;
    c += strncmp(c + 3, "64", 2) == 0 ? 5 : 3;
    return is_slash(*c) && is_python_folder(c + 1);
}

/* What torch.compile wrote, wherever its cache lies: ab/cab<the rest of a hash>.py. */
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

bool cm_is_library(const char *file)
{
    if (strncmp(file, "<frozen ", 8) == 0 || strncmp(file, "<eval_with_key>", 15) == 0)
        return true;
    for (const char *c = file; *c != '\0'; c++)
        if (is_slash(*c) && is_install_folder(c + 1))
            return true;
    return is_generated(file);
}
