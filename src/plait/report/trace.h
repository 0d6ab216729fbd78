// One step as a trace that ui.perfetto.dev and chrome://tracing open: a process for each rank, with
// a thread of what is computed, in which the units of the schedule enclose their ops, one of
// communication, and the live bytes as a counter. Where a rank waits, a slice says so.
#pragma once

#include <string>
#include <string_view>

#include "plait/exec/limits.h"
#include "plait/exec/session.h"

namespace plait {

// JSON, an event a line. `step` is of these programs.
std::string trace_text(const Programs& programs, const StepTimes& step, const Limits& limits);

// How every trace begins.
inline constexpr std::string_view kTraceHead = R"({"displayTimeUnit":"ns","otherData":{"plait":)";

}  // namespace plait
