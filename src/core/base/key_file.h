/* key_file.h - a file with random bytes from which a program derives keys; made at its first
 * use. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define KEY_FILE_LEN 32

/* Reads the file, mode 0600, or creates it. `consequence` ends the error about a file that is not a
 * key: what removing it means. */
int key_file_load(const char *path, const char *consequence, uint8_t ret[KEY_FILE_LEN], struct err *err);
void key_file_random(uint8_t ret[KEY_FILE_LEN]);
