/* A stand-in for the driver's library: state from the text file that NVML_STANDIN_STATE names.
 *
 * One "KEY VALUE" a line; of card N the keys begin with "N.". "KEY! CODE" makes the call behind KEY
 * return CODE. "N.lost 1" makes every call on card N return GPU_IS_LOST, "hang_ms MS" makes every call
 * on a card last that long, "xid N CODE" is an event, each such line one. The file is read again while
 * the library is loaded, when the number in the file beside it (PATH.writes) says that it was written:
 * it lies in memory, so that an answer costs no system call and waiting for an event no CPU. Compiled
 * with -DOLD_DRIVER the library lacks the newer functions.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, TIMED_OUT = 10, LOST = 15 };
enum { MAX_LINES = 2048, MAX_CARDS = 16 };

static struct line { char key[64]; char value[128]; } lines[MAX_LINES];
static int line_count, event_count, delivered, initialised;
static struct { int card; unsigned long long code; } events[256];
static volatile unsigned *writes;
static unsigned read_at; /* the number of the write that was read last */
static char cards[MAX_CARDS];
static double hang_ms;
static int lost[MAX_CARDS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int by_key(const void *one, const void *other) {
    return strcmp(((const struct line *)one)->key, ((const struct line *)other)->key);
}

static int to_key(const void *key, const void *one) {
    return strcmp((const char *)key, ((const struct line *)one)->key);
}

static const char *find(const char *key) {
    struct line *found = bsearch(key, lines, (size_t)line_count, sizeof *lines, to_key);
    return found ? found->value : NULL;
}

static double found_or_zero(const char *key) {
    const char *value = find(key);
    return value ? atof(value) : 0;
}

static void beside(char *out, size_t size) {
    const char *path = getenv("NVML_STANDIN_STATE");
    snprintf(out, size, "%s.writes", path ? path : "");
}

static void map_writes(void) {
    char path[4096];
    beside(path, sizeof path);
    int file = open(path, O_RDONLY);
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof *writes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) writes = mapped;
}

static void load(void) {
    const char *path = getenv("NVML_STANDIN_STATE");
    if (!writes) map_writes();
    if (!path || !writes || *writes == read_at) return;
    unsigned now = *writes;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char line[256];
    line_count = event_count = 0;
    while (fgets(line, sizeof line, file) && line_count < MAX_LINES) {
        int card; unsigned long long code;
        if (sscanf(line, "xid %d %llu", &card, &code) == 2) {
            if (event_count < 256) { events[event_count].card = card; events[event_count++].code = code; }
        } else if (sscanf(line, "%63s %127[^\n]", lines[line_count].key, lines[line_count].value) == 2) {
            line_count++;
        }
    }
    fclose(file);
    qsort(lines, (size_t)line_count, sizeof *lines, by_key);
    read_at = now;
    hang_ms = found_or_zero("hang_ms");
    for (int card = 0; card < MAX_CARDS; card++) {
        snprintf(line, sizeof line, "%d.lost", card);
        lost[card] = found_or_zero(line) != 0;
    }
}

static int answer(const char *key, char *out, size_t size) {
    char refusal[80];
    pthread_mutex_lock(&mutex);
    load();
    int code = initialised ? OK : UNINITIALIZED;
    snprintf(refusal, sizeof refusal, "%s!", key);
    const char *refused = find(refusal), *value = find(key);
    if (code == OK && refused) code = atoi(refused);
    if (code == OK && !value) code = NOT_SUPPORTED;
    if (code == OK) snprintf(out, size, "%s", value);
    pthread_mutex_unlock(&mutex);
    return code;
}

static int number(const char *key, double *out) {
    char text[128];
    int code = answer(key, text, sizeof text);
    if (code == OK) *out = atof(text);
    return code;
}

static int card_of(void *handle) { return (int)((char *)handle - cards); }

static int wait_for_card(int card) { /* what every call on a card goes through */
    if (card < 0 || card >= MAX_CARDS) return INVALID;
    pthread_mutex_lock(&mutex);
    load();
    double waits_ms = hang_ms;
    int code = lost[card] ? LOST : OK;
    pthread_mutex_unlock(&mutex);
    if (waits_ms > 0) usleep((useconds_t)(waits_ms * 1000));
    return code;
}

static int card_text(void *handle, const char *name, char *out, size_t size) {
    char key[64];
    int card = card_of(handle), code = wait_for_card(card);
    if (code != OK) return code;
    snprintf(key, sizeof key, "%d.%s", card, name);
    return answer(key, out, size);
}

static int card_number(void *handle, const char *name, double *out) {
    char text[128];
    int code = card_text(handle, name, text, sizeof text);
    if (code == OK) *out = atof(text);
    return code;
}

static int card_unsigned(void *handle, const char *name, unsigned *out) {
    double value;
    int code = card_number(handle, name, &value);
    if (code == OK) *out = (unsigned)value;
    return code;
}

static int card_long(void *handle, const char *name, unsigned long long *out) {
    char text[128];
    int code = card_text(handle, name, text, sizeof text);
    if (code == OK) *out = strtoull(text, NULL, 0);
    return code;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case TIMED_OUT: return "Timeout";
    case LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlInitWithFlags(unsigned flags) {
    double code = 0;
    (void)flags;
    pthread_mutex_lock(&mutex);
    initialised = 1;
    pthread_mutex_unlock(&mutex);
    if (number("init", &code) == OK && code) { initialised = 0; return (int)code; }
    return OK;
}
int nvmlShutdown(void) { initialised = 0; return OK; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return answer("driver", out, size); }
int nvmlSystemGetNVMLVersion(char *out, unsigned size) { return answer("library", out, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    double value; int code = number("cuda", &value);
    if (code == OK) *out = (int)value;
    return code;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    double value; int code = number("cards", &value);
    if (code == OK) *out = (unsigned)value;
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    char key[64]; double code = 0;
    if (index >= MAX_CARDS) return INVALID;
    snprintf(key, sizeof key, "%u.handle", index);
    if (number(key, &code) == OK && code) return (int)code;
    *out = &cards[index];
    return OK;
}

#define TEXT(function, name) \
    int function(void *card, char *out, unsigned size) { return card_text(card, name, out, size); }
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "part")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
TEXT(nvmlDeviceGetName, "name")

#define UNSIGNED(function, name) \
    int function(void *card, unsigned *out) { return card_unsigned(card, name, out); }
UNSIGNED(nvmlDeviceGetPowerUsage, "power_mw")
UNSIGNED(nvmlDeviceGetPerformanceState, "pstate")
UNSIGNED(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
UNSIGNED(nvmlDeviceGetFanSpeed, "fan")
UNSIGNED(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
UNSIGNED(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_gen_max")
UNSIGNED(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UNSIGNED(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
UNSIGNED(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
UNSIGNED(nvmlDeviceGetPersistenceMode, "persistence")
UNSIGNED(nvmlDeviceGetBoardId, "board")

#define LONG(function, name) \
    int function(void *card, unsigned long long *out) { return card_long(card, name, out); }
LONG(nvmlDeviceGetCurrentClocksThrottleReasons, "reasons")
LONG(nvmlDeviceGetTotalEnergyConsumption, "energy_mj")

int nvmlDeviceGetTemperatureThreshold(void *card, int threshold, unsigned *out) {
    char key[32];
    snprintf(key, sizeof key, "threshold.%d", threshold);
    return card_unsigned(card, key, out);
}
int nvmlDeviceGetTemperature(void *card, int sensor, unsigned *out) {
    (void)sensor; return card_unsigned(card, "temperature", out);
}
int nvmlDeviceGetClockInfo(void *card, int kind, unsigned *out) {
    return card_unsigned(card, kind == 1 ? "sm_clock" : "memory_clock", out);
}
int nvmlDeviceGetUtilizationRates(void *card, unsigned *out) {
    int code = card_unsigned(card, "utilisation", &out[0]);
    if (code == OK && card_unsigned(card, "memory_utilisation", &out[1]) != OK) out[1] = 0;
    return code;
}
int nvmlDeviceGetMigMode(void *card, unsigned *current, unsigned *pending) {
    int code = card_unsigned(card, "mig", current);
    if (code == OK) *pending = *current;
    return code;
}
int nvmlDeviceGetEccMode(void *card, int *current, int *pending) {
    unsigned value; int code = card_unsigned(card, "ecc", &value);
    if (code == OK) *current = *pending = (int)value;
    return code;
}
int nvmlDeviceGetMemoryInfo(void *card, unsigned long long *out) { /* total, free, used */
    int code = card_long(card, "memory_total", &out[0]);
    if (code == OK) code = card_long(card, "memory_used", &out[2]);
    if (code == OK) out[1] = out[0] - out[2];
    return code;
}
int nvmlDeviceGetTotalEccErrors(void *card, int kind, int counter, unsigned long long *out) {
    char name[32];
    snprintf(name, sizeof name, "ecc_%d_%d", counter, kind);
    return card_long(card, name, out);
}
int nvmlDeviceGetRemappedRows(void *card, unsigned *cor, unsigned *unc, unsigned *pending, unsigned *failed) {
    char text[128]; int code = card_text(card, "remapped", text, sizeof text);
    if (code == OK) sscanf(text, "%u %u %u %u", cor, unc, pending, failed);
    return code;
}
int nvmlDeviceGetNvLinkState(void *card, unsigned link, unsigned *out) {
    unsigned links, down = 99; int code = card_unsigned(card, "links", &links);
    if (code != OK) return code;
    if (link >= links) return INVALID;
    card_unsigned(card, "link_down", &down);
    *out = link != down;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(void *card, char *out) { /* busIdLegacy[16], 5 unsigned, busId[32] */
    memset(out, 0, 68);
    return card_text(card, "pci", out + 36, 32);
}

#ifndef OLD_DRIVER
LONG(nvmlDeviceGetCurrentClocksEventReasons, "reasons")
int nvmlDeviceGetTemperatureV(void *card, unsigned *io) { /* version, sensor, temperature */
    return card_unsigned(card, "temperature", &io[2]);
}
int nvmlDeviceGetMarginTemperature(void *card, int *io) {
    double value; int code = card_number(card, "margin", &value);
    if (code == OK) io[1] = (int)value;
    return code;
}
struct fabric { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; };
int nvmlDeviceGetGpuFabricInfoV(void *card, struct fabric *out) {
    unsigned value; char text[128];
    int code = card_unsigned(card, "fabric_state", &value);
    if (code != OK) return code;
    out->state = (unsigned char)value;
    out->status = 0;
    out->clique = card_unsigned(card, "clique", &value) == OK ? value : 0;
    memset(out->cluster, 0, 16);
    if (card_text(card, "cluster", text, sizeof text) == OK)
        for (int i = 0; i < 16; i++) { unsigned byte; sscanf(text + 2 * i, "%2x", &byte); out->cluster[i] = byte; }
    return OK;
}
struct field { uint32_t id, scope; int64_t at, latency; int32_t type, code; union { double d; unsigned long long u; } value; };
int nvmlDeviceGetFieldValues(void *card, int count, struct field *fields) {
    char key[32];
    int lost_or_ok = wait_for_card(card_of(card));
    if (lost_or_ok != OK) return lost_or_ok;
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "field.%u", fields[i].id);
        fields[i].type = 3;
        fields[i].code = card_long(card, key, &fields[i].value.u);
    }
    return OK;
}
#endif

int nvmlEventSetCreate(void **out) { *out = &delivered; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(void *card, unsigned long long kinds, void *set) {
    (void)card; (void)kinds; (void)set;
    double code = 0;
    return number("events", &code) == OK ? (int)code : OK;
}
struct event { void *card; unsigned long long kind, data; unsigned instance, compute; };
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout_ms) {
    char path[4096], told[4096];
    (void)set;
    beside(path, sizeof path);
    struct pollfd watch = {inotify_init1(IN_CLOEXEC), POLLIN, 0};
    inotify_add_watch(watch.fd, path, IN_MODIFY);
    for (int more = 1;;) {
        pthread_mutex_lock(&mutex);
        load();
        int there = delivered < event_count, now = delivered;
        if (there) delivered++;
        pthread_mutex_unlock(&mutex);
        if (there || !more) close(watch.fd);
        if (there) {
            memset(out, 0, sizeof *out);
            out->card = &cards[events[now].card];
            out->kind = 8;
            out->data = events[now].code;
            out->instance = out->compute = 0xffffffff;
            return OK;
        }
        if (!more) return TIMED_OUT;
        more = poll(&watch, 1, (int)timeout_ms) > 0 && read(watch.fd, told, sizeof told) > 0;
    }
}
