/* How much a rank holds and how long it idles. */
#include <math.h>

#include "schedule/pipeline/pipeline.h"

int pipeline_in_flight(const struct pipeline_slot *slots, int n)
{
	int held = 0, most = 0;

	for (int i = 0; i < n; i++) {
		enum pipeline_pass pass = slots[i].pass;
		held += pass == PIPELINE_FORWARD;
		most = held > most ? held : most;
		held -= pass == PIPELINE_BACKWARD || pass == PIPELINE_BACKWARD_WEIGHT;
	}
	return most;
}

/* Idle seconds are p - 1 times a sum of passes, where... */
static const struct {
	int forward, input, weight, pair; /* how many of each */
	bool even;                        /* ...F = I = W; */
	bool light;                       /* ...W <= I and W <= F; */
	int rounds, spare;                /* ...m >= rounds * p - spare */
} idles[PIPELINE_SCHEDULE_COUNT] = {
	[PIPELINE_GPIPE] = {.forward = 1, .input = 1, .weight = 1},
	[PIPELINE_1F1B] = {.forward = 1, .input = 1, .weight = 1},
	[PIPELINE_INTERLEAVED] = {.forward = 1, .input = 1, .weight = 1, .rounds = 1},
	[PIPELINE_ZB_H1] = {.forward = 1, .input = 1, .weight = -1, .light = true, .rounds = 1},
	[PIPELINE_ZBV] = {.forward = 1, .even = true, .rounds = 2, .spare = 1},
	[PIPELINE_DUALPIPEV] = {.input = 1, .weight = -2, .pair = 1, .even = true, .rounds = 2},
};

double pipeline_bubble(const struct pipeline *pipeline, const struct pipeline_times *times)
{
	enum pipeline_schedule s = pipeline->schedule;
	double f = times->forward, i = times->input, w = times->weight;

	if (pipeline->pairs || (idles[s].even && (f != i || i != w)) ||
		(idles[s].light && (w > i || w > f)) ||
		pipeline->micro_batches < idles[s].rounds * pipeline->ranks - idles[s].spare)
		return NAN;
	return (pipeline->ranks - 1) * (idles[s].forward * f + idles[s].input * i +
					       idles[s].weight * w + idles[s].pair * times->pair);
}
