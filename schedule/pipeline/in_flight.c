/* Counts how many micro-batches a rank holds at once. */
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
