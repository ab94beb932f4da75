#pragma once
// The look-up of the profile's rows that price the work of one layer.
#include <optional>
#include <string>
#include <string_view>

#include "moe/base/check.h"
#include "moe/prices/price_curve.h"
#include "moe/prices/price_note.h"
#include "moe/prices/profile.h"

namespace moe {

/// Returns ": measured, but ..." if the row was measured but is unusable; empty if it was not measured.
std::string unusable_reason(const Profile& profile, const std::string& row);
/// Returns a note if the size is outside the range that the row was fitted to.
std::optional<PriceNote> range_note(const CommRow& row, double bytes);
std::optional<PriceNote> range_note(const ModuleRow& row, double size);
/// Returns a note for each term of the task that is outside the range that the row was fitted to.
PriceNotes range_notes(const TaskRow& row, const TermValues& task);

/// Returns a note if the AlltoAll's row was measured under other limits on the nodes that tokens reach than this layer
/// has. If one copy is sent per chosen expert, a node_limit does not lower the cost. If rows are sent once per node,
/// the row holds for tokens that reach at most the row's node_limit nodes; a layer whose tokens reach more nodes takes
/// longer, and only a sent_share tells by how much. With a sent_share, the note says how router groups that are not
/// nodes are priced.
std::optional<PriceNote> fan_out_note(const CommRow& row, const LayerCase& shape);

/// Returns the sent_share (CommRow) of this case: the mean number of nodes or, inside a node, ranks that a token
/// reaches, divided by k.
double sent_share(Network network, const LayerCase& shape);

/// The subject of the note that experts in FP8 are priced as GEMMs of the layer's type.
inline constexpr std::string_view kFp8Experts = "experts in FP8";

/// The error if the profile has no row for some work of a case.
class Unpriced : public Unsupported {
 public:
  Unpriced(const std::string& profile, std::string reason)
      : Unsupported({.kind = Refusal::Kind::unpriced, .reason = std::move(reason), .subject = "profile " + profile}) {}
};

struct PricingOptions {
  bool nearest = false;           // without a row of the group size, use the row of the nearest size and add a note
  std::string_view borrows = {};  // the flag that sets `nearest`, for messages
  bool scaled = false;            // without a GEMM row of the type, scale that of another type by the element width
  std::string_view lends = {};    // advice for profiles without GEMM rows, for messages
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

  /// Returns the row of an op over a group of that size, measured with the case's dispatcher; null if there is none. Of
  /// rows that differ in their ranks per node, the one with the most that the group has on each of its nodes.
  const CommRow* comm_row(Op op, const Group& group) const;
  /// Returns the direct row whose group size is nearest by ratio; of two equally near ones, the larger; of several of
  /// one size, as comm_row or, if all have more ranks per node than the group, the one with the fewest.
  const CommRow* nearest_row(Op op, const Group& group) const;
  /// Returns the note that a row of another group size prices a task.
  PriceNote borrowed_note(Op op, const Group& group, const CommRow& row) const;
  /// Throws Unpriced, naming op, group size, network and the nearest row.
  [[noreturn]] void refuse(Op op, const Group& group) const;
  /// Returns the row's curve, and adds a note if `bytes` is outside the measured range.
  PriceCurve curve_of(const CommRow& row, double bytes) const;
  /// Returns the GEMM row of the case's type or, if PricingOptions::scaled, that of another type, scaled. Throws
  /// Unpriced if neither is available.
  ComputeRow gemm_row() const;
  const ComputeRow* expert_row() const;  // null: experts are priced as GEMMs
  /// If experts compute in FP8, adds the note that they are priced as GEMMs of the layer's type.
  void note_fp8() const;
  const ComputeRow* copy_row(Op op = Op::copy) const;  // copy or host_copy; null: no such row
  const ModuleRow* module_row(const std::string& name, Phase phase) const;
  /// Returns the row of the task's module or of the module that replaces it (module_name).
  const ModuleRow* own_module_row(TaskKind kind, Phase phase) const;
  const TaskRow* task_row(TaskKind kind, Phase phase) const;

  /// Returns `row`, and adds notes if it is weak or has another origin than the profile's other rows.
  template <class Row>
  const Row& note_origin(const Row& row) const {
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

// The price of a collective, by its own row or derived from the rows of other collectives or groups.

/// Returns the curve of a collective over the group of that kind, and adds notes if it was derived or borrowed, or if
/// `bytes` is outside a row's measured range. The curve of a group of one rank is 0. Empty if neither a row nor a rule
/// (docs/formats.md, "Derived prices") prices it.
std::optional<PriceCurve> collective_curve(const RowFinder& find, const Groups& groups, Op op, GroupKind kind,
                                           double bytes);

/// Throws Unpriced, naming the row that is missing.
[[noreturn]] void refuse_collective(const RowFinder& find, const Groups& groups, Op op, GroupKind kind);

}  // namespace moe
