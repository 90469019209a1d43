/* How NCCL's communicators are made, and what is told of it. */
#ifndef EXECUTOR_TRANSPORTS_NCCL_CONFIG_H
#define EXECUTOR_TRANSPORTS_NCCL_CONFIG_H

#include "executor/job/job.h"
#include "executor/transports/nccl_api.h"

/* The configuration of a non-blocking communicator, with the user's wishes and all else left to
 * NCCL. EXIT_CODE_ENVIRONMENT when the NCCL that was found does not know one of the wishes. */
bool nccl_config_make(const struct nccl_api *api, const struct nccl_wish *wish,
	struct nccl_config *config, struct error *error);

/* "2.28.9, max-ctas=16, NCCL_ALGO=Ring": its version, the wishes, and the variables of this process
 * that it reads, sorted. */
const char *nccl_config_say(
	const struct nccl_api *api, const struct nccl_wish *wish, struct arena *arena);

#endif
