#pragma once
// Finds the rows of a profile that price the work of one layer.
#include <optional>
#include <string>
#include <string_view>

#include "moe/base/check.h"
#include "moe/prices/price_curve.h"
#include "moe/prices/price_note.h"
#include "moe/prices/profile.h"

namespace moe {

/// Returns ": measured, but ..." if the row was measured but is unusable; empty if it was not measured.
std::string why_unusable(const Profile& profile, const std::string& row);
/// Returns the note on a size outside the range that a row was fitted to; none if it is inside.
std::optional<PriceNote> range_note(const CommRow& row, double bytes);
std::optional<PriceNote> range_note(const ModuleRow& row, double size);
/// Returns the notes on a task's terms outside the ranges that a row was fitted to.
PriceNotes range_notes(const TaskRow& row, const TermValues& task);

/// Returns the note on an AlltoAll's row that prices this layer. If every chosen expert gets its own copy, the cost
/// does not depend on the experts' nodes, and a node_limit changes nothing. A row measured with rows sent once per node
/// is for tokens that reach at most its own node_limit nodes: a layer whose tokens reach more takes longer, by an
/// amount that only a sent_share tells. With a sent_share, the note says how router groups other than nodes are priced.
std::optional<PriceNote> fan_out_note(const CommRow& row, const LayerCase& shape);

/// Returns the rows sent per copy by an AlltoAll that sends a row once per node or, inside a node, once per rank.
double sent_share(Network network, const LayerCase& shape);

/// The error if no row of the profile prices the work of a case.
class Unpriced : public Unsupported {
 public:
  Unpriced(const std::string& profile, std::string reason)
      : Unsupported({.kind = Refusal::Kind::unpriced, .reason = std::move(reason), .subject = "profile " + profile}) {}
};

struct PricingOptions {
  bool nearest = false;           // borrow the row of the nearest group size if none fits, and note it
  std::string_view borrows = {};  // how a user turns that on, for messages
  bool scaled = false;            // scale the GEMMs of another type, by the width of elements, if a type has no row
  std::string_view lends = {};    // what to do about a profile without GEMMs, for messages
};

/// Looks up rows for one case and collects notes on them: borrowed, weak, outside their range, missing. The profile
/// must outlive it.
class RowFinder {
 public:
  RowFinder(const Profile& profile, const LayerCase& shape, PricingOptions options)
      : profile_(profile), shape_(shape), options_(options) {}

  const Profile& profile() const { return profile_; }
  const LayerCase& shape() const { return shape_; }
  const PricingOptions& options() const { return options_; }
  const PriceNotes& notes() const { return notes_; }
  void note(PriceNote note) const { notes_.insert(std::move(note)); }

  /// Returns the row of that op over a group of that size, by the case's algorithm; null if there is none.
  const CommRow* comm_row(Op op, const Group& group) const;
  /// Returns the direct row whose group size is nearest by ratio; of two equally near rows, the larger group's.
  const CommRow* nearest_row(Op op, const Group& group) const;
  /// Returns the note on a task that is priced by this row of another group size.
  PriceNote borrowed_note(Op op, const Group& group, const CommRow& row) const;
  /// Throws Unpriced, naming op, group size, network and the nearest row.
  [[noreturn]] void refuse(Op op, const Group& group) const;
  /// Returns the row's curve, and adds a note if `bytes` is outside the measured range.
  PriceCurve curve_of(const CommRow& row, double bytes) const;
  /// Returns the GEMM row of the case's type, or another type's, scaled. Throws Unpriced if neither is available.
  ComputeRow gemm_row() const;
  const ComputeRow* expert_row() const;                // null: experts are priced as GEMMs
  const ComputeRow* copy_row(Op op = Op::copy) const;  // copy or host_copy; null: no such row
  const ModuleRow* module_row(const std::string& name, Phase phase) const;
  /// Returns the task's own row, or that of the module that does nearly the same.
  const ModuleRow* own_module_row(TaskKind kind, Phase phase) const;
  const TaskRow* task_row(TaskKind kind, Phase phase) const;

  /// Adds a note on a used row if it is weak or of another origin than the profile's other rows.
  template <class Row>
  const Row& used(const Row& row) const {
    if (!row.verdict.origin.empty()) note({PriceNote::Kind::origin, row.verdict.origin, row_name(row)});
    if (row.verdict.weak) note({PriceNote::Kind::weak, row_name(row), ": " + *row.verdict.weak});
    return row;
  }

 private:
  bool is_direct(Op op) const { return op != Op::alltoall || shape_.layer.dispatcher == "alltoall"; }
  std::string name_with_algorithm(Op op) const;

  const Profile& profile_;
  LayerCase shape_;
  PricingOptions options_;
  mutable PriceNotes notes_;
};

// The price of a collective: by its own row, or derived from the rows of other collectives or groups.

/// Returns the curve of a layer's or step's collective over its group of that kind, and adds notes if it was derived or
/// borrowed, or if `bytes` is outside a row's measured range. A group of one rank sends nothing. None if neither a row
/// nor a rule (docs/formats.md, "Derived prices") prices it.
std::optional<PriceCurve> collective_curve(const RowFinder& find, const Groups& groups, Op op, GroupKind kind,
                                           double bytes);

/// Throws Unpriced, naming the row that is missing.
[[noreturn]] void refuse_collective(const RowFinder& find, const Groups& groups, Op op, GroupKind kind);

}  // namespace moe
