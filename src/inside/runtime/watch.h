/* watch.h - WATCH: reports changes of the names in a directory, or in a whole tree, as they
 * happen. */
#pragma once

#include "inside/runtime/files.h"

#define WATCHES_MAX 16u /* per sandbox at the same time */

/* Watches a directory, or with RT_PATH_RECURSIVE everything below it on the same mount, without
 * following links. A path that is not a directory is watched as a name in its parent, so that a
 * file that is replaced by a rename stays watched. */
request_open_fn watch_open;
