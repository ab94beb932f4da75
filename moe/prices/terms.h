#pragma once
// Counts what the time of a computation inside a layer grows with. A [[task]] row has seconds for each: FSMoE's alpha +
// n beta (section 4.1), with a beta for every n that matters, so that one row holds for layers of other shapes too.
#include <span>
#include <string>

#include "moe/base/enum_array.h"
#include "moe/plan/plan.h"

namespace moe {

/// Names what is counted: a task; a GEMM's FLOP; a pair of query and key of one head; a byte of rows of M, of rows of
/// H, of weights.
enum class Term : uint8_t { call, flop, score, row_byte, hidden_byte, weight_byte };
inline constexpr size_t kTerms = 6;
std::span<const std::string_view> term_names();

using TermValues = EnumArray<Term, double, kTerms>;
double dot(const TermValues& a, const TermValues& b);

/// The terms of one kind of task in one phase, on a rank.
struct TaskTerms {
  TermValues once{};     // of every task, however few rows it has
  TermValues of_rows{};  // of all rows together; of a dense task, all else
  /// Returns the terms of a task that has this share of the rows.
  TermValues of_share(double share) const;
};

/// Returns whether tasks of this kind compute, and have terms.
bool has_terms(TaskKind kind);
TaskTerms terms_of(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow);
/// Returns the terms of a model's end (computes_end()), by its work: rows that are looked up, FLOPs of the projection.
/// One model has one size of each, so that no call stands beside them.
TermValues end_terms(TaskKind kind, const LayerCase& shape, const Work& work);
/// Returns the terms of a task that touches weights: an optimizer's, of which a model has several sizes; squares.
TermValues touching_terms(TaskKind kind, double bytes);

/// Names what a layer runs as this kind of task: "attention", "gate:gshard", "expert:gpt", "expert_dx:gpt", "copy".
std::string task_row_name(TaskKind kind, const LayerCase& shape);

}  // namespace moe
