/* Private to the executor: stream sockets between machines, with deadlines. A deadline is a time of
 * clock_now(). */
#ifndef EXECUTOR_LAUNCH_TCP_H
#define EXECUTOR_LAUNCH_TCP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

enum { TCP_HOST_BYTES = 64 };

/* Of all interfaces; `*port` 0 takes a free one and becomes its number. -1: EXIT_CODE_ENVIRONMENT
 * says why. */
int tcp_listen(int *port, struct error *error);
/* The next one who comes; -1 when none came. */
int tcp_accept(int listener, double deadline);
/* Tries again until the deadline, since the other side may still start. -1: the error says why,
 * EXIT_CODE_ENVIRONMENT for an unknown name, else EXIT_CODE_FAULT. */
int tcp_connect(const char *host, int port, double deadline, struct error *error);

/* All of it; false when the connection broke or the deadline came. */
bool tcp_send(int fd, const void *data, size_t bytes, double deadline);
bool tcp_receive(int fd, void *data, size_t bytes, double deadline);

/* The other side's address, in figures; "" when it is on this machine. */
void tcp_peer(int fd, char host[TCP_HOST_BYTES]);

#endif
