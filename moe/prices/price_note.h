#pragma once
// Notes on a price: its row is weak or borrowed, it was derived, or there is none.
#include <compare>
#include <set>
#include <string>

namespace moe {

struct PriceNote {
  enum class Kind {
    weak,          // the row's fit is weak
    nearest,       // the row of another group size
    scaled,        // the row of another element type
    derived,       // a rule over other rows
    modelled,      // the profile's model of the hardware
    by_gemm,       // a GEMM of the same size, because the part has no row of its own
    outside,       // a size outside the range that the row was fitted to
    node_limit,    // an AlltoAll of tokens that reach another number of nodes
    not_priced,    // no price: it counts as free
    degree_above,  // a requested degree that is reduced
    degree_limit,  // the largest degree that is tried
    origin,        // a row whose origin differs from that of the profile's other rows
  };
  Kind kind = Kind::derived;
  std::string subject;      // the row, operation or task that is priced; for `origin`, the origin
  std::string detail = {};  // continues the subject: " = half an allreduce of the same volume"

  /// Returns the kind's name, "derived".
  std::string label() const;
  /// Returns "intra allreduce = reducescatter + allgather of the same volume".
  std::string about() const { return kind == Kind::origin ? detail : subject + detail; }
  /// Returns label and about: "derived: intra allreduce = ...".
  std::string text() const { return label() + ": " + about(); }

  auto operator<=>(const PriceNote&) const = default;
};

using PriceNotes = std::set<PriceNote>;

/// Returns the notes as texts.
std::set<std::string> texts_of(const PriceNotes& notes);
/// Returns the notes on weak rows in one line; empty if there are none.
std::string weak_rows(const PriceNotes& notes);

}  // namespace moe
