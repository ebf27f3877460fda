/* Preloaded: writes the name of every variable that cuptimem's extension asks for to a file that is
 * named at compile time (SPY_LOG). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static void note(const char *name, const void *caller)
{
    Dl_info info;
    char line[256];

    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL ||
        strstr(info.dli_fname, "/_core.") == NULL)
        return;
    int file = open(SPY_LOG, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int length = snprintf(line, sizeof line, "%s\n", name);
    if (file < 0 || write(file, line, (size_t)length) != length)
        _exit(99);
    close(file);
}

static char *value_of(const char *name)
{
    size_t length = strlen(name);

    for (char **entry = environ; entry != NULL && *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

char *getenv(const char *name)
{
    note(name, __builtin_return_address(0));
    return value_of(name);
}

char *secure_getenv(const char *name)
{
    note(name, __builtin_return_address(0));
    return value_of(name);
}
