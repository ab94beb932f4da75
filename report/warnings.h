#pragma once
// What a reader of the figures has to know first.
#include "report/columns.h"
#include "verbs/record_files.h"

namespace moe::report {

/// Returns [{"level", "text", "cases"}], the gravest first: results that are wrong, then what failed, what broke the
/// rules of measuring, what prices badly, what was not planned, and how the runs were made. `cases` names some.
Json warnings_of(const std::vector<verbs::FileRun>& files);

}  // namespace moe::report
