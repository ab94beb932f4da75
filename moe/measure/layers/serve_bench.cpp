#include "moe/measure/layers/serve_bench.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>

#include "moe/base/check.h"
#include "moe/comm/local/local_world.h"
#include "moe/device/cpu/cores.h"
#include "moe/device/device.h"
#include "moe/measure/layers/benched.h"

namespace moe::measure {
namespace {

// The state of one variant while its batches run.
struct Variant {
  const ServingVariant* variant;
  RoutingTrace trace;
  std::vector<PlannedBatch> planned;
  ServingResult foreseen = {};
  Dilation dilation = {};
  // [batch][rank of this process]: start and end of each task.
  std::vector<std::vector<std::vector<double>>> times = {};
  // [rank of this process]: sums over all batches, indexed by `Fact`.
  std::vector<std::vector<double>> facts = {};
};

enum Fact : size_t { estimated, right_lists, placed_again, held_experts, overruns, kFacts };

class ServeBench {
 public:
  ServeBench(Serving& serving, const std::vector<const ServingVariant*>& variants, const RoutingTrace& trace,
             const PathProfile& paths, const ServeBenchSettings& settings)
      : settings_(settings), paths_(paths), host_(settings.shape, trace.layers, seed()), layers_(trace.layers) {
    expert_bytes_ = serving.expert_bytes();
    if (settings.ranks.processes == nullptr) threads_.emplace(settings.shape.parallel.ranks(), settings.timeout_s);
    local_ranks_ = world().local_ranks();
    ranks_.resize(local_ranks_.size());
    for (const ServingVariant* variant : variants) {
      Variant& own = variants_.emplace_back(Variant{variant, variant->balanced ? balanced_routing(trace) : trace, {}});
      for (int64_t batch = 0; batch < trace.batches(); ++batch)
        own.planned.push_back(serving.plan(*variant, own.trace, &paths, batch, own.foreseen));
    }
  }

  std::vector<ServedBatches> run() {
    make_ranks();
    verify();
    if (settings_.emulated) choose_pace();
    std::vector<ServedBatches> results(variants_.size());
    std::vector<size_t> open(variants_.size());
    std::iota(open.begin(), open.end(), size_t{0});
    for (int attempt = 0; attempt < kAttempts && !open.empty(); ++attempt) {
      serve_all(open);
      std::erase_if(open, [&](size_t i) {
        const ServedBatches batches = collect(variants_[i]);
        if (attempt == 0 || batches.overrun_share() < results[i].overrun_share()) results[i] = batches;
        results[i].repeats = attempt;
        variants_[i].dilation.factor *= kLonger;
        return batches.overrun_share() <= kOverrunLimit;
      });
    }
    return results;
  }

 private:
  World& world() { return threads_ ? static_cast<World&>(*threads_) : *settings_.ranks.processes; }
  LayerSeed seed() const {
    LayerSeed seed;
    seed.seed = settings_.seed;
    return seed;
  }
  size_t place(int rank) const { return static_cast<size_t>(rank - local_ranks_.front()); }

  struct Rank {
    std::unique_ptr<Device> device;
    std::unique_ptr<ServedLayers> layers;
  };

  void make_ranks() {
    world().run([&](int rank) {
      const auto world_comm = world().communicator(rank);
      Rank& own = ranks_[place(rank)];
      own.device = make_device(DeviceKind::cpu, world().topology().local_rank, settings_.ranks.threads);
      const cpu::ThreadCountScope threads(settings_.ranks.threads);
      own.layers = std::make_unique<ServedLayers>(ServedSetup{.shape = settings_.shape,
                                                              .layers = layers_,
                                                              .seed = seed(),
                                                              .host = host_,
                                                              .paths = &paths_,
                                                              .max_experts = settings_.max_experts,
                                                              .list_length = settings_.list_length},
                                                  *world_comm);
    });
  }

  std::vector<std::vector<int32_t>> wanted(const RoutingTrace& trace, int64_t batch, int rank) const {
    const int64_t own = settings_.shape.layer.batch * settings_.shape.layer.seq;
    std::vector<std::vector<int32_t>> experts;
    for (int layer = 0; layer < trace.layers; ++layer) {
      const auto of_rank =
          trace.batch_choices(layer, batch).subspan(static_cast<size_t>(rank * own), static_cast<size_t>(own));
      experts.emplace_back(of_rank.begin(), of_rank.end());
    }
    return experts;
  }

  // Serves each batch under all variants in turn.
  void serve_all(const std::vector<size_t>& open) {
    const auto batches = static_cast<int64_t>(variants_.front().planned.size());
    for (const size_t i : open) {
      variants_[i].times.assign(variants_[i].planned.size(), std::vector<std::vector<double>>(local_ranks_.size()));
      variants_[i].facts.assign(local_ranks_.size(), std::vector<double>(kFacts));
    }
    for (int64_t batch = 0; batch < batches; ++batch) {
      for (const size_t i : open) serve(variants_[i], batch);
      if (settings_.progress) settings_.progress(static_cast<double>(batch + 1) / static_cast<double>(batches));
    }
  }

  // Returns the plan for the tensors that run, which has the same tasks as the nominal one.
  Plan runnable(const Plan& plan) const {
    Plan own = plan;
    own.shape = settings_.shape;
    return own;
  }

  RunTimes pass(int rank, const Plan& plan, const RoutingTrace& trace, int64_t batch,
                const std::vector<double>& paces) {
    const auto world_comm = world().communicator(rank);
    Rank& own = ranks_[place(rank)];
    own.layers->begin_batch(wanted(trace, batch, rank));
    ServingBinding binding(*own.layers, plan);
    Executor executor(*own.device, plan.structure);
    const auto stream = own.device->make_stream("start");
    world_comm->barrier({*stream, {}, "start of a batch"});
    stream->synchronize();
    return executor.run(binding, paces);
  }

  void verify() {
    const std::vector<ServedLayer> stays(layers_);
    const Plan uniform = serving_plan(settings_.shape, stays);
    for (const Variant& variant : variants_)
      world().run([&](int rank) {
        const TensorView output = ranks_[place(rank)].layers->output();
        pass(rank, uniform, variant.trace, 0, {});
        const auto* first = output.as<std::byte>();
        const std::vector<std::byte> expected(first, first + output.bytes());
        std::memset(output.data(), 0xff, expected.size());
        pass(rank, runnable(*variant.planned.front().plan), variant.trace, 0, {});
        require<WrongResult>(std::memcmp(output.data(), expected.data(), expected.size()) == 0,
                             "{}: outputs of rank {} differ from those of experts that stay where they are",
                             variant.variant->name, rank);
      });
  }

  void choose_pace() {
    std::vector<PlannedRun> planned;
    std::vector<std::vector<RankTimes>> unpaced;
    for (Variant& variant : variants_) {
      const PlannedBatch& first = variant.planned.front();
      const Plan plan = runnable(*first.plan);
      const auto ranks = static_cast<size_t>(settings_.shape.parallel.ranks());
      PlannedRun& run = planned.emplace_back(PlannedRun{.plan = *first.plan, .task_seconds = {}});
      for (size_t i = 0; i < first.seconds.size(); i += ranks)
        run.task_seconds.push_back(*std::max_element(first.seconds.begin() + static_cast<std::ptrdiff_t>(i),
                                                     first.seconds.begin() + static_cast<std::ptrdiff_t>(i + ranks)));
      run.forward_s = first.replay->replay_rank_seconds(first.seconds).makespan_s.front();
      RankTimes times(local_ranks_.size());
      world().run([&](int rank) { times[place(rank)] = pass(rank, plan, variant.trace, 0, {}).tasks; });
      unpaced.push_back({times});
    }
    const Dilation dilation = choose_dilation(planned, unpaced);
    for (Variant& variant : variants_) variant.dilation = dilation;
  }

  void serve(Variant& variant, int64_t batch) {
    const PlannedBatch& planned = variant.planned[batch];
    const Plan plan = runnable(*planned.plan);
    const auto ranks = static_cast<size_t>(settings_.shape.parallel.ranks());
    world().run([&](int rank) {
      std::vector<double> paces;
      for (size_t i = static_cast<size_t>(rank); settings_.emulated && i < planned.seconds.size(); i += ranks)
        paces.push_back(planned.seconds[i] * variant.dilation.factor);
      const ServedLayers& layers = *ranks_[place(rank)].layers;
      const ServedCounts before = layers.counts();
      const RunTimes times = pass(rank, plan, variant.trace, batch, paces);
      std::vector<double>& flat = variant.times[batch][place(rank)];
      for (const TaskTime& time : times.tasks) {
        flat.push_back(time.start_s / variant.dilation.factor);
        flat.push_back(time.end_s / variant.dilation.factor);
      }
      std::vector<double>& facts = variant.facts[place(rank)];
      facts[estimated] += static_cast<double>(layers.counts().estimated - before.estimated);
      facts[right_lists] += static_cast<double>(layers.counts().right_lists - before.right_lists);
      facts[placed_again] += static_cast<double>(layers.counts().placed_again - before.placed_again);
      facts[held_experts] = std::max(facts[held_experts], static_cast<double>(layers.held_expert_count()));
      facts[overruns] += static_cast<double>(times.overruns);
    });
  }

  ServedBatches collect(Variant& variant) {
    ServedBatches batches;
    batches.dilation = variant.dilation;
    for (size_t batch = 0; batch < variant.planned.size(); ++batch) {
      const Plan& plan = *variant.planned[batch].plan;
      add_batch(plan, gather(world(), variant.times[batch]), batches);
      if (settings_.emulated) batches.paced_tasks += std::ssize(plan.tasks()) * settings_.shape.parallel.ranks();
    }
    const auto facts = gather(world(), variant.facts);
    const auto whole = [](double number) { return static_cast<int64_t>(number); };
    batches.result.estimated = whole(facts.front()[estimated]);
    batches.result.right_lists = whole(facts.front()[right_lists]);
    batches.result.placed_again = whole(facts.front()[placed_again]);
    for (const std::vector<double>& rank : facts) {
      batches.result.device_bytes = std::max(batches.result.device_bytes, whole(rank[held_experts]) * expert_bytes_);
      batches.overruns += whole(rank[overruns]);
    }
    return batches;
  }

  // Ranks begin a batch together, so their times relative to that can be compared.
  static void add_batch(const Plan& plan, const std::vector<std::vector<double>>& ranks, ServedBatches& batches) {
    ServingResult& result = batches.result;
    const auto start = [&](const Task& task, size_t rank) { return ranks[rank][2 * task.id]; };
    const auto end = [&](const Task& task, size_t rank) { return ranks[rank][2 * task.id + 1]; };
    std::vector<double> rank_s(ranks.size()), waits(ranks.size());
    const size_t first = result.layer_s.size();
    result.layer_s.resize(first + static_cast<size_t>(plan.layers));
    result.alltoall_s.resize(result.layer_s.size());
    for (const Task& task : plan.tasks()) {
      double earliest = std::numeric_limits<double>::max(), latest = 0, last_end = 0;
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        earliest = std::min(earliest, start(task, rank));
        latest = std::max(latest, start(task, rank));
        last_end = std::max(last_end, end(task, rank));
        rank_s[rank] = std::max(rank_s[rank], end(task, rank));
      }
      const size_t layer = first + static_cast<size_t>(task.layer);
      if (task.kind == TaskKind::gate) result.layer_s[layer] -= earliest;
      if (task.kind == TaskKind::combine) result.layer_s[layer] += last_end;
      if (operation_of(task.kind) == TaskOperation::alltoall) result.alltoall_s[layer] += last_end - latest;
      if (task.group != GroupKind::none)
        for (size_t rank = 0; rank < ranks.size(); ++rank) waits[rank] += latest - start(task, rank);
    }
    const double batch_s = std::ranges::max(rank_s);
    result.batch_s.push_back(batch_s);
    result.idle.push_back(std::reduce(waits.begin(), waits.end()) / static_cast<double>(ranks.size()) / batch_s);
    result.most_idle.push_back(std::ranges::max(waits) / batch_s);
    batches.batch_s.push_back(std::move(rank_s));
  }

  const ServeBenchSettings& settings_;
  const PathProfile& paths_;
  HostExperts host_;
  int layers_;
  int64_t expert_bytes_ = 0;  // bytes of one expert of the served layer
  std::optional<LocalWorld> threads_;
  std::vector<int> local_ranks_;  // ranks of this process
  std::vector<Rank> ranks_;       // likewise
  std::vector<Variant> variants_;
};

}  // namespace

LayerCase served_proxy(const LayerCase& nominal, int64_t tokens) {
  constexpr int64_t kWidth = 8, kMaxTokensPerSample = 16;
  LayerShape layer = nominal.layer;
  layer.seq = std::gcd(tokens, kMaxTokensPerSample);
  layer.batch = tokens / layer.seq;
  layer.model_dim = layer.hidden = kWidth;
  layer.heads = layer.kv_heads = 2;
  layer.head_dim = 0;
  clear_latent(layer);
  layer.window = 0;
  layer.rope_theta = 0;
  layer.dtype = DType::float32;
  layer.ffn = Ffn::gpt;
  return complete(layer, nominal.parallel, Rounding::ragged);
}

std::vector<ServedBatches> serve_batches(Serving& serving, const std::vector<const ServingVariant*>& variants,
                                         const RoutingTrace& trace, const PathProfile& paths,
                                         const ServeBenchSettings& settings) {
  return ServeBench(serving, variants, trace, paths, settings).run();
}

}  // namespace moe::measure
