#pragma once
// Published numbers: FSMoE's on whole grids (configs/papers/fsmoe-table5.csv), training steps, the papers' tables. The
// files name their sources in their first lines.
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "moe/prices/profile.h"
#include "moe/search/degrees.h"
#include "moe/shape/grid.h"

namespace moe::commands {

/// Returns FSMoE Table 5's mean speedup over tutel for a schedule, for the preset of a grid on the preset of a cluster:
/// the testbed's, or another reading of it ("testbed-a-printed"). 0 if none is printed.
double printed_speedup(const std::string& grid, const std::string& cluster, std::string_view schedule);
/// Returns the same for a grid, or for the grid that it is a sample of. Also 0 for other files with those names, and if
/// degrees are given, because the papers choose them.
double printed_speedup(const Grid& grid, const Profile& cluster, const DegreeChoice& degrees,
                       std::string_view schedule);

/// Number of layers that FSMoE's grid has on each testbed (Table 4).
inline constexpr double kPrintedLayers = 1458;
/// Returns the head of a column of printed means, which are over all layers also beside a sample of the paper's grid.
std::string paper_column_header(const Grid& grid);
/// Number of these with r_f != r_b on testbed B, as FSMoE measured them (section 2.3).
inline constexpr double kPaperDifferingDegrees = 912;
/// Returns whether that number applies to this grid under fsmoe: not to a sample, and not if degrees are given.
bool paper_differing_degrees_apply(const Grid& grid, const Profile& cluster, const DegreeChoice& degrees);

/// Errors of predictions of published training steps: configs/published/training-errors.csv, which
/// configs/published/training_errors.py writes.
struct PublishedErrors {
  std::string model, gpu;  // model: empty if the errors are of several models
  int runs = 0;
  double median = 0, min = 0, max = 0;  // errors: predicted over measured, minus 1
};
/// Returns the errors of steps on the profile's GPU: of that model, or of all models if there is none of that one. None
/// if no published step ran on such a GPU.
std::optional<PublishedErrors> published_errors(const Profile& profile, const std::string& model);

/// Returns the errors as a sentence: "3 published steps of MODEL on H100 took 25 % more than predicted in the median (4
/// % less to 59 % more)".
std::string text_of(const PublishedErrors& errors);

/// The papers' tables and figures by key, for `reproduce` and `list`.
struct PaperTable {
  std::string_view name, summary;
};

inline constexpr std::array<PaperTable, 19> kPaperTables{{
    {"fsmoe-table2", "FSMoE: time of each operation in a layer of GPT2-XL and Mixtral-7B"},
    {"fsmoe-table5", "FSMoE: mean speedups over tutel on 1458 layers"},
    {"fsmoe-table6", "FSMoE: iteration time of GPT2-XL under four gates"},
    {"fsmoe-degrees", "FSMoE: layers whose forward and backward degrees differ"},
    {"fsmoe-fig5", "FSMoE: how well its performance models fit, and what profiling and solving take"},
    {"fsmoe-fig6", "FSMoE: speedups on GPT2-XL, Mixtral-7B and Mixtral-22B"},
    {"fsmoe-fig7", "FSMoE: speedups on testbed A by sequence length and number of GPUs"},
    {"fsmoe-fig8", "FSMoE: speedups on testbed A with two pipeline stages"},
    {"parm-table4", "Parm: mean speedups over DeepSpeed-MoE on configured layers"},
    {"parm-table5", "Parm: speedups on BERT-Base and GPT-2"},
    {"monta-table8", "MoNTA: AlltoAll of an 8K sequence as O1, O2 and O3"},
    {"monta-fig13", "MoNTA: efficiency of AlltoAll and AllGather by volume"},
    {"monta-fig14", "MoNTA: the choice among O1, O2 and O3 by sequence length"},
    {"monta-memory", "MoNTA: memory of a GPU by its formulas, and bandwidth inside a node"},
    {"lina-training", "Lina: training speedups over DeepSpeed-MoE"},
    {"lina-inference", "Lina: inference with experts placed by popularity"},
    {"published", "Megatron-Core's layers, DeepSeek's training trace and nccl-tests, as others measured them"},
    {"training", "whole steps of training on H100 and H800, as others measured them"},
    {"beyond", "whole iterations in one order (wave) over the best other schedule, planned only"},
}};

}  // namespace moe::commands
