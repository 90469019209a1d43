/* Traces of the PyTorch profiler (Kineto's Chrome trace JSON), read piece by piece: they reach
 * hundreds of megabytes. What is kept is what the device did in the profiled steps. Fields as
 * pytorch/kineto libkineto/src/output_json.cpp writes them; kernels are told apart by name, as
 * HolisticTraceAnalysis does. */
#ifndef SCHEDULE_KINETO_H
#define SCHEDULE_KINETO_H

#include "base/base.h"
#include "schedule/traces/activity.h"

struct kineto_event {
	char phase;
	double start, duration; /* us */
	int64_t correlation;
	double in_elements, out_elements, bytes;
	int element_bytes;
	bool is_float; /* fp32 */
	char category[32], name[160], collective[48];
};

struct kineto_launch {
	int64_t correlation;
	double time; /* us */
};

struct kineto {
	struct json_stream stream;
	struct kineto_event event; /* in the making */
	bool in_events, in_args, in_distributed;
	/* Results; times in us until kineto_end. */
	struct activities activities;
	int64_t *correlations; /* of activities; from malloc */
	int correlation_capacity, n_launches, launch_capacity, n_steps;
	struct kineto_launch *launches;                        /* from malloc */
	double first_step, last_step;                          /* of ProfilerStep annotations */
	double step_starts[256];                               /* the first of them */
	double fp32_reduced, reduced, fp32_gathered, gathered; /* bytes */
	double fp32_products, products;                        /* us of matrix products */
	int n_softmax, n_fused_attention;                      /* kernels */
	int64_t world_size;                                    /* 0 = not said */
};

/* The lines of Python that record one, for help and messages. */
extern const char kineto_recipe[];

void kineto_init(struct kineto *kineto, const char *name);
bool kineto_feed(struct kineto *kineto, const char *bytes, size_t length, struct error *error);
/* Closes the document and puts things together: times in seconds, launches joined to kernels, the
 * window of whole steps (the first one is left out where there are three or more; without
 * ProfilerStep annotations the whole trace counts as one step). EXIT_CODE_INPUT when no device
 * worked in it. */
bool kineto_end(struct kineto *kineto, struct error *error);
/* After kineto_end. */
void kineto_facts(const struct kineto *kineto, struct trace_facts *facts);
void kineto_finish(struct kineto *kineto);

#endif
