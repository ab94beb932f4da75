#pragma once
// Terms: the quantities that determine the time of a computation in a layer. A [[task]] row has seconds per unit of
// each, which extends FSMoE's alpha + n beta (section 4.1) to several n, so that a row is also valid for other shapes.
#include <span>
#include <string>

#include "moe/base/enum_array.h"
#include "moe/plan/plan.h"

namespace moe {

/// A counted quantity. call: a task; flop: a FLOP of a GEMM; score: a pair of query and key of one head; row_byte,
/// hidden_byte, weight_byte: a byte of rows of width M, of rows of width H, of weights.
enum class Term : uint8_t { call, flop, score, row_byte, hidden_byte, weight_byte };
inline constexpr size_t kTerms = 6;
std::span<const std::string_view> term_names();

using TermValues = EnumArray<Term, double, kTerms>;
double dot(const TermValues& a, const TermValues& b);

/// The terms of one kind of task in one phase, on a rank.
struct TaskTerms {
  TermValues fixed_terms{};  // per task, independent of its rows
  TermValues row_terms{};    // over all rows; of a task without chunks: all other terms
  /// Returns the terms of a task with the share `share` (0 to 1) of the rows.
  TermValues share_terms(double share) const;
};

/// Returns whether tasks of this kind have terms: tasks of layers and ends without communication.
bool has_terms(TaskKind kind);
TaskTerms terms_of(TaskKind kind, Phase phase, const LayerCase& shape, Flow flow);
/// Returns the terms of a task that computes a model's end (computes_end()): bytes of the embedding's rows, or FLOPs of
/// the projection. They have no call, because a model has only one size of each, from which a constant cannot be
/// fitted.
TermValues end_terms(TaskKind kind, const LayerCase& shape, const Work& work);
/// Returns the terms of an optimizer task or of squares, which handles `bytes` bytes of weights or gradients. Only the
/// former have a call, because a model has optimizer tasks of several sizes.
TermValues memory_pass_terms(TaskKind kind, double bytes);

/// Returns the name in [[task]] rows of this kind of task in a layer: "attention", "gate:gshard", "expert:gpt",
/// "expert_dx:gpt", "copy".
std::string task_row_name(TaskKind kind, const LayerCase& shape);

}  // namespace moe
