#pragma once
// Finds the rows of a profile that price one layer's work.
#include <optional>
#include <string>
#include <string_view>

#include "moe/base/check.h"
#include "moe/prices/price_curve.h"
#include "moe/prices/price_note.h"
#include "moe/prices/profile.h"

namespace moe {

/// Returns ": measured, but ..." of a row that was measured to no avail; empty: it wasn't measured.
std::string why_unusable(const Profile& profile, const std::string& row);
/// Returns what a reader must know of a size outside of those that a row was fitted to.
std::optional<PriceNote> range_note(const CommRow& row, double bytes);
std::optional<PriceNote> range_note(const ModuleRow& row, double size);
/// Returns what a reader must know of a task's terms outside of those that a row was fitted to.
PriceNotes range_notes(const TaskRow& row, const TermValues& task);

/// Returns what a reader must know of an AlltoAll's row that prices this layer. A copy for each chosen expert costs the
/// same whatever nodes these lie on: a layer's node_limit changes nothing there. A row that was measured with rows sent
/// once a node has the time of tokens that reach its own node_limit at most: a layer whose tokens reach more takes
/// longer, by how much no row says, unless it has a sent_share.
std::optional<PriceNote> fan_out_note(const CommRow& row, const LayerCase& shape);

/// Returns rows sent a copy by an AlltoAll that sends a row once a node, inside a node once a rank.
double sent_share(Network network, const LayerCase& shape);

/// The error where no row of the profile prices what a case needs.
class Unpriced : public Unsupported {
 public:
  Unpriced(const std::string& profile, std::string reason)
      : Unsupported({.kind = Refusal::Kind::unpriced, .reason = std::move(reason), .subject = "profile " + profile}) {}
};

struct PricingOptions {
  bool nearest = false;           // borrow the row of the nearest group size where none fits, and mark the result
  std::string_view borrows = {};  // what a user asks for that with, as messages name it
  bool scaled = false;            // GEMMs of a type without a row are another type's, by the width of elements
  std::string_view lends = {};    // what a user does about a profile without GEMMs, as messages say it
};

/// Looks rows up for one case, and keeps notes of what a reader must know of them: borrowed, weak, outside their range,
/// missing. The profile must outlive it.
class RowFinder {
 public:
  RowFinder(const Profile& profile, const LayerCase& shape, PricingOptions options)
      : profile_(profile), shape_(shape), options_(options) {}

  const Profile& profile() const { return profile_; }
  const LayerCase& shape() const { return shape_; }
  const PricingOptions& options() const { return options_; }
  const PriceNotes& notes() const { return notes_; }
  void note(PriceNote note) const { notes_.insert(std::move(note)); }

  /// Returns the row of that op over a group of that size, by the case's algorithm; null: there is none.
  const CommRow* comm_row(Op op, const Group& group) const;
  /// Returns the direct row whose group size is nearest by ratio; of two as near, the larger group's.
  const CommRow* nearest_row(Op op, const Group& group) const;
  /// Returns the note on a task that is priced by that row of another group size.
  PriceNote borrowed_note(Op op, const Group& group, const CommRow& row) const;
  /// Throws Unpriced, naming op, group size, network and the nearest row.
  [[noreturn]] void refuse(Op op, const Group& group) const;
  /// Returns the row's curve, and notes if `bytes` are outside what was measured.
  PriceCurve curve_of(const CommRow& row, double bytes) const;
  /// Returns the GEMM row of the case's type, or another type's, scaled. Throws Unpriced where neither may be.
  ComputeRow gemm_row() const;
  const ComputeRow* expert_row() const;  // null: experts are GEMMs
  const ComputeRow* copy_row() const;    // null: there is none
  const ModuleRow* module_row(const std::string& name, Phase phase) const;
  /// Returns the task's own row, or that of the part that does nearly the same.
  const ModuleRow* own_module_row(TaskKind kind, Phase phase) const;
  const TaskRow* task_row(TaskKind kind, Phase phase) const;

  /// Notes that a row is used, if it is weak or of another origin than the profile's other rows.
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

/// Returns the curve of a layer's or step's collective over its group of that kind, with notes on how it was derived or
/// borrowed, and on rows that were not measured at `bytes`. Nothing is sent over a group of one rank. Empty: neither a
/// row nor a rule (docs/formats.md, "Derived prices") prices it.
std::optional<PriceCurve> collective_curve(const RowFinder& find, const Groups& groups, Op op, GroupKind kind,
                                           double bytes);

/// Throws Unpriced, naming the row that is missing.
[[noreturn]] void refuse_collective(const RowFinder& find, const Groups& groups, Op op, GroupKind kind);

}  // namespace moe
