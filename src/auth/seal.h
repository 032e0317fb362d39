/* seal.h - the server's own signature (HMAC-SHA256) on what it hands out and wants to recognise later.
 *
 * The key is made of two halves: one in the store, which can be replaced while the server runs and ends everything that
 * was sealed before, and one in a file beside it, so that a copy of the store alone seals nothing. */
#pragma once

#include "base/base.h"
#include "base/err.h"

#define SEAL_LEN 32

struct seal {
    uint8_t key[SEAL_LEN];
};

void seal_random(uint8_t ret[SEAL_LEN]);
/* Reads the half that lies in a file, and makes the file (0600) when there is none. */
int seal_pepper(const char *path, uint8_t ret[SEAL_LEN], struct err *err);

void seal_init(struct seal *s, const uint8_t pepper[SEAL_LEN], const char *salt);
void seal_wipe(struct seal *s);
/* `purpose` keeps kinds apart: what was sealed for one is worth nothing for another. */
void seal_make(const struct seal *s, const char *purpose, const char *data, size_t len, uint8_t ret[SEAL_LEN]);
bool seal_holds(const struct seal *s, const char *purpose, const char *data, size_t len,
                const uint8_t mac[SEAL_LEN]); /* in constant time */
