/* A stand-in for NVIDIA's management library, for machines without a GPU.
 *
 * It exports the calls that clockwatt makes, with NVML's signatures, and answers from a file that every process maps: what
 * one process locks another one sees. Which file is said by STANDIN_NVML_STATE; where that is not set, as below sudo, it is
 * the file `state` beside the library. The layout of State is mirrored in __init__.py and must be changed there as well.
 * Clocks settle late, and a lock may be accepted and ignored, as on real cards. A card with a device node is hidden from
 * processes whose cgroup does not let them open it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEM };
enum { FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186 };
enum { VALUE_UNSIGNED_INT = 1, SW_POWER_CAP = 4 };
enum { RING_SAMPLES = 119, RING_PERIOD_US = 20000, SHORT_RING_SAMPLES = 60, SHORT_RING_PERIOD_US = 10000 };
enum { RING_POWER, RING_GPU, RING_MEMORY, RING_ENCODER, RING_DECODER, RING_SM_CLOCK, RING_MEMORY_CLOCK, RINGS };

/* bits of Card.missing */
enum { MISSING_AVERAGE_FIELD = 1, MISSING_INSTANT = 2, MISSING_COUNTER = 4, MISSING_RING = 8, MISSING_MIG = 16,
       MISSING_PCIE = 32, MISSING_SM_LOCK = 64, MISSING_MEMORY_LOCK = 128, MISSING_OTHER_RINGS = 256 };

typedef struct {
    char name[96], uuid[96];
    uint32_t hidden, lost, mig_enabled, may_set, persistence, missing; /* may_set 2: root alone */
    uint32_t sm_clocks_mhz[256], sm_clock_count, memory_clocks_mhz[16], memory_clock_count;
    uint32_t free_sm_mhz, free_memory_mhz;       /* what the driver gives by itself */
    uint32_t locked_sm_mhz, locked_memory_mhz;   /* 0: not locked */
    uint32_t sm_before_lock_mhz, settle_us, ignores_locks;
    uint64_t locked_at_us;
    uint32_t power_mw, limit_mw, default_limit_mw, lowest_limit_mw, highest_limit_mw, counter_period_us;
    uint64_t counter_since_us, throttle_reasons, memory_used, memory_total;
    uint32_t temperature_c, performance_state, gpu_percent, memory_percent, pcie_tx_kib_s, pcie_rx_kib_s;
    uint32_t settings_made;                      /* calls that were meant to change something */
    uint32_t minor, process;                     /* number of the device node; a process that computes, 0: none */
    uint32_t ignored_sm_mhz;                     /* this clock alone is accepted and ignored */
    uint32_t setting_us;                         /* how long each setting takes */
    uint32_t capped_sm_mhz;                      /* the power limit allows no more than this, 0: all; then it says so */
    char device[64];                             /* path of the device node, empty: anybody may see the card */
} Card;

typedef struct {
    char driver_version[80];
    uint32_t cuda_version, card_count;
    Card cards[8];
} State;

typedef union { double d; unsigned int ui; unsigned long ul; unsigned long long ull; long long sll; } Value;
typedef struct { uint32_t field, scope; int64_t time, latency; uint32_t type; int32_t result; Value value; } FieldValue;
typedef struct { unsigned long long time_us; Value value; } Sample;
typedef struct { unsigned int pid; unsigned long long memory; unsigned int instances[2]; } ProcessInfo;

static State *state;
static int users;

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (!state) {
        const char *path = getenv("STANDIN_NVML_STATE");
        char beside[4096];
        Dl_info library;
        if (!path && dladdr((void *)nvmlInitWithFlags, &library)) {
            const char *slash = strrchr(library.dli_fname, '/');
            snprintf(beside, sizeof beside, "%.*s/state", slash ? (int)(slash - library.dli_fname) : 0, library.dli_fname);
            path = beside;
        }
        int file = path ? open(path, O_RDWR) : -1;
        if (file < 0) return DRIVER_NOT_LOADED;
        void *mapped = mmap(NULL, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (mapped == MAP_FAILED) return DRIVER_NOT_LOADED;
        state = mapped;
    }
    users++;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    if (users == 0) return UNINITIALIZED;
    users--;
    return SUCCESS;
}

const char *nvmlErrorString(int result) { (void)result; return "an error of the stand-in"; }

static int copy(char *to, unsigned int size, const char *text) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

#define ON(card) do { if (users == 0) return UNINITIALIZED; if ((card)->lost) return GPU_IS_LOST; } while (0)
#define NEEDS(card, bit) do { ON(card); if ((card)->missing & (bit)) return NOT_SUPPORTED; } while (0)
#define GIVE(name, type, expression) int name(Card *card, type *out) { ON(card); *out = (expression); return SUCCESS; }

int nvmlSystemGetDriverVersion(char *out, unsigned int size) {
    return users ? copy(out, size, state->driver_version) : UNINITIALIZED;
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    if (!users) return UNINITIALIZED;
    *out = (int)state->cuda_version;
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned int *out) {
    if (!users) return UNINITIALIZED;
    *out = state->card_count;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Card **out) {
    if (!users) return UNINITIALIZED;
    if (index >= state->card_count) return INVALID_ARGUMENT;
    if (state->cards[index].hidden) return NO_PERMISSION;
    if (state->cards[index].device[0]) {
        int node = open(state->cards[index].device, O_RDWR | O_NONBLOCK);
        if (node < 0 && errno == EPERM) return NO_PERMISSION;
        if (node >= 0) close(node);
    }
    if (state->cards[index].lost) return GPU_IS_LOST;
    *out = &state->cards[index];
    return SUCCESS;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Card **out) {
    if (!users) return UNINITIALIZED;
    for (uint32_t i = 0; i < state->card_count; i++)
        if (!strcmp(uuid, state->cards[i].uuid)) return nvmlDeviceGetHandleByIndex_v2(i, out);
    return NOT_FOUND;
}
int nvmlDeviceGetName(Card *card, char *out, unsigned int size) { ON(card); return copy(out, size, card->name); }
int nvmlDeviceGetUUID(Card *card, char *out, unsigned int size) { ON(card); return copy(out, size, card->uuid); }
int nvmlDeviceGetSerial(Card *card, char *out, unsigned int size) { ON(card); return copy(out, size, card->uuid + 28); }
int nvmlDeviceGetMinorNumber(Card *card, unsigned int *out) { ON(card); *out = card->minor; return SUCCESS; }
int nvmlDeviceGetIndex(Card *card, unsigned int *out) { ON(card); *out = (unsigned int)(card - state->cards); return SUCCESS; }
int nvmlDeviceGetComputeRunningProcesses_v3(Card *card, unsigned int *count, ProcessInfo *out) {
    ON(card);
    unsigned int room = *count;
    *count = card->process != 0;
    if (room < *count) return INSUFFICIENT_SIZE;
    if (*count) out[0].pid = card->process;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(Card *card, unsigned int *current, unsigned int *pending) {
    NEEDS(card, MISSING_MIG);
    *current = *pending = card->mig_enabled;
    return SUCCESS;
}

/* sensors: power wobbles by up to 3 mW every 100 ms, so that its update period can be seen */
static uint32_t power_mw(const Card *card) { return card->power_mw + now_us() / 100000 % 4; }

GIVE(nvmlDeviceGetPowerUsage, unsigned int, power_mw(card))
GIVE(nvmlDeviceGetEnforcedPowerLimit, unsigned int, card->limit_mw)
GIVE(nvmlDeviceGetPowerManagementLimit, unsigned int, card->limit_mw)
GIVE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, card->default_limit_mw)
GIVE(nvmlDeviceGetPerformanceState, unsigned int, card->performance_state)
GIVE(nvmlDeviceGetPersistenceMode, unsigned int, card->persistence)

int nvmlDeviceGetFieldValues(Card *card, int count, FieldValue *fields) {
    ON(card);
    for (int i = 0; i < count; i++) {
        uint32_t bit = fields[i].field == FIELD_POWER_AVERAGE ? MISSING_AVERAGE_FIELD : MISSING_INSTANT;
        int known = fields[i].field == FIELD_POWER_AVERAGE || fields[i].field == FIELD_POWER_INSTANT;
        fields[i].result = known && !(card->missing & bit) ? SUCCESS : NOT_SUPPORTED;
        fields[i].type = VALUE_UNSIGNED_INT;
        fields[i].time = (int64_t)now_us();
        fields[i].value.ui = power_mw(card);
    }
    return SUCCESS;
}
int nvmlDeviceGetTotalEnergyConsumption(Card *card, unsigned long long *out) {
    NEEDS(card, MISSING_COUNTER);
    uint64_t ticks = (now_us() - card->counter_since_us) / card->counter_period_us;
    *out = ticks * card->counter_period_us * card->power_mw / 1000000;
    return SUCCESS;
}
static uint32_t asked_sm_mhz(const Card *card) {
    int ignored = card->ignores_locks || card->locked_sm_mhz == card->ignored_sm_mhz;
    if (!card->locked_sm_mhz || ignored) return card->free_sm_mhz;
    return now_us() < card->locked_at_us + card->settle_us ? card->sm_before_lock_mhz : card->locked_sm_mhz;
}
static int is_capped(const Card *card) { return card->capped_sm_mhz && asked_sm_mhz(card) > card->capped_sm_mhz; }
static uint32_t sm_clock_mhz(const Card *card) { return is_capped(card) ? card->capped_sm_mhz : asked_sm_mhz(card); }
static uint32_t sample_of(const Card *card, unsigned int type) {
    switch (type) {
        case RING_POWER: return card->power_mw;
        case RING_GPU: return card->gpu_percent;
        case RING_MEMORY: return card->memory_percent;
        case RING_SM_CLOCK: return sm_clock_mhz(card);
        case RING_MEMORY_CLOCK: return card->free_memory_mhz;
        default: return 0;
    }
}
int nvmlDeviceGetSamples(Card *card, unsigned int type, unsigned long long since_us, unsigned int *value_type,
                         unsigned int *count, Sample *samples) {
    NEEDS(card, MISSING_RING);
    if (type == RING_DECODER || type >= RINGS || (type != RING_POWER && card->missing & MISSING_OTHER_RINGS))
        return NOT_SUPPORTED;
    *value_type = VALUE_UNSIGNED_INT;
    unsigned int length = type == RING_POWER ? RING_SAMPLES : SHORT_RING_SAMPLES;
    uint64_t period_us = type == RING_POWER ? RING_PERIOD_US : SHORT_RING_PERIOD_US, newest = now_us() / period_us;
    if (!samples) {
        *count = 2 * length;
        return SUCCESS;
    }
    unsigned int filled = 0;
    for (uint64_t tick = newest - length + 1; tick <= newest && filled < *count; tick++) {
        if (tick * period_us <= since_us) continue;
        samples[filled].time_us = tick * period_us;
        samples[filled].value.ui = sample_of(card, type) + (type == RING_POWER ? tick % 5 : 0);
        filled++;
        if (type != RING_POWER && tick % 10 == 0 && filled < *count) {  /* handed out twice, as drivers do */
            samples[filled] = samples[filled - 1];
            filled++;
        }
    }
    *count = filled;
    return filled ? SUCCESS : NOT_FOUND;
}
GIVE(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, card->throttle_reasons | (is_capped(card) ? SW_POWER_CAP : 0))
int nvmlDeviceGetClockInfo(Card *card, int clock, unsigned int *out) {
    ON(card);
    uint32_t memory_mhz = card->locked_memory_mhz ? card->locked_memory_mhz : card->free_memory_mhz;
    *out = clock == CLOCK_MEM ? memory_mhz : sm_clock_mhz(card);
    return SUCCESS;
}
int nvmlDeviceGetTemperature(Card *card, int sensor, unsigned int *out) {
    ON(card);
    if (sensor) return INVALID_ARGUMENT;
    *out = card->temperature_c;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(Card *card, unsigned int out[2]) {
    ON(card);
    out[0] = card->gpu_percent;
    out[1] = card->memory_percent;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(Card *card, unsigned long long out[3]) {
    ON(card);
    out[0] = card->memory_total;
    out[1] = card->memory_total - card->memory_used;
    out[2] = card->memory_used;
    return SUCCESS;
}
int nvmlDeviceGetPcieThroughput(Card *card, int counter, unsigned int *out) {
    NEEDS(card, MISSING_PCIE);
    *out = counter ? card->pcie_rx_kib_s : card->pcie_tx_kib_s;
    return SUCCESS;
}

/* settings */
static int list(const uint32_t *values, uint32_t length, unsigned int *count, unsigned int *out) {
    unsigned int room = *count;
    *count = length;
    if (!out || room < length) return INSUFFICIENT_SIZE;
    for (uint32_t i = 0; i < length; i++) out[i] = values[length - 1 - i];  /* highest first, as the driver does */
    return SUCCESS;
}
int nvmlDeviceGetSupportedMemoryClocks(Card *card, unsigned int *count, unsigned int *out) {
    ON(card);
    return list(card->memory_clocks_mhz, card->memory_clock_count, count, out);
}
int nvmlDeviceGetSupportedGraphicsClocks(Card *card, unsigned int memory_mhz, unsigned int *count, unsigned int *out) {
    ON(card);
    for (uint32_t i = 0; i < card->memory_clock_count; i++)
        if (card->memory_clocks_mhz[i] == memory_mhz) return list(card->sm_clocks_mhz, card->sm_clock_count, count, out);
    return NOT_FOUND;
}
int nvmlDeviceGetPowerManagementLimitConstraints(Card *card, unsigned int *lowest, unsigned int *highest) {
    ON(card);
    *lowest = card->lowest_limit_mw;
    *highest = card->highest_limit_mw;
    return SUCCESS;
}

#define SETS(card, bit) do { __atomic_add_fetch(&(card)->settings_made, 1, __ATOMIC_SEQ_CST); NEEDS(card, bit); \
                             if (!(card)->may_set || ((card)->may_set == 2 && geteuid() != 0)) return NO_PERMISSION; \
                             if ((card)->setting_us) usleep((card)->setting_us); } while (0)

static void lock_sm(Card *card, uint32_t mhz) {
    card->sm_before_lock_mhz = sm_clock_mhz(card);
    card->locked_at_us = now_us();
    card->locked_sm_mhz = mhz;
}
int nvmlDeviceSetGpuLockedClocks(Card *card, unsigned int lowest, unsigned int highest) {
    SETS(card, MISSING_SM_LOCK);
    if (lowest != highest) return INVALID_ARGUMENT;  /* clockwatt never asks for a range */
    lock_sm(card, highest);
    return SUCCESS;
}
int nvmlDeviceResetGpuLockedClocks(Card *card) { SETS(card, MISSING_SM_LOCK); lock_sm(card, 0); return SUCCESS; }
int nvmlDeviceSetMemoryLockedClocks(Card *card, unsigned int lowest, unsigned int highest) {
    SETS(card, MISSING_MEMORY_LOCK);
    if (lowest != highest) return INVALID_ARGUMENT;
    card->locked_memory_mhz = highest;
    return SUCCESS;
}
int nvmlDeviceResetMemoryLockedClocks(Card *card) { SETS(card, MISSING_MEMORY_LOCK); card->locked_memory_mhz = 0; return SUCCESS; }
int nvmlDeviceSetPowerManagementLimit(Card *card, unsigned int limit_mw) {
    SETS(card, 0);
    if (limit_mw < card->lowest_limit_mw || limit_mw > card->highest_limit_mw) return INVALID_ARGUMENT;
    card->limit_mw = limit_mw;
    return SUCCESS;
}
