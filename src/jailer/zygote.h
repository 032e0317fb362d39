/* zygote.h - processes that are forked into sandboxes: started, told, answered for. */
#pragma once

#include "jailer/inside.h"

int zygote_begin(struct conn *c, const struct frame *f, struct err *err); /* J_ZYGOTE */
int zygote_join(struct conn *c, struct cell *cell, uint32_t stream, struct err *err);
void zygote_forget_host(struct jailer *j, const struct conn *c);
void zygote_forget_spawner(struct jailer *j, const struct spawner *s); /* with all of its zygotes */
