/* output_dir.h - the directory with the output of executions, and the names of its files.
 *
 * Execution <id> has up to three files: <id>.1 for stdout, <id>.2 for stderr, <id>.3 for the events
 * of a context. A program may write before its row is committed, and a kill in between would leave
 * files that no retention ever finds. So until then its files have temporary names, <id>.1.new and
 * so on, and the next server looks up what became of each. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "service/output_stream.h"

struct store;
struct output_dir;

int output_dir_new(const char *path, struct output_dir **ret, struct err *err); /* an existing directory */
void output_dir_free(struct output_dir *d);
DEFINE_AUTO(output_dir, output_dir_free);
int output_dir_fd(const struct output_dir *d); /* borrowed */

/* Opens the file of a channel, 1 to OUTPUT_CHANNELS. -1 with errno. */
int output_dir_open_file(const struct output_dir *d, const char *id, int channel, bool has_temp_name, int flags);
/* Opens the file for reading, under either name. -1 with errno; ENOENT: the execution wrote
 * nothing, or the id is invalid. */
int output_dir_open_for_read(const struct output_dir *d, const char *id, int channel);
int output_dir_set_final_name(const struct output_dir *d, const char *id, int channel); /* -1 with errno */
void output_dir_remove_temp_file(const struct output_dir *d, const char *id, int channel);
void output_dir_remove(const struct output_dir *d, const char *id); /* all channels, under their final names */
/* The sizes of the files; gives them their final names first. */
void output_dir_file_sizes(const struct output_dir *d, const char *id, uint64_t ret[OUTPUT_CHANNELS]);
/* False: not a file of an execution with a row. */
bool output_dir_parse_name(const char *name, char ret_id[ID_SIZE]);
/* Renames or removes the files with temporary names, by whether the store has the row. */
void output_dir_resolve_temp_files(struct output_dir *d, struct store *store);
