/* Devices of one type differ (silicon, temperature, power), and every gradient waits for the
 * slowest. With speeds spread about their mean by a relative standard deviation, a step over n
 * devices takes 1 + spread * E[max of n] times what it does on an average one. */
#include "simulator/devices/devices.h"

#include <math.h>

/* Fitted on the calibrating part of bench/accuracy: llm-foundry's steps over 8 to 128 A100, sigma
 * 0.036 with a constant of its own for each model and sequence length (n = 48, exposed
 * communication below 5 % of the step; docs/cost-model.md). Over 64 thousand GPUs it says 10 %;
 * PRISM (arXiv 2510.15596) observed 9 % there. */
static const double device_spread = 0.035;

enum { REFERENCE_DEVICES = 8 };

double expected_maximum(int64_t n)
{
	static const double log_4_pi = 2.5310242469692907;
	double a;

	if (n < 2)
		return 0;
	a = sqrt(2 * log((double)n));
	return fmax(0.5641895835477563 /* 1 / sqrt(pi), two */,
		a - (log(log((double)n)) + log_4_pi) / (2 * a));
}

double straggler_slowdown(const struct topology *topology)
{
	int64_t devices = topology_devices(topology);

	if (topology->device.kind != DEVICE_GPU || devices <= REFERENCE_DEVICES)
		return 1;
	return 1 +
	       device_spread * (expected_maximum(devices) - expected_maximum(REFERENCE_DEVICES));
}
