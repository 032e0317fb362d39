/* host_modules.h - the Python modules of the host, for a server: listed in a thread, remembered
 * for a few seconds.
 *
 * So a package that is installed while the server runs is seen without a restart. The caller
 * passes the time in. */
#pragma once

#include "core/ev/ev.h"
#include "sandbox/python_modules.h"

struct host_modules;

/* scan blocks, and is called in a thread; NULL: python_modules_scan. */
struct host_modules *host_modules_new(struct ev *ev, struct python_modules *(*scan)(void));
void host_modules_free(struct host_modules *h); /* callbacks that wait are not called */
DEFINE_AUTO(host_modules, host_modules_free);

#define HOST_MODULES_TTL_NS (3 * NS_PER_S)

/* modules belongs to the server and is valid during the call; NULL: they could not be listed. */
typedef void host_modules_fn(void *arg, const struct python_modules *modules);
/* Calls done with a list that is at most HOST_MODULES_TTL_NS old, or with an older one in which
 * none of `preload` (names with commas between them; NULL: a fresh list is wanted) is missing.
 * done may be called before this returns. */
void host_modules_get(struct host_modules *h, const char *preload, uint64_t now_ns, host_modules_fn *done, void *arg);
const struct python_modules *host_modules_last(const struct host_modules *h); /* the last list, or NULL */
