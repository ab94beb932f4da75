#pragma once
// The price of a collective: by its own row, or derived from the rows of other collectives or groups.
#include "moe/cost/row_finder.h"

namespace moe::cost {

/// Returns the curve of a layer's or step's collective over its group of that kind, with notes on how it was derived or
/// borrowed, and on rows that were not measured at `bytes`. Nothing is sent over a group of one rank. Empty: neither a
/// row nor a rule (docs/formats.md, "Derived prices") prices it.
std::optional<PriceCurve> collective_curve(const RowFinder& find, const Groups& groups, Op op, GroupKind kind,
                                           double bytes);

/// Throws Unpriced, naming the row that is missing.
[[noreturn]] void refuse_collective(const RowFinder& find, const Groups& groups, Op op, GroupKind kind);

}  // namespace moe::cost
