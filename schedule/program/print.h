/* Private to program: lines of the text form, and where they go. */
#ifndef SCHEDULE_PRINT_H
#define SCHEDULE_PRINT_H

#include "schedule/program/program.h"

/* Lines are kept, or hashed and forgotten. */
struct printer {
	struct text *text;
	struct hashing *hashing; /* NULL: they are kept */
};

/* `indices` holds the slices of the operation. */
void print_op(struct printer *printer, const struct op *op, const int *indices, int index);
void print_buffer(struct printer *printer, const struct buffer *buffer, int index);

/* unfold.c: buffers and operations of a folded program, as the whole list has them. */
void print_carried_out(struct printer *printer, const struct program *program);

#endif
