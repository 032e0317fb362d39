/* guest.h - sandboxes without a row: made for one thing, and gone with it.
 *
 * Nobody can find one by its name and no restart brings it back: it is never kept, so the jailer ends it when this
 * process goes. What it uses is its tenant's all the same. It counts against quotas while it lives and against budgets,
 * and its sums go to the store, put together with those of others, about once a second: what a kill takes away is the
 * usage of that second. */
#pragma once

#include "pool/pools.h"
#include "sandbox/manager.h"

struct guest {                /* embedded in its owner; zeroed is none. It must not move while it is there */
    struct guest *next, **at; /* at NULL: it was not admitted, or it is over */
    struct manager *m;
    struct share *share;
    char created_by[ID_SIZE];
    uint64_t amounts[STORE_QUOTA_COUNT];
    bool begun; /* it holds its amounts, and lives */
    bool ran;   /* its execution is counted as one that has ended */
    bool over;  /* it holds them no more: it was of use, and has to go */
    uint64_t created_ms, over_ms, cpu_us;
    struct box *box; /* the owner's; NULL while there is none */
    bool pooled;     /* it is of a pool, and there was: */
    struct pool_loan loan;
    struct pool_return back; /* while it is given back: */
    struct box_spec as;
    void (*given)(void *arg);
    uint64_t cpu_base_ns; /* of its box when it got it: of a recycled one, others' */
    uint64_t peak;        /* of memory, of a box that was given back */
    bool claiming;
    uint64_t claim_ns;
    /* Its tenant may not go on: it is to be ended, and guest_end follows soon. Not called twice. */
    void (*stop)(void *arg, enum ended_by by, const struct err *why);
    void *arg;
    bool stopped;
};

void guest_init(struct guest *g, struct manager *m, const char *owner, const char *created_by);
/* Whether the tenant may have one execution more now: readiness, budget, executions per hour. It is counted. */
int guest_admit(struct guest *g, struct err *err);
/* The tenant's line for whoever lets guests begin in turn. */
struct turn_line *guest_line(const struct guest *g);
uint32_t guest_waiting(const struct guest *g);  /* how many of the tenant's wait */
void guest_wait(const struct guest *g, int by); /* it is one of them from now on (1), or no more (-1) */
/* Takes what it needs of the tenant's quota, and makes its sandbox: g->box. `stop` and `arg` are set by now. */
int guest_begin(struct guest *g, const struct spec *spec, const struct box_ops *ops, void *arg, struct err *err);
/* The box that it took was dead: it gets one that is made for it. Nothing more is heard of the other. */
int guest_again(struct guest *g, const struct spec *spec, const struct box_ops *ops, void *arg, struct err *err);
/* Its box is ready, or will not be: for those who make them ahead. */
void guest_ready(struct guest *g, const struct spec *spec, bool well);

struct guest_use {
    const struct receipt *receipt; /* NULL: it was not run to an end */
    uint64_t wall_ms, output_bytes;
    bool failed;
};
/* The execution is over: counted, and looked at as any other's. */
void guest_ran(struct guest *g, const struct guest_use *use);
/* What it was refused by the end of its interpreter, when no receipt of guest_ran could say so. */
void guest_refused(const struct guest *g, const struct receipt *r);
/* It waits only for its end: what it held is given back, and its life is counted until now. */
void guest_over(struct guest *g);
/* Its box goes back to the pool that lent it, if that recycles; `done` follows, and g->box is NULL if it was taken.
 * False: there is none to give it back to, and nothing follows. by_itself: the program ended, and nobody ended it. */
bool guest_give_back(struct guest *g, const struct spec *spec, bool by_itself, bool full, void (*done)(void *arg));
/* For the end, when the last guest is gone: what they used goes to the store now. */
void manager_guests_finish(struct manager *m);
/* Its sandbox is gone, or there never was one; what it held is given back. Of one that is over, nothing. */
void guest_end(struct guest *g);
