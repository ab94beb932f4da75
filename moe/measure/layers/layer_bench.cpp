#include "moe/measure/layers/layer_bench.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/comm/local/local_world.h"
#include "moe/device/device.h"
#include "moe/measure/layers/in_step.h"
#include "moe/measure/layers/pass_times.h"
#include "moe/measure/layers/proxy.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/measure/layers/training.h"
#include "moe/stack/stack_errors.h"

namespace moe {
namespace {

constexpr int kProvingPasses = 2;  // in the second the first one's dense gradients are summed
constexpr int kUnpacedPasses = 7;  // to see how long the work under a pace takes; they warm up the paced ones too
constexpr int kAttempts = 3;       // at passes whose tasks outlast their modelled time

class LayerBench {
 public:
  LayerBench(const std::vector<PlannedRun>& planned, const LayerBenchSettings& settings)
      : planned_(planned), settings_(settings) {
    for (const PlannedRun& p : planned) {
      MeasuredRun& run = result_.runs.emplace_back();
      run.plan = p.plan;
      if (settings.emulated) {
        LayerCase proxy = proxy_case(p.plan.shape, p.plan.degree_forward, p.plan.degree_backward);
        DType& dtype = proxy.layer.dtype;
        if (!computes_in(settings.ranks.device, dtype)) dtype = sums_type(dtype);
        run.plan = proxy_of(p.plan, proxy);
      }
      proven_.push_back(run.plan);
      if (reference_flops(run.plan.shape) * run.plan.layers * run.plan.micro_batches <= settings.most_reference_flops)
        continue;
      small_proof_ = true;
      proven_.back() = proxy_of(p.plan, small_case(p.plan.shape, p.plan.degree_forward, p.plan.degree_backward));
    }
    ranks_ = result_.runs.front().plan.shape.parallel.ranks();
    if (!settings.ranks.processes) threads_.emplace(ranks_, settings.timeout_s);
    require_equal<BadInput>(world().ranks(), ranks_, "ranks of the run, and of the layer's parallel shape");
    here_ = world().here();
    rank_runs_.resize(here_.size());
  }

  LayerMeasurement run() {
    result_.took.proving_s = seconds_of([&] { prove(); });
    if (settings_.check_only) return std::move(result_);
    if (settings_.emulated) result_.took.unpaced_s = seconds_of([&] { choose_pace(); });
    result_.took.timed_s = seconds_of([&] { time(); });
    return std::move(result_);
  }

 private:
  bool trains() const { return settings_.training.text != nullptr; }
  World& world() { return settings_.ranks.processes ? *settings_.ranks.processes : *threads_; }
  // Of a rank, among those that are here.
  size_t place(int rank) const { return static_cast<size_t>(rank - here_.front()); }
  std::vector<std::unique_ptr<RankRun>>& runs_of(int rank) { return rank_runs_[place(rank)]; }

  template <class Work>
  static double seconds_of(Work work) {
    const double begin_s = now_s();
    work();
    return now_s() - begin_s;
  }

  // A small model knows the tokens of its text alone.
  Plan proxy_of(const Plan& plan, const LayerCase& small) const {
    Plan proxy = proxy_plan(plan, small);
    if (proxy.vocabulary > 0) proxy.vocabulary = settings_.training.text->vocabulary();
    return proxy;
  }

  void prove() {
    for (size_t s = 0; s < planned_.size(); ++s) make(s, proven_[s]);
    for (size_t s = 0; s < planned_.size(); ++s) verify(s);
    if (settings_.check_only || !small_proof_) return;
    for (auto& runs : rank_runs_) runs.clear();
    for (size_t s = 0; s < planned_.size(); ++s) make(s, result_.runs[s].plan, 1);
  }

  void choose_pace() {
    std::vector<std::vector<RankTimes>> unpaced(planned_.size(),
                                                std::vector<RankTimes>(kUnpacedPasses, RankTimes(here_.size())));
    world().run([&](int rank) { unpaced_passes(rank, unpaced); });
    result_.dilation = choose_dilation(planned_, unpaced);
  }

  void time() {
    for (const PlannedRun& p : planned_) pacers_.push_back(make_pacer(p, ranks_, result_.dilation));
    timed_.resize(planned_.size());
    std::vector<size_t> open;
    for (size_t s = 0; s < planned_.size(); ++s)
      if (result_.runs[s].wrong.empty()) open.push_back(s);
    training_.resize(planned_.size());
    for (size_t s = 0; s < planned_.size(); ++s)
      if (result_.runs[s].plan.vocabulary > 0) training_[s].begin(world(), runs_of_schedule(s), settings_.training);
    machines_ = settings_.emulated ? machines_apart(static_cast<size_t>(ranks_))
                                   : machines_of(world(), settings_.ranks.device, settings_.ranks.threads);
    const int64_t made = tensor_memory.made;
    const int attempts = trains() ? 1 : kAttempts;  // a step is not made twice
    for (int attempt = 0; attempt < attempts && !open.empty(); ++attempt) {
      for (const size_t s : open) timed_[s].assign(here_.size(), {});
      world().run([&](int rank) { timed_passes(rank, open); });
      for (const size_t s : open)
        if (trains()) take_losses(s);
      for (const size_t s : open) collect(s, attempt);
      std::erase_if(open, [&](size_t s) { return overrun_share(result_.runs[s]) <= kOverrunLimit; });
    }
    result_.tensors_made = tensor_memory.made - made;
    for (size_t s = 0; s < planned_.size(); ++s) {
      MeasuredRun& run = result_.runs[s];
      if (!run.wrong.empty() || run.plan.vocabulary == 0) continue;
      run.held_out_loss = training_[s].held_out_loss(world(), runs_of_schedule(s));
    }
  }

  void take_losses(size_t s) {
    std::vector<double>& losses = result_.runs[s].losses;
    losses = training_[s].losses(world());
    if (static_cast<int>(losses.size()) < settings_.iterations)
      throw Stopped(fmt::format("stopped after step {} of {}", losses.size(), settings_.iterations));
  }

  // A layer on every rank that ran `plan` and has its gradients.
  void make(size_t s, const Plan& plan, int passes = kProvingPasses) {
    const int64_t before = tensor_memory.live_bytes;
    tensor_memory.peak_bytes = before;
    world().run([&](int rank) { set_up(rank, plan); });
    world().run([&](int rank) { proving_passes(rank, s, passes); });
    result_.runs[s].peak_bytes =
        static_cast<double>(tensor_memory.peak_bytes - before) / static_cast<double>(here_.size());
  }

  void set_up(int rank, const Plan& plan) {
    const auto everyone = world().communicator(rank);
    const int place = world().topology().local_rank;
    runs_of(rank).push_back(std::make_unique<RankRun>(plan, *everyone,
                                                      RankRun::Setup{.kind = settings_.ranks.device,
                                                                     .place = place,
                                                                     .threads = settings_.ranks.threads,
                                                                     .seed = settings_.seed,
                                                                     .workload = settings_.workload,
                                                                     .text = settings_.training.text,
                                                                     .drag = settings_.drag,
                                                                     .step_apart = settings_.emulated}));
    require_same_plan(*everyone, plan);
  }

  // Ranks that run different plans would hang or mix up their data.
  void require_same_plan(Communicator& everyone, const Plan& plan) {
    const uint64_t mine = plan.hash();
    std::vector<uint64_t> all(static_cast<size_t>(everyone.size()));
    const auto stream = make_cpu_device()->make_stream("plan hash");
    everyone.allgather(&mine, all.data(), sizeof mine, {*stream, {}, "comparing plans"});
    stream->synchronize();
    for (size_t r = 0; r < all.size(); ++r)
      require<RankFailure>(all[r] == mine, "rank {}: plan {:016x} of {} differs from rank {}'s {:016x}",
                           everyone.rank(), mine, plan.schedule, r, all[r]);
  }

  void together(Communicator& everyone, Stream& stream) {
    everyone.barrier({stream, {}, "start of a pass"});
    stream.synchronize();
  }

  void proving_passes(int rank, size_t s, int passes) {
    const auto everyone = world().communicator(rank);
    const auto stream = make_start_stream(rank);
    RankRun& mine = *runs_of(rank)[s];
    for (int pass = 0; pass < passes; ++pass) {
      together(*everyone, *stream);
      mine.pass();
    }
    mine.finish_gradients(*stream);
    stream->synchronize();
  }

  std::vector<RankRun*> runs_of_schedule(size_t s) {
    std::vector<RankRun*> all;
    for (auto& runs : rank_runs_) all.push_back(runs[s].get());
    return all;
  }

  std::vector<RankCells> cells_of(size_t s) {
    std::vector<RankCells> cells;
    for (RankRun* run : runs_of_schedule(s)) cells.push_back(run->cells());
    return cells;
  }

  // What every rank's gates chose, wherever it is.
  StackChoices all_choices(const std::vector<RankCells>& ranks, const Plan& plan) {
    std::vector<std::string> mine;
    for (const RankCells& rank : ranks) {
      const std::vector<int32_t> own = own_choices(rank);
      mine.emplace_back(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(int32_t));
    }
    std::vector<std::vector<int32_t>> all;
    for (const std::string& text : gather(world(), std::move(mine))) {
      auto& of_rank = all.emplace_back(text.size() / sizeof(int32_t));
      std::memcpy(of_rank.data(), text.data(), text.size());
    }
    return join_choices(all, plan.layers, plan.micro_batches, plan.shape.parallel.pp);
  }

  // Of the first layer and micro-batch.
  RoutingLoad load_of_ranks(const std::vector<RankCells>& ranks) {
    std::vector<std::vector<double>> mine;
    for (const RankCells& rank : ranks) mine.push_back(rank.has(0) ? load_on(rank.at(0, 0)) : std::vector<double>());
    std::vector<std::vector<double>> all = gather(world(), mine);
    std::erase_if(all, [](const std::vector<double>& load) { return load.empty(); });
    return load_of(ranks.front().front().shape(), all);
  }

  void verify(size_t s) {
    const std::vector<RankCells> ranks = cells_of(s);
    const Plan& plan = proven_[s];
    MeasuredRun& run = result_.runs[s];
    run.proven_tokens = static_cast<double>(ranks.front().front().shape().tokens.total * plan.micro_batches);
    run.load = load_of_ranks(ranks);
    if (settings_.inspect) settings_.inspect(world(), ranks, plan);
    const StackChoices choices = all_choices(ranks, plan);
    try {
      const std::vector<TensorError> errors =
          plan.vocabulary > 0 ? verify_model(runs_of_schedule(s), choices)
                              : verify_stack(ranks, reference_stack(ranks.front().front(), choices));
      for (const TensorError& e : errors)
        if (e.error > run.worst_error) run.worst_error = e.error, run.worst_tensor = e.tensor;
    } catch (const WrongResult& error) {
      run.wrong = error.what();
    }
    share_verdict(run);
  }

  // The first wrong process's words, or the worst of the right ones' errors.
  void share_verdict(MeasuredRun& run) {
    if (here_.size() == static_cast<size_t>(ranks_)) return;
    const std::string wrong = run.wrong.empty() ? "" : fmt::format("rank {}: {}", here_.front(), run.wrong);
    const auto tensors = gather(world(), std::vector{run.worst_tensor});
    const auto errors = gather(world(), std::vector<std::vector<double>>{{run.worst_error}});
    run.wrong.clear();
    for (const std::string& each : gather(world(), std::vector{wrong}))
      if (run.wrong.empty()) run.wrong = each;
    for (size_t rank = 0; rank < errors.size(); ++rank)
      if (errors[rank].front() > run.worst_error)
        run.worst_error = errors[rank].front(), run.worst_tensor = tensors[rank];
  }

  void unpaced_passes(int rank, std::vector<std::vector<RankTimes>>& unpaced) {
    const auto everyone = world().communicator(rank);
    const auto stream = make_start_stream(rank);
    for (size_t s = 0; s < planned_.size(); ++s)
      for (RankTimes& pass : unpaced[s]) {
        RankRun& mine = *runs_of(rank)[s];
        together(*everyone, *stream);
        pass[place(rank)] = mine.pass().tasks;
      }
  }

  std::unique_ptr<Stream> make_start_stream(int rank) { return runs_of(rank).front()->device().make_stream("start"); }

  void timed_passes(int rank, const std::vector<size_t>& schedules) {
    const auto everyone = world().communicator(rank);
    const auto stream = make_start_stream(rank);
    std::vector<std::vector<double>> paces(planned_.size());
    if (settings_.emulated)
      for (const size_t s : schedules)
        for (const double seconds : planned_[s].task_seconds) paces[s].push_back(seconds * result_.dilation.factor);
    const int warm_ups = settings_.emulated || trains() ? 0 : 1;
    const auto first = trains() ? static_cast<int>(training_[schedules.front()].first_step()) : -warm_ups;
    for (int iteration = first; iteration < settings_.iterations; ++iteration)
      for (const size_t s : schedules) {
        RankRun& mine = *runs_of(rank)[s];
        together(*everyone, *stream);
        const RunTimes& times = settings_.in_step ? mine.pass_in_step(*everyone)
                                                  : mine.pass(paces[s], {pacers_[s].get(), rank, planned_[s].resources},
                                                              [&] { together(*everyone, *stream); });
        if (iteration < 0) continue;
        append_pass(result_.runs[s].plan, times, result_.dilation.factor, timed_[s][place(rank)]);
        if (mine.model() != nullptr && !training_[s].stepped(place(rank), mine, *everyone, *stream)) return;
      }
  }

  void collect(size_t s, int repeats) {
    MeasuredRun& run = result_.runs[s];
    run.repeats = repeats;
    PassTimes passes = read_passes(run.plan, gather(world(), timed_[s]));
    run.forward_s = std::move(passes.forward_s);
    run.total_s = std::move(passes.total_s);
    run.exposed_s = std::move(passes.exposed_s);
    run.overlap = std::move(passes.overlap);
    run.overruns = passes.overruns;
    if (settings_.emulated)
      run.paced_tasks =
          static_cast<int64_t>(run.plan.tasks().size()) * ranks_ * static_cast<int64_t>(run.total_s.size());
    run.task_s.clear();
    const double dilation = result_.dilation.factor;
    for (const Task& task : run.plan.tasks()) run.task_s.push_back(median(seconds_of(passes, task)) / dilation);
    const size_t pass = median_pass(run.total_s), rank = slowest_rank(run.total_s[pass]);
    run.median_rank = static_cast<int>(rank);
    run.median_tasks = times_on(passes.tasks[pass], rank);
    for (TaskTime& t : run.median_tasks) t = {t.start_s / dilation, t.end_s / dilation};
  }

  std::vector<double> seconds_of(const PassTimes& passes, const Task& task) const {
    const auto own = [](auto&... pass) { return own_seconds(pass...); };
    return settings_.in_step ? seconds_by_pass(passes, task, machines_, in_step_seconds)
                             : seconds_by_pass(passes, task, machines_, own);
  }

  const std::vector<PlannedRun>& planned_;
  const LayerBenchSettings& settings_;
  std::optional<LocalWorld> threads_;
  int ranks_ = 0;
  std::vector<int> here_;              // the ranks of this process
  std::vector<RankMachine> machines_;  // of all ranks
  LayerMeasurement result_;
  std::vector<Plan> proven_;                                      // by schedule, what is verified:
  bool small_proof_ = false;                                      // not what is timed
  std::vector<std::unique_ptr<Pacer>> pacers_;                    // by schedule; none: its tasks don't slow each other
  std::vector<std::vector<std::unique_ptr<RankRun>>> rank_runs_;  // [rank here][schedule]
  std::vector<std::vector<PassNumbers>> timed_;                   // [schedule][rank here]
  std::vector<Training> training_;                                // by schedule
};

}  // namespace

double overrun_share(const MeasuredRun& run) {
  return run.paced_tasks > 0 ? static_cast<double>(run.overruns) / static_cast<double>(run.paced_tasks) : 0;
}

LayerMeasurement measure_layer(const std::vector<PlannedRun>& planned, const LayerBenchSettings& settings) {
  require<WrongResult>(!planned.empty(), "layer bench: no schedule to run");
  return LayerBench(planned, settings).run();
}

}  // namespace moe
