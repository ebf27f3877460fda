/* Totals of devices, with a driver and an NVML of our own. */
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "../../../../csrc/base/clock.h"
#include "doubles.h"
#include "fake.h"

static fake_cuda *cuda;
static fake_nvml *nvml;

enum { MIB = 1 << 20 };
#define NOTHING (-1)

/* Time passes when a test says so, and in NVML: on a busy machine a question to it may take any
 * time, and how long it took decides when it is asked again. */
static uint64_t passed_ms = 100000;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    uint64_t ms = passed_ms + (nvml != NULL ? (uint64_t)nvml->asked * nvml->delay_ms : 0);
    *now = (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000 * 1000000)};
    return 0;
}

static void begin(void)
{
    cm_clock_init();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *management = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    CHECK(driver != NULL && management != NULL);
    cuda = dlsym(driver, "fake_the_cuda");
    nvml = dlsym(management, "fake_the_nvml");
    CHECK(cuda != NULL && nvml != NULL);
    cuda->initialized = true;
    cuda->count = 2;
    for (int i = 0; i < 2; i++) {
        cuda->device[i].total = 1000 * (size_t)MIB;
        cuda->device[i].free = 600 * (size_t)MIB;
        cuda->device[i].pooled = 32 * (size_t)MIB;
        cuda->device[i].uuid = (uint8_t)(0x11 + i);
        /* As monitors count, the other way round. */
        nvml->uuid[1 - i] = cuda->device[i].uuid;
        nvml->total[1 - i] = 1010 * (unsigned long long)MIB;
        nvml->reserved[1 - i] = (7 + (unsigned)i) * (unsigned long long)MIB;
    }
    cuda->device[1].active = true;
    nvml->computes = 2;
    nvml->compute[0] = (fake_process){4, 50 * MIB};
    nvml->compute[1] = (fake_process){(unsigned)getpid(), 300 * MIB};
    nvml->graphics = 2;
    nvml->graphic[0] = (fake_process){4, 50 * MIB}; /* it does both */
    nvml->graphic[1] = (fake_process){5, 1 * MIB};
    double_record(true);
    double_forget_events();
}

static void sample_so(bool anew)
{
    double_moves_asked = 0;
    cm_device_totals_sample(anew);
    CHECK(!cm_cupti_own_thread);
    EQUAL(cuda->capture_mode, 0);
    for (int i = 0; i < FAKE_DEVICES; i++) {
        EQUAL(cuda->device[i].references, 0);
        EQUAL(cuda->device[i].current, 0);
    }
}

static void sample(void)
{
    sample_so(false);
}

/* The moment that begins with this event: its numbers, in MiB; returns where the next one does. */
static size_t moment(size_t at, const int told[CM_DEVICE_BYTES_USED + 1], bool quiet, int device)
{
    for (int what = CM_DEVICE_BYTES_TOTAL; what <= CM_DEVICE_BYTES_USED; what++) {
        if (told[what] == NOTHING)
            continue;
        const cm_event *e = double_event(at++);
        EQUAL(e->kind, CM_EV_DEVICE);
        EQUAL(e->address, what);
        EQUAL(e->size, told[what] * (long long)MIB);
        EQUAL(e->flags, quiet ? CM_EVF_QUIET : 0);
        EQUAL(e->device_type, CM_DEVICE_CUDA);
        EQUAL(e->device_index, device);
    }
    return at;
}

static const int everything[] = {0, 1000, 300, 51, 32, 8, 400};

static void all_that_is_told(void)
{
    begin();
    sample();
    EQUAL(moment(0, everything, true, 1), double_event_count());
    EQUAL(cuda->modes_while_asked, 1 << 2); /* captures of graphs go on undisturbed */
    EQUAL(cuda->infos, 2);                  /* before NVML's answer, and after it */
}

/* Nothing is initialized, loaded or made for the sake of a sample. */
static void nothing_to_ask(void)
{
    begin();
    cuda->device[1].active = false;
    sample();
    cuda->initialized = false;
    cuda->device[1].active = true;
    sample();
    cuda->initialized = true;
    double_record(false);
    sample();
    EQUAL(cuda->retains, 0);
    double_record(true);
    cuda->push_result = 201;
    sample();
    cuda->push_result = 0;
    cuda->info_result = 700;
    sample();
    EQUAL(double_event_count(), 0);
    EQUAL(nvml->asked, 0);
    cuda->info_result = 0;
    sample();
    EQUAL(moment(0, everything, true, 1), double_event_count());
}

/* A sample is written when something changed, and else once a second. */
static void written_when_it_changes(void)
{
    int now[] = {0, 1000, 300, 51, 32, 8, 400};
    size_t at;

    begin();
    for (int i = 0; i < 5; i++)
        sample();
    at = moment(0, now, true, 1);
    EQUAL(double_event_count(), at);
    cuda->device[1].free -= MIB;
    now[CM_DEVICE_BYTES_USED]++;
    now[CM_DEVICE_BYTES_OWN] = NOTHING; /* what NVML told is of before */
    sample();
    sample();
    at = moment(at, now, true, 1);
    EQUAL(double_event_count(), at);
    cuda->device[1].pooled = 0;
    now[CM_DEVICE_BYTES_POOLED] = 0;
    sample();
    at = moment(at, now, true, 1);
    unsigned asked = nvml->asked;
    EQUAL(asked, 2); /* not at each sample: it is slow */
    passed_ms += 1100;
    nvml->compute[0].bytes += MIB;
    now[CM_DEVICE_BYTES_OTHERS]++;
    now[CM_DEVICE_BYTES_OWN] = 300;
    sample();
    at = moment(at, now, true, 1);
    passed_ms += 1100;
    sample();
    at = moment(at, now, true, 1);
    EQUAL(double_event_count(), at);
    double_record(true); /* another capture begins with a sample */
    sample();
    at = moment(at, now, true, 1);
    EQUAL(double_event_count(), at);
}

/* Moments of before a window opened are none of its own. */
static void written_when_a_window_opens(void)
{
    size_t at;

    begin();
    sample();
    at = moment(0, everything, true, 1);
    for (int i = 0; i < 2; i++) {
        cm_device_totals_write_next();
        sample();
        sample();
        at = moment(at, everything, true, 1);
        EQUAL(double_event_count(), at);
    }
}

/* At the end NVML is asked whenever it was before: what it told last is of another moment. */
static void asked_anew(void)
{
    int now[] = {0, 1000, 300, 51, 32, 8, 400};

    begin();
    sample();
    nvml->compute[1].bytes = 420 * MIB;
    cuda->device[1].free -= 120 * (size_t)MIB;
    double_forget_events();
    sample_so(true);
    now[CM_DEVICE_BYTES_USED] += 120;
    now[CM_DEVICE_BYTES_OWN] = 420;
    EQUAL(moment(0, now, true, 1), double_event_count());
    EQUAL(nvml->asked, 4);
}

/* It gets a hundredth of the time at most. */
static void slow_nvml(void)
{
    begin();
    nvml->delay_ms = 40;
    sample();
    unsigned asked = nvml->asked;
    passed_ms += 1200;
    sample();
    EQUAL(nvml->asked, asked);
    sample_so(true);
    EQUAL(nvml->asked, 2 * asked);
}

/* Nothing is asked of the driver while it destroys a context: it would make a new one. */
static void a_context_ends(void)
{
    begin();
    double_context_ends = true;
    cuda->device[0].context = &cuda->device[0];
    double_context[0] = cuda->device[0].context;
    sample();
    EQUAL(double_event_count(), 0);
    EQUAL(cuda->retains, 0);
    double_context_ends = false;
    sample();
    CHECK(double_event_count() != 0);
}

/* A device that has no primary context, but one of the program's own. */
static void a_context_of_its_own(void)
{
    static const int first[] = {0, 1000, 300, 51, 32, 7, 400};

    begin();
    cuda->device[1].active = false;
    cuda->device[0].context = &cuda->device[0];
    double_context[0] = cuda->device[0].context;
    sample();
    EQUAL(moment(0, first, true, 0), double_event_count());
    EQUAL(cuda->retains, 0);
    cuda->push_result = 709; /* it was destroyed meanwhile */
    double_forget_events();
    sample();
    EQUAL(double_event_count(), 0);
}

static void quiet(void)
{
    static const uint64_t moves[][4] = {{3, 3, 4, 4}, {2, 4, 6, 6}, {1, 1, 1, 1}};

    begin();
    for (int i = 0; i < 3; i++) {
        double_record(true);
        memcpy(double_moves, moves[i], sizeof moves[i]);
        double_forget_events();
        cuda->infos = 0;
        sample();
        moment(0, everything, i < 2, 1);
        EQUAL(cuda->infos, i < 2 ? 3 : 5); /* one before NVML was asked */
    }
    /* The first quiet one is told, though its numbers are those of before. */
    memset(double_moves, 0, sizeof double_moves);
    double_forget_events();
    sample();
    EQUAL(moment(0, everything, true, 1), double_event_count());
}

/* What is not known is not told. */
static void unknown(void)
{
    static const struct {
        const char *what;
        int told[CM_DEVICE_BYTES_USED + 1];
    } rows[] = {
        {"no such device", {0, 1000, NOTHING, NOTHING, 32, NOTHING, 400}},
        {"first version of memory", {0, 1000, 300, 51, 32, NOTHING, 400}},
        {"no memory", {0, 1000, 300, 51, 32, NOTHING, 400}},
        {"we are not in the list", {0, 1000, NOTHING, NOTHING, 32, 8, 400}},
        {"ours is not told", {0, 1000, NOTHING, 51, 32, 8, 400}},
        {"another's is not told", {0, 1000, 300, NOTHING, 32, 8, 400}},
        {"no list", {0, 1000, NOTHING, NOTHING, 32, 8, 400}},
        {"half a list", {0, 1000, 300, NOTHING, 32, 8, 400}},
        {"no graphics", {0, 1000, 300, 50, 32, 8, 400}},
        {"no pools", {0, 1000, 300, 51, NOTHING, 8, 400}},
        {"instance", {0, 1000, 300, 51, 32, 8, 400}},
        {"by its place", {0, 1000, 300, 51, 32, 8, 400}},
        {"by the place of the whole", {0, 1000, NOTHING, NOTHING, 32, NOTHING, 400}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin();
        fake_cuda cuda_before = *cuda;
        fake_nvml nvml_before = *nvml;
        const char *what = rows[i].what;
#define IF(text) if (strcmp(what, text) == 0)
        IF("no such device") nvml->uuid[0] = nvml->uuid[1] = 0;
        IF("first version of memory") nvml->v2_result = 25;
        IF("no memory") nvml->v2_result = nvml->v1_result = 999;
        IF("we are not in the list") nvml->compute[1].pid++;
        IF("ours is not told") nvml->compute[1].bytes = UINT64_MAX;
        IF("another's is not told") nvml->compute[0].bytes = UINT64_MAX;
        IF("no list") nvml->compute_result = 4;
        IF("half a list") nvml->graphics_result = 999;
        IF("no graphics") nvml->graphics_result = 3;
        IF("no pools") cuda->pool_result = 801;
        IF("instance") nvml->mig = true;
        IF("by its place") cuda->uuid_result = 801;
        IF("by the place of the whole")
        {
            cuda->uuid_result = 801;
            nvml->total[0] = 8000 * (unsigned long long)MIB;
        }
        sample();
        size_t at = moment(0, rows[i].told, true, 1);
        if (at != double_event_count()) {
            fprintf(stderr, "%s: %zu events, not %zu\n", what, double_event_count(), at);
            _Exit(1);
        }
        *cuda = cuda_before;
        *nvml = nvml_before;
    }
}

static void no_nvml(void)
{
    static const int told[] = {0, 1000, NOTHING, NOTHING, 32, NOTHING, 400};

    begin();
    nvml->init_result = 9;
    sample();
    EQUAL(moment(0, told, true, 1), double_event_count());
    nvml->init_result = 0; /* it is asked once */
    sample();
    EQUAL(nvml->asked, 0);
}

/* Its memory is the machine's, which has something in use; NVML does not support the question. */
static void integrated(void)
{
    static const int told[] = {0, 1000, 300, 51, 32, NOTHING};

    begin();
    cuda->integrated = 1;
    nvml->v2_result = nvml->v1_result = 3;
    sample();
    size_t at = 0;
    for (int what = CM_DEVICE_BYTES_TOTAL; what < CM_DEVICE_BYTES_RESERVED; what++)
        EQUAL(double_event(at++)->size, told[what] * (long long)MIB);
    EQUAL(double_event(at)->address, CM_DEVICE_BYTES_HOST);
    CHECK(double_event(at++)->size > MIB);
    EQUAL(double_event(at)->address, CM_DEVICE_BYTES_CACHE);
    CHECK(double_event(at++)->size >= 0);
    EQUAL(double_event(at)->address, CM_DEVICE_BYTES_USED); /* ends the moment */
    EQUAL(double_event(at++)->size, 400 * (long long)MIB);
    EQUAL(at, double_event_count());
}

static void two_devices(void)
{
    static const int first[] = {0, 1000, 300, 51, 32, 7, 400};
    size_t at;

    begin();
    cuda->device[0].active = true;
    sample();
    at = moment(0, first, true, 0);
    at = moment(at, everything, true, 1);
    EQUAL(at, double_event_count());
}

/* Where a moment does not find room it is not taken for written. */
static void no_room(void)
{
    begin();
    for (size_t room = 0; room < 6; room++) {
        double_forget_events();
        double_room(room);
        sample();
        EQUAL(double_event_count(), room);
    }
    double_forget_events();
    sample();
    EQUAL(moment(0, everything, true, 1), double_event_count());
}

static const double_case cases[] = {
    {"all_that_is_told", all_that_is_told},
    {"nothing_to_ask", nothing_to_ask},
    {"written_when_it_changes", written_when_it_changes},
    {"written_when_a_window_opens", written_when_a_window_opens},
    {"asked_anew", asked_anew},
    {"slow_nvml", slow_nvml},
    {"a_context_ends", a_context_ends},
    {"a_context_of_its_own", a_context_of_its_own},
    {"quiet", quiet},
    {"unknown", unknown},
    {"no_nvml", no_nvml},
    {"integrated", integrated},
    {"two_devices", two_devices},
    {"no_room", no_room},
};

int main(int words, char **word)
{
    return double_main(cases, sizeof cases / sizeof *cases, words, word);
}
