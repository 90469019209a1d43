/* Private to the executor: stream sockets between machines, with deadlines. A deadline is a time of
 * clock_now(). */
#ifndef EXECUTOR_LAUNCH_TCP_H
#define EXECUTOR_LAUNCH_TCP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

enum { TCP_HOST_BYTES = 64, TCP_LISTENERS = 8 };

/* A socket for each address of a name. */
struct tcp_listener {
	int n, fds[TCP_LISTENERS];
	int port;
};

/* At the addresses of `host` only; at those of all interfaces where it is NULL, where none of them
 * is this machine's own (it is behind another's), and where a name that others know means loopback
 * here, as Debian has it for the machine's own. Port 0 takes a free one. EXIT_CODE_ENVIRONMENT says
 * why not. */
bool tcp_listen(struct tcp_listener *listener, const char *host, int port, struct error *error);
void tcp_stop_listening(struct tcp_listener *listener);
/* Who waits at that socket; -1: nobody, with errno as of accept(). */
int tcp_accept(int fd);
/* "localhost", "127.0.0.1" and the like. */
bool tcp_is_loopback(const char *host);
/* Tries again until the deadline, since the other side may still start. -1: the error says why,
 * EXIT_CODE_ENVIRONMENT for an unknown name, else EXIT_CODE_FAULT. */
int tcp_connect(const char *host, int port, double deadline, struct error *error);

/* All of it; false when the connection broke or the deadline came. */
bool tcp_send(int fd, const void *data, size_t bytes, double deadline);
bool tcp_receive(int fd, void *data, size_t bytes, double deadline);

/* The other side's address, in figures; "" when it is on this machine. */
void tcp_peer(int fd, char host[TCP_HOST_BYTES]);
/* The network interface that it goes by; "" for none, or loopback. */
enum { TCP_INTERFACE_BYTES = 64 };
void tcp_interface(int fd, char name[TCP_INTERFACE_BYTES]);
/* This side's. */
void tcp_own(int fd, char host[TCP_HOST_BYTES]);

#endif
