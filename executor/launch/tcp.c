#include "executor/launch/tcp.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <math.h>
#include <net/if.h>
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

#define PAUSE   0.05 /* s between two tries to connect */
#define ONE_TRY 3.0  /* s until one try is given up */
enum { BACKLOG = 1024 };

static const char mapped[] = "::ffff:"; /* how a dual-stack socket shows an IPv4 address */

/* --- waiting --- */

/* Returns the time to the deadline for poll(). It may be years away: --join-timeout is any positive
 * number of seconds. */
int tcp_milliseconds_to(double deadline)
{
	double milliseconds = ceil(1e3 * (deadline - clock_now()));

	return (int)fmin(fmax(milliseconds, 0), INT_MAX);
}

/* Waits for events. Returns false at the deadline, or when poll() fails. A broken connection counts
 * as ready: the next send or recv tells. */
static bool ready(int fd, short events, double deadline)
{
	struct pollfd polled = {.fd = fd, .events = events};
	int n;

	do
		n = poll(&polled, 1, tcp_milliseconds_to(deadline));
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

	/* We send whole messages, so Nagle's algorithm would only delay them. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	return fd;
}

/* --- listening --- */

static int listen_at(const struct sockaddr *address, socklen_t bytes)
{
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, off = 0;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (address->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, address, bytes) == 0 && listen(fd, BACKLOG) == 0)
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

static bool add_listener(struct tcp_listener *listener, int fd)
{
	if (fd < 0)
		return false;
	listener->port = port_of(fd);
	listener->fds[listener->n++] = fd;
	return true;
}

static bool listen_any(struct tcp_listener *listener)
{
	const struct sockaddr_in6 six = {
		.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)listener->port)};
	const struct sockaddr_in four = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)listener->port)};

	if (add_listener(listener, listen_at((const struct sockaddr *)&six, sizeof(six))))
		return true;
	/* A kernel may have no IPv6. */
	return errno != EADDRINUSE && errno != EACCES &&
	       add_listener(listener, listen_at((const struct sockaddr *)&four, sizeof(four)));
}

static bool address_is_loopback(const struct sockaddr *address)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;

	if (address->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
	return ntohl(four->sin_addr.s_addr) >> 24 == 127;
}

/* Listens at all addresses. A port that is taken is a failure; an address that is not this
 * machine's is left out. */
static bool listen_at_all(
	struct tcp_listener *listener, const struct addrinfo *addresses, bool loopback)
{
	for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
		if (listener->n == TCP_LISTENERS || address_is_loopback(a->ai_addr) != loopback)
			continue;
		if (!add_listener(listener, listen_at(a->ai_addr, a->ai_addrlen)) &&
			(errno == EADDRINUSE || errno == EACCES))
			return false;
	}
	return listener->n > 0 || (!loopback && listen_any(listener));
}

static bool listen_at_host(struct tcp_listener *listener, const char *host)
{
	const struct addrinfo wanted = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *addresses = NULL;
	char service[16];

	if (host == NULL)
		return listen_any(listener);
	snprintf(service, sizeof(service), "%d", listener->port);
	if (getaddrinfo(host, service, &wanted, &addresses) != 0)
		return listen_any(listener);
	bool ok = listen_at_all(listener, addresses, tcp_is_loopback(host));
	int failure = errno;
	freeaddrinfo(addresses);
	errno = failure;
	return ok;
}

bool tcp_listen(struct tcp_listener *listener, const char *host, int port, struct error *error)
{
	*listener = (struct tcp_listener){.port = port};
	if (listen_at_host(listener, host))
		return true;
	error_set(error, EXIT_CODE_ENVIRONMENT, "cannot listen on port %d: %s", port,
		strerror(errno));
	tcp_stop_listening(listener);
	return false;
}

void tcp_stop_listening(struct tcp_listener *listener)
{
	for (int i = 0; i < listener->n; i++)
		close(listener->fds[i]);
	listener->n = 0;
}

int tcp_accept(int fd)
{
	int guest = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return guest >= 0 ? prepared(guest) : -1;
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

/* Tries every address of the name once. */
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

bool tcp_is_loopback(const char *host)
{
	return strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
	       strcmp(host, "localhost") == 0;
}

static void print_address(
	const struct sockaddr_storage *address, socklen_t bytes, char host[TCP_HOST_BYTES])
{
	char text[TCP_HOST_BYTES];
	const char *plain = text;

	host[0] = '\0';
	if (getnameinfo((const struct sockaddr *)address, bytes, text, sizeof(text), NULL, 0,
		    NI_NUMERICHOST) != 0)
		return;
	if (strncmp(text, mapped, sizeof(mapped) - 1) == 0)
		plain += sizeof(mapped) - 1;
	snprintf(host, TCP_HOST_BYTES, "%s", plain);
}

void tcp_peer(int fd, char host[TCP_HOST_BYTES])
{
	struct sockaddr_storage address = {0};
	socklen_t bytes = sizeof(address);

	host[0] = '\0';
	if (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0)
		print_address(&address, bytes, host);
	if (tcp_is_loopback(host))
		host[0] = '\0';
}

void tcp_own(int fd, char host[TCP_HOST_BYTES])
{
	struct sockaddr_storage address = {0};
	socklen_t bytes = sizeof(address);

	host[0] = '\0';
	if (getsockname(fd, (struct sockaddr *)&address, &bytes) == 0)
		print_address(&address, bytes, host);
}

static socklen_t address_bytes(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in);
}

void tcp_interface(int fd, char name[TCP_INTERFACE_BYTES])
{
	char own[TCP_HOST_BYTES], host[TCP_HOST_BYTES];
	struct ifaddrs *all = NULL;

	name[0] = '\0';
	tcp_own(fd, own);
	if (own[0] == '\0' || getifaddrs(&all) != 0)
		return;
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
		struct sockaddr_storage address = {0};

		if (i->ifa_addr == NULL || i->ifa_flags & IFF_LOOPBACK ||
			(i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
			continue;
		memcpy(&address, i->ifa_addr, address_bytes(i->ifa_addr));
		print_address(&address, address_bytes(i->ifa_addr), host);
		if (strcmp(host, own) == 0)
			snprintf(name, TCP_INTERFACE_BYTES, "%s", i->ifa_name);
	}
	freeifaddrs(all);
}
