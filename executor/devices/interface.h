/* The functions by which a device that works on its own serves the interpreter. */
#ifndef EXECUTOR_DEVICES_INTERFACE_H
#define EXECUTOR_DEVICES_INTERFACE_H

#include "schedule/documents/documents.h"
#include "schedule/schedule.h"

/* A device that works on its own while the walk goes on. The walk enqueues all operations itself,
 * in list order, and calls these functions instead of waiting. False ends the step, with an error
 * or (when the run was aborted) without. A step ends when the device has done all of it, so no
 * operation waits for the step before. */
struct device_ops {
	/* `walk` is set to whether the operations are to be issued: a device that can repeat a step
	 * by itself carries it out in end_step. */
	bool (*begin_step)(void *device, bool rehearsal, bool *walk, struct error *error);
	/* Brackets the calls that enqueue `op`, which starts after the operations that it waits
	 * for. For an operation of the host stream the host itself waits for them. */
	bool (*begin)(void *device, int op, struct error *error);
	bool (*end)(void *device, int op, struct error *error);
	/* The host waits until that operation of this step has finished. */
	bool (*wait)(void *device, int op, struct error *error);
	/* Everything has finished; fills starts and ends, in seconds of the step (and when it was
	 * issued, where the step was not walked). */
	bool (*end_step)(void *device, struct span *spans, struct error *error);
	void *(*stream)(void *device, enum stream stream); /* for collectives */
	/* Pacing: `op` starts now (a collective's transport notes at `clock` when all have come);
	 * what follows it on its stream comes `seconds` after that, at the earliest; and by how
	 * many s it was late in the step that has ended. */
	bool (*start)(void *device, int op, struct error *error);
	void *(*clock)(void *device, int op);
	bool (*hold)(void *device, int op, double seconds, struct error *error);
	double (*late)(void *device, int op);
};

#endif
