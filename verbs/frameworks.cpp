#include "verbs/frameworks.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace moe::verbs {
namespace {

constexpr std::array<std::string_view, 2> kOfTutel{"tutel", "ds-moe"};
constexpr std::array<std::string_view, 1> kUnpipelined{"ds-moe"}, kOfFsmoe{"fsmoe-no-partition"},
    kAlmostOfFsmoe{"fsmoe"};

// Source: megatron/training/arguments.py.
constexpr std::string_view kZero = "--zero", kRecompute = "--recompute";
constexpr std::array<SettingName, 9> kMegatronSettings{{{"--mp", "--tensor-model-parallel-size"},
                                                        {"--ep", "--expert-model-parallel-size"},
                                                        {"--esp", "--expert-tensor-parallel-size"},
                                                        {"--pp", "--pipeline-model-parallel-size"},
                                                        {"--virtual-stages", "--num-virtual-stages-per-pipeline-rank"},
                                                        {"--batch", "--micro-batch-size"},
                                                        {"--global-batch", "--global-batch-size"},
                                                        {kZero, "--use-distributed-optimizer"},
                                                        {kRecompute, "--recompute-granularity"}}};

using Refusals = std::vector<std::string>;

bool has_order(const ModelShape& model, PipelineOrder order) { return model.micro_batches > 1 && model.order == order; }

// A step that accumulates gradients on one stage ends a micro-batch before it begins the next.
void refuse_gpipe_on_one_stage(std::string_view name, const ModelShape& model, Refusals& refusals) {
  if (has_order(model, PipelineOrder::gpipe) && model.shape.parallel.pp == 1)
    refusals.push_back(fmt::format("{} accumulates gradients as --pipeline 1f1b does, not gpipe", name));
}

// Ranks that share an expert are neighbours: no setting says otherwise.
void refuse_ep_inside(std::string_view name, const ParallelShape& p, Refusals& refusals) {
  if (p.ep_inside && p.ep > 1 && p.esp > 1)
    refusals.push_back(fmt::format("{} has no EP's ranks as neighbours, but ESP's", name));
}

// Source: the checks of megatron/training/arguments.py and megatron/core/transformer/transformer_config.py.
Refusals megatron_refusals(const ModelShape& model) {
  const LayerShape& l = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  const auto add = [&](const std::string& what) { refusals.push_back("Megatron-Core refuses " + what); };
  const auto needs_multiple = [&](std::string_view what, int64_t found, std::string_view group, int64_t size) {
    if (found % size != 0) add(fmt::format("{} {} over {} {}", found, what, group, size));
  };
  needs_multiple("attention heads", l.heads, "TP", p.mp);
  if (l.kv_heads < l.heads && l.kv_heads % p.mp != 0)
    add(fmt::format("{} key-value heads over TP {}{}", l.kv_heads, p.mp,
                    p.mp % l.kv_heads == 0 ? ", before release 0.16" : ""));
  needs_multiple("tokens a sample with --sequence-parallel", l.seq, "TP", p.mp);
  needs_multiple("layers", model.layers, "PP", p.pp);
  if (l.node_limit > 0) needs_multiple("experts", l.experts, "as many router groups as nodes,", expert_nodes(p));
  if (l.bias && p.esp > 1) add(fmt::format("experts with biases over ETP {}", p.esp));
  if (has_order(model, PipelineOrder::gpipe)) add("gpipe: its order of micro-batches is 1F1B");
  refuse_ep_inside("Megatron-Core", p, refusals);
  return refusals;
}

Refusals fsmoe_refusals(const ModelShape& model) {
  const LayerShape& l = model.shape.layer;
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals = megatron_refusals(model);
  if (!l.capacity_factor) refusals.emplace_back("the published layer refuses a layer that drops nothing");
  if (p.mp != p.esp)
    refusals.push_back(
        fmt::format("the published layer shards experts over its TP ranks: MP is {}, ESP {}", p.mp, p.esp));
  if (is_gated(l.ffn)) refusals.emplace_back("the published layer's backward is of ReLU alone");
  if (l.shared_hidden > 0) refusals.emplace_back("the published layer has no shared expert");
  return refusals;
}

Refusals tutel_refusals(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  const int64_t local = model.shape.layer.experts / p.ep;
  if (p.esp > 1 && local > 1)
    refusals.push_back(fmt::format("Tutel shards an expert over devices of its own alone, not {} on a device", local));
  refuse_ep_inside("Tutel", p, refusals);
  refuse_gpipe_on_one_stage("Tutel", model, refusals);
  return refusals;
}

// Source: deepspeed/utils/groups.py, and the MoE examples of Megatron-DeepSpeed, which say --no-pipeline-parallel.
Refusals deepspeed_refusals(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  if (p.pp > 1) refusals.push_back(fmt::format("DeepSpeed's MoE layer is on one pipeline stage, not {}", p.pp));
  if (p.esp > 1 && p.esp != p.mp)
    refusals.push_back(
        fmt::format("DeepSpeed shards experts over the ranks of tensor parallelism: MP is {}, ESP {}", p.mp, p.esp));
  refuse_ep_inside("DeepSpeed", p, refusals);
  refuse_gpipe_on_one_stage("DeepSpeed", model, refusals);
  return refusals;
}

// Source: torchtitan/distributed/parallel_dims.py: ETP is 1 or TP; with 1 an EP group contains whole TP groups.
Refusals torchtitan_refusals(const ModelShape& model) {
  const ParallelShape& p = model.shape.parallel;
  Refusals refusals;
  if (p.esp > 1 && p.esp != p.mp)
    refusals.push_back(fmt::format("torchtitan shards experts over 1 or all TP ranks: TP is {}, ESP {}", p.mp, p.esp));
  if (p.esp == 1 && p.mp > 1 && p.ep > 1 && p.ep % p.mp != 0)
    refusals.push_back(fmt::format("torchtitan refuses EP {} that is no multiple of TP {}", p.ep, p.mp));
  refuse_ep_inside("torchtitan", p, refusals);
  refuse_gpipe_on_one_stage("torchtitan", model, refusals);
  return refusals;
}

constexpr std::array<Framework, 6> kFrameworks{
    {{.name = "Tutel", .key = "tutel", .exact = kOfTutel, .refusals = tutel_refusals},
     {.name = "FSMoE's published layer",
      .key = "fsmoe",
      .exact = kOfFsmoe,
      .close = kAlmostOfFsmoe,
      .but = "the gradients that it sends inside the MoE part: the published layer leaves gradients to Megatron",
      .refusals = fsmoe_refusals},
     {.name = "Megatron-Core",
      .key = "megatron",
      .exact = kUnpipelined,
      .refusals = megatron_refusals,
      .settings = kMegatronSettings},
     {.name = "DeepSpeed", .key = "deepspeed", .exact = kUnpipelined, .refusals = deepspeed_refusals},
     {.name = "torchtitan",
      .key = "torchtitan",
      .is_exported = false,
      .close = kUnpipelined,
      .but = "FSDP's gathers of weights",
      .refusals = torchtitan_refusals},
     {.name = "moetune", .key = "moetune", .is_exported = false}}};

}  // namespace

std::vector<const Schedule*> Framework::schedules() const {
  const std::span<const std::string_view> names = exact.empty() ? close : exact;
  std::vector<const Schedule*> found;
  for (const Schedule& schedule : moe::schedules())
    if (std::ranges::find(names, schedule.name) != names.end()) found.push_back(&schedule);
  return found;
}

std::span<const Framework> frameworks() { return kFrameworks; }

const Framework& framework_of(std::string_view key) { return *std::ranges::find(kFrameworks, key, &Framework::key); }

std::vector<std::string> refusals_of(const Framework& framework, const ModelShape& model) {
  return framework.refusals == nullptr ? Refusals{} : framework.refusals(model);
}

std::string setting_of(const Framework& framework, std::string_view flag, std::string_view value) {
  const auto known = std::ranges::find(framework.settings, flag, &SettingName::flag);
  if (known == framework.settings.end()) return "";
  if (flag == kZero) return fmt::format("{}{}", value == "0" ? "no " : "", known->theirs);
  if (flag == kRecompute && value == "none") return fmt::format("no {}", known->theirs);
  const bool whole_layers = flag == kRecompute && value == "full";
  return fmt::format("{} {}{}", known->theirs, value,
                     whole_layers ? " --recompute-method uniform --recompute-num-layers 1" : "");
}

}  // namespace moe::verbs
