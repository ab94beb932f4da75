#include "commands/shared/run/layer_dump.h"

#include <deque>
#include <optional>

#include "commands/shared/results_json.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/formats/plan_json.h"
#include "moe/formats/safetensors.h"
#include "moe/layer/verify.h"
#include "moe/record/machine.h"
#include "moe/record/record_json.h"
#include "moe/tensor/host_copy.h"

namespace moe::commands {
namespace {

constexpr const char* kLoss = "loss";

// Collects the tensors of one rank for its file.
class RankDump {
 public:
  RankDump(measure::RankRun& run, int rank, bool stacked) : number_(rank), rank_(run.cells().expert_cell().shape()) {
    const RankCells cells = run.cells();
    for (size_t l = 0; l < cells.layers.size(); ++l) {
      const std::string layer = stacked ? fmt::format("layer-{}.", cells.numbers[l]) : "";
      add_weights(*cells.layers[l].front(), layer);
      for (size_t m = 0; m < cells.layers[l].size(); ++m)
        add_flow(*cells.layers[l][m], stacked ? fmt::format("{}micro-batch-{}.", layer, m) : "");
    }
    if (run.model() == nullptr) return;
    ModelEnds& ends = run.model()->ends();
    add_ends(cells.front(), ends, static_cast<int>(cells.layers.front().size()));
    loss_ = ends.heads() ? ends.loss() : 0;
  }

  Json write(const std::string& folder) const {
    const std::string file = fmt::format("rank-{}.safetensors", number_);
    write_safetensors(folder + "/" + file, tensors_);
    Json of_rank{{"rank", number_}, {"file", file},     {"dp", rank_.dp},   {"mp", rank_.mp},
                 {"ep", rank_.ep},  {"esp", rank_.esp}, {"edp", rank_.edp}, {"tensors", axes_}};
    if (loss_) of_rank[kLoss] = *loss_;
    return of_rank;
  }

 private:
  void add(const std::string& name, const void* data, std::string_view type, const std::vector<ShardRange>& axes) {
    size_t bytes = type.ends_with("32") ? 4 : 8;
    std::vector<int64_t> shape;
    for (const ShardRange& axis : axes) {
      bytes *= static_cast<size_t>(axis.count);
      shape.push_back(axis.count);
      axes_[name].push_back({axis.first, axis.count, axis.total});
    }
    tensors_.push_back({name, type, std::move(shape), {static_cast<const std::byte*>(data), bytes}});
  }
  void add(const MoeLayer& layer, const std::string& name, TensorView view, const std::vector<ShardRange>& axes) {
    const TensorView here = copies_.emplace_back(view, layer.memory()).view();
    add(name, here.data(), safetensor_type(here.dtype()), axes);
  }

  void add_weights(MoeLayer& layer, const std::string& prefix) {
    noisy_ = false;
    for (const Parameter& p : layer.parameters()) {
      add_weight(layer, prefix, p);
      noisy_ |= p.name == kGateNoise;
    }
  }

  void add_weight(const MoeLayer& layer, const std::string& prefix, const Parameter& p) {
    const std::vector<ShardRange> axes(p.axes.end() - p.dimensions, p.axes.end());
    add(layer, prefix + p.name, p.value, axes);
    add(layer, prefix + p.name + ".gradient", p.gradient, axes);
  }

  // `any`: any layer of the rank, which gives the memory of its tensors.
  void add_ends(const MoeLayer& any, ModelEnds& ends, int micro_batches) {
    for (const Parameter& p : ends.parameters()) add_weight(any, "", p);
    for (int m = 0; m < micro_batches; ++m) {
      add(fmt::format("micro-batch-{}.tokens", m), ends.inputs(m).data(), "I32", {rank_.mp_group()});
      add(fmt::format("micro-batch-{}.targets", m), ends.targets(m).data(), "I32", {rank_.mp_group()});
      if (!ends.heads()) continue;
      const TensorView logits = logits_.emplace_back(ends.logits(m));
      add(any, fmt::format("micro-batch-{}.logits", m), logits, {rank_.mp_group(), ends.logit_columns()});
    }
  }

  void add_flow(const MoeLayer& layer, const std::string& prefix) {
    const ShardRange width{0, rank_.model_dim(), rank_.model_dim()};
    if (layer.begins()) {
      add(layer, prefix + "input", layer.input(), {rank_.held_tokens, width});
      add(layer, prefix + "input_gradient", layer.input_gradient(), {rank_.held_tokens, width});
    }
    if (layer.ends()) {
      add(layer, prefix + "output", layer.output(), {rank_.held_tokens, width});
      add(layer, prefix + "output_gradient", layer.output_gradient(), {rank_.held_tokens, width});
    }
    if (layer.shape().is_dense()) return;
    add_routing(layer, prefix);
    if (!noisy_) return;
    const Tensor& noise = noises_.emplace_back(std::initializer_list<int64_t>{rank_.tokens.count, rank_.experts.total},
                                               accumulation_type(rank_.dtype()));
    fill_gate_noise(noise, rank_.tokens, rank_.shape, layer.seed());
    add(layer, prefix + "noise", noise, {rank_.tokens, {0, rank_.experts.total, rank_.experts.total}});
  }

  void add_routing(const MoeLayer& layer, const std::string& prefix) {
    const Routing& r = layer.routing();
    const std::vector<ShardRange> axes{rank_.tokens, {0, r.choices, r.choices}};
    const int64_t first = rank_.own_group * r.group_tokens * r.choices;
    add(prefix + "routing.expert", r.expert.data() + first, "I32", axes);
    add(prefix + "routing.row", r.row.data() + first, "I32", axes);
    const auto own = [&](const Tensor& t) { return t.view().part(first, {r.group_tokens, r.choices}); };
    add(layer, prefix + "routing.weight", own(r.weight), axes);
    if (r.mixes()) add(layer, prefix + "routing.fill", own(r.fill), axes);
  }

  int number_;
  const RankShape& rank_;
  bool noisy_ = false;          // the gate adds noise
  std::optional<double> loss_;  // part of a model's loss from this rank's tokens; none: not a model
  std::deque<Tensor> noises_, logits_;
  std::deque<HostCopy> copies_;
  std::vector<SafeTensor> tensors_;
  Json axes_ = Json::object();
};

Json software() {
  const RunHeader stamp = stamp_run({});
  Json all{{"moetune", MOETUNE_VERSION}, {"compiler", stamp.compiler}};
  for (const Fields* fields : {&stamp.git, &stamp.libraries}) all.update(to_json(*fields));
  return all;
}

Json manifest_of(const RankCells& rank, const Plan& plan) {
  const MoeLayer& layer = rank.expert_cell();
  const LayerCase& c = rank.cases.moe();
  const int64_t group_tokens = layer.shape().tokens.count;
  Json parallel = group_sizes(plan.shape.parallel);
  parallel["ep_inside"] = plan.shape.parallel.ep_inside;
  Json manifest{{"schema", 1},
                {"layer", layer_json(plan.shape.layer)},
                {"parallel", parallel},
                {"flow", name_of(plan.structure->flow)},
                {"schedule", plan.schedule},
                {"degree_forward", plan.degree_forward},
                {"degree_backward", plan.degree_backward},
                {"capacity_rounding", name_of(plan.shape.rounding)},
                {"seed", layer.seed().seed},
                {"layer_index", rank.front().seed().layer},
                {"layers", plan.layers},
                {"micro_batches", plan.micro_batches},
                {"group_tokens", group_tokens},
                {"capacity_rows", c.layer.capacity_factor ? capacity_rows(c) : group_tokens},
                {"preset", layer.routing().preset},
                {"tolerance", tolerance_of(layer)},
                {"software", software()},
                {"ranks", Json::array()}};
  add_layer_kinds(manifest, plan.dense, plan.whole, plan.layers);
  return manifest;
}

}  // namespace

void dump_layers(const std::string& folder, World& world, std::span<measure::RankRun* const> ranks, const Plan& plan) {
  require_targets({{{"--dump", folder, true}}});
  std::vector<std::string> files;
  for (size_t i = 0; i < ranks.size(); ++i)
    files.push_back(RankDump(*ranks[i], world.local_ranks()[i], !measure::is_one_layer(plan)).write(folder).dump());
  files = gather(world, std::move(files));
  if (!is_leader(world)) return;
  Json manifest = manifest_of(ranks.front()->cells(), plan);
  double loss = 0;
  for (const std::string& file : files) {
    Json of_rank = Json::parse(file);
    loss += of_rank.value(kLoss, 0.0);
    of_rank.erase(kLoss);
    manifest["ranks"].push_back(std::move(of_rank));
  }
  if (plan.vocabulary > 0) {
    manifest["vocabulary"] = plan.vocabulary;
    manifest[kLoss] = loss;
  }
  write_whole_file(folder + "/manifest.json", "a file for the manifest",
                   [&](std::ostream& out) { out << document_text(manifest) << '\n'; });
}

}  // namespace moe::commands
