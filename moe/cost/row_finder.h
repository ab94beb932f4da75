#pragma once
// Finds the rows of a profile that price one layer's work.
#include <set>
#include <string>
#include <string_view>

#include "moe/base/check.h"
#include "moe/cost/price_curve.h"
#include "moe/cost/price_notes.h"
#include "moe/cost/profile.h"

namespace moe {

/// The error where no row of the profile prices what a case needs.
class Unpriced : public Unsupported {
  using Unsupported::Unsupported;
};

struct PricingOptions {
  bool nearest = false;           // borrow the row of the nearest group size where none fits, and mark the result
  std::string_view borrows = {};  // what a user asks for that with, as messages name it
  bool scaled = false;            // GEMMs of a type without a row are another type's, by the width of elements
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
  const std::set<std::string>& notes() const { return notes_; }
  void note(std::string text) const { notes_.insert(std::move(text)); }

  /// Returns the row of that op over a group of that size, by the case's algorithm; null: there is none.
  const CommRow* comm_row(Op op, const Group& group) const;
  /// Returns the direct row whose group size is nearest by ratio; of two as near, the larger group's.
  const CommRow* nearest_row(Op op, const Group& group) const;
  /// Returns the note on a task that is priced by that row of another group size.
  std::string borrowed_note(Op op, const Group& group, const CommRow& row) const;
  /// Throws Unpriced, naming op, group size, network and the nearest row.
  [[noreturn]] void refuse(Op op, const Group& group) const;
  /// Returns the row's curve, and notes if `bytes` are outside what was measured.
  cost::PriceCurve curve_of(const CommRow& row, double bytes) const;
  /// Returns the GEMM row of the case's type, or another type's, scaled. Throws Unpriced where neither may be.
  ComputeRow gemm_row() const;
  const ComputeRow* expert_row() const;  // null: experts are GEMMs
  const ComputeRow* copy_row() const;    // null: there is none
  const ModuleRow* module_row(const std::string& name, Phase phase) const;
  /// Returns the task's own row, or that of the part that does nearly the same.
  const ModuleRow* own_module_row(TaskKind kind, Phase phase) const;
  const TaskRow* task_row(TaskKind kind, Phase phase) const;

  /// Notes that a row is used, if it is weak.
  template <class Row>
  const Row& used(const Row& row) const {
    if (!row.verdict.weak.empty()) note(fmt::format("{}{}: {}", kWeakRow, row_name(row), row.verdict.weak));
    return row;
  }

 private:
  bool is_direct(Op op) const { return op != Op::alltoall || shape_.layer.dispatcher == "alltoall"; }
  std::string name_with_algorithm(Op op) const;

  const Profile& profile_;
  LayerCase shape_;
  PricingOptions options_;
  mutable std::set<std::string> notes_;
};

}  // namespace moe
