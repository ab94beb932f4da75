#include "commands/reproduce/parm.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>

#include "commands/reproduce/measured_runs.h"
#include "commands/reproduce/priced.h"
#include "commands/reproduce/printed_rows.h"
#include "commands/reproduce/study.h"
#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/plan/memory.h"
#include "moe/search/layer_search.h"
#include "moe/shape/grid.h"
#include "moe/shape/model_file.h"

namespace moe::reproduce {
namespace {

constexpr std::array<std::string_view, 5> kSchedules{kParmBaseline, "parm-s1", "parm-s2-aas", "parm-s2", "parm"};

// Returns whether the layer fits its GPUs' memory under the baseline, which the paper also ran.
bool fits(const LayerCase& shape, double capacity_bytes) {
  MemoryRequest request;
  request.shape = shape;
  request.dense_part = false;
  request.flow = Flow::replicated;
  return !memory_refusal(estimate_memory(request), capacity_bytes);
}

const std::vector<TaskKind> kLeftOut{TaskKind::attention, TaskKind::mp_allreduce, TaskKind::gradient};

// Returns the seconds of the computations in the baseline's layer, which runs in sequence.
double computation_seconds(const Profile& profile, const LayerCase& shape, const LayerResult& tuned) {
  const auto counted = [](const Task& task) { return task.kind == TaskKind::gate || task.kind == TaskKind::expert; };
  return seconds_counting(counted, find_schedule(kParmBaseline), LayerPricer(profile, shape), tuned.decision);
}

// Prices the layer and returns whether every row exists.
bool price_layer(LayerSearch& search, const Profile& profile, const Assumptions* assumed, ParmLayer& layer,
                 std::set<std::string>& missing) {
  const LayerCase& shape = layer.shape;
  for (const std::string_view schedule : kSchedules) {
    const auto tuned = tuned_from_print(search, schedule, {profile, assumed, missing}, shape);
    if (!tuned) return false;
    layer.seconds[schedule] = seconds_without(kLeftOut, schedule, profile, shape, *tuned);
    if (schedule == kParmBaseline)
      layer.communication_s = layer.seconds[schedule] - computation_seconds(profile, shape, *tuned);
  }
  return true;
}

}  // namespace

Profile parm_cluster(std::string_view testbed) {
  const bool a = testbed == "testbed-a";
  Profile profile;
  profile.name = a ? "parm-a" : "parm-b";
  profile.nodes = a ? 1 : 8;
  profile.ranks_per_node = a ? 8 : 4;
  for (const PrintedCoefficient& row : printed_parm_coefficients())
    for (const int ranks : {2, 4}) {
      if (row.testbed != testbed) continue;
      CommRow gather;
      gather.op = Op::allgather;
      gather.network = Network::intra;
      gather.ranks = ranks;
      gather.alpha_s = row.alpha_s;
      gather.beta_s_per_byte = row.beta_s_per_element / bytes_of(DType::float32);
      profile.comm.push_back(gather);
    }
  return profile;
}

std::vector<ParmLayer> parm_layers(std::string_view testbed, const Assumptions* assumed,
                                   std::set<std::string>& missing) {
  const Profile profile = with_assumed_rows(parm_cluster(testbed), assumed);
  const Grid grid = find_grid(profile.name);
  std::vector<ParmLayer> layers;
  LayerSearch search;
  for (const GridLayer& configured : grid.layers) {
    const LayerCase shape = complete(configured.shape, *configured.parallel, grid.rounding);
    if (!fits(shape, grid.memory_bytes.value_or(0))) continue;
    ParmLayer& layer = layers.emplace_back();
    layer.shape = shape;
    if (!price_layer(search, profile, assumed, layer, missing)) return {};
  }
  return layers;
}

// Parm's Tables IV and V, Figures 1 and 7. Of its coefficients, only those of the MP AllGather are printed; the others
// are assumed or left open.

namespace {

constexpr double kFourTimes = 4;  // Figure 7's threshold
constexpr int kFigureGpus = 32;   // GPUs of Figures 1 and 7
constexpr std::array<std::string_view, 3> kParmSchedules{"parm-s1", "parm-s2", "parm"};
constexpr std::array<std::string_view, 2> kTestbeds{"testbed-a", "testbed-b"};

using Layers = std::map<std::string_view, std::vector<ParmLayer>>;  // by testbed

// Captions and a label by which figures are looked up.
constexpr const char* kTable4 = "";
constexpr const char* kFigure7 = "parm over the baseline on 32 GPUs, N_MP = N_ESP = 4 (Figure 7)";
constexpr const char* kAblations = "mean over layers";
constexpr const char* kSaaOverAas = "SAA over AAS (parm-s2 over parm-s2-aas)";

const std::vector<std::string> kUnprinted{
    "AlltoAll over EP and over EP and ESP, and its overlap with the AllGather: alpha, beta",
    "AllReduce and ReduceScatter of ESP: alpha, beta", "GEMM: alpha, beta", "k, E and the kind of expert of the layers",
    "B, L, k and f of the models"};

// Returns the values of the layers that `takes` selects, in order.
std::vector<double> values_of(const std::vector<ParmLayer>& layers, const auto& takes, const auto& value) {
  std::vector<double> values;
  for (const ParmLayer& layer : layers)
    if (takes(layer)) values.push_back(value(layer));
  return values;
}

std::optional<double> mean_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(mean(values));
}

std::optional<double> smallest(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(*std::ranges::min_element(values));
}

std::optional<double> greatest(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(*std::ranges::max_element(values));
}

auto has_group_sizes(int ranks, int mp, int esp) {
  return [=](const ParmLayer& layer) {
    return layer.shape.parallel.ranks() == ranks && layer.shape.parallel.mp == mp && layer.shape.parallel.esp == esp;
  };
}

auto speedup_of(std::string_view schedule) {
  return [=](const ParmLayer& layer) { return layer.speedup(schedule); };
}

Comparison figure7(const std::vector<ParmLayer>& on_b) {
  Comparison c{.caption = kFigure7, .label_names = {"what"}};
  const std::vector<double> values = values_of(on_b, has_group_sizes(kFigureGpus, 4, 4), speedup_of("parm"));
  std::vector<double> over;
  for (const double value : values) over.push_back(value > kFourTimes);
  for (const PrintedStatistic& row : printed_parm_fig7())
    c.figures.push_back({{row.what}, "", row.value, row.what == "mean" ? mean_of(values) : mean_of(over)});
  return c;
}

Comparison table4(const Layers& ours) {
  Comparison c{.caption = kTable4, .label_names = {"testbed", "schedule", "N_MP", "N_ESP"}};
  for (const PrintedParmLayer& row : printed_parm_table4()) {
    const bool a = row.testbed == "testbed-a";
    for (const int ranks : {8, 16, 32}) {
      if (a && ranks != 8) continue;
      const std::vector<ParmLayer>& layers = ours.at(a ? "testbed-a" : "testbed-b");
      c.figures.push_back(
          {{row.testbed, row.schedule, fmt::format("{}", row.n_mp), fmt::format("{}", row.n_esp)},
           fmt::format("P = {}", ranks),
           row.speedup,
           mean_of(values_of(layers, has_group_sizes(ranks, row.n_mp, row.n_esp), speedup_of(row.schedule)))});
    }
  }
  return c;
}

Comparison extremes(const std::vector<ParmLayer>& all) {
  Comparison c{.caption = "parm over the baseline, all layers", .label_names = {"what"}};
  const std::vector<double> speedups = values_of(
      all, [](const ParmLayer&) { return true; }, speedup_of("parm"));
  c.figures.push_back({{"least"}, "", printed_parm("speedup-least", "both"), smallest(speedups)});
  c.figures.push_back({{"most"}, "", printed_parm("speedup-most", "both"), greatest(speedups)});
  return c;
}

Comparison not_faster(const std::vector<ParmLayer>& all) {
  Comparison c{.caption = "layers on which a schedule is not faster than the baseline", .label_names = {"schedule"}};
  c.quantity = kLayerCount;
  for (const std::string_view schedule : kParmSchedules) {
    std::optional<double> slow;
    if (!all.empty())
      slow = std::ranges::count_if(all, [&](const ParmLayer& layer) { return layer.speedup(schedule) <= 1; });
    c.figures.push_back({{std::string(schedule)}, "", printed_parm("not-faster", "both"), slow});
  }
  return c;
}

Comparison figure1(const std::vector<ParmLayer>& on_b) {
  Comparison c{.caption = "communication's share of the baseline's time on 32 GPUs (Figure 1)",
               .label_names = {"what"}};
  c.quantity = kShare;
  const auto on_32 = [](const ParmLayer& layer) { return layer.shape.parallel.ranks() == kFigureGpus; };
  const std::vector<double> shares = values_of(
      on_b, on_32, [](const ParmLayer& layer) { return layer.communication_s / layer.seconds.at(kParmBaseline); });
  c.figures.push_back({{"least"}, "", printed_parm("communication-least", "testbed-b"), smallest(shares)});
  c.figures.push_back({{"most"}, "", printed_parm("communication-most", "testbed-b"), greatest(shares)});
  return c;
}

// Compares the gain of S2 by its SAA, and that of parm over the slower of S1 and S2, on Table IV's layers.
Comparison ablations(const Layers& ours) {
  Comparison c{.caption = kAblations, .label_names = {"what", "testbed"}};
  const auto saa = [](const ParmLayer& l) { return l.seconds.at("parm-s2-aas") / l.seconds.at("parm-s2"); };
  const auto choice = [](const ParmLayer& l) {
    return std::max(l.seconds.at("parm-s1"), l.seconds.at("parm-s2")) / l.seconds.at("parm");
  };
  const auto add = [&](const char* what, const char* key, const auto& gain) {
    for (const std::string_view testbed : kTestbeds)
      c.figures.push_back({{what, std::string(testbed)},
                           "",
                           1 + printed_parm(key, testbed),
                           mean_of(values_of(ours.at(testbed), std::mem_fn(&ParmLayer::has_mp_and_esp), gain))});
  };
  add(kSaaOverAas, "saa-over-aas", saa);
  add("parm over the slower of S1 and S2", "over-slower", choice);
  return c;
}

// Returns how often parm chooses the faster of both, on Table IV's layers.
std::string choice_finding(const Layers& ours) {
  std::string text;
  for (const auto& [testbed, layers] : ours) {
    const std::vector<double> best =
        values_of(layers, std::mem_fn(&ParmLayer::has_mp_and_esp), [](const ParmLayer& l) -> double {
          return l.seconds.at("parm") <= std::min(l.seconds.at("parm-s1"), l.seconds.at("parm-s2")) * (1 + 1e-12);
        });
    text += fmt::format("{}{}: the faster in {:.1f} % of {} layers", text.empty() ? "" : "; ", testbed,
                        100 * mean_of(best).value_or(0), best.size());
  }
  return "parm's choice by its cost model (forward alone, as the paper's). " + text +
         ". These profiles have no measured row `saa`, so the model takes the exchange's time from the same simulation "
         "that ranks S1 and S2: this shows that both agree, and is no evidence for the model. `reproduce parm-table4 "
         "--measure` has the choice by a measured row beside measured times.";
}

// Runs of the grid, only the MoE part, from the timed pass whose tasks the record keeps.

struct ParmRun {
  int ranks = 0, mp = 0, esp = 0;
  bool has_row = false;                              // the shape for which the row `saa` was measured
  bool took_second = false;                          // parm ran as S2
  std::map<std::string, double> seconds, forward_s;  // by schedule
  double speedup(std::string_view schedule) const {
    return seconds.at(std::string(kParmBaseline)) / seconds.at(std::string(schedule));
  }
};

// Adds the time of a pass minus the tasks that the paper leaves out, which run alone.
void add_run(const CaseRecord& record, ParmRun& run) {
  double forward = 0, total = 0, left_out = 0, left_out_forward = 0;
  for (const MeasuredTask& task : record.measured_timeline.tasks) {
    const bool is_forward = task.phase == name_of(Phase::forward);
    total = std::max(total, task.end_s);
    if (is_forward) forward = std::max(forward, task.end_s);
    const auto is_kind = [&](TaskKind kind) { return task.kind == name_of(kind); };
    if (std::ranges::none_of(kLeftOut, is_kind)) continue;
    left_out += task.end_s - task.start_s;
    if (is_forward) left_out_forward += task.end_s - task.start_s;
  }
  run.seconds[record.schedule] = total - left_out;
  run.forward_s[record.schedule] = forward - left_out_forward;
}

std::vector<ParmRun> parm_runs(const commands::FileRun& file) {
  std::vector<ParmRun> all;
  for (const auto& layer : grid_runs(file, "parm-b")) {
    const auto& records = layer.second;
    const auto ran = [&](std::string_view schedule) { return records.contains(std::string(schedule)); };
    if (!std::ranges::all_of(kSchedules, ran)) continue;
    ParmRun& run = all.emplace_back();
    for (const auto& [schedule, record] : records) add_run(*record, run);
    const CaseRecord& parm = *records.at("parm");
    const auto whole = [&](const char* name) { return static_cast<int>(parm.parameters.whole(name, parm.where)); };
    run.mp = whole("mp");
    run.esp = whole("esp");
    run.ranks = whole("nodes") * whole("ranks_per_node");
    run.has_row = run.mp == run.esp && run.mp == whole("ranks_per_node");
    run.took_second = std::ranges::any_of(parm.measured_timeline.tasks, [](const MeasuredTask& task) {
      return task.kind == name_of(TaskKind::exchange);
    });
  }
  require<BadInput>(!all.empty(), "{}: found no layer of parm-b that ran under {}, expected some", file.file,
                    fmt::join(kSchedules, ", "));
  return all;
}

std::vector<double> values_of_runs(const std::vector<ParmRun>& runs, const auto& takes, const auto& value) {
  std::vector<double> values;
  for (const ParmRun& run : runs)
    if (takes(run)) values.push_back(value(run));
  return values;
}

// Returns how often parm chose the schedule with the faster forward, and its largest loss otherwise.
std::string measured_choice(const std::vector<ParmRun>& runs, bool has_row) {
  int layers = 0, right = 0, second = 0;
  double worst = 0;
  for (const ParmRun& run : runs) {
    if (run.has_row != has_row) continue;
    const double first_s = run.forward_s.at("parm-s1"), second_s = run.forward_s.at("parm-s2");
    const double chosen_s = run.took_second ? second_s : first_s, best_s = std::min(first_s, second_s);
    ++layers, right += chosen_s <= best_s, second += run.took_second;
    worst = std::max(worst, chosen_s / best_s - 1);
  }
  return fmt::format(
      "the faster of both as measured, forward, on {} of {} layers (it took S2 on {}), and at worst {:.2f} "
      "% slower",
      right, layers, second, 100 * worst);
}

// Returns the runs' number for a figure of Table IV, Figure 7 or the ablations; none if they have none.
std::optional<double> measured_figure(const std::vector<ParmRun>& runs, std::string_view caption,
                                      const Figure& figure) {
  const auto mean_over = [&](const auto& takes, const auto& value) {
    return mean_of(values_of_runs(runs, takes, value));
  };
  const auto of_group = [](int mp, int esp) {
    return [=](const ParmRun& run) { return run.ranks == kFigureGpus && run.mp == mp && run.esp == esp; };
  };
  const auto both = [](const ParmRun& run) { return run.ranks == kFigureGpus && run.mp > 1 && run.esp > 1; };
  if (caption == kTable4 && figure.labels[0] != "testbed-a" && figure.convention == fmt::format("P = {}", kFigureGpus))
    return mean_over(of_group(std::stoi(figure.labels[2]), std::stoi(figure.labels[3])),
                     [&](const ParmRun& run) { return run.speedup(figure.labels[1]); });
  if (caption == kFigure7 && figure.labels[0] == "mean")
    return mean_over(of_group(4, 4), [](const ParmRun& run) { return run.speedup("parm"); });
  if (caption == kFigure7)
    return mean_over(of_group(4, 4), [](const ParmRun& run) -> double { return run.speedup("parm") > kFourTimes; });
  if (caption == kAblations && figure.labels[1] == "testbed-b")
    return mean_over(both, [&](const ParmRun& run) {
      const auto& s = run.seconds;
      return figure.labels[0] == kSaaOverAas ? s.at("parm-s2-aas") / s.at("parm-s2")
                                             : std::max(s.at("parm-s1"), s.at("parm-s2")) / s.at("parm");
    });
  return std::nullopt;
}

// Adds the column of runs to Table IV, Figure 7 and the ablations, and a finding on the choice.
void add_measured(Report& report, const commands::FileRun& file) {
  const std::vector<ParmRun> runs = parm_runs(file);
  const std::string column = fmt::format("{}, P = {}", kind_of_run(file), kFigureGpus);
  for (Comparison& c : report.comparisons) {
    std::vector<Figure> added;
    for (const Figure& f : c.figures)
      if (const std::optional<double> ours = measured_figure(runs, c.caption, f))
        added.push_back({f.labels, column, f.paper, ours});
    c.figures.insert(c.figures.end(), added.begin(), added.end());
  }
  report.shows.push_back(fmt::format(
      "As it ran, parm's choice was, where Algorithm 1 reads a measured row `saa` (N_MP = N_ESP = 4), {}; where the "
      "phases are replayed instead, {}.",
      measured_choice(runs, true), measured_choice(runs, false)));
  report.conventions.push_back(describe_runs(file));
}

const std::string kSaaFinding =
    "SAA: if EP spans nodes, the AllGather hides behind the AlltoAll, because they use two networks here. On testbed "
    "A, a single node, both use one network, and the phases only add start-up times. By the paper's 1.09 and 1.12 % "
    "the two hardly overlapped; read as 1.09x and 1.12x they would be 9 and 12 %. The paper prints no slowdown of its "
    "networks by each other.";

std::string extremes_finding(const std::vector<ParmLayer>& all) {
  const auto by_speedup = [](const ParmLayer& layer) { return layer.speedup("parm"); };
  const auto [low, high] = std::ranges::minmax_element(all, {}, by_speedup);
  const auto groups = [](const ParmLayer& layer) {
    const ParallelShape& p = layer.shape.parallel;
    return fmt::format("P = {}, N_MP = {}, N_ESP = {}", p.ranks(), p.mp, p.esp);
  };
  const auto loses = [](const ParmLayer& layer) { return layer.speedup("parm-s2") <= 1; };
  const auto no_esp = [&](const ParmLayer& layer) { return loses(layer) && layer.shape.parallel.esp == 1; };
  return fmt::format(
      "Of {} layers with N_MP or N_ESP above 1 parm gains least with {} and most with {}. S2 alone does not gain on "
      "{}. Of these {} have N_ESP = 1, where its second AlltoAll has the most phases and each pays its start-up time. "
      "Beyond Table IV the paper does not print which layers it tested.",
      all.size(), groups(*low), groups(*high), std::ranges::count_if(all, loses), std::ranges::count_if(all, no_esp));
}

// Returns the least and the largest ours / paper by testbed.
std::string closeness_finding(const Comparison& c) {
  std::string text;
  for (const std::string_view testbed : {"testbed-a", "testbed-b-first", "testbed-b-second"}) {
    double low = 1e99, high = 0;
    for (const Figure& f : c.figures) {
      if (f.labels[0] != testbed || !f.ours) continue;
      low = std::min(low, *f.ours / *f.paper);
      high = std::max(high, *f.ours / *f.paper);
    }
    text += fmt::format("{}{:.2f} to {:.2f} of the printed on {}", text.empty() ? "" : ", ", low, high, testbed);
  }
  return "Speedups are " + text +
         ". They grow with N_MP and N_ESP as printed. The assumed rows do not contain the costs of group sizes and of "
         "the AlltoAll's overlap beyond their bytes.";
}

LayerCase model_shape(const Model& model, const Profile& profile) {
  ParallelShape parallel = model.parallel;
  parallel.nodes = profile.nodes;
  parallel.ranks_per_node = profile.ranks_per_node;
  LayerShape layer = model.layer;
  return complete(layer, parallel, Rounding::ragged);
}

}  // namespace

Report parm_table4(Study& study) {
  Report report{.key = "parm-table4",
                .title = "mean speedups over DeepSpeed-MoE on configured layers",
                .source = "Parm (INFOCOM'24), Tables III and IV, Figure 7."};
  Layers ours{{"testbed-a", {}}, {"testbed-b", {}}};
  std::set<std::string> missing;
  if (study.assumed != nullptr)
    for (auto& [testbed, layers] : ours) layers = parm_layers(testbed, study.assumed, missing);
  const std::vector<ParmLayer>& on_b = ours.at("testbed-b");
  std::vector<ParmLayer> all;
  for (const auto& [testbed, layers] : ours)
    std::ranges::copy_if(layers, std::back_inserter(all), std::mem_fn(&ParmLayer::has_mp_or_esp));
  report.comparisons = {table4(ours), figure7(on_b), extremes(all), not_faster(all), figure1(on_b), ablations(ours)};
  if (study.assumed == nullptr) {
    report.not_computable = kUnprinted;
    report.not_computable.pop_back();
  } else if (missing.empty()) {
    report.shows = {closeness_finding(report.comparisons.front()), choice_finding(ours), extremes_finding(all),
                    kSaaFinding};
  }
  report.not_computable.insert(report.not_computable.end(), missing.begin(), missing.end());
  report.unexplained = {
      "Which 1296 layers the paper ran is open. Section VI-A leaves out what exceeds a GPU's memory, and does not say "
      "what it counts there. On testbed B, weights, gradients, Adam's states and counted activations of S1 leave 1296 "
      "of "
      "the 1458 combinations for each number of GPUs (k and E are assumed); so does leaving out N_MP = N_ESP = 1; and "
      "the four pairs of Table IV have 1296 combinations on two clusters. Figure 1's 324 layers are a quarter of "
      "either."};
  report.conventions = {
      "Layers of configs/grids/parm-a and parm-b (Table III) that fit the GPUs' memory as the baseline runs them: "
      "counted activations, Adam, float32. The paper ran 1296; `moetune memory --parm` counts. Table IV, Figure 7 and "
      "'mean over layers': N_MP and N_ESP of 2 and 4; Figure 1: all of 32 GPUs; elsewhere all but those with N_MP = "
      "N_ESP = 1, where Parm equals the baseline.",
      "Baseline: ds-moe-replicated. Forward and backward of the MoE layer alone: attention and the AllReduce of "
      "gradients "
      "are left out, as the paper leaves them.",
      "Printed of the cluster: alpha and beta of the MP AllGather (section VI-B, per float32 element), used for "
      "AllGathers "
      "over 2 and 4 GPUs of a node.",
      "testbed-b-first and -second: two of P = 8, 16 and 32, as the text keeps them; ours has all three."};
  if (study.measured != nullptr) add_measured(report, *study.measured);
  return report;
}

Report parm_table5(Study& study) {
  Report report{.key = "parm-table5",
                .title = "iteration time of BERT-Base and GPT-2",
                .source = "Parm (INFOCOM'24), Table V: N_MP = N_ESP = 4, 2 experts on testbed A, 8 on testbed B."};
  Comparison c{.caption = "parm over the baseline", .label_names = {"model", "testbed"}};
  std::set<std::string> missing;
  LayerSearch search;
  for (const PrintedParmModel& row : printed_parm_table5()) {
    Figure figure{{row.model, row.testbed}, "", row.deepspeed_moe_ms / row.parm_ms, std::nullopt};
    if (study.assumed != nullptr) {
      const Profile profile = with_assumed_rows(parm_cluster(row.testbed), study.assumed);
      const Model model = model_on_cluster(find_model(row.model), profile.name);
      const LayerCase shape = model_shape(model, profile);
      const PrintedPrices print{profile, study.assumed, missing};
      const auto baseline = tuned_from_print(search, kParmBaseline, print, shape);
      const auto parm = tuned_from_print(search, "parm", print, shape);
      if (baseline && parm) figure.ours = baseline->total_s() / parm->total_s();
    }
    c.figures.push_back(std::move(figure));
  }
  report.comparisons = {c};
  if (study.assumed == nullptr) report.not_computable = kUnprinted;
  report.not_computable.insert(report.not_computable.end(), missing.begin(), missing.end());
  report.conventions = {
      "Models of configs/models: B = 4, L = 512 (BERT-Base) and 1024 (GPT-2), k = 2 and f = 1.2 are assumed there; the "
      "paper prints none of them, so its milliseconds cannot be compared, only its speedups.",
      "Whole layers, attention and gradients included; embedding, output and optimizer left out."};
  return report;
}

}  // namespace moe::reproduce
