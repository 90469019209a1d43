/* The face of base/: everything the other folders may use from it.
 *
 * Rule: nothing enters base with fewer than two users in other folders. base knows no files, no
 * processes, no threads, no clocks and no locale: it takes (text, length, name) and gives text.
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include "base/arena.h"
#include "base/checked.h"
#include "base/content.h"
#include "base/csv.h"
#include "base/document.h"
#include "base/dtype.h"
#include "base/embedded.h"
#include "base/error.h"
#include "base/escape.h"
#include "base/fields.h"
#include "base/hash.h"
#include "base/json_stream.h"
#include "base/runs.h"
#include "base/sorted.h"
#include "base/text.h"
#include "base/units.h"
#include "base/writer.h"

#endif
