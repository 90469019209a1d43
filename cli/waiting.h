/* A line on stderr while something takes long, where somebody watches: "planning, 3 s". It appears
 * after a second, is written over once a second, and is gone when the work is done. Nothing on a
 * stderr that is no terminal. */
#ifndef CLI_WAITING_H
#define CLI_WAITING_H

/* `what` must outlive the work. Calls may not be nested. */
void waiting_begin(const char *what);
void waiting_end(void);

#endif
