/* watch.h - WATCH: what happens to the names in a directory, or in a whole tree, told as it happens. */
#pragma once

#include "inside/runtime/files.h"

#define WATCHES_MAX 16u /* at one time */

/* A directory, or with RT_PATH_RECURSIVE all below it on the same mount, links not followed. What is no directory is
 * watched as a name in its directory, so that a file which is replaced by a rename goes on being watched. */
request_open_fn watch_open;
