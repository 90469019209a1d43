/* A cable with a latency that loses frames, between two network namespaces:
 *
 *     relay NAMESPACE NAMESPACE DEVICE LATENCY LOSS SEED
 *
 * Makes a TAP device in each. What one sends comes out of the other LATENCY seconds later; of the
 * frames with data a share of LOSS never does. How fast they go in is the device's own queue to
 * say. Prints a line when both are there; ends when its standard input does. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum {
	FRAME = 9216, /* bytes, with its header */
	ROOM = 2048,  /* frames on their way; a full cable loses what comes */
	/* Shorter ones have no data: connections come up, and answers arrive. */
	DATA = 256,
};

struct frame {
	double due;
	int bytes;
	char data[FRAME];
};

/* One direction. */
struct lane {
	int from, to;
	struct frame *frames; /* [ROOM] */
	unsigned first, n;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((noreturn)) static void fail(const char *what, const char *name)
{
	fprintf(stderr, "relay: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

/* The device exists in the namespace in which it was made. */
static int open_tap(const char *name, const char *device)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	char path[256];

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	int space = open(path, O_RDONLY | O_CLOEXEC);
	if (space < 0 || setns(space, CLONE_NEWNET) != 0)
		fail("namespace", name);
	close(space);
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
		fail("/dev/net/tun in", name);
	return fd;
}

/* xorshift64*: the same frames of the same traffic are lost each time. */
static bool is_lost(double loss, uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (double)(*state * UINT64_C(2685821657736338717) >> 11) * 0x1p-53 < loss;
}

static void take(struct lane *lane, double latency, double loss, uint64_t *state)
{
	for (;;) {
		struct frame *frame = &lane->frames[(lane->first + lane->n) % ROOM];
		ssize_t n = read(lane->from, frame->data, FRAME);

		if (n <= 0)
			return;
		if (lane->n + 1 == ROOM || (n >= DATA && is_lost(loss, state)))
			continue;
		frame->bytes = (int)n;
		frame->due = now() + latency;
		lane->n++;
	}
}

static void deliver(struct lane *lane)
{
	for (; lane->n > 0 && lane->frames[lane->first].due <= now(); lane->n--) {
		const struct frame *frame = &lane->frames[lane->first];

		/* A device that is not up yet, or whose queue is full, loses it. */
		if (write(lane->to, frame->data, (size_t)frame->bytes) < 0 && errno == EBADFD)
			exit(0);
		lane->first = (lane->first + 1) % ROOM;
	}
}

static struct timespec time_until(double due)
{
	double left = due - now();

	left = left > 0 ? left : 0;
	return (struct timespec){
		.tv_sec = (time_t)left, .tv_nsec = (long)(1e9 * (left - (double)(time_t)left))};
}

static void run(struct lane lanes[2], double latency, double loss, uint64_t state)
{
	struct pollfd polled[] = {{.fd = lanes[0].from, .events = POLLIN},
		{.fd = lanes[1].from, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};

	while (polled[2].revents == 0) {
		double due = now() + 3600;

		for (int i = 0; i < 2; i++)
			if (lanes[i].n > 0 && lanes[i].frames[lanes[i].first].due < due)
				due = lanes[i].frames[lanes[i].first].due;
		struct timespec wait = time_until(due);
		if (ppoll(polled, 3, &wait, NULL) < 0 && errno != EINTR)
			fail("ppoll", "");
		for (int i = 0; i < 2; i++) {
			take(&lanes[i], latency, loss, &state);
			deliver(&lanes[i]);
		}
	}
}

int main(int argc, char **argv)
{
	struct lane lanes[2] = {0};

	if (argc != 7) {
		fprintf(stderr, "usage: relay NAMESPACE NAMESPACE DEVICE LATENCY LOSS SEED\n");
		return 2;
	}
	for (int i = 0; i < 2; i++) {
		lanes[i].from = lanes[1 - i].to = open_tap(argv[1 + i], argv[3]);
		lanes[i].frames = calloc(ROOM, sizeof(struct frame));
		if (lanes[i].frames == NULL)
			fail("memory", "");
	}
	puts("ready");
	fflush(stdout);
	run(lanes, atof(argv[4]), atof(argv[5]), strtoull(argv[6], NULL, 10) * 2 + 1);
	return 0;
}
