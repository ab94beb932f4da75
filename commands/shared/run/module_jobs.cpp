#include "commands/shared/run/module_jobs.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "moe/base/check.h"
#include "moe/layer/layer_device.h"
#include "moe/shape/model_file.h"

namespace moe::commands {
namespace {

/// A layer of the sweep. Attention and experts have rows of their own, so one layer varies both.
struct Swept {
  int64_t head_dim, seq;
  bool causal;
  Recompute recompute;
  int64_t model_dim, experts, hidden;
  std::string_view ffn;
};
// Each layer has 4096 tokens, so that an expert has 512 to 4096 rows, and a quarter of these at degree 4.
constexpr int64_t kTokens = 4096, kTopK = 2, kVocabulary = 32768;
constexpr std::array kSweep{Swept{64, 512, true, Recompute::none, 1024, 4, 4096, "gpt"},
                            Swept{64, 2048, true, Recompute::none, 2048, 8, 4096, "gpt"},
                            Swept{128, 1024, true, Recompute::none, 4096, 2, 4096, "gpt"},
                            Swept{64, 1024, true, Recompute::none, 2048, 8, 2048, "mixtral"},
                            Swept{64, 4096, true, Recompute::none, 2048, 16, 768, "mixtral"},
                            Swept{128, 512, true, Recompute::none, 2048, 4, 4096, "mixtral"},
                            Swept{128, 4096, true, Recompute::none, 4096, 8, 2048, "mixtral"},
                            Swept{256, 2048, true, Recompute::none, 4096, 2, 14336, "mixtral"},
                            Swept{128, 2048, false, Recompute::none, 2048, 16, 1536, "mixtral"},
                            Swept{64, 1024, true, Recompute::selective, 2048, 8, 2048, "mixtral-fp8"},
                            Swept{64, 4096, true, Recompute::selective, 2048, 16, 768, "mixtral-fp8"},
                            Swept{128, 1024, true, Recompute::selective, 4096, 4, 4096, "mixtral-fp8"},
                            Swept{128, 4096, true, Recompute::selective, 4096, 8, 2048, "mixtral-fp8"},
                            Swept{128, 4096, false, Recompute::selective, 2048, 8, 768, "mixtral-fp8"}};

class ModuleJobs {
 public:
  ModuleJobs(const Target& target, DType dtype, const TokenSource& text)
      : target_(target), dtype_(dtype), text_(text) {}

  void add_sweep() {
    for (const Swept& swept : kSweep) {
      LayerShape layer{.batch = kTokens / swept.seq,
                       .seq = swept.seq,
                       .model_dim = swept.model_dim,
                       .hidden = swept.hidden,
                       .heads = swept.model_dim / swept.head_dim,
                       .experts = swept.experts,
                       .top_k = kTopK};
      layer.causal = swept.causal;
      layer.ffn = ffn_from(swept.ffn, "ffn");
      if (in_fp8(layer.ffn) && dtype_ == DType::float32) continue;
      add(fmt::format("w{}-L{}{}{}-M{}-E{}-H{}-{}", swept.head_dim, swept.seq, swept.causal ? "" : "-whole",
                      swept.recompute == Recompute::none ? "" : "-tiles", swept.model_dim, swept.experts, swept.hidden,
                      swept.ffn),
          layer, swept.recompute);
    }
    const LayerShape first = jobs_.front().shape().layer;
    for (const int64_t vocabulary : {kVocabulary, 4 * kVocabulary})
      add_ends(fmt::format("ends-V{}", vocabulary), first, vocabulary, false);
  }

  void add_model(const std::string& name) {
    const Model model = find_model(name);
    LayerShape layer = model.layer;
    layer.experts = layer.experts == 0 ? kMaxExpertsAlone : std::min(layer.experts, kMaxExpertsAlone);
    layer.top_k = std::min(layer.top_k, layer.experts);
    clear_planned_only_fields(layer);
    const int64_t seq = layer.seq;
    for (const int64_t length : {seq, seq / 4}) {
      layer.seq = std::max<int64_t>(1, length);
      const std::string job = fmt::format("{}-L{}", model.name, layer.seq);
      add(job, layer, Recompute::none);
      LayerShape whole = layer;
      whole.window = 0;
      if (!model.windowed_layers.empty()) add(job + "-whole", whole, Recompute::none);
    }
    if (model.vocabulary == 0) return;
    LayerJob& ends = add_ends(model.name + "-ends", layer, model.vocabulary, model.tied_embedding);
    if (model.dense.expand(model.layers).has_none(model.layers)) return;
    ends.model.layers = 2;
    ends.model.dense = {{{true, false}}, model.dense.hidden};
  }

  std::vector<LayerJob> take() { return std::move(jobs_); }

 private:
  LayerJob& add(std::string name, LayerShape layer, Recompute recompute) {
    layer.dtype = dtype_;
    LayerJob& job = jobs_.emplace_back();
    job.name = std::move(name);
    job.model.shape = complete(layer, {.recompute = recompute}, Rounding::ragged);
    job.schedules = {&find_schedule("fsmoe")};
    job.settings.emulated = false;
    job.settings.ranks = target_.ranks;
    return job;
  }

  // One layer is enough, because further layers would add the same tasks.
  LayerJob& add_ends(std::string name, const LayerShape& layer, int64_t vocabulary, bool tied) {
    LayerJob& job = add(std::move(name), layer, Recompute::none);
    job.model.step = {.planned = true, .clips = true, .optimizer = OptimizerKind::adamw, .tied = tied};
    add_end_tasks(job.model, vocabulary);
    job.settings.training = {.text = &text_, .optimizer = {.kind = OptimizerKind::adamw, .clip_norm = 1}};
    return job;
  }

  const Target& target_;
  DType dtype_;
  const TokenSource& text_;
  std::vector<LayerJob> jobs_;
};

}  // namespace

std::vector<LayerJob> module_jobs(const Target& target, const std::string& asked, DType dtype,
                                  const TokenSource& text) {
  ModuleJobs jobs(target, dtype, text);
  if (asked == "all") jobs.add_sweep();
  std::istringstream names(asked == "all" ? "" : asked);
  for (std::string name; std::getline(names, name, ',');) jobs.add_model(name);
  return jobs.take();
}

}  // namespace moe::commands
