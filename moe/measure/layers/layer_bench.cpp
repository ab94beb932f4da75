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
    here_ = world().here();
    for (Benched& each : benched_) each.ranks.resize(here_.size());
    comms_.resize(here_.size());
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
    for (Benched& each : benched_) result_.runs.push_back(std::move(each.run));
    return std::move(result_);
  }

 private:
  bool trains() const { return settings_.training.text != nullptr; }
  // Returns whether cores are probed: disturbances of paced passes are visible without probes.
  bool probes() const { return !settings_.emulated && settings_.ranks.device == DeviceKind::cpu; }
  World& world() { return settings_.ranks.processes ? *settings_.ranks.processes : *threads_; }
  // Returns the index of the rank among the ranks of this process.
  size_t place(int rank) const { return static_cast<size_t>(rank - here_.front()); }

  // Sets a schedule's plans: those that are timed, and those that are verified.
  void plan(const PlannedRun& planned, int most_packing, Benched& each) {
    const Plan& asked = planned.plan;
    const int64_t mask = asked.shape.layer.causal ? 0 : 1;
    // The vocabulary of a model that trains has only the tokens of its text, and the mask if it needs one.
    const int64_t vocabulary =
        asked.vocabulary > 0 && trains() ? settings_.training.text->vocabulary() + mask : asked.vocabulary;
    std::vector<const Plan*> nominal{&asked};
    for (const PlannedRun& packed : planned.packed) nominal.push_back(&packed.plan);
    std::vector<Plan> emulated;
    if (settings_.emulated) emulated = emulated_plans(nominal, settings_.ranks.device, vocabulary, most_packing);
    for (size_t i = 0; i < nominal.size(); ++i) {
      PackedPlan& packed = each.plans.emplace_back(PackedPlan{.planned = i > 0 ? &planned.packed[i - 1] : &planned});
      packed.runs = settings_.emulated ? emulated[i] : *nominal[i];
      const Plan& runs = packed.runs;
      const bool small =
          reference_flops(runs.shape) * runs.layers * runs.micro_batches > settings_.most_reference_flops;
      small_proof_ |= small;
      packed.proven = small ? proving_plan(*nominal[i], vocabulary) : runs;
    }
    each.run.plan = each.plan().runs;
    if (!planned.packed.empty()) each.controller.emplace(1 << planned.packed.size());
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
    for (Benched& each : benched_)
      for (each.current = each.plans.size() - 1; each.current > 0; --each.current) prove_packed(each, references);
    for (Benched& each : benched_) make(each, each.plan().proven);
    for (Benched& each : benched_)
      if (!each.run.wrong) prove_run({world(), references, inspect}, each.runs(), each.plan().proven, each.run);
    result_.references = references.computed();
    if (small_proof_ && !(settings_.check_only && weights.empty())) {
      for (Benched& each : benched_)
        for (auto& rank : each.ranks) rank.reset();
      for (Benched& each : benched_) make(each, each.plan().runs, 1);
    }
    for (Benched& each : benched_) {
      if (weights.empty()) break;
      take_weights(weights, world(), each.runs(), each.run.plan);
      world().run([&](int rank) { proving_passes(rank, each, 1); });
      if (settings_.inspect) settings_.inspect(world(), each.runs(), each.run.plan);
    }
  }

  // Verifies the current plan, one of several packings that a training may change to.
  void prove_packed(Benched& each, References& references) {
    make(each, each.plan().proven);
    if (!each.run.wrong) prove_run({world(), references, {}}, each.runs(), each.plan().proven, each.run);
    if (settings_.emulated && !settings_.check_only) {
      if (small_proof_) make(each, each.plan().runs, 1);
      run_unpaced(each);
    }
    for (auto& rank : each.ranks) rank.reset();
  }

  void choose_pace() {
    for (Benched& each : benched_) run_unpaced(each);
    std::vector<PlannedRun> planned;
    std::vector<std::vector<RankTimes>> unpaced;
    for (const Benched& each : benched_)
      for (const PackedPlan& plan : each.plans) {
        planned.push_back(*plan.planned);
        unpaced.push_back(plan.unpaced);
      }
    dilation_ = choose_dilation(planned, unpaced);
  }

  void run_unpaced(Benched& each) {
    std::vector<RankTimes>& unpaced = each.plans[each.current].unpaced;
    unpaced.assign(kUnpacedPasses, RankTimes(here_.size()));
    world().run([&](int rank) { unpaced_passes(rank, each, unpaced); });
  }

  void time() {
    std::vector<Benched*> open;
    for (Benched& each : benched_) {
      stretch(each, dilation_);
      if (!each.run.wrong) open.push_back(&each);
      if (each.trains()) begin_training(each);
    }
    const BenchRanks& ranks = settings_.ranks;
    machines_ = settings_.emulated ? machines_apart(size_t(ranks_)) : machines_of(world(), ranks.device, ranks.threads);
    const int64_t made = tensor_memory.made;
    const int attempts = trains() ? 1 : kAttempts;  // training steps cannot be repeated
    limit_ = TimeLimit(settings_.most_timed_s);
    for (int attempt = 0; !open.empty(); ++attempt) {
      run_all_passes(open);
      for (Benched* each : open) each->run.repeats = attempt;
      std::erase_if(open, [&](const Benched* each) { return !disturbed(each->run); });
      const bool late = !open.empty() && attempt + 1 < attempts && limit_.exceeded(world());
      const bool last = late || attempt + 1 == attempts || (probes() && !open.empty() && !ranks.cores->takes_repeat());
      for (Benched* each : open) {
        each->keep_best();
        if (last)
          each->use_best(attempt);
        else if (settings_.emulated)
          stretch(*each, {kLonger * each->run.dilation.factor, each->run.dilation.set_by});
        each->run.out_of_time |= late;
      }
      if (last) break;
    }
    result_.tensors_made = tensor_memory.made - made;
    if (settings_.profile) {
      const ProfiledTime profiled;
      world().run([&](int rank) { profiled_passes(rank); });
    }
    for (Benched& each : benched_)
      if (!each.run.wrong && each.trains()) each.run.held_out_loss = each.training.held_out_loss(world(), each.runs());
  }

  // Times all passes of the open schedules: the requested number, and more if passes are too short to judge.
  void run_all_passes(const std::vector<Benched*>& open) {
    for (Benched* each : open) {
      each->timed.assign(here_.size(), {});
      each->replayed.assign(here_.size(), {});
    }
    probed_.assign(here_.size(), {});
    for (Passes passes{0, 0}; passes.end < settings_.iterations; passes.begin = passes.end) {
      passes.end = end_of_steps(open, passes.end);
      run_passes(open, passes);
      if (passes.end < settings_.iterations) pack(open, passes.end);
    }
    if (const int all = passes_to_fill(open); all > settings_.iterations) run_passes(open, {settings_.iterations, all});
  }

  void run_passes(const std::vector<Benched*>& open, Passes passes) {
    world().run([&](int rank) { timed_passes(rank, open, passes); });
    const double slowdown = probes() ? settings_.ranks.cores->add(gather(world(), probed_)) : 0;
    for (Benched* each : open) {
      if (trains()) take_losses(*each);
      collect(*each);
      each->run.core_slowdown = slowdown;
    }
  }

  // Returns the pass after which to stop: the next one after which experts may be packed, or the last.
  int end_of_steps(const std::vector<Benched*>& open, int begin) const {
    int64_t first = 0;
    for (const Benched* each : open)
      if (each->controller) first = std::max<int64_t>(begin, each->training.first_step()) + 1;
    while (first > 0 && first < settings_.iterations && !PackingController::decides(static_cast<int>(first))) ++first;
    return first > 0 ? static_cast<int>(first) : settings_.iterations;
  }

  // Lets the controllers decide after `step`, and moves experts if they are packed.
  void pack(const std::vector<Benched*>& open, int step) {
    for (Benched* each : open)
      if (each->controller && each->controller->end_step(step)) move_experts(*each, step);
  }

  void move_experts(Benched& each, int step) {
    Benched next;
    next.plans.push_back(each.plans[each.current + 1]);
    next.ranks.resize(here_.size());
    make(next, next.plan().runs, 1);
    const int64_t before = tensor_memory.live_bytes;
    const Moved moved = each.training.move(world(), each.runs(), next.runs());
    each.run.states_bytes = states_bytes(before);
    each.ranks = std::move(next.ranks);
    each.timed.assign(here_.size(), {});
    each.recorded = 0;
    ++each.current;
    each.run.plan = each.plan().runs;
    each.run.peak_bytes = next.run.peak_bytes;
    stretch(each, each.run.dilation);
    each.run.packings.push_back({.packing = each.controller->packing(),
                                 .first = step + 1,
                                 .memory_bytes = next.run.peak_bytes + each.run.states_bytes,
                                 .moved_bytes = moved.bytes,
                                 .moving_s = settings_.emulated ? 0 : moved.seconds});
  }

  // Returns the number of passes that fill the requested time, judging by the passes so far.
  int passes_to_fill(const std::vector<Benched*>& open) const {
    double pass_s = 0;
    for (const Benched* each : open) pass_s += median(max_over_ranks(each->run.total_s));
    return settings_.fill_s > 0 ? passes_in(settings_.fill_s, pass_s) : 0;
  }

  void stretch(Benched& each, const Dilation& dilation) {
    each.run.dilation = dilation;
    each.pacer = make_pacer(*each.plan().planned, ranks_, dilation);
  }

  void begin_training(Benched& each) {
    const int64_t before = tensor_memory.live_bytes;
    each.training.begin(world(), each.runs(), settings_.training);
    each.run.states_bytes = states_bytes(before);
    if (each.controller)
      each.run.packings = {
          {.first = each.training.first_step() + 1, .memory_bytes = each.run.peak_bytes + each.run.states_bytes}};
  }

  double states_bytes(int64_t before) const {
    return static_cast<double>(tensor_memory.live_bytes - before) / static_cast<double>(here_.size());
  }

  void take_losses(Benched& each) {
    const int steps = settings_.iterations;
    std::vector<double>& losses = each.run.losses;
    losses = each.training.losses(world());
    if (each.training.is_stopped() && static_cast<int>(losses.size()) < steps)  // otherwise the time limit was reached
      throw Stopped(fmt::format("stopped after step {} of {}{}", losses.size(), steps, each.training.stopped_by()));
  }

  // Creates a layer on every rank, runs `plan` on it and completes its gradients.
  void make(Benched& each, const Plan& plan, int passes = kProvingPasses) {
    const int64_t before = tensor_memory.live_bytes;
    tensor_memory.peak_bytes = before;
    world().run([&](int rank) { each.ranks[place(rank)] = set_up(rank, plan); });
    world().run([&](int rank) { proving_passes(rank, each, passes); });
    each.run.peak_bytes = static_cast<double>(tensor_memory.peak_bytes - before) / static_cast<double>(here_.size());
  }

  std::unique_ptr<RankRun> set_up(int rank, const Plan& plan) {
    const auto everyone = world().communicator(rank);
    auto run = std::make_unique<RankRun>(plan, *everyone,
                                         RankRun::Setup{.kind = settings_.ranks.device,
                                                        .attention = settings_.ranks.attention,
                                                        .place = world().topology().local_rank,
                                                        .threads = settings_.ranks.threads,
                                                        .seed = settings_.seed,
                                                        .workload = settings_.workload,
                                                        .text = settings_.training.text,
                                                        .drag = settings_.drag,
                                                        .step_apart = settings_.emulated,
                                                        .comms = &comms_[place(rank)]});
    require_same_plan(*everyone, plan);
    return run;
  }

  void together(Communicator& everyone, Stream& stream) {
    everyone.barrier({stream, {}, "start of a pass"});
    stream.synchronize();
  }

  void proving_passes(int rank, Benched& each, int passes) {
    const auto everyone = world().communicator(rank);
    RankRun& mine = *each.ranks[place(rank)];
    const auto stream = make_start_stream(mine);
    for (int pass = 0; pass < passes; ++pass) {
      together(*everyone, *stream);
      mine.pass();
    }
    mine.finish_gradients(*stream);
    stream->synchronize();
  }

  void unpaced_passes(int rank, Benched& each, std::vector<RankTimes>& unpaced) {
    const auto everyone = world().communicator(rank);
    RankRun& mine = *each.ranks[place(rank)];
    const auto stream = make_start_stream(mine);
    for (RankTimes& pass : unpaced) {
      together(*everyone, *stream);
      pass[place(rank)] = mine.pass().tasks;
    }
  }

  std::unique_ptr<Stream> make_start_stream(const RankRun& of) { return of.device().make_stream("start"); }

  std::vector<double> paces_of(const Benched& each) const {
    std::vector<double> paces;
    if (settings_.emulated)
      for (const double seconds : each.plan().planned->task_seconds)
        paces.push_back(seconds * each.run.dilation.factor);
    return paces;
  }

  void timed_passes(int rank, const std::vector<Benched*>& schedules, Passes passes) {
    const auto everyone = world().communicator(rank);
    const auto stream = make_start_stream(*schedules.front()->ranks[place(rank)]);
    std::vector<std::vector<double>> paces;
    for (const Benched* each : schedules) {
      paces.push_back(paces_of(*each));
      if (settings_.graphs) each->ranks[place(rank)]->record();
    }
    // The first paced pass on a GPU allocates memory for the later ones, so it does not count.
    const bool is_ready = trains() || (settings_.emulated && settings_.ranks.device == DeviceKind::cpu);
    int first = trains() ? static_cast<int>(schedules.front()->training.first_step()) : is_ready ? 0 : -1;
    if (passes.begin > 0) first = passes.begin;
    std::optional<CoreProbe> probe;
    if (probes()) probe.emplace();
    for (int iteration = first; iteration < passes.end; ++iteration) {
      if (iteration >= kFewestPasses &&
          limit_.exceeded(schedules.front()->ranks[place(rank)]->device(), *everyone, *stream))
        break;
      if (probe) {
        together(*everyone, *stream);
        probed_[place(rank)].push_back(probe->seconds());
      }
      for (size_t s = 0; s < schedules.size(); ++s) {
        Benched& each = *schedules[s];
        timed_pass(rank, each, paces[s], iteration >= 0, *everyone, *stream);
        RankRun& mine = *each.ranks[place(rank)];
        if (mine.model() != nullptr && !each.training.stepped(place(rank), mine, *everyone, *stream)) return;
      }
    }
  }

  // Runs a pass of a schedule, and its replay as a graph if graphs are measured. `counts`: whether to keep its times.
  void timed_pass(int rank, Benched& each, const std::vector<double>& paces, bool counts, Communicator& everyone,
                  Stream& stream) {
    RankRun& mine = *each.ranks[place(rank)];
    together(everyone, stream);
    const RunTimes& times = settings_.in_step
                                ? mine.pass_in_step(everyone)
                                : mine.pass(paces, {each.pacer.get(), rank, each.plan().planned->resources},
                                            [&] { together(everyone, stream); });
    if (counts) append_pass(each.run.plan, times, each.run.dilation.factor, each.timed[place(rank)]);
    if (!settings_.graphs) return;
    together(everyone, stream);
    const double replayed_s = mine.replay().pass.end_s;
    if (counts) each.replayed[place(rank)].push_back(replayed_s);
  }

  void profiled_passes(int rank) {
    const auto everyone = world().communicator(rank);
    for (Benched& each : benched_) {
      if (each.run.wrong) continue;
      RankRun& mine = *each.ranks[place(rank)];
      together(*everyone, *make_start_stream(mine));
      const NamedRange range(each.run.plan.schedule);
      mine.pass(paces_of(each));
    }
  }

  void collect(Benched& each) {
    MeasuredRun& run = each.run;
    PassTimes passes = read_passes(run.plan, gather(world(), each.timed));
    if (each.controller) record_steps(passes, each);
    take_times(std::move(passes), machines_, settings_.in_step, run);
    // Number of steps with earlier packings.
    const int64_t before = run.packings.empty() ? 0 : run.packings.back().first - 1;
    run.out_of_time = std::ssize(run.total_s) < settings_.iterations - before;
    if (settings_.graphs) run.replayed_s = by_pass(gather(world(), each.replayed));
    if (settings_.emulated) run.paced_tasks = std::ssize(run.plan.tasks()) * ranks_ * std::ssize(run.total_s);
  }

  void record_steps(const PassTimes& passes, Benched& each) const {
    const std::vector<MicroOpTimes> times = micro_op_times(passes, machines_, each.run);
    PackedSteps& steps = each.run.packings.back();
    steps.steps = std::ssize(times);
    steps.step_s = median(max_over_ranks(passes.total_s));
    steps.times = {};
    for (size_t i = 0; i < times.size(); ++i) {
      if (i >= each.recorded) each.controller->record(times[i]);
      steps.times.expert_s += times[i].expert_s / static_cast<double>(times.size());
      steps.times.alltoall_s += times[i].alltoall_s / static_cast<double>(times.size());
    }
    each.recorded = times.size();
  }

  const LayerBenchSettings& settings_;
  std::optional<LocalWorld> threads_;
  int ranks_ = 0;
  std::vector<int> here_;                    // the ranks of this process
  std::vector<KnownComms> comms_;            // for each rank of this process
  std::vector<RankMachine> machines_;        // for each rank
  std::vector<std::vector<double>> probed_;  // for each rank of this process: probes before each round of passes
  bool small_proof_ = false;                 // some schedule is verified with another plan than the timed one
  std::vector<Benched> benched_;             // for each schedule
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
