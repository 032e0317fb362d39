/* jailed_zygote.h - the jailer's zygotes: starts them, sends them fork orders and answers for
 * them. */
#pragma once

#include "host/jailer/jailer_internal.h"

int jailed_zygote_start(struct jailer_client *c, const struct frame *f, struct err *err); /* J_ZYGOTE */
int jailed_zygote_request_join(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream,
                               struct err *err);
void jailed_zygote_forget_client(struct jailer *j, const struct jailer_client *c);
void jailed_zygote_forget_spawner(struct jailer *j, const struct spawner *s); /* ends all its zygotes */
