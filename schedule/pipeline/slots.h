/* A list of slots that an order writes. */
#ifndef SCHEDULE_PIPELINE_SLOTS_H
#define SCHEDULE_PIPELINE_SLOTS_H

#include "schedule/pipeline/pipeline.h"

struct slots {
	struct pipeline_slot *of;
	int n;
};

static inline void slots_add(
	struct slots *slots, enum pipeline_pass pass, int chunk, int micro_batch)
{
	slots->of[slots->n++] =
		(struct pipeline_slot){.pass = pass, .chunk = chunk, .micro_batch = micro_batch};
}

/* Writes one schedule; the list has room for 3 slots per chunk and micro-batch. */
typedef void order_function(const struct pipeline *pipeline, int rank, struct slots *slots);
order_function order_gpipe, order_1f1b, order_interleaved, order_zb_h1, order_zbv, order_dualpipev;

#endif
