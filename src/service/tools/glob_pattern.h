/* glob_pattern.h - patterns of paths: "**" is any number of directories, the other parts are those
 * of fnmatch(3), and "{a,b}" is a choice. A pattern without a slash matches in every directory.
 * Pure functions. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define GLOB_PATTERN_MAX 1024u     /* bytes */
#define GLOB_PATTERN_PARTS_MAX 31u /* of one alternative */
#define GLOB_ALTERNATIVES_MAX 16u  /* after the expansion of choices */

struct glob_pattern;

/* The parts of the pattern that the names on the way to a directory have left to match: one bit
 * each, by alternative. */
struct glob_position {
    uint32_t bits[GLOB_ALTERNATIVES_MAX];
};

int glob_pattern_new(const char *text, struct glob_pattern **ret, struct err *err);
void glob_pattern_free(struct glob_pattern *g);
DEFINE_AUTO(glob_pattern, glob_pattern_free);

/* The position in the directory in which the search begins. */
void glob_pattern_begin(const struct glob_pattern *g, struct glob_position *ret);
/* The position in the directory `name`, which is an entry of the directory at `from`. True: the
 * path of the entry matches the pattern. */
bool glob_pattern_step(const struct glob_pattern *g, const struct glob_position *from, const char *name,
                       struct glob_position *ret);
/* The cost of glob_pattern_step there: the bytes of the parts that it compares, and 8 for each. */
uint64_t glob_pattern_work(const struct glob_pattern *g, const struct glob_position *from);
/* Whether anything below a directory at this position can match. */
bool glob_pattern_continues(const struct glob_pattern *g, const struct glob_position *at);
/* Whether a path relative to the beginning matches. */
bool glob_pattern_matches(const struct glob_pattern *g, const char *path);
