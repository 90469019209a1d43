/* The configuration of NCCL's communicators (ncclConfig_t), if it is not left to NCCL. */
#ifndef EXECUTOR_JOB_NCCL_WISH_H
#define EXECUTOR_JOB_NCCL_WISH_H

#include "base/base.h"

/* X(member, name, since which NCCL). As in ncclConfig_t of 2.28. */
#define NCCL_WISHES(X)                                                                             \
	X(cta_policy, "cta-policy", 22700)                                                         \
	X(min_ctas, "min-ctas", 21800)                                                             \
	X(max_ctas, "max-ctas", 21800)                                                             \
	X(nvls_ctas, "nvls-ctas", 22700)                                                           \
	X(cga_cluster_size, "cga-cluster-size", 21800)                                             \
	X(traffic_class, "traffic-class", 22700)

/* 0: NCCL's own, or what its variables say. */
struct nccl_wish {
#define X(member, name, since) int member;
	NCCL_WISHES(X)
#undef X
};

extern const char *const nccl_policy_names[]; /* NCCL_CTA_POLICY_*: default, efficiency, zero */

/* "cta-policy=zero,max-ctas=16"; NULL is "". EXIT_CODE_USAGE names the word that is none. */
bool nccl_wish_parse(const char *text, struct nccl_wish *wish, struct error *error);
/* Prints the wishes as nccl_wish_parse reads them, without what is left to NCCL. */
void nccl_wish_print(const struct nccl_wish *wish, struct text *text);

#endif
