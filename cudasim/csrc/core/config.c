/* Which devices there are, according to the environment.
 *
 *   CUPTIMEM_SIM_DEVICE          h100 (default), another key of cards.py, or a full name;
 * upper case, spaces and hyphens do not matter. A comma-separated list makes several devices
 *   CUPTIMEM_SIM_DEVICES         how many devices; with a list of them: its length, or unset
 *   CUPTIMEM_SIM_MEMORY          size of each device's memory instead of its profile's
 *   CUPTIMEM_SIM_CONTEXT         size that a context takes instead of the stated allowance
 *   CUPTIMEM_SIM_COPY_MAX        host copies up to this size keep their contents (default 1MiB)
 *   CUPTIMEM_SIM_CONV_WORKSPACE  workspace of each convolution (unset: cudnn_backend.c's allowance)
 *   CUPTIMEM_SIM_HANDLE_BYTES    what each library handle takes (unset: library.c's constants)
 *   CUPTIMEM_SIM_NCCL            what each communicator takes of each device (unset: nccl.c's
 *                                allowance)
 *   CUPTIMEM_SIM_EVENT_LAG       events complete after this many later launches (default 0)
 *   CUPTIMEM_SIM_TIMING          1: count the time spent in entry points
 *   CUPTIMEM_SIM_TRACE           1: every memory call as a line on standard error
 *   CUPTIMEM_SIM_REPORT, _LOG    files: report.h
 *   CUDA_VISIBLE_DEVICES         as CUDA reads it: numbers, up to the first one that is none
 *
 * Sizes: bytes, or with KiB MiB GiB TiB (also K M G T: the same) or KB MB GB TB (powers of ten).
 *
 * A value that cannot be understood leaves no devices, and one line on standard error names the
 * variable: it must not run as something else, and the simulator never ends the program. */
#define _GNU_SOURCE /* secure_getenv */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "sim.h"

static cm_sim_config config;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void complain(const char *variable, const char *value, const char *expected)
{
    char line[512];
    int length = snprintf(line, sizeof line,
                          "cuptimem: %s=%.100s: expected %s; there is no simulated device now\n",
                          variable, value, expected);

    if (length > (int)sizeof line - 1)
        length = sizeof line - 1;
    if (write(STDERR_FILENO, line, (size_t)length) < 0)
        return; /* no standard error: the missing device shows it, too */
}

/* NULL: unset or empty. */
static const char *setting(const char *variable)
{
    const char *value = secure_getenv(variable);

    return value != NULL && *value != '\0' ? value : NULL;
}

static bool read_number(const char *text, uint64_t *number, const char **rest)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false; /* strtoull takes signs and blanks */
    errno = 0;
    *number = strtoull(text, &end, 10);
    *rest = end;
    return errno == 0;
}

static bool unit_of(const char *name, uint64_t *unit)
{
    static const char letters[] = "KMGT";
    uint64_t binary = 1, decimal = 1;

    *unit = 1;
    if (*name == '\0' || strcasecmp(name, "B") == 0)
        return true;
    for (int i = 0; letters[i] != '\0'; i++) {
        binary *= 1024;
        decimal *= 1000;
        if (toupper((unsigned char)*name) != letters[i])
            continue;
        *unit = strcasecmp(name + 1, "B") == 0 ? decimal : binary;
        return name[1] == '\0' || strcasecmp(name + 1, "B") == 0 || strcasecmp(name + 1, "iB") == 0;
    }
    return false;
}

static bool parse_size(const char *text, uint64_t *bytes)
{
    uint64_t whole, unit;
    double fraction = 0;
    const char *rest;

    if (!read_number(text, &whole, &rest))
        return false;
    if (*rest == '.') { /* "1.5GiB"; by hand, as strtod would ask the locale */
        double place = 0.1;
        for (rest++; isdigit((unsigned char)*rest); rest++, place /= 10)
            fraction += (*rest - '0') * place;
    }
    while (*rest == ' ')
        rest++;
    if (!unit_of(rest, &unit) || whole > (INT64_MAX / unit) - 1)
        return false;
    *bytes = whole * unit + (uint64_t)(fraction * (double)unit);
    return true;
}

static bool read_size(const char *variable, uint64_t *bytes)
{
    const char *text = setting(variable);

    if (text == NULL || parse_size(text, bytes))
        return true;
    complain(variable, text, "a size like 24GiB or a number of bytes");
    return false;
}

static bool read_flag(const char *variable, bool *flag)
{
    const char *text = setting(variable);

    if (text == NULL)
        return true;
    if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        complain(variable, text, "0 or 1");
        return false;
    }
    *flag = *text == '1';
    return true;
}

static bool read_count(const char *variable, uint64_t least, uint64_t most, uint64_t *count)
{
    const char *text = setting(variable), *rest;
    char expected[64];

    if (text == NULL)
        return true;
    if (read_number(text, count, &rest) && *rest == '\0' && *count >= least && *count <= most)
        return true;
    snprintf(expected, sizeof expected, "a number from %llu to %llu", (unsigned long long)least,
             (unsigned long long)most);
    complain(variable, text, expected);
    return false;
}

/* Compares what people write with a name: letters and digits only, in any case. */
static bool same_name(const char *asked, size_t length, const char *name)
{
    const char *end = asked + length;

    for (;;) {
        while (asked < end && !isalnum((unsigned char)*asked))
            asked++;
        while (*name != '\0' && !isalnum((unsigned char)*name))
            name++;
        if (asked == end || *name == '\0')
            return asked == end && *name == '\0';
        if (tolower((unsigned char)*asked++) != tolower((unsigned char)*name++))
            return false;
    }
}

static const cm_sim_profile *profile_of(const char *asked, size_t length)
{
    for (const cm_sim_profile *p = cm_sim_profiles; p->name != NULL; p++)
        if (same_name(asked, length, p->key) || same_name(asked, length, p->name))
            return p;
    return NULL;
}

static bool read_devices(void)
{
    const char *list = setting("CUPTIMEM_SIM_DEVICE");
    uint64_t count = 0, memory = 0, context = UINT64_MAX;
    char expected[256] = "one of";
    int listed = 0;

    if (list == NULL)
        list = "h100";
    for (const cm_sim_profile *p = cm_sim_profiles; p->name != NULL; p++)
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), " %s", p->key);
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        const cm_sim_profile *profile = profile_of(at, length);
        if (profile == NULL || listed == CM_SIM_DEVICES) {
            complain("CUPTIMEM_SIM_DEVICE", list, profile == NULL ? expected : "at most 16");
            return false;
        }
        config.all[listed++] = *profile;
        at += length;
        if (*at == '\0')
            break;
    }

    if (!read_count("CUPTIMEM_SIM_DEVICES", 1, CM_SIM_DEVICES, &count) ||
        !read_size("CUPTIMEM_SIM_MEMORY", &memory) || !read_size("CUPTIMEM_SIM_CONTEXT", &context))
        return false;
    if (setting("CUPTIMEM_SIM_MEMORY") != NULL && memory == 0) {
        complain("CUPTIMEM_SIM_MEMORY", setting("CUPTIMEM_SIM_MEMORY"), "more than nothing");
        return false;
    }
    if (listed > 1 && count != 0 && count != (uint64_t)listed) {
        complain("CUPTIMEM_SIM_DEVICES", setting("CUPTIMEM_SIM_DEVICES"),
                 "as many as CUPTIMEM_SIM_DEVICE lists");
        return false;
    }
    for (; listed < (int)count; listed++)
        config.all[listed] = config.all[0];
    for (int i = 0; i < listed; i++) {
        if (memory != 0)
            config.all[i].memory = memory;
        if (context != UINT64_MAX)
            config.all[i].context = context;
    }
    config.installed = listed;
    return true;
}

static void show(int ordinal)
{
    config.ordinal[config.devices] = ordinal;
    config.device[config.devices++] = config.all[ordinal];
}

/* The first entry that names no device ends the list, and one named twice ends it at nothing: so
 * does CUDA. */
static bool read_visible(void)
{
    const char *list = secure_getenv("CUDA_VISIBLE_DEVICES"), *at = list;
    uint64_t ordinal;

    if (list == NULL) {
        for (int i = 0; i < config.installed; i++)
            show(i);
        return true;
    }
    if (strncmp(list, "GPU-", 4) == 0 || strncmp(list, "MIG-", 4) == 0) {
        complain("CUDA_VISIBLE_DEVICES", list, "numbers: a simulated device has no lasting UUID");
        return false;
    }
    while (read_number(at + strspn(at, " "), &ordinal, &at)) {
        if (ordinal >= (uint64_t)config.installed)
            break;
        for (int i = 0; i < config.devices; i++)
            if (config.ordinal[i] == (int)ordinal) {
                config.devices = 0;
                return true;
            }
        show((int)ordinal);
        at += strspn(at, " ");
        if (*at++ != ',')
            break;
    }
    return true;
}

static bool read_all(void)
{
    uint64_t copy_max = (uint64_t)1 << 20, lag = 0;
    uint64_t workspace = (uint64_t)-1, handle = (uint64_t)-1, nccl = (uint64_t)-1;

    bool fine = read_devices() && read_visible() && read_size("CUPTIMEM_SIM_COPY_MAX", &copy_max) &&
                read_size("CUPTIMEM_SIM_CONV_WORKSPACE", &workspace) &&
                read_size("CUPTIMEM_SIM_HANDLE_BYTES", &handle) &&
                read_size("CUPTIMEM_SIM_NCCL", &nccl) &&
                read_count("CUPTIMEM_SIM_EVENT_LAG", 0, UINT32_MAX, &lag) &&
                read_flag("CUPTIMEM_SIM_TIMING", &config.timing) &&
                read_flag("CUPTIMEM_SIM_TRACE", &config.trace);
    config.copy_max = copy_max;
    config.conv_workspace = (int64_t)workspace;
    config.handle_bytes = (int64_t)handle;
    config.nccl_bytes = (int64_t)nccl;
    config.event_lag = (uint32_t)lag;
    config.driver_version = 13000;
    return fine;
}

static void read_once(void)
{
    if (!read_all())
        config.devices = config.installed = 0;
}

const cm_sim_config *cm_sim_config_get(void)
{
    pthread_once(&once, read_once);
    return &config;
}
