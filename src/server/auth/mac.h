/* mac.h - the server's own signature (HMAC-SHA256) on what it hands out and wants to recognise later.
 *
 * The key is made of two halves: one in the store, which can be replaced while the server runs and ends everything that
 * was sealed before, and one in a file beside it, so that a copy of the store alone seals nothing. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define MAC_LEN 32

struct mac_key {
    uint8_t key[MAC_LEN];
};

void mac_random_bytes(uint8_t ret[MAC_LEN]);
/* Reads the half that lies in a file, and makes the file (0600) when there is none. */
int mac_load_pepper(const char *path, uint8_t ret[MAC_LEN], struct err *err);

void mac_key_init(struct mac_key *s, const uint8_t pepper[MAC_LEN], const char *salt);
void mac_key_wipe(struct mac_key *s);
/* `purpose` keeps kinds apart: what was sealed for one is worth nothing for another. */
void mac_compute(const struct mac_key *s, const char *purpose, const char *data, size_t len, uint8_t ret[MAC_LEN]);
bool mac_verify(const struct mac_key *s, const char *purpose, const char *data, size_t len,
                const uint8_t mac[MAC_LEN]); /* in constant time */
