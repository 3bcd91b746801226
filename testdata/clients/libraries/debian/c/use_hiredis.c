// libhiredis: a lock taken and released by a script, and a pipeline that comes back in order.

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

static char error[256];

// report prints the line of a check, which failed if there is an error.
static void report(const char *check) {
    const char *version = getenv("VERSION");
    printf("{\"library\": \"libhiredis\", \"version\": \"%s\", \"check\": \"%s\", \"ok\": %s, \"error\": \"%s\"}\n", version ? version : "", check,
           error[0] ? "false" : "true", error);
    fflush(stdout);
    error[0] = 0;
}

// fail notes the first thing that is wrong.
static void fail(const char *what) {
    if (!error[0]) snprintf(error, sizeof error, "%s", what);
}

// connect_to opens a connection to the i-th address of COORDD_ADDRS, from 0.
static redisContext *connect_to(int i) {
    char all[1024];
    snprintf(all, sizeof all, "%s", getenv("COORDD_ADDRS") ? getenv("COORDD_ADDRS") : "");
    char *address = strtok(all, ",");
    while (i-- > 0 && address) address = strtok(NULL, ",");
    char *colon = address ? strrchr(address, ':') : NULL;
    if (!colon) {
        fprintf(stderr, "COORDD_ADDRS needs three addresses\n");
        exit(2);
    }
    *colon = 0;
    redisContext *c = redisConnect(address, atoi(colon + 1));
    if (!c || c->err) {
        fprintf(stderr, "no connection to %s:%s\n", address, colon + 1);
        exit(2);
    }
    return c;
}

// expect_text fails unless the reply is a status with this text, or nil where text is NULL.
static void expect_text(redisReply *r, const char *text, const char *what) {
    if (!r || (text ? r->type != REDIS_REPLY_STATUS || strcmp(r->str, text) != 0 : r->type != REDIS_REPLY_NIL)) fail(what);
    if (r) freeReplyObject(r);
}

static void expect_number(redisReply *r, long long n, const char *what) {
    if (!r || r->type != REDIS_REPLY_INTEGER || r->integer != n) fail(what);
    if (r) freeReplyObject(r);
}

int main(void) {
    redisContext *a = connect_to(0), *b = connect_to(1), *c = connect_to(2);
    char key[64];

    snprintf(key, sizeof key, "hiredis:%ld:lock", (long)getpid());
    expect_text(redisCommand(a, "SET %s a NX PX 10000", key), "OK", "the free lock was refused");
    expect_text(redisCommand(b, "SET %s b NX PX 10000", key), NULL, "the held lock was given away");
    expect_number(redisCommand(c, "EVAL %s 1 %s b", release, key), 0, "another's release released");
    expect_number(redisCommand(c, "EVAL %s 1 %s a", release, key), 1, "the owner's release did not release");
    expect_text(redisCommand(b, "SET %s b NX PX 10000", key), "OK", "the released lock was refused");
    report("a lock taken on one node is refused on another and released by its owner's script");

    snprintf(key, sizeof key, "hiredis:%ld:list", (long)getpid());
    enum { commands = 1000 };
    for (int i = 0; i < commands; i++) redisAppendCommand(c, "RPUSH %s %d", key, i);
    for (int i = 0; i < commands; i++) {
        void *reply = NULL;
        if (redisGetReply(c, &reply) != REDIS_OK) {
            fail("the pipeline broke off");
            break;
        }
        expect_number(reply, i + 1, "the pipeline is out of order");
    }
    expect_number(redisCommand(a, "LLEN %s", key), commands, "elements are missing");
    report("a pipeline of 1,000 through one node comes back in order, and is there on another");

    redisFree(a);
    redisFree(b);
    redisFree(c);
    return 0;
}
