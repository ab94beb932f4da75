#pragma once
// Published measurements on real clusters beside predictions that do not use them: layers from the rows of a preset, an
// iteration from the durations of its tasks, a curve's points from its other points.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "commands/reproduce/report.h"
#include "moe/prices/profile.h"

namespace moe::reproduce {

/// Published measurements on real clusters: configs/published/*.csv, one reader per file. Each file names its source in
/// its first lines.
struct PublishedCollective {  // nccl
  std::string gpu, op;
  int ranks = 0;
  double bytes = 0, seconds = 0;
};
std::vector<PublishedCollective> published_collectives();

struct PublishedLayer {  // megatron-moe-layers
  std::string model, dispatcher;
  int tokens_per_rank = 0, model_dim = 0, hidden = 0, experts = 0, top_k = 0, shared_hidden = 0;
  int ranks_per_token = 0;  // most ranks of a token that the router's groups allow
  double forward_s = 0, backward_s = 0;
};
std::vector<PublishedLayer> published_layers();

struct PublishedExchange {  // deepep-h100: DeepEP's dispatch of `tokens` tokens per rank
  int nodes = 0, tokens = 0, model_dim = 0, top_k = 0, experts = 0;
  double dispatch_s = 0;
};
std::vector<PublishedExchange> published_exchanges();

struct TraceTask {  // deepseek-train-trace: mean seconds of a task, and of the whole iteration
  std::string task, phase, stream;
  double seconds = 0;
};
std::vector<TraceTask> published_trace();

/// The seconds of the parts of a MoE layer on a rank, in sequence.
struct LayerParts {
  double router = 0, order = 0, exchange = 0, experts = 0;
  double sum() const { return router + order + exchange + experts; }
};
/// Returns the parts of a published layer by a preset's rows: gate, permute and unpermute, dispatch and combine.
LayerParts predicted_parts(const PublishedLayer& layer, const Profile& profile, Phase phase);
/// Returns the seconds of the shared expert of its proxy model, as GEMMs; 0 if there is none.
double shared_expert_s(const PublishedLayer& layer, const Profile& profile, Phase phase);
/// Returns the name of the preset for the cluster on which a published layer ran.
std::string preset_of(const PublishedLayer& layer);
Comparison published_layer_times();

inline constexpr int kNodeRanks = 8;  // ranks of a node in the measured clusters
inline constexpr int kTraceLayers = 4;
/// Returns the seconds of `layers` layers, replayed in the order of DualPipe, with the forward of one micro-batch
/// beside the backward of another. `own_lane`: weight gradients that run on a stream of their own in the trace have
/// their own lane; otherwise all run on the compute lane.
double replayed_trace(const std::vector<TraceTask>& trace, int layers, bool own_lane);
Comparison trace_times();

/// The errors at held-out sizes, over all groups of a GPU's collective.
struct CurveErrors {
  std::string gpu, op;
  std::vector<double> line, pieces;
  size_t max_pieces = 0;
};
std::vector<CurveErrors> curve_errors(const std::vector<PublishedCollective>& samples);
TextTable curve_table(const std::vector<CurveErrors>& errors);

struct PublishedRun {  // training-runs: a whole training step
  std::string source, model, gpu, precision, dispatcher, recompute, overlap;
  int gpus = 0, seq = 0, global_batch = 0, micro_batch = 0;
  int tp = 1, pp = 1, cp = 1, ep = 1, etp = 1;
  int vp = 0;              // virtual stages per stage; 0: none
  int fsdp = 0;            // ranks that share weights; 0: none
  int pipeline_batch = 0;  // samples of a replica after which the pipeline is drained; 0: all of a step
  double step_s = 0;
};
/// Reads runs from a file with these columns, of which pipeline_batch is optional; an empty path: the runs that are
/// shipped with the program.
std::vector<PublishedRun> published_runs(const std::string& path);

}  // namespace moe::reproduce
