/* mac.h - the server's own MAC (HMAC-SHA256) on data that it hands out and must recognize later.
 *
 * The key is derived from two halves: a salt in the store, which can be replaced while the server
 * runs and then invalidates all earlier MACs, and a pepper in a file next to it, so that a copy of
 * the store alone cannot create a MAC. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define MAC_LEN 32

struct mac_key {
    uint8_t key[MAC_LEN];
};

void mac_random_bytes(uint8_t ret[MAC_LEN]);
/* Reads the pepper from its file, and creates the file (0600) if it does not exist. */
int mac_load_pepper(const char *path, uint8_t ret[MAC_LEN], struct err *err);

void mac_key_init(struct mac_key *s, const uint8_t pepper[MAC_LEN], const char *salt);
void mac_key_wipe(struct mac_key *s);
/* `purpose` separates kinds of data: a MAC for one is invalid for another. */
void mac_compute(const struct mac_key *s, const char *purpose, const char *data, size_t len, uint8_t ret[MAC_LEN]);
/* In constant time. */
bool mac_verify(const struct mac_key *s, const char *purpose, const char *data, size_t len, const uint8_t mac[MAC_LEN]);
