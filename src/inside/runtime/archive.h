/* archive.h - TAR_OUT and TAR_IN.
 *
 * TAR_OUT of a directory sends its contents, with paths relative to it; TAR_OUT of a file sends
 * that file. TAR_IN unpacks below an existing directory. Links are stored and made as links and
 * never followed. */
#pragma once

#include "inside/runtime/files.h"

#define TAR_IN_BYTES_MAX (64ull * GIB) /* the sandbox's disk limit is the real bound */

request_open_fn tar_out_open;
request_open_fn tar_in_open;
