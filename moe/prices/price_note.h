#pragma once
// Notes on a price, for example that its row is weak or borrowed, that it was derived, or that it is missing.
#include <compare>
#include <set>
#include <string>

namespace moe {

struct PriceNote {
  enum class Kind {
    weak,          // the row's fit is weak
    nearest,       // priced by the row of another group size
    scaled,        // priced by the scaled row of another element type
    derived,       // computed from other rows by a rule
    modelled,      // computed by the profile's model of the hardware
    by_gemm,       // priced as a GEMM of the same FLOPs, because the part has no row
    outside,       // the size is outside the range that the row was fitted to
    node_limit,    // the AlltoAll's row is for tokens that reach another number of nodes
    not_priced,    // no price: it counts as free
    degree_above,  // a requested degree that is reduced
    degree_limit,  // the largest degree that is tried
    origin,        // the row's origin differs from that of the profile's other rows
  };
  Kind kind = Kind::derived;
  std::string subject;      // the row, operation or task that is priced; for `origin`, the origin
  std::string detail = {};  // continues the subject: " = half an allreduce of the same volume"

  /// Returns the name of the kind, such as "derived".
  std::string label() const;
  /// Returns the note without its label, such as "intra allreduce = reducescatter + allgather of the same volume".
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
