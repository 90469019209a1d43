/* Quantities with units, read and printed: "80GiB", "200Gbit/s", "50GB/s", "3.5us", "312TFLOPS".
 *
 * A bare number means the base unit (bytes, bytes per second, seconds, FLOP/s). Decimal prefixes
 * are powers of 1000 (kB MB GB TB PB), binary ones of 1024 (KiB MiB GiB TiB PiB); "bit" is an
 * eighth of "B". Also read: "80G" = "80Gi" = "80GiB", "80gb" = "80GB", "400gbps" = "400Gbit" =
 * "400GbE" = "400Gbit/s", "312T" = "312tflops" = "312TFLOPS". Blanks between number and unit are
 * allowed. Printing gives text that reads back as the same value, bit for bit. */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum unit_kind {
	UNIT_BYTES,     /* int64_t; of MiB and larger rounded down, else integral after scaling */
	UNIT_BANDWIDTH, /* double, bytes per second */
	UNIT_TIME,      /* double, seconds */
	UNIT_FLOPS,     /* double, FLOP per second */
};

/* False when the text is not such a quantity, is negative, is not finite, or (bytes) is no
 * whole number although its unit is below MiB, or overflows int64_t. */
bool unit_parse_bytes(const char *string, int64_t *bytes);
bool unit_parse(enum unit_kind kind, const char *string, double *value);

/* What is expected, for messages: "a size such as 80GiB". */
const char *unit_expectation(enum unit_kind kind);

/* Exact, for files: 85899345920 -> "80GiB", 25e9 -> "200Gbit/s" is not tried, "25GB/s" is. */
void unit_print_bytes(struct text *text, int64_t bytes);
void unit_print(struct text *text, enum unit_kind kind, double value);

/* For people: three significant digits, "26.8 GiB", "1.24 ms", "50.0 GB/s". Returns `buffer`. */
const char *format_bytes(char buffer[32], double bytes);
const char *format_seconds(char buffer[32], double seconds);
const char *format_bandwidth(char buffer[32], double bytes_per_second);
const char *format_count(char buffer[32], double count); /* "6.74 B" for parameters, "1.2 k" */

#endif
