/* python_modules.h - the Python modules that this host has, and so its sandboxes, by name.
 *
 * Nothing is imported or run: the directories of the interpreter's sys.path are listed. Only the
 * first part of a name counts ("matplotlib" of "matplotlib.pyplot"). Where the layout is
 * unknown, every module counts as installed, so that a template is never refused by mistake. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"

struct python_modules;

struct python_modules *python_modules_scan(void); /* blocks on the file system; never NULL */
/* The same for the interpreter whose path, links resolved, is given. */
struct python_modules *python_modules_scan_program(const char *real_path);
void python_modules_free(struct python_modules *m);
DEFINE_AUTO(python_modules, python_modules_free);

/* Adds to *ret the names of `list` (names with commas between them) that are not installed, each
 * once and separated by commas. Returns their number. NULL for m: nothing is known, and nothing
 * is missing. */
size_t python_modules_missing(const struct python_modules *m, const char *list, struct buf *ret);
/* The command that installs these modules: "apt-get install python3-numpy". */
void python_modules_install_command(const char *list, struct buf *ret);
/* The installed module whose name is nearest to a mistyped one, or NULL. Valid as long as m. */
const char *python_modules_nearest(const struct python_modules *m, const char *name);
