#pragma once
// The quantities with which the time of a computation in a layer grows. A [[task]] row has seconds for each: FSMoE's
// alpha + n beta (section 4.1), with a beta for every n that matters, so that a row holds for other shapes too.
#include <span>
#include <string>

#include "moe/base/enum_array.h"
#include "moe/plan/plan.h"

namespace moe {

/// A counted quantity: a task; a FLOP of a GEMM; a pair of query and key of one head; a byte of rows of M, of rows of
/// H, of weights.
enum class Term : uint8_t { call, flop, score, row_byte, hidden_byte, weight_byte };
inline constexpr size_t kTerms = 6;
std::span<const std::string_view> term_names();

using TermValues = EnumArray<Term, double, kTerms>;
double dot(const TermValues& a, const TermValues& b);

/// The terms of one kind of task in one phase, on a rank.
struct TaskTerms {
  TermValues once{};     // per task, however few rows it has
  TermValues of_rows{};  // over all rows; for a dense task, all other terms
  /// Returns the terms of a task that has the share `share` of the rows.
  TermValues of_share(double share) const;
};

/// Returns whether tasks of this kind compute, and so have terms.
bool has_terms(TaskKind kind);
TaskTerms terms_of(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow);
/// Returns the terms of a model's end (computes_end()) by its work: rows that are looked up, FLOPs of the projection.
/// One model has only one size of each, so they include no call.
TermValues end_terms(TaskKind kind, const LayerCase& shape, const Work& work);
/// Returns the terms of a task that reads weights or gradients: an optimizer's, of several sizes in a model; squares.
TermValues touching_terms(TaskKind kind, double bytes);

/// Returns a layer's name for this kind of task: "attention", "gate:gshard", "expert:gpt", "expert_dx:gpt", "copy".
std::string task_row_name(TaskKind kind, const LayerCase& shape);

}  // namespace moe
