#include "commands/reproduce/fsmoe_reading.h"

#include <algorithm>
#include <array>
#include <string>

#include "commands/reproduce/printed_rows.h"
#include "moe/base/check.h"
#include "moe/base/enum_array.h"
#include "moe/shape/model_file.h"

namespace moe::reproduce {
namespace {

constexpr double kBytesPerElement = 4;  // float32, FSMoE section 6.2

template <class Row, class Matches>
Row& find_row(std::vector<Row>& rows, const std::string& profile, std::string_view what, Matches matches) {
  const auto row = std::ranges::find_if(rows, matches);
  require<BadInput>(row != rows.end(), "profile {}: found no {} row, expected one", profile, what);
  return *row;
}

void scale_comm(Profile& profile, double factor) {
  for (CommRow& row : profile.comm) row.beta_s_per_byte *= factor;
}

// Fits the experts of one model in Table 2, forward and backward: t = passes (g alpha + flops beta), least squares.
double expert_beta_of_table2(Testbed testbed, std::string_view model, const Profile& profile, double alpha_s) {
  const LayerCase shape = table2_case(model, profile, kModelTopK * kModelCapacityFactor);
  const double flops = moe_volumes(shape, capacity_exact(shape)).expert_flops;
  const double gemms = gemms_of(shape.layer.ffn);
  double seconds = 0, work = 0;
  for (const PrintedOp& row : printed_fsmoe_table2()) {
    if (row.testbed != name_of(testbed) || row.model != model || row.op != "experts") continue;
    const double passes = row.phase == "backward" ? 2 : 1;
    seconds += passes * flops * (row.ms * kMilli - passes * gemms * alpha_s);
    work += passes * flops * passes * flops;
  }
  return seconds / work;
}

}  // namespace

std::string_view name_of(Testbed testbed) { return testbed == Testbed::a ? "testbed-a" : "testbed-b"; }
std::string_view printed_grid(Testbed testbed) { return testbed == Testbed::a ? "fsmoe-a" : "fsmoe-b"; }
std::string_view name_of(BetaOrder order) { return order == BetaOrder::driver ? "driver" : "printed"; }
std::string_view name_of(BetaUnit unit) { return unit == BetaUnit::byte ? "byte" : "element"; }
std::string_view name_of(GemmBeta gemm) {
  static constexpr EnumArray<GemmBeta, std::string_view, 4> kNames{"flop", "mac", "table2", "driver"};
  return kNames[gemm];
}
std::string_view name_of(Capacity capacity) { return capacity == Capacity::f_alone ? "f" : "2 f"; }
std::string_view name_of(AttentionBy attention) { return attention == AttentionBy::gemm ? "gemm" : "driver"; }

Reading preset_reading(Testbed testbed) {
  if (testbed == Testbed::b) return {};
  return {.testbed = Testbed::a, .unit = BetaUnit::element, .attention = AttentionBy::gemm};
}

std::vector<Reading> all_readings(Testbed testbed) {
  const bool a = testbed == Testbed::a;
  std::vector<Reading> readings;
  for (const BetaOrder order : {BetaOrder::driver, BetaOrder::printed})
    for (const BetaUnit unit : {BetaUnit::byte, BetaUnit::element})
      for (const GemmBeta gemm : {GemmBeta::flop, GemmBeta::mac, GemmBeta::table2, GemmBeta::driver})
        for (const Capacity capacity : {Capacity::f_alone, Capacity::k_times_f})
          for (const AttentionBy attention : {AttentionBy::gemm, AttentionBy::driver}) {
            if (!a && (order == BetaOrder::printed || gemm == GemmBeta::driver)) continue;  // only open on testbed A
            readings.push_back({testbed, order, unit, gemm, capacity, attention, 1});
          }
  return readings;
}

// In the preset, the driver's betas of testbed A are per element, and those of Fig. 5, on either testbed, per
// byte.
Profile with_beta_unit(Profile profile, Testbed testbed, BetaOrder order, BetaUnit unit) {
  const bool per_element = testbed == Testbed::a && order == BetaOrder::driver;
  if (per_element && unit == BetaUnit::byte) scale_comm(profile, kBytesPerElement);
  if (!per_element && unit == BetaUnit::element) scale_comm(profile, 1 / kBytesPerElement);
  return profile;
}

Profile with_gemm_per_mac(Profile profile) {
  for (ComputeRow& row : profile.compute)
    if (row.op == Op::gemm) row.beta_s_per_flop /= kFlopsPerMac;
  return profile;
}

Profile with_experts_from_table2(Profile profile, Testbed testbed) {
  const double alpha_s =
      find_row(profile.compute, profile.name, "gemm", [](const ComputeRow& row) { return row.op == Op::gemm; }).alpha_s;
  for (const std::string_view model : {"gpt2-xl", "mixtral-7b"}) {
    const Ffn ffn = model == "gpt2-xl" ? Ffn::gpt : Ffn::mixtral;
    ComputeRow row;
    row.op = Op::expert;
    row.ffn = ffn;
    row.alpha_s = gemms_of(ffn) * alpha_s;
    row.beta_s_per_flop = expert_beta_of_table2(testbed, model, profile, alpha_s);
    profile.compute.push_back(row);
  }
  return profile;
}

Profile with_driver_experts(Profile profile) {
  for (const ComputeRow& row : find_profile("testbed-a-driver-experts").compute)
    if (row.op == Op::expert) profile.compute.push_back(row);
  return profile;
}

Profile with_attention_by_gemm(Profile profile) {
  std::erase_if(profile.modules, [](const ModuleRow& row) { return row.name == "attention"; });
  return profile;
}

// Uses testbed B's fit for MP 4, on either testbed per FLOP of its own shard. For 2048 tokens, which the driver lacks,
// it uses the fit of 1024.
Profile with_driver_attention(Profile profile) {
  profile = with_attention_by_gemm(std::move(profile));
  for (ModuleRow row : find_profile("testbed-b").modules) {
    profile.modules.push_back(row);
    if (row.seq != 1024) continue;
    row.seq = 2048;
    profile.modules.push_back(row);
  }
  return profile;
}

Profile profile_of(const Reading& r) {
  const bool printed = r.testbed == Testbed::a && r.order == BetaOrder::printed;
  Profile profile = find_profile(printed ? "testbed-a-printed" : std::string(name_of(r.testbed)));
  profile = with_beta_unit(std::move(profile), r.testbed, r.order, r.unit);
  if (r.gemm == GemmBeta::table2) profile = with_experts_from_table2(std::move(profile), r.testbed);
  if (r.gemm == GemmBeta::driver) profile = with_driver_experts(std::move(profile));
  if (r.gemm == GemmBeta::mac) profile = with_gemm_per_mac(std::move(profile));
  profile = r.attention == AttentionBy::gemm ? with_attention_by_gemm(std::move(profile))
                                             : with_driver_attention(std::move(profile));
  profile.contention.intra_by_inter = profile.contention.inter_by_intra = r.contention;
  return profile;
}

Grid grid_of(const Reading& r) {
  std::string name(printed_grid(r.testbed));
  if (r.capacity == Capacity::k_times_f) name += "-k2";
  return find_grid(name);
}

Model fsmoe_model(std::string_view printed) { return find_model(std::string(printed) + "@fsmoe"); }

LayerCase table2_case(std::string_view model, const Profile& profile, double capacity) {
  LayerShape layer = fsmoe_model(model).layer;
  layer.batch = 4;
  layer.seq = 1024;
  layer.top_k = kModelTopK;
  layer.capacity_factor = capacity / kModelTopK;
  ParallelShape parallel;
  parallel.nodes = profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  return complete(layer, parallel, Rounding::exact);
}

namespace {

LayerCase layer_case(const Model& model, const Profile& profile, const ModelSetting& run) {
  LayerShape layer = model.layer;
  if (run.seq > 0) layer.seq = run.seq;
  ParallelShape parallel = model.parallel;
  parallel.nodes = run.nodes > 0 ? run.nodes : profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  parallel.pp = run.stages;
  parallel.ep = parallel.nodes / run.stages;  // every stage spreads all experts over its own nodes
  return complete(layer, parallel, Rounding::exact);
}

}  // namespace

std::string ModelSetting::name() const { return fmt::format("{} on {}", model, cluster); }

StepSeconds step_seconds(const ModelSetting& run, const std::vector<std::string>& schedules, const Assumptions* assumed,
                         std::set<std::string>& missing) {
  const Profile profile = with_assumed_rows(find_profile(run.cluster), assumed);
  const Model model = model_on_cluster(fsmoe_model(run.model), run.cluster);
  const LayerCase shape = layer_case(model, profile, run);
  const ModelShape whole{shape, model.layers, run.micro_batches, PipelineOrder::gpipe};
  ModelSearch search;
  StepSeconds steps;
  for (const std::string& schedule : schedules)
    steps[schedule] = step_from_print(search, schedule, {profile, assumed, missing}, whole);
  return steps;
}

std::optional<double> speedup_of(const StepSeconds& steps, const std::string& schedule, const std::string& over) {
  const auto faster = steps.at(schedule), slower = steps.at(over);
  return faster && slower ? std::optional(*slower / *faster) : std::nullopt;
}

const std::vector<std::string>& figure_schedules() {
  static const std::vector<std::string> kNames{"ds-moe",         "ds-moe-replicated", "monta-baseline", "tutel",
                                               "tutel-improved", "pipemoe+lina",      "fsmoe-no-iio",   "fsmoe"};
  return kNames;
}

std::vector<std::string> model_conventions() {
  return {
      "Models of section 6.4: B = 1, k = 2, f = 1.2, E = nodes, MP = ESP = GPUs of a node, unrounded capacity. L = "
      "1024 "
      "on testbed A and 256 on B, Mixtral-7B with 7 layers on B and Mixtral-22B with 33 on A, where not varied.",
      "A step is the replay of the whole model's plan: gradients may be sent once they are made, those of the first "
      "layers in the tail; embedding, output, gates' and norms' sums and the optimizer are left out.",
      "testbed-a (driver's order, per element; attention by gemm), testbed-b (as printed, per byte; attention by the "
      "driver's fit); gemm's beta per FLOP; order and gate beyond its GEMM cost nothing.",
      "ds-moe: FSMoE's layer, everything in sequence. Replicated (ds-moe-replicated): tokens replicated over MP and "
      "partial sums added by an AllReduce inside the node, as the authors' driver feeds DeepSpeed-MoE. monta-baseline: "
      "every MP rank gates all tokens and sends them to its own shards of the experts, whose partial sums an AllReduce "
      "adds. Which of them the figures show is not said. No paper prints an AllReduce inside a node: it is left open "
      "unless an assumption file has it derived."};
}

}  // namespace moe::reproduce
