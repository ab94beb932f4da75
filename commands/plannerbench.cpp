#include "commands/plannerbench.h"

#include <array>
#include <benchmark/benchmark.h>
#include <filesystem>
#include <limits>
#include <sys/resource.h>
#include <unistd.h>

#include "commands/shared/selection.h"
#include "commands/shared/sweep.h"
#include "moe/base/check.h"
#include "moe/base/table.h"
#include "moe/search/wave.h"
#include "moe/serve/expert_placement.h"
#include "moe/simulator/fluid_replay.h"
#include "moe/simulator/rank_replay.h"

namespace moe::commands {
namespace {

constexpr std::string_view kGrid = "fsmoe-b", kSchedule = "fsmoe";
constexpr int kDegree = 8;
constexpr int kLargeNodes = 12'500, kLargeRanksPerNode = 8, kLargeEp = 100;  // 100,000 ranks

// Limits that the figures should meet on one core of a current server.
constexpr double kTuneSeconds = 1, kRecordedSeconds = 0.6, kRecordsMB = 10, kPeakMiB = 128, kPlainTasks = 100e6,
                 kFluidTasks = 15e6, kRankSeconds = 0.25, kWaveSeconds = 1.5, kWaveOrderSeconds = 0.5, kPlacementMs = 1;

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

benchmark::Counter per_second(double count) { return {count, benchmark::Counter::kIsRate}; }

// Returns the structure twice, one after the other.
Structure repeated_twice(const Structure& once) {
  Structure both = once;
  const int tasks = static_cast<int>(once.tasks.size());
  for (Task task : once.tasks) {
    task.id += tasks;
    if (task.after.empty())
      task.after = {tasks - 1};
    else
      for (int& id : task.after) id += tasks;
    both.lanes[task.lane].queue.push_back(task.id);
    both.tasks.push_back(std::move(task));
  }
  return both;
}

// One layer, forward and backward, on the default cluster.
struct Layer {
  Profile profile = find_profile(std::string(commands::kDefaultCluster));
  LayerPricer pricer{profile, commands::chosen_case({}, profile.nodes, profile.ranks_per_node)};
  Plan plan = build_plan(find_schedule(kSchedule), pricer.shape(),
                         with_split(find_schedule(kSchedule), kDegree, kDegree, pricer.gradient_bytes() / 2));
  std::vector<double> seconds = price(pricer, plan);
};

// Returns the groups of a large cluster. Its replays only use the sizes of groups; the layer keeps its prices.
ParallelShape large_cluster() {
  LayerShape layer;
  layer.experts = kLargeEp;
  ParallelShape parallel;
  parallel.nodes = kLargeNodes;
  parallel.ranks_per_node = kLargeRanksPerNode;
  return complete(layer, parallel, Rounding::ragged).parallel;
}

void bench_tune(benchmark::State& state, const Layer& layer) {
  const Grid grid = find_grid(std::string(kGrid));
  const auto all = commands::chosen_schedules({}, schedules(), commands::kAllSchedules);
  for ([[maybe_unused]] const auto _ : state)
    benchmark::DoNotOptimize(commands::sweep({layer.profile, grid, all, {}, {}}));
  const auto layers = static_cast<double>(grid.layers.size()), schedules = static_cast<double>(all.size());
  state.counters["layers"] = layers;
  state.counters["schedules"] = schedules;
  state.counters["searches/s"] = per_second(layers * schedules);
  state.counters["peak_MiB"] = peak_mib();
}

// Writes records like the verb does, including the last one, into a file that is removed again.
void bench_records(benchmark::State& state, const Layer& layer) {
  const Grid grid = find_grid(std::string(kGrid));
  const auto all = commands::chosen_schedules({}, schedules(), commands::kAllSchedules);
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("moetune-plannerbench-{}.jsonl", ::getpid());
  for ([[maybe_unused]] const auto _ : state) {
    RecordWriter writer(path, {});
    commands::append_rows(writer, commands::sweep({layer.profile, grid, all, {}, {}}), all, layer.profile.name);
    writer.end();
  }
  state.counters["records"] = static_cast<double>(grid.layers.size() * all.size());
  state.counters["MB"] = static_cast<double>(std::filesystem::file_size(path)) * 1e-6;
  std::filesystem::remove(path);
}

void bench_plain(benchmark::State& state, const Layer& layer) {
  const Replay replay(*layer.plan.structure);
  std::vector<double> ends;
  for ([[maybe_unused]] const auto _ : state) benchmark::DoNotOptimize(replay.makespan(layer.seconds, ends));
  state.counters["tasks/s"] = per_second(static_cast<double>(state.iterations()) * static_cast<double>(ends.size()));
}

void bench_fluid(benchmark::State& state, const Layer& layer) {
  const FluidReplay replay(*layer.plan.structure, networks_of(layer.plan.groups), {1.2, 1.1, 1.15, 1.05, 1.1, 1.05});
  std::vector<double> ends;
  for ([[maybe_unused]] const auto _ : state) benchmark::DoNotOptimize(replay.makespan(layer.seconds, ends));
  state.counters["tasks/s"] = per_second(static_cast<double>(state.iterations()) * static_cast<double>(ends.size()));
}

void bench_ranks(benchmark::State& state, const Layer& layer) {
  const RankReplay replay(repeated_twice(*layer.plan.structure), large_cluster());
  RankNoise noise;
  noise.jitter = Jitter::lognormal;
  noise.coefficient = 0.05;
  for ([[maybe_unused]] const auto _ : state) {
    benchmark::DoNotOptimize(replay.replay(layer.seconds, noise));
    ++noise.seed;
  }
  const auto ranks = static_cast<double>(replay.ranks()), tasks = static_cast<double>(replay.tasks());
  state.counters["ranks"] = ranks;
  state.counters["tasks"] = tasks;
  state.counters["task-ranks/s"] = per_second(static_cast<double>(state.iterations()) * ranks * tasks);
}

constexpr int kWaveMicroBatches = 8;

void bench_wave(benchmark::State& state, const Layer& layer) {
  ModelShape model{layer.plan.shape, 12, kWaveMicroBatches};
  const LayerPricer pricer(layer.profile, model.shape);
  const WaveResult none{{}, std::numeric_limits<double>::infinity(), {}};
  for ([[maybe_unused]] const auto _ : state)
    benchmark::DoNotOptimize(search_wave(pricer, model, {.keep = model.layers + 1, .cuts_batches = true}, none));
  state.counters["layers"] = model.layers;
}

void bench_wave_order(benchmark::State& state, const Layer& layer) {
  const ModelShape model{layer.plan.shape, 48, kWaveMicroBatches};
  for ([[maybe_unused]] const auto _ : state)
    benchmark::DoNotOptimize(wave_plan(layer.pricer, model, model.layers + 1, {2, 2, 2, 2}));
  state.counters["layers"] = model.layers;
}

constexpr int kServingDevices = 64, kServedExperts = 256, kMaxServed = 8;

// Places experts whose popularity follows Zipf's law, for one layer of a served batch.
void bench_placement(benchmark::State& state, const Layer&) {
  std::vector<double> popularity;
  for (int e = 1; e <= kServedExperts; ++e) popularity.push_back(1e5 / e);
  for ([[maybe_unused]] const auto _ : state)
    benchmark::DoNotOptimize(place_experts(popularity, kServingDevices, kMaxServed));
}

// Prints one row for each figure, with its limit.
class Figures : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) report(run);
  }
  std::string text() const { return table_.text(); }

 private:
  static double counter(const Run& run, const char* name) { return run.counters.at(name).value; }

  void at_most(const std::string& what, const std::string& found, double value, double limit, const char* unit) {
    table_.add({what, found, fmt::format("limit {} {}", limit, unit), value <= limit ? "ok" : "over"});
  }
  // Adds a row with a rate per second of a core, as Google Benchmark counts it.
  void rate(const std::string& what, double a_second, double floor, const char* unit) {
    table_.add({what, fmt::format("{:.1f} M {}/s", a_second * 1e-6, unit),
                fmt::format("at least {:.0f} M {}/s", floor * 1e-6, unit), a_second >= floor ? "ok" : "under"});
  }

  void report(const Run& run) {
    const std::string name = run.run_name.function_name;
    const double wall_s = run.real_accumulated_time / static_cast<double>(run.iterations);
    const double cpu_s = run.cpu_accumulated_time / static_cast<double>(run.iterations);
    const std::string seconds = fmt::format("{:.3f} s ({:.3f} s of a core)", wall_s, cpu_s);
    if (name == "tune") {
      at_most(
          fmt::format("tune {:.0f} layers under {:.0f} schedules", counter(run, "layers"), counter(run, "schedules")),
          seconds, wall_s, kTuneSeconds, "s");
      at_most("  peak memory", fmt::format("{:.1f} MiB", counter(run, "peak_MiB")), counter(run, "peak_MiB"), kPeakMiB,
              "MiB");
    } else if (name == "tune/records") {
      at_most("  the same again, with its records written", seconds, wall_s, kRecordedSeconds, "s");
      at_most(fmt::format("  {:.0f} records", counter(run, "records")), fmt::format("{:.1f} MB", counter(run, "MB")),
              counter(run, "MB"), kRecordsMB, "MB");
    } else if (name.starts_with("wave")) {
      const bool searches = name == "wave/search";
      at_most(fmt::format("{} of {:.0f} layers, {} micro-batches", searches ? "best order" : "order at given degrees",
                          counter(run, "layers"), kWaveMicroBatches),
              seconds, wall_s, searches ? kWaveSeconds : kWaveOrderSeconds, "s");
    } else if (name == "placement") {
      at_most(fmt::format("placement of {} experts on {} devices", kServedExperts, kServingDevices),
              fmt::format("{:.4f} ms", 1e3 * wall_s), 1e3 * wall_s, kPlacementMs, "ms");
    } else if (name == "replay/plain") {
      rate("replay of a layer", counter(run, "tasks/s"), kPlainTasks, "tasks");
    } else if (name == "replay/fluid") {
      rate("replay under contention", counter(run, "tasks/s"), kFluidTasks, "tasks");
    } else {
      at_most(fmt::format("replay of {:.0f} tasks on {:.0f} ranks", counter(run, "tasks"), counter(run, "ranks")),
              seconds, wall_s, kRankSeconds, "s");
      rate("  of a core", counter(run, "task-ranks/s"), counter(run, "tasks") * counter(run, "ranks") / kRankSeconds,
           "task-ranks");
    }
  }

  Table table_{{"figure", "found", "expected", "verdict"}};
};

}  // namespace

int run_plannerbench(const PlannerbenchOptions& options) {
  std::string program = "moetune";
  std::array argv{program.data()};
  int argc = 1;
  benchmark::Initialize(&argc, argv.data());
  const Layer layer;
  const auto add = [&](const char* name, void (*bench)(benchmark::State&, const Layer&)) {
    return benchmark::RegisterBenchmark(name, [&layer, bench](benchmark::State& state) { bench(state, layer); });
  };
  add("tune", bench_tune)->Iterations(1)->Unit(benchmark::kSecond);  // first: its peak memory is that of the process
  add("tune/records", bench_records)->Iterations(1)->Unit(benchmark::kSecond);
  add("replay/plain", bench_plain)->Unit(benchmark::kNanosecond);
  add("replay/fluid", bench_fluid)->Unit(benchmark::kNanosecond);
  add("replay/ranks", bench_ranks)->Iterations(5)->Unit(benchmark::kSecond);
  add("wave/search", bench_wave)->Iterations(1)->Unit(benchmark::kSecond);
  add("wave/order", bench_wave_order)->Iterations(1)->Unit(benchmark::kSecond);
  add("placement", bench_placement)->Unit(benchmark::kMicrosecond);
  if (options.json) {
    benchmark::JSONReporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    return 0;
  }
  Figures figures;
  benchmark::RunSpecifiedBenchmarks(&figures);
  fmt::print("{}", figures.text());
  return 0;
}

}  // namespace moe::commands
