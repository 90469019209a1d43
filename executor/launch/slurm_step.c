#include "executor/launch/slurm_step.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/kernels.h"

/* The step's end may take so many seconds; then this process leaves as if it had not tried. */
enum { PATIENCE = 5 };

bool slurm_step_has_pmix(const struct segment *segment)
{
	const char *launcher = segment_text(segment, TEXT_LAUNCHER);

	return segment->header->job.meets == MEETS_OVER_MPI && launcher != NULL &&
	       strcmp(launcher, "srun") == 0 && getenv("PMIX_NAMESPACE") != NULL;
}

/* Makes the pair through which the rank sends its connection. Nothing is ever received: the
 * connection stays open as long as the pair is. */
void slurm_step_hold(int *rank_end)
{
	int pair[2];

	*rank_end = -1;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0)
		*rank_end = pair[1];
}

/* --- in a rank --- */

/* Returns the port in "server;tcp4://127.0.0.1:38123", or 0 if there is none of that kind. */
static int server_port(void)
{
	static const char *const names[] = {
		"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI2"};

	for (int i = 0; i < COUNT_OF(names); i++) {
		const char *uri = getenv(names[i]);
		const char *colon = uri != NULL ? strrchr(uri, ':') : NULL;

		if (colon != NULL && strstr(uri, ";tcp4://") != NULL)
			return atoi(colon + 1);
	}
	return 0;
}

static bool leads_to(int fd, int port)
{
	struct sockaddr_in peer;
	socklen_t length = sizeof(peer);

	return getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
	       peer.sin_family == AF_INET && ntohs(peer.sin_port) == port;
}

static void send_descriptor(int through, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	/* If this fails, the rank's death ends the step as Slurm would. */
	(void)!sendmsg(through, &message, MSG_NOSIGNAL);
}

void slurm_step_share_connection(void)
{
	int port = server_port(), most = (int)sysconf(_SC_OPEN_MAX);

	for (int fd = 3; port != 0 && fd < most && fd < 1024; fd++)
		if (leads_to(fd, port))
			send_descriptor(SLURM_STEP_RANK_FD, fd);
	close(SLURM_STEP_RANK_FD);
}

/* --- the end --- */

/* This is as in pmix_common.h, and the same from PMIx 1 to 5. */
struct pmix_process {
	char name_space[256];
	uint32_t rank;
};

static int exit_code;

static void leave(int number)
{
	(void)number;
	_exit(exit_code);
}

struct pmix {
	int (*init)(struct pmix_process *, void *, size_t);
	int (*end)(int, const char *, struct pmix_process *, size_t);
};
static const struct symbol pmix_symbols[] = {
	{"PMIx_Init", offsetof(struct pmix, init)}, {"PMIx_Abort", offsetof(struct pmix, end)}};

static void end_step(void)
{
	struct pmix_process self;
	struct pmix pmix;

	if (library_open("libpmix.so.2", pmix_symbols, COUNT_OF(pmix_symbols), &pmix) != NULL)
		return;
	fflush(NULL);
	signal(SIGALRM, leave);
	alarm(PATIENCE);
	if (pmix.init(&self, NULL, 0) == 0)
		pmix.end(exit_code, "", NULL, 0);
	alarm(0);
}

void slurm_step_end(int code)
{
	exit_code = code;
	atexit(end_step);
}
