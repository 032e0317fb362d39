/* id.h - identifiers: two letters for the kind and 20 random base32 characters (a-z2-7), no
 * separator. */
#pragma once

#include "core/base/base.h"

#define ID_LEN 22
#define ID_SIZE 23 /* with the NUL */

void id_new(const char kind[2], char ret[ID_SIZE]);
bool id_valid(const char *id, const char kind[2]);
