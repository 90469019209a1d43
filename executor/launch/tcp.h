/* Private to the executor: stream sockets between machines, with deadlines. A deadline is a time of
 * clock_now(). */
#ifndef EXECUTOR_LAUNCH_TCP_H
#define EXECUTOR_LAUNCH_TCP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

enum { TCP_HOST_BYTES = 64, TCP_LISTENERS = 8 };

/* Listens at up to TCP_LISTENERS addresses of one name, a socket for each. */
struct tcp_listener {
	int n, fds[TCP_LISTENERS];
	int port;
};

/* Listens at the addresses that `host` has on this machine; port 0 takes a free one. At those of
 * all interfaces when `host` is NULL, when none of its addresses is this machine's (it stands
 * behind another one), and when it is a name of this machine that only the machine itself resolves
 * to loopback, as Debian sets it up. EXIT_CODE_ENVIRONMENT says why it cannot. */
bool tcp_listen(struct tcp_listener *listener, const char *host, int port, struct error *error);
void tcp_stop_listening(struct tcp_listener *listener);
/* Returns the next connection that waits at the listening socket `fd`, or -1 when none does, with
 * the errno of accept(). The caller closes it. */
int tcp_accept(int fd);
/* Is it "localhost", "127.0.0.1" or the like? */
bool tcp_is_loopback(const char *host);
/* Tries until the deadline, since the other side may still start. The caller closes the socket. -1
 * with EXIT_CODE_ENVIRONMENT for an unknown name, EXIT_CODE_FAULT when nobody answers. */
int tcp_connect(const char *host, int port, double deadline, struct error *error);

/* Milliseconds until the deadline, as poll() wants them: rounded up, from 0 to INT_MAX. */
int tcp_milliseconds_to(double deadline);

/* These send or receive all bytes; they return false when the connection broke or the deadline
 * came. */
bool tcp_send(int fd, const void *data, size_t bytes, double deadline);
bool tcp_receive(int fd, void *data, size_t bytes, double deadline);

/* The numeric address of the other side; "" when it is on this machine. */
void tcp_peer(int fd, char host[TCP_HOST_BYTES]);
/* The numeric address of this side. */
void tcp_own(int fd, char host[TCP_HOST_BYTES]);
/* The network interface that the connection uses; "" for loopback, or when it is not known. */
enum { TCP_INTERFACE_BYTES = 64 };
void tcp_interface(int fd, char name[TCP_INTERFACE_BYTES]);

#endif
