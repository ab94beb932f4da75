#include "moe/measure/layers/layer_bench.h"

#include <algorithm>
#include <optional>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/comm/local/local_world.h"
#include "moe/device/cpu/memory.h"
#include "moe/device/device.h"
#include "moe/device/profiled.h"
#include "moe/measure/layers/benched.h"
#include "moe/measure/layers/proof.h"
#include "moe/measure/layers/proxy.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/measure/layers/training.h"
#include "moe/record/pass_times.h"

namespace moe::measure {
namespace {

constexpr int kProvingPasses = 2;  // the second pass sums the dense gradients of the first
constexpr int kUnpacedPasses = 7;  // they measure the work under the paces, and warm up for the paced passes

// A range [begin, end) of pass numbers; each attempt numbers its passes from 0.
struct Passes {
  int begin = 0, end = 0;
};

class LayerBench {
 public:
  LayerBench(const std::vector<PlannedRun>& planned, const LayerBenchSettings& settings)
      : settings_(settings), benched_(planned.size()) {
    size_t doublings = 0;
    for (const PlannedRun& run : planned) doublings = std::max(doublings, run.packed.size());
    for (size_t s = 0; s < planned.size(); ++s) plan(planned[s], 1 << doublings, benched_[s]);
    ranks_ = benched_.front().run.plan.shape.parallel.ranks();
    if (!settings.ranks.processes) threads_.emplace(ranks_, settings.timeout_s);
    require_equal<Unsupported>(world().ranks(), ranks_, "ranks of the run, and of the layer's parallel shape");
    local_ranks_ = world().local_ranks();
    for (BenchedRun& benched : benched_) benched.ranks.resize(local_ranks_.size());
    comms_.resize(local_ranks_.size());
  }

  LayerMeasurement run() {
    result_.took.proving_s = seconds_of([&] { prove(); });
    if (!settings_.check_only) {
      if (settings_.emulated) result_.took.unpaced_s = seconds_of([&] { choose_pace(); });
      result_.took.timed_s = seconds_of([&] { time(); });
    }
    const std::string& file = settings_.training.save_weights;
    if (!file.empty() && !benched_.front().run.wrong)
      save_weights(file, world(), benched_.front().runs(), benched_.front().run.plan);
    for (BenchedRun& benched : benched_) result_.runs.push_back(std::move(benched.run));
    return std::move(result_);
  }

 private:
  bool trains() const { return settings_.training.text != nullptr; }
  // Returns whether cores are probed: disturbances of paced passes are visible without probes.
  bool probes() const { return !settings_.emulated && settings_.ranks.device == DeviceKind::cpu; }
  World& world() { return settings_.ranks.processes ? *settings_.ranks.processes : *threads_; }
  // Returns the index of the rank among the ranks of this process.
  size_t place(int rank) const { return static_cast<size_t>(rank - local_ranks_.front()); }

  // Sets a schedule's plans: those that are timed, and those that are verified.
  void plan(const PlannedRun& planned, int max_packing, BenchedRun& benched) {
    const Plan& asked = planned.plan;
    const int64_t mask = asked.shape.layer.causal ? 0 : 1;
    // The vocabulary of a model that trains has only the tokens of its text, and the mask if it needs one.
    const int64_t vocabulary =
        asked.vocabulary > 0 && trains() ? settings_.training.text->vocabulary() + mask : asked.vocabulary;
    std::vector<const Plan*> nominal{&asked};
    for (const PlannedRun& packed : planned.packed) nominal.push_back(&packed.plan);
    std::vector<Plan> emulated;
    if (settings_.emulated) emulated = emulated_plans(nominal, settings_.ranks.device, vocabulary, max_packing);
    for (size_t i = 0; i < nominal.size(); ++i) {
      PackedPlan& packed = benched.plans.emplace_back(PackedPlan{.planned = i > 0 ? &planned.packed[i - 1] : &planned});
      packed.runs = settings_.emulated ? emulated[i] : *nominal[i];
      const Plan& runs = packed.runs;
      const bool small = reference_flops(runs.shape) * runs.layers * runs.micro_batches > settings_.max_reference_flops;
      small_proof_ |= small;
      packed.proven = small ? proving_plan(*nominal[i], vocabulary) : runs;
    }
    benched.run.plan = benched.plan().runs;
    if (!planned.packed.empty()) benched.controller.emplace(1 << planned.packed.size());
  }

  static double seconds_of(const auto& work) {
    const double begin_s = now_s();
    work();
    return now_s() - begin_s;
  }

  void prove() {
    const std::string& weights = settings_.training.weights;
    const Inspection none, &inspect = weights.empty() ? settings_.inspect : none;
    References references(world(), settings_.ranks.device, settings_.timeout_s);
    for (BenchedRun& benched : benched_)
      for (benched.current = benched.plans.size() - 1; benched.current > 0; --benched.current)
        prove_packed(benched, references);
    for (BenchedRun& benched : benched_) make(benched, benched.plan().proven);
    for (BenchedRun& benched : benched_)
      if (!benched.run.wrong)
        verify_run({world(), references, inspect}, benched.runs(), benched.plan().proven, benched.run);
    result_.references = references.computed();
    if (small_proof_ && !(settings_.check_only && weights.empty())) {
      for (BenchedRun& benched : benched_)
        for (auto& rank : benched.ranks) rank.reset();
      for (BenchedRun& benched : benched_) make(benched, benched.plan().runs, 1);
    }
    for (BenchedRun& benched : benched_) {
      if (weights.empty()) break;
      take_weights(weights, world(), benched.runs(), benched.run.plan);
      world().run([&](int rank) { proving_passes(rank, benched, 1); });
      if (settings_.inspect) settings_.inspect(world(), benched.runs(), benched.run.plan);
    }
  }

  // Verifies the current plan, one of several packings that a training may change to.
  void prove_packed(BenchedRun& benched, References& references) {
    make(benched, benched.plan().proven);
    if (!benched.run.wrong) verify_run({world(), references, {}}, benched.runs(), benched.plan().proven, benched.run);
    if (settings_.emulated && !settings_.check_only) {
      if (small_proof_) make(benched, benched.plan().runs, 1);
      run_unpaced(benched);
    }
    for (auto& rank : benched.ranks) rank.reset();
  }

  void choose_pace() {
    for (BenchedRun& benched : benched_) run_unpaced(benched);
    std::vector<PlannedRun> planned;
    std::vector<std::vector<RankTimes>> unpaced;
    for (const BenchedRun& benched : benched_)
      for (const PackedPlan& plan : benched.plans) {
        planned.push_back(*plan.planned);
        unpaced.push_back(plan.unpaced);
      }
    dilation_ = choose_dilation(planned, unpaced);
  }

  void run_unpaced(BenchedRun& benched) {
    std::vector<RankTimes>& unpaced = benched.plans[benched.current].unpaced;
    unpaced.assign(kUnpacedPasses, RankTimes(local_ranks_.size()));
    world().run([&](int rank) { unpaced_passes(rank, benched, unpaced); });
  }

  void time() {
    std::vector<BenchedRun*> open;
    for (BenchedRun& benched : benched_) {
      stretch(benched, dilation_);
      if (!benched.run.wrong) open.push_back(&benched);
      if (benched.trains()) begin_training(benched);
    }
    const BenchRanks& ranks = settings_.ranks;
    machines_ =
        settings_.emulated ? one_machine_per_rank(size_t(ranks_)) : machines_of(world(), ranks.device, ranks.threads);
    const int64_t made = tensor_memory.made;
    const int attempts = trains() ? 1 : kAttempts;  // training steps cannot be repeated
    limit_ = TimeLimit(settings_.max_timed_s);
    for (int attempt = 0; !open.empty(); ++attempt) {
      run_all_passes(open);
      for (BenchedRun* benched : open) benched->run.repeats = attempt;
      std::erase_if(open, [&](const BenchedRun* benched) { return !disturbed(benched->run); });
      const bool late = !open.empty() && attempt + 1 < attempts && limit_.exceeded(world());
      const bool last = late || attempt + 1 == attempts || (probes() && !open.empty() && !ranks.cores->takes_repeat());
      for (BenchedRun* benched : open) {
        benched->keep_best();
        if (last)
          benched->use_best(attempt);
        else if (settings_.emulated)
          stretch(*benched, {kLonger * benched->run.dilation.factor, benched->run.dilation.set_by});
        benched->run.out_of_time |= late;
      }
      if (last) break;
    }
    result_.tensors_made = tensor_memory.made - made;
    if (settings_.profile) {
      const ProfiledTime profiled;
      world().run([&](int rank) { profiled_passes(rank); });
    }
    for (BenchedRun& benched : benched_)
      if (!benched.run.wrong && benched.trains())
        benched.run.held_out_loss = benched.training.held_out_loss(world(), benched.runs());
  }

  // Times all passes of the open schedules: the requested number, and more if passes are too short to judge.
  void run_all_passes(const std::vector<BenchedRun*>& open) {
    for (BenchedRun* benched : open) {
      benched->timed.assign(local_ranks_.size(), {});
      benched->replayed.assign(local_ranks_.size(), {});
    }
    probed_.assign(local_ranks_.size(), {});
    for (Passes passes{0, 0}; passes.end < settings_.iterations; passes.begin = passes.end) {
      passes.end = end_of_steps(open, passes.end);
      run_passes(open, passes);
      if (passes.end < settings_.iterations) pack(open, passes.end);
    }
    if (const int all = passes_to_fill(open); all > settings_.iterations) run_passes(open, {settings_.iterations, all});
  }

  void run_passes(const std::vector<BenchedRun*>& open, Passes passes) {
    world().run([&](int rank) { timed_passes(rank, open, passes); });
    const double slowdown = probes() ? settings_.ranks.cores->add(gather(world(), probed_)) : 0;
    for (BenchedRun* benched : open) {
      if (trains()) take_losses(*benched);
      collect(*benched);
      benched->run.core_slowdown = slowdown;
    }
  }

  // Returns the pass after which to stop: the next one after which experts may be packed, or the last.
  int end_of_steps(const std::vector<BenchedRun*>& open, int begin) const {
    int64_t first = 0;
    for (const BenchedRun* benched : open)
      if (benched->controller) first = std::max<int64_t>(begin, benched->training.first_step()) + 1;
    while (first > 0 && first < settings_.iterations && !PackingController::decides(static_cast<int>(first))) ++first;
    return first > 0 ? static_cast<int>(first) : settings_.iterations;
  }

  // Lets the controllers decide after `step`, and moves experts if they are packed.
  void pack(const std::vector<BenchedRun*>& open, int step) {
    for (BenchedRun* benched : open)
      if (benched->controller && benched->controller->end_step(step)) move_experts(*benched, step);
  }

  void move_experts(BenchedRun& benched, int step) {
    BenchedRun next;
    next.plans.push_back(benched.plans[benched.current + 1]);
    next.ranks.resize(local_ranks_.size());
    make(next, next.plan().runs, 1);
    const int64_t before = tensor_memory.live_bytes;
    const ExchangeTotals moved = benched.training.move(world(), benched.runs(), next.runs());
    benched.run.states_bytes = states_bytes(before);
    benched.ranks = std::move(next.ranks);
    benched.timed.assign(local_ranks_.size(), {});
    benched.recorded = 0;
    ++benched.current;
    benched.run.plan = benched.plan().runs;
    benched.run.peak_bytes = next.run.peak_bytes;
    stretch(benched, benched.run.dilation);
    benched.run.packings.push_back({.packing = benched.controller->packing(),
                                    .first = step + 1,
                                    .memory_bytes = next.run.peak_bytes + benched.run.states_bytes,
                                    .moved_bytes = moved.bytes,
                                    .moving_s = settings_.emulated ? 0 : moved.seconds});
  }

  // Returns the number of passes that fill the requested time, judging by the passes so far.
  int passes_to_fill(const std::vector<BenchedRun*>& open) const {
    double pass_s = 0;
    for (const BenchedRun* benched : open) pass_s += median(max_over_ranks(benched->run.total_s));
    return settings_.fill_s > 0 ? passes_within(settings_.fill_s, pass_s) : 0;
  }

  void stretch(BenchedRun& benched, const Dilation& dilation) {
    benched.run.dilation = dilation;
    benched.pacer = make_pacer(*benched.plan().planned, ranks_, dilation);
  }

  void begin_training(BenchedRun& benched) {
    const int64_t before = tensor_memory.live_bytes;
    benched.training.begin(world(), benched.runs(), settings_.training);
    benched.run.states_bytes = states_bytes(before);
    if (benched.controller)
      benched.run.packings = {{.first = benched.training.first_step() + 1,
                               .memory_bytes = benched.run.peak_bytes + benched.run.states_bytes}};
  }

  double states_bytes(int64_t before) const {
    return static_cast<double>(tensor_memory.live_bytes - before) / static_cast<double>(local_ranks_.size());
  }

  void take_losses(BenchedRun& benched) {
    const int steps = settings_.iterations;
    std::vector<double>& losses = benched.run.losses;
    losses = benched.training.losses(world());
    if (benched.training.is_stopped() &&
        static_cast<int>(losses.size()) < steps)  // otherwise the time limit was reached
      throw TrainingStopped(
          fmt::format("stopped after step {} of {}{}", losses.size(), steps, benched.training.stop_reason()));
  }

  // Creates a layer on every rank, runs `plan` on it and completes its gradients.
  void make(BenchedRun& benched, const Plan& plan, int passes = kProvingPasses) {
    const int64_t before = tensor_memory.live_bytes;
    tensor_memory.peak_bytes = before;
    world().run([&](int rank) { benched.ranks[place(rank)] = set_up(rank, plan); });
    world().run([&](int rank) { proving_passes(rank, benched, passes); });
    benched.run.peak_bytes =
        static_cast<double>(tensor_memory.peak_bytes - before) / static_cast<double>(local_ranks_.size());
  }

  std::unique_ptr<RankRun> set_up(int rank, const Plan& plan) {
    const auto world_comm = world().communicator(rank);
    auto run = std::make_unique<RankRun>(plan, *world_comm,
                                         RankRun::Setup{.kind = settings_.ranks.device,
                                                        .attention = settings_.ranks.attention,
                                                        .place = world().topology().local_rank,
                                                        .threads = settings_.ranks.threads,
                                                        .seed = settings_.seed,
                                                        .workload = settings_.workload,
                                                        .text = settings_.training.text,
                                                        .injected = settings_.injected,
                                                        .step_outside_pass = settings_.emulated,
                                                        .comms = &comms_[place(rank)]});
    require_same_plan(*world_comm, plan);
    return run;
  }

  void begin_together(Communicator& world_comm, Stream& stream) {
    world_comm.barrier({stream, {}, "start of a pass"});
    stream.synchronize();
  }

  void proving_passes(int rank, BenchedRun& benched, int passes) {
    const auto world_comm = world().communicator(rank);
    RankRun& mine = *benched.ranks[place(rank)];
    const auto stream = make_start_stream(mine);
    for (int pass = 0; pass < passes; ++pass) {
      begin_together(*world_comm, *stream);
      mine.pass();
    }
    mine.finish_gradients(*stream);
    stream->synchronize();
  }

  void unpaced_passes(int rank, BenchedRun& benched, std::vector<RankTimes>& unpaced) {
    const auto world_comm = world().communicator(rank);
    RankRun& mine = *benched.ranks[place(rank)];
    const auto stream = make_start_stream(mine);
    for (RankTimes& pass : unpaced) {
      begin_together(*world_comm, *stream);
      pass[place(rank)] = mine.pass().tasks;
    }
  }

  std::unique_ptr<Stream> make_start_stream(const RankRun& of) { return of.device().make_stream("start"); }

  std::vector<double> paces_of(const BenchedRun& benched) const {
    std::vector<double> paces;
    if (settings_.emulated)
      for (const double seconds : benched.plan().planned->task_seconds)
        paces.push_back(seconds * benched.run.dilation.factor);
    return paces;
  }

  void timed_passes(int rank, const std::vector<BenchedRun*>& schedules, Passes passes) {
    const auto world_comm = world().communicator(rank);
    const auto stream = make_start_stream(*schedules.front()->ranks[place(rank)]);
    std::vector<std::vector<double>> paces;
    for (const BenchedRun* benched : schedules) {
      paces.push_back(paces_of(*benched));
      if (settings_.graphs) benched->ranks[place(rank)]->record();
    }
    // The first paced pass on a GPU allocates memory for the later ones, so it does not count.
    const bool is_ready = trains() || (settings_.emulated && settings_.ranks.device == DeviceKind::cpu);
    int first = trains() ? static_cast<int>(schedules.front()->training.first_step()) : is_ready ? 0 : -1;
    if (passes.begin > 0) first = passes.begin;
    std::optional<CoreProbe> probe;
    if (probes()) probe.emplace();
    for (int iteration = first; iteration < passes.end; ++iteration) {
      if (iteration >= kMinPasses &&
          limit_.exceeded(schedules.front()->ranks[place(rank)]->device(), *world_comm, *stream))
        break;
      if (probe) {
        begin_together(*world_comm, *stream);
        probed_[place(rank)].push_back(probe->seconds());
      }
      for (size_t s = 0; s < schedules.size(); ++s) {
        BenchedRun& benched = *schedules[s];
        timed_pass(rank, benched, paces[s], iteration >= 0, *world_comm, *stream);
        RankRun& mine = *benched.ranks[place(rank)];
        if (mine.model() != nullptr && !benched.training.record_step(place(rank), mine, *world_comm, *stream)) return;
      }
    }
  }

  // Runs a pass of a schedule, and its replay as a graph if graphs are measured. `counts`: whether to keep its times.
  void timed_pass(int rank, BenchedRun& benched, const std::vector<double>& paces, bool counts,
                  Communicator& world_comm, Stream& stream) {
    RankRun& mine = *benched.ranks[place(rank)];
    begin_together(world_comm, stream);
    const RunTimes& times = settings_.is_lockstep
                                ? mine.lockstep_pass(world_comm)
                                : mine.pass(paces, {benched.pacer.get(), rank, benched.plan().planned->resources},
                                            [&] { begin_together(world_comm, stream); });
    if (counts) append_pass(benched.run.plan, times, benched.run.dilation.factor, benched.timed[place(rank)]);
    if (!settings_.graphs) return;
    begin_together(world_comm, stream);
    const double replayed_s = mine.replay().pass.end_s;
    if (counts) benched.replayed[place(rank)].push_back(replayed_s);
  }

  void profiled_passes(int rank) {
    const auto world_comm = world().communicator(rank);
    for (BenchedRun& benched : benched_) {
      if (benched.run.wrong) continue;
      RankRun& mine = *benched.ranks[place(rank)];
      begin_together(*world_comm, *make_start_stream(mine));
      const NamedRange range(benched.run.plan.schedule);
      mine.pass(paces_of(benched));
    }
  }

  void collect(BenchedRun& benched) {
    MeasuredRun& run = benched.run;
    PassTimes passes = read_passes(run.plan, gather(world(), benched.timed));
    if (benched.controller) record_steps(passes, benched);
    set_run_times(std::move(passes), machines_, settings_.is_lockstep, run);
    // Number of steps with earlier packings.
    const int64_t before = run.packings.empty() ? 0 : run.packings.back().first - 1;
    run.out_of_time = std::ssize(run.total_s) < settings_.iterations - before;
    if (settings_.graphs) run.replayed_s = by_pass(gather(world(), benched.replayed));
    if (settings_.emulated) run.paced_tasks = std::ssize(run.plan.tasks()) * ranks_ * std::ssize(run.total_s);
  }

  void record_steps(const PassTimes& passes, BenchedRun& benched) const {
    const std::vector<MicroOpTimes> times = micro_op_times(passes, machines_, benched.run);
    PackedSteps& steps = benched.run.packings.back();
    steps.steps = std::ssize(times);
    steps.step_s = median(max_over_ranks(passes.total_s));
    steps.times = {};
    for (size_t i = 0; i < times.size(); ++i) {
      if (i >= benched.recorded) benched.controller->record(times[i]);
      steps.times.expert_s += times[i].expert_s / static_cast<double>(times.size());
      steps.times.alltoall_s += times[i].alltoall_s / static_cast<double>(times.size());
    }
    benched.recorded = times.size();
  }

  const LayerBenchSettings& settings_;
  std::optional<LocalWorld> threads_;
  int ranks_ = 0;
  std::vector<int> local_ranks_;             // the ranks of this process
  std::vector<CommsCache> comms_;            // for each rank of this process
  std::vector<RankMachine> machines_;        // for each rank
  std::vector<std::vector<double>> probed_;  // for each rank of this process: probes before each round of passes
  bool small_proof_ = false;                 // some schedule is verified with another plan than the timed one
  std::vector<BenchedRun> benched_;          // for each schedule
  TimeLimit limit_;                          // limit of the timed passes
  Dilation dilation_;                        // dilation of the next passes
  LayerMeasurement result_;
};

}  // namespace

LayerMeasurement measure_layer(const std::vector<PlannedRun>& planned, const LayerBenchSettings& settings) {
  require<WrongResult>(!planned.empty(), "layer bench: no schedule to run");
  LayerMeasurement measured = LayerBench(planned, settings).run();
  cpu::return_free_memory();
  return measured;
}

}  // namespace moe::measure
