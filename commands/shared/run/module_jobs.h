#pragma once
// The layers whose tasks `microbench` times as modules on a GPU: attention of several head widths, lengths and masks;
// router; permute; grouped experts of several widths and numbers; norms; both ends of a model; its optimizer.
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"

namespace moe::commands {

/// Largest number of experts of a model's layer on one rank, as under expert parallelism.
inline constexpr int64_t kMaxExpertsAlone = 16;

/// Returns jobs of one rank for measure_tasks(), with tensors of this type. `asked` is "all", for a sweep of synthetic
/// layers, or names of models (find_model) separated by commas. A model's jobs are its layer at its sequence length and
/// at a quarter of it, and its ends with their optimizer. `text` has to outlive the jobs. Throws BadInput for an
/// unknown name.
std::vector<LayerJob> module_jobs(const Target& target, const std::string& asked, DType dtype, const TokenSource& text);

}  // namespace moe::commands
