#define _GNU_SOURCE
#include "process_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../base/clock.h"

enum {
    MACHINE = 8192, /* processes that are looked at for their parent */
    PIECE = 32 << 10,
    LINE = 1024,
    INODES = 256,        /* of a worker, so that none counts twice */
    LOADS_KIB = 8 << 10, /* a process that has grown by so much since the last reading loads ... */
    LOADED = 64 << 20,   /* ... what it has open, of so many bytes */
    PROC_PATH = 64
};

typedef struct reading {
    const atomic_bool *stop;
    cm_process_tree *into;
    cm_tree_depth depth;
    uint64_t rest;                         /* of files that have no room */
    int32_t pid[MACHINE], parent[MACHINE]; /* of the machine, ascending */
    uint32_t count;
    int32_t pid_before[MACHINE], parent_before[MACHINE]; /* of the reading before */
    uint32_t count_before, at_before;
    int32_t member[CM_TREE_PROCESSES]; /* of the tree, at the reading before ... */
    uint64_t anonymous[CM_TREE_PROCESSES];
    uint32_t members;
    cm_process *process; /* whose descriptors are looked at */
    bool loads;
    uint64_t inode[INODES];
    uint32_t inodes;
    char piece[PIECE];
} reading;

static bool is_stopped(const reading *r)
{
    return r->stop != NULL && atomic_load_explicit(r->stop, memory_order_relaxed);
}

/* --- files of /proc ----------------------------------------------------------------------------
 */

static int open_of(int32_t pid, const char *what)
{
    char path[PROC_PATH];

    snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
    return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

/* The first bytes of a file, and a zero. Returns how many; 0: none, or it cannot be read. */
static size_t read_front(int32_t pid, const char *what, char *text, size_t room)
{
    int fd = open_of(pid, what);
    size_t length = 0;
    ssize_t got = 0;

    while (fd >= 0 && length < room - 1 && (got = read(fd, text + length, room - 1 - length)) > 0)
        length += (size_t)got;
    if (fd >= 0)
        close(fd);
    text[length] = '\0';
    return length;
}

/* Calls back with each line of a file, without its end; a longer one is cut. false: it cannot be
 * read to its end. */
static bool read_lines(reading *r, int32_t pid, const char *what,
                       void (*see)(void *context, char *line), void *context)
{
    int fd = open_of(pid, what);
    char line[LINE];
    size_t length = 0;
    ssize_t got = -1;

    if (fd < 0)
        return false;
    while (!is_stopped(r) && (got = read(fd, r->piece, sizeof r->piece)) > 0) {
        for (ssize_t i = 0; i < got; i++) {
            if (r->piece[i] != '\n') {
                if (length < sizeof line - 1)
                    line[length++] = r->piece[i];
                continue;
            }
            line[length] = '\0';
            see(context, line);
            length = 0;
        }
    }
    close(fd);
    return got == 0;
}

/* --- who is there -------------------------------------------------------------------------------
 */

typedef struct status {
    char name[CM_TREE_NAME], state;
    int32_t parent;
    uint64_t started, stack;
} status;

static bool read_status(int32_t pid, status *of)
{
    char text[LINE];
    unsigned long long started = 0, stack = 0;
    int parent = 0;

    if (read_front(pid, "stat", text, sizeof text) == 0)
        return false;
    char *begin = strchr(text, '('), *end = strrchr(text, ')'); /* a name may have both */
    if (begin == NULL || end == NULL || end < begin)
        return false;
    *end = '\0';
    snprintf(of->name, sizeof of->name, "%s", begin + 1);
    /* Fields 3, 4, 22 and 28 of proc(5). */
    if (sscanf(end + 1,
               " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu "
               "%*u %*d %*u %*u %*u %llu",
               &of->state, &parent, &started, &stack) < 3)
        return false;
    of->parent = parent;
    of->started = started;
    of->stack = stack;
    return true;
}

/* Parents seldom change, so those of a reading before are taken again, unless pages are looked at,
 * which is seldom: a pid that was used again meanwhile is known then. */
static bool parent_before(reading *r, int32_t pid, int32_t *parent)
{
    while (r->at_before < r->count_before && r->pid_before[r->at_before] < pid)
        r->at_before++;
    if (r->at_before == r->count_before || r->pid_before[r->at_before] != pid)
        return false;
    *parent = r->parent_before[r->at_before];
    return true;
}

static void add_process(reading *r, const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);
    int32_t pid = (int32_t)number, parent;
    status of;

    if (*end != '\0' || number <= 0 || number > INT32_MAX)
        return;
    if (r->count == MACHINE) {
        r->into->unseen++;
        return;
    }
    if (!parent_before(r, pid, &parent)) {
        if (!read_status(pid, &of))
            return;
        parent = of.parent;
    }
    r->pid[r->count] = pid;
    r->parent[r->count++] = parent;
}

static void remember(reading *r)
{
    memcpy(r->pid_before, r->pid, r->count * sizeof r->pid[0]);
    memcpy(r->parent_before, r->parent, r->count * sizeof r->parent[0]);
    r->count_before = r->count;
}

struct entry { /* of getdents64 */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char kind;
    char name[];
};

/* Without opendir, which allocates. */
static void read_folder(reading *r, const char *path, void (*see)(reading *r, const char *name))
{
    char entries[4096] __attribute__((aligned(8)));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    long got;

    while (fd >= 0 && !is_stopped(r) &&
           (got = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0)
        for (long at = 0; at < got;) {
            const struct entry *one = (const struct entry *)(const void *)(entries + at);
            see(r, one->name);
            at += one->length;
        }
    if (fd >= 0)
        close(fd);
}

/* --- one process --------------------------------------------------------------------------------
 */

static cm_process_role role_of_command(int32_t pid)
{
    static const struct {
        const char *word;
        cm_process_role role;
    } known[] = {{"multiprocessing.resource_tracker", CM_ROLE_TRACKER},
                 {"multiprocessing.forkserver", CM_ROLE_FORKSERVER},
                 {"multiprocessing.spawn", CM_ROLE_SPAWNED},
                 {"torch_shm_manager", CM_ROLE_SHM_MANAGER}};
    char text[4096];
    size_t length = read_front(pid, "cmdline", text, sizeof text);

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (memmem(text, length, known[i].word, strlen(known[i].word)) != NULL)
            return known[i].role;
    return CM_ROLE_PROGRAM;
}

/* A forked process has its stack where its parent has it, until it replaces itself by exec. */
static cm_process_role role_of(int32_t pid, const status *of, uint64_t parents_stack)
{
    if (strcmp(of->name, "pt_data_worker") == 0)
        return CM_ROLE_DATA_WORKER;
    if (of->stack > 1 && of->stack == parents_stack) /* 1: the kernel does not say */
        return CM_ROLE_FORKED;
    return role_of_command(pid);
}

/* Lines "Key:   123 kB". Returns how many keys were found. */
static int read_kib(int32_t pid, const char *what, const char *const *keys, int count,
                    uint64_t *kib)
{
    char text[4096], *line = text;
    int found = 0;

    read_front(pid, what, text, sizeof text);
    while (line != NULL && line[0] != '\0') {
        for (int i = 0; i < count; i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0) {
                kib[i] = strtoull(line + strlen(keys[i]), NULL, 10);
                found++;
            }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return found;
}

static void read_sizes(cm_process *process, bool rollup)
{
#define KEY(name, key) key ":",
    static const char *const keys[] = {CM_PROCESS_STATUS_TABLE(KEY) CM_PROCESS_ROLLUP_TABLE(KEY)};
#undef KEY
    enum { STATUS = CM_PROCESS_STATUS_SIZES, ROLLUP = CM_PROCESS_SIZES - STATUS };

    if (read_kib(process->pid, "status", keys, STATUS, process->kib) == STATUS)
        process->known |= CM_KNOWN_STATUS;
    if (rollup && read_kib(process->pid, "smaps_rollup", keys + STATUS, ROLLUP,
                           process->kib + STATUS) == ROLLUP)
        process->known |= CM_KNOWN_ROLLUP;
}

/* --- open files ---------------------------------------------------------------------------------
 */

/* A DataLoader's batch lies in a file of /dev/shm, which its worker has open until it is taken, and
 * none has mapped. */
static void add_queued(reading *r, const struct stat *st)
{
    for (uint32_t i = 0; i < r->inodes; i++)
        if (r->inode[i] == st->st_ino)
            return;
    if (r->inodes < INODES)
        r->inode[r->inodes++] = st->st_ino;
    r->process->queued_kib += (uint64_t)st->st_blocks / 2;
}

static void see_descriptor(reading *r, const char *name)
{
    char link[PROC_PATH];
    cm_mapped_file file = {.pid = r->process->pid};
    struct stat st, opened;

    snprintf(link, sizeof link, "/proc/%d/fd/%.16s", r->process->pid, name);
    ssize_t length = readlink(link, file.path, sizeof file.path - 1);
    if (length <= 0 || file.path[0] != '/')
        return;
    bool shared = strncmp(file.path, CM_SHM_FOLDER, strlen(CM_SHM_FOLDER)) == 0;
    if ((shared ? r->process->role != CM_ROLE_DATA_WORKER : !r->loads) || stat(link, &st) != 0 ||
        !S_ISREG(st.st_mode))
        return;
    file.bytes = (uint64_t)st.st_size;
    if (shared)
        add_queued(r, &st);
    else if (file.bytes >= LOADED && r->into->opens < CM_TREE_OPEN && lstat(link, &opened) == 0 &&
             !(opened.st_mode & S_IWUSR)) /* the link's: a file that is written is none */
        r->into->open[r->into->opens++] = file;
}

/* Whether it has grown much since the reading before. */
static bool loads(const reading *r, const cm_process *process)
{
    for (uint32_t i = 0; i < r->members; i++)
        if (r->member[i] == process->pid)
            return process->kib[CM_SIZE_RSS_ANON] >= r->anonymous[i] + LOADS_KIB;
    return process->kib[CM_SIZE_RSS_ANON] >= LOADS_KIB;
}

static void add_open_files(reading *r)
{
    cm_process_tree *into = r->into;
    char folder[PROC_PATH];

    for (uint32_t i = 0; i < into->count && !is_stopped(r); i++) {
        r->process = &into->process[i];
        r->loads = loads(r, r->process);
        r->inodes = 0;
        if (!r->loads && r->process->role != CM_ROLE_DATA_WORKER)
            continue;
        snprintf(folder, sizeof folder, "/proc/%d/fd", r->process->pid);
        read_folder(r, folder, see_descriptor);
    }
    for (r->members = 0; r->members < into->count; r->members++) {
        r->member[r->members] = into->process[r->members].pid;
        r->anonymous[r->members] = into->process[r->members].kib[CM_SIZE_RSS_ANON];
    }
}

/* By the sharing strategy file_system a batch has a name, with its worker's number. */
static void see_named_batch(reading *r, const char *name)
{
    char path[PROC_PATH];
    struct stat st;
    int pid;

    if (sscanf(name, "torch_%d_", &pid) != 1)
        return;
    snprintf(path, sizeof path, CM_SHM_FOLDER "%.48s", name);
    for (uint32_t i = 0; i < r->into->count; i++)
        if (r->into->process[i].pid == pid && r->into->process[i].role == CM_ROLE_DATA_WORKER &&
            stat(path, &st) == 0)
            r->into->process[i].queued_kib += (uint64_t)st.st_blocks / 2;
}

/* stack: of the parent before, of this process afterwards. */
static bool add_member(reading *r, int32_t pid, uint64_t *stack)
{
    cm_process_tree *into = r->into;
    status of;

    if (!read_status(pid, &of) || of.state == 'Z' || of.state == 'X')
        return false;
    if (into->count == CM_TREE_PROCESSES) {
        into->left_out++;
        return false;
    }
    cm_process *process = &into->process[into->count++];
    memset(process, 0, sizeof *process);
    process->pid = pid;
    process->parent = of.parent;
    process->started = of.started;
    memcpy(process->name, of.name, sizeof process->name);
    process->role = into->count == 1 ? CM_ROLE_RECORDED : (uint32_t)role_of(pid, &of, *stack);
    read_sizes(process, r->depth >= CM_TREE_ROLLUP);
    *stack = of.stack;
    return true;
}

/* Breadth first: the children of each that was added, in its turn. */
static bool add_tree(reading *r, int32_t root)
{
    cm_process_tree *into = r->into;
    uint64_t stacks[CM_TREE_PROCESSES] = {0}, stack = 0;

    if (!add_member(r, root, &stack))
        return false;
    stacks[0] = stack;
    for (uint32_t at = 0; at < into->count; at++)
        for (uint32_t i = 0; i < r->count && !is_stopped(r); i++) {
            if (r->parent[i] != into->process[at].pid)
                continue;
            stack = stacks[at];
            if (add_member(r, r->pid[i], &stack))
                stacks[into->count - 1] = stack;
        }
    return into->process[0].known != 0 && !is_stopped(r);
}

/* --- mapped files -------------------------------------------------------------------------------
 */

typedef struct mapping {
    cm_process_tree *into;
    bool data_only;     /* no libraries */
    cm_mapped_file now; /* of the lines so far that name the same file, in a row */
    uint64_t rest;
} mapping;

static cm_mapped_file *smallest(cm_process_tree *into)
{
    cm_mapped_file *least = &into->file[0];

    for (uint32_t i = 1; i < into->files; i++)
        if (into->file[i].bytes < least->bytes)
            least = &into->file[i];
    return least;
}

/* Keeps the largest files; what has no room is added to *rest. */
static void add_file(cm_process_tree *into, const cm_mapped_file *file, uint64_t *rest)
{
    if (file->bytes == 0)
        return;
    for (uint32_t i = 0; i < into->files; i++)
        if (into->file[i].pid == file->pid && strcmp(into->file[i].path, file->path) == 0) {
            into->file[i].bytes += file->bytes;
            into->file[i].copied += file->copied;
            into->file[i].code |= file->code;
            return;
        }
    if (into->files < CM_TREE_FILES) {
        into->file[into->files++] = *file;
        return;
    }
    cm_mapped_file *least = smallest(into);
    if (least->bytes >= file->bytes) {
        *rest += file->bytes;
        return;
    }
    *rest += least->bytes;
    *least = *file;
}

static void finish_file(mapping *m)
{
    if (!m->data_only || !m->now.code)
        add_file(m->into, &m->now, &m->rest);
    m->now = (cm_mapped_file){.pid = m->now.pid};
}

/* A line that begins a mapping: "7f..-7f.. r--p offset device inode path". */
static void see_mapping(mapping *m, const char *line)
{
    char rights[5];
    unsigned long long inode;
    int at = 0;

    if (sscanf(line, "%*x-%*x %4s %*x %*s %llu %n", rights, &inode, &at) != 2 || at == 0)
        return;
    const char *path = line + at;
    bool wanted = path[0] == '/' && inode != 0;
    if (!wanted || strncmp(path, m->now.path, sizeof m->now.path - 1) != 0)
        finish_file(m);
    snprintf(m->now.path, sizeof m->now.path, "%s", wanted ? path : "");
    m->now.code |= wanted && strchr(rights, 'x') != NULL;
}

static void see_smap(void *context, char *line)
{
    mapping *m = context;
    unsigned long long kib;

    /* Lines that begin a mapping begin with a small letter or a digit. */
    if (line[0] < 'A' || line[0] > 'Z')
        see_mapping(m, line);
    else if (m->now.path[0] != '\0' && sscanf(line, "Rss: %llu", &kib) == 1)
        m->now.bytes += kib << 10;
    else if (m->now.path[0] != '\0' && sscanf(line, "Anonymous: %llu", &kib) == 1)
        m->now.copied += kib << 10;
}

/* What lies in /dev/shm and no process of the tree has mapped. */
static void see_shared(reading *r, const char *name)
{
    cm_mapped_file file = {0};
    struct stat st;

    snprintf(file.path, sizeof file.path, CM_SHM_FOLDER "%s", name);
    for (uint32_t i = 0; i < r->into->files; i++)
        if (strcmp(r->into->file[i].path, file.path) == 0)
            return;
    if (stat(file.path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    file.bytes = (uint64_t)st.st_blocks * 512;
    add_file(r->into, &file, &r->rest);
}

static void add_files(reading *r)
{
    cm_process_tree *into = r->into;

    into->has_files = true;
    r->rest = 0;
    for (uint32_t i = 0; i < into->count && !is_stopped(r); i++) {
        mapping m = {.into = into, .data_only = i > 0, .now.pid = into->process[i].pid};
        read_lines(r, m.now.pid, "smaps", see_smap, &m);
        finish_file(&m);
        r->rest += m.rest;
    }
    read_folder(r, CM_SHM_FOLDER, see_shared);
    if (r->rest > 0)
        into->file[into->files++] =
            (cm_mapped_file){.pid = into->process[0].pid, .bytes = r->rest, .path = ""};
}

/* --- the whole ----------------------------------------------------------------------------------
 */

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool read_tree(reading *r, int32_t root)
{
    cm_process_tree *into = r->into;
    uint64_t begin = thread_ns();
    struct statvfs shm;

    r->count = r->at_before = 0;
    if (r->depth != CM_TREE_STATUS)
        r->count_before = 0;
    into->count = into->files = into->opens = into->left_out = into->unseen = 0;
    into->has_files = false;
    into->shm_bytes = into->shm_used = 0;
    into->realtime_ns = cm_clock_sample().realtime_ns;
    read_folder(r, "/proc", add_process);
    remember(r);
    if (!add_tree(r, root))
        return false;
    add_open_files(r);
    read_folder(r, CM_SHM_FOLDER, see_named_batch);
    if (statvfs(CM_SHM_FOLDER, &shm) == 0) {
        into->shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
        into->shm_used = (uint64_t)(shm.f_blocks - shm.f_bfree) * shm.f_frsize;
    }
    if (r->depth >= CM_TREE_MAPPED)
        add_files(r);
    into->cpu_ns = thread_ns() - begin;
    return !is_stopped(r);
}

bool cm_process_tree_read(int32_t root, cm_tree_depth depth, const atomic_bool *stop,
                          cm_process_tree *into)
{
    static reading r; /* too large for a stack */
    static atomic_bool busy;

    if (atomic_exchange(&busy, true))
        return false;
    r.stop = stop;
    r.depth = depth;
    r.into = into;
    bool fine = read_tree(&r, root);
    atomic_store(&busy, false);
    return fine;
}
