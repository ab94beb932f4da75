#pragma once
// The layers whose tasks are the modules that `microbench` times on a GPU: attention by head width, length and mask,
// router, permute, grouped experts by rows, width and number, norms, both ends of a model, its optimizer.
#include <string>
#include <vector>

#include "commands/shared/run/layer_run.h"

namespace moe::commands {

/// The layers of a model that a rank runs alone have at most so many experts, as under expert parallelism.
inline constexpr int64_t kMostExpertsAlone = 16;

/// Returns jobs of one rank for measure_tasks(), of tensors of this type. `asked`: "all", a sweep of made-up layers, or
/// names of models (find_model) separated by commas: each one's layer at its length and at a quarter of it, and its
/// ends and optimizer. `text` outlives the jobs. Throws BadInput naming what of `asked` is unknown.
std::vector<LayerJob> module_jobs(const Target& target, const std::string& asked, DType dtype, const TokenSource& text);

}  // namespace moe::commands
