/* net.h - the network of a sandbox: loopback only. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/uio.h>

/* In the network namespace of the caller: brings up lo and adds a prohibit route for everything
 * else, so that every other connection fails at once with "Permission denied". Allocates
 * nothing. */
int net_loopback_only(struct err *err);
/* Sends netlink messages in one packet and reads `acks` acknowledgements, which the kernel has
 * queued when the send returns. The first message that failed sets errno; a message with the
 * sequence number optional_seq (0: none) may fail because the kernel lacks a protocol. Returns 0,
 * or -1 with errno. */
int net_request(int protocol, struct iovec *iov, size_t niov, int acks, uint32_t optional_seq);
