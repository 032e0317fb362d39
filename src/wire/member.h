/* member.h - the first words between PID 1 and an interpreter that has joined the sandbox, on the kernel's socket
 * before its protocol begins.
 *
 * PID 1: a u32, so many bytes of environment ("NAME=value" and a zero byte each); with the first byte come descriptors:
 * the directory to work in, and, where the kernel has Landlock, the ruleset to live under.
 * The interpreter, when all of this is done: MEMBER_READY. The kernel stamps it with the number of its process. */
#pragma once

#define MEMBER_READY 'j'
#define MEMBER_ENV_MAX (192u * 1024) /* what a socket's default buffer takes at once */
