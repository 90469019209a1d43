#include "executor/launch/tcp.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "executor/ranks/ranks.h"

/* s: between two tries, and until one of them is given up. */
#define PAUSE            0.05
#define ONE_TRY          3.0
#define MOST_AT_THE_DOOR 1024

static const char mapped[] = "::ffff:"; /* how a dual socket shows an IPv4 address */

/* --- waiting --- */

/* True when the socket is ready; false at the deadline, or when it is broken. */
static bool ready(int fd, short events, double deadline)
{
	struct pollfd polled = {.fd = fd, .events = events};
	int n;

	do
		n = poll(&polled, 1, (int)fmax(ceil(1e3 * (deadline - clock_now())), 0));
	while (n < 0 && errno == EINTR);
	return n > 0;
}

static void pause_until(double deadline)
{
	double seconds = fmin(PAUSE, deadline - clock_now());

	if (seconds > 0)
		nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

static int prepared(int fd)
{
	int on = 1;

	/* Messages are whole when they are sent: none waits for another. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	return fd;
}

/* --- listening --- */

static int bind_any(int family, int port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	bool is_six = family == AF_INET6;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, off = 0;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (is_six)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four,
		    is_six ? sizeof(six) : sizeof(four)) == 0 &&
		listen(fd, MOST_AT_THE_DOOR) == 0)
		return fd;
	int failure = errno;
	close(fd);
	errno = failure;
	return -1;
}

static int port_of(int fd)
{
	struct sockaddr_storage address = {0};
	socklen_t bytes = sizeof(address);

	getsockname(fd, (struct sockaddr *)&address, &bytes);
	if (address.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
	return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

int tcp_listen(int *port, struct error *error)
{
	int fd = bind_any(AF_INET6, *port);

	/* A kernel without IPv6. */
	if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
		fd = bind_any(AF_INET, *port);
	if (fd >= 0)
		*port = port_of(fd);
	else
		error_set(error, EXIT_CODE_ENVIRONMENT, "cannot listen on port %d: %s", *port,
			strerror(errno));
	return fd;
}

int tcp_accept(int listener, double deadline)
{
	while (ready(listener, POLLIN, deadline)) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			return prepared(fd);
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			return -1;
	}
	return -1;
}

/* --- connecting --- */

static int try_address(const struct addrinfo *address, double deadline)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int failure = 0;
	socklen_t bytes = sizeof(failure);

	if (fd < 0)
		return -1;
	if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
		failure = errno;
		if (failure == EINPROGRESS) {
			failure = ETIMEDOUT;
			if (ready(fd, POLLOUT, fmin(deadline, clock_now() + ONE_TRY)))
				getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &bytes);
		}
	}
	if (failure == 0)
		return prepared(fd);
	close(fd);
	errno = failure;
	return -1;
}

/* Every address of the name once. */
static int try_all(const struct addrinfo *addresses, double deadline)
{
	int fd = -1;

	for (const struct addrinfo *a = addresses; a != NULL && fd < 0; a = a->ai_next)
		fd = try_address(a, deadline);
	return fd;
}

int tcp_connect(const char *host, int port, double deadline, struct error *error)
{
	const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	double since = clock_now();
	char service[16];

	snprintf(service, sizeof(service), "%d", port);
	for (;;) {
		struct addrinfo *addresses = NULL;
		int unknown = getaddrinfo(host, service, &wanted, &addresses), fd = -1;

		if (unknown == 0)
			fd = try_all(addresses, deadline);
		int failure = errno;
		if (addresses != NULL)
			freeaddrinfo(addresses);
		if (fd >= 0)
			return fd;
		if (unknown != 0 && unknown != EAI_AGAIN) {
			error_set(error, EXIT_CODE_ENVIRONMENT, "no address of \"%.100s\": %s",
				host, gai_strerror(unknown));
			return -1;
		}
		if (clock_now() >= deadline) {
			error_set(error, EXIT_CODE_FAULT,
				"no answer at %.100s, port %d, for %.3g s: %s", host, port,
				clock_now() - since,
				unknown != 0 ? gai_strerror(unknown) : strerror(failure));
			return -1;
		}
		pause_until(deadline);
	}
}

/* --- talking --- */

static bool move(int fd, char *data, size_t bytes, bool sends, double deadline)
{
	while (bytes > 0) {
		ssize_t n = sends ? send(fd, data, bytes, MSG_NOSIGNAL) : recv(fd, data, bytes, 0);

		if (n > 0) {
			data += n;
			bytes -= (size_t)n;
			continue;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return false;
		if (!ready(fd, sends ? POLLOUT : POLLIN, deadline))
			return false;
	}
	return true;
}

bool tcp_send(int fd, const void *data, size_t bytes, double deadline)
{
	return move(fd, (char *)data, bytes, true, deadline);
}

bool tcp_receive(int fd, void *data, size_t bytes, double deadline)
{
	return move(fd, data, bytes, false, deadline);
}

static bool is_loopback(const char *host)
{
	return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

void tcp_peer(int fd, char host[TCP_HOST_BYTES])
{
	struct sockaddr_storage address = {0};
	socklen_t bytes = sizeof(address);
	char text[TCP_HOST_BYTES];
	const char *plain = text;

	host[0] = '\0';
	if (getpeername(fd, (struct sockaddr *)&address, &bytes) != 0 ||
		getnameinfo((struct sockaddr *)&address, bytes, text, sizeof(text), NULL, 0,
			NI_NUMERICHOST) != 0)
		return;
	if (strncmp(text, mapped, sizeof(mapped) - 1) == 0)
		plain += sizeof(mapped) - 1;
	if (!is_loopback(plain))
		snprintf(host, TCP_HOST_BYTES, "%s", plain);
}
