#include "registry_habits.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum {
    CHUNK = FAKE_FIXTURE_CHUNK,
    ALL = 3 * CHUNK,
};

/* In a config %d is the last byte of the first chunk, or a limit of less than a chunk. */
static const struct {
    const char *name;
    const char *config;
    int number;
    uint64_t again;
    uint64_t later;
    size_t asks;
    bool takes_parts;
} habits[] = {
    {"GHCR: 416 says that there are too many bytes",
     "{'settings':{'body_max':%d,'body_max_status':416}}", CHUNK / 2, CHUNK, 0, 0, true},
    {"a proxy: 413", "{'settings':{'body_max':%d}}", CHUNK / 2, CHUNK, 0, 0, true},
    {"zot: Range of the chunk, not of all",
     "{'settings':{'range':'0-{added}','range_of_get':'0-{last}'}}", 0, 0, 0, 0, true},
    {"ECR: Range stays at the end of the first chunk",
     "{'rules':[{'method':['PATCH','GET'],'path':'*/uploads/*','work':true,"
     "'headers':{'Range':'0-%d'}}]}",
     CHUNK - 1, CHUNK, 0, 0, true},
    {"ECR, when it refuses by 400 what it has",
     "{'settings':{'out_of_place_status':400},'rules':[{'method':['PATCH','GET'],"
     "'path':'*/uploads/*','work':true,'headers':{'Range':'0-%d'}}]}",
     CHUNK - 1, CHUNK, 0, 0, true},
    {"ECR without GET",
     "{'rules':[{'method':'PATCH','work':true,'headers':{'Range':'0-%d'}},"
     "{'method':'GET','path':'*/uploads/*','status':405}]}",
     CHUNK - 1, 0, 0, 0, true},
    {"ECR, and closing it fails once",
     "{'rules':[{'method':['PATCH','GET'],'path':'*/uploads/*','work':true,"
     "'headers':{'Range':'0-%d'}},{'method':'PUT','nth':1,'status':500}]}",
     CHUNK - 1, CHUNK, 0, 1, true},
    {"Quay: GET counts to behind the last byte",
     "{'settings':{'range_of_get':'0-{size}'},"
     "'rules':[{'method':'PATCH','nth':2,'read':%d,'end':'close'}]}",
     65536, CHUNK, 0, 1, true},
    {"Quay, when what was lost is small",
     "{'settings':{'range_of_get':'0-{size}'},"
     "'rules':[{'method':'PATCH','nth':2,'work':true,'send_head':0}]}",
     0, 0, 0, 2, true},
    {"Ranges of all answers count one more", "{'settings':{'range':'0-{size}'}}", 0, 0, 0, 0, true},
    {"no Range, and a chunk that is refused once",
     "{'settings':{'range':null},'rules':[{'method':'PATCH','nth':2,'status':416}]}", 0, CHUNK,
     CHUNK, 1, true},
    {"Artifact Registry: one chunk and no second, 405",
     "{'rules':[{'method':'PATCH','nth':2,'times':1000,'status':405}]}", 0, ALL, 0, 0, false},
    {"Artifact Registry: one chunk and no second, 400",
     "{'rules':[{'method':'PATCH','nth':2,'times':1000,'status':400}]}", 0, ALL, 0, 0, false},
    {"no PATCH", "{'rules':[{'method':'PATCH','status':405}]}", 0, ALL, 0, 0, false},
};

size_t registry_habits_list(struct registry_habit ret[REGISTRY_HABITS_MAX])
{
    for (size_t i = 0; i < ARRAY_SIZE(habits); i++) {
        ret[i] = (struct registry_habit){.name = habits[i].name,
                                         .again = habits[i].again,
                                         .later = habits[i].later,
                                         .asks = habits[i].asks,
                                         .takes_parts = habits[i].takes_parts};
        const char *config = habits[i].config;
        const char *number = strstr(config, "%d");
        if (number)
            snprintf(ret[i].config, sizeof ret[i].config, "%.*s%d%s", (int)(number - config),
                     config, habits[i].number, number + 2);
        else
            snprintf(ret[i].config, sizeof ret[i].config, "%s", config);
    }
    return ARRAY_SIZE(habits);
}

void registry_habits_check(struct fake_fixture *fixture, const struct registry_habit *habit,
                           bool known)
{
    uint64_t again = fake_fixture_bytes(fixture) - FAKE_FIXTURE_LARGE;
    size_t asks = fake_fixture_asks(fixture);
    if (again > (known ? habit->later : habit->again) || (known && asks > habit->asks))
        fail_msg("%s, %s: %llu bytes again, %zu questions", habit->name,
                 known ? "known" : "unknown", (unsigned long long)again, asks);
}
