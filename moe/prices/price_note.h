#pragma once
// What a reader must know of a price: that its row is weak or borrowed, that it was derived, or that there is none.
#include <compare>
#include <set>
#include <string>

namespace moe {

struct PriceNote {
  enum class Kind {
    weak,          // the row's fit is marked
    nearest,       // the row of another group size
    scaled,        // the row of another element type
    derived,       // a rule over other rows
    modelled,      // the profile's model of the hardware
    by_gemm,       // a GEMM of that size, for want of the part's own row
    outside,       // a size outside of those that the row was fitted to
    node_limit,    // an AlltoAll of tokens that reach other numbers of nodes
    not_priced,    // nothing: it counts as free
    degree_above,  // a degree that was asked for, and is cut
    degree_limit,  // the largest degree that is tried
    origin,        // a row of another origin than the profile's other rows
  };
  Kind kind = Kind::derived;
  std::string subject;      // the row, operation or task that is priced so; of `origin` the origin
  std::string detail = {};  // continues the subject: " = half an allreduce of the same volume"

  /// Returns "derived": what notes alike have in common.
  std::string label() const;
  /// Returns "intra allreduce = reducescatter + allgather of the same volume".
  std::string about() const { return kind == Kind::origin ? detail : subject + detail; }
  /// Returns label and about: "derived: intra allreduce = ...".
  std::string text() const { return label() + ": " + about(); }

  auto operator<=>(const PriceNote&) const = default;
};

using PriceNotes = std::set<PriceNote>;

/// Returns the notes as lines.
std::set<std::string> texts_of(const PriceNotes& notes);
/// Returns the notes on weak rows in one line; empty: there are none.
std::string weak_rows(const PriceNotes& notes);

}  // namespace moe
