#include "moe/serve/serving.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/statistics.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

constexpr std::array<ServingVariant, 5> kVariants{{
    {.name = "uniform", .summary = "experts stay on their devices"},
    {.name = "ideal",
     .summary = "uniform, with a gate that sends every expert the same number of tokens",
     .balanced = true},
    {.name = "lina-serve",
     .summary = "placed by estimated popularity, and again if the gate's choices differ",
     .estimates = true,
     .fine_tunes = true},
    {.name = "no-estimation", .summary = "placed after every gate, by its choices", .fine_tunes = true},
    {.name = "no-fine-tuning", .summary = "placed only by estimated popularity", .estimates = true},
}};

// Builds the plan of a batch, layer by layer.
class ServingBuilder {
 public:
  explicit ServingBuilder(const Groups& groups) {
    const Network network = groups[GroupKind::ep].network;
    const bool inter = network == Network::inter;
    structure_.lanes = {{LaneKind::compute, 0, false, false, {}},
                        {inter ? LaneKind::inter : LaneKind::intra, 0, inter, !inter, {}},
                        {LaneKind::copy, 0, false, false, {}},
                        {LaneKind::host, 0, false, false, {}}};
  }

  void add(int layer, const ServedLayer& served) {
    using enum TaskKind;
    using B = Buffer;
    layer_ = layer;
    const int attended = push(attention, {output_});
    set_accesses({layer == 0 ? access(B::input) : Access{.buffer = B::output, .layer = layer - 1}}, B::hidden);
    const int gated = push(gate, {attended});
    set_accesses({access(B::hidden)}, B::routing);
    int known = gated;
    if (served.checks) {
      known = push(serve_check, {gated});
      if (served.places_again) known = push(serve_schedule, {known}, kAfterGate, 2);
      known = push(serve_broadcast, {known});
      if (served.places_again) copied_.push_back(push(serve_swap, {known}, kAfterGate, 2));
    }
    const int estimated = served.estimates_next ? push(serve_estimate, {gated}, 0, 1, layer + 1) : -1;
    const int ordered = push(order, {known});
    set_accesses({access(B::hidden), access(B::routing)}, B::ordered);
    const int sent = push(dispatch, {ordered, estimated});
    set_accesses({access(B::ordered)}, B::dispatched);
    const int placed = served.estimates_next ? push(serve_schedule, {sent}, kBeforeGate, 2, layer + 1) : -1;
    std::vector<int> inputs = std::exchange(copied_, {});
    inputs.push_back(sent);
    const int computed = push(expert, inputs);
    set_accesses({access(B::dispatched)}, B::expert_out);
    const int returned = push(combine, {computed, placed});
    set_accesses({access(B::expert_out)}, B::combined);
    if (served.estimates_next) copied_.push_back(push(serve_swap, {returned}, kBeforeGate, 2, layer + 1));
    output_ = push(i_order, {returned});
    set_accesses({access(B::combined), access(B::routing)}, B::output);
  }

  Structure take() { return std::move(structure_); }

 private:
  int push(TaskKind kind, const std::vector<int>& after, int chunk = 0, int chunks = 1, int layer = -1) {
    Task task;
    task.id = static_cast<int>(structure_.tasks.size());
    task.kind = kind;
    task.layer = layer < 0 ? layer_ : layer;
    task.chunk = chunk;
    task.chunks = chunks;
    task.group = traits_of(kind).group;
    task.lane = task.group == GroupKind::ep ? 1 : copies(kind) ? 2 : runs_on_host(kind) ? 3 : 0;
    std::ranges::copy_if(after, std::back_inserter(task.after), [](int id) { return id >= 0; });
    structure_.lanes[task.lane].queue.push_back(task.id);
    structure_.tasks.push_back(std::move(task));
    return structure_.tasks.back().id;
  }
  Access access(Buffer buffer) const { return {.buffer = buffer, .layer = layer_}; }
  void set_accesses(std::vector<Access> reads, Buffer writes) {
    structure_.tasks.back().reads = std::move(reads);
    structure_.tasks.back().writes = {access(writes)};
  }

  Structure structure_;
  int layer_ = 0, output_ = -1;
  std::vector<int> copied_;  // weight copies that the next expert task waits for
};

Work served_work(const Task& task, const LayerCase& shape) {
  switch (task.kind) {
    case TaskKind::serve_check:
    case TaskKind::serve_broadcast:
      return {Op::sendrecv, GroupKind::ep, static_cast<double>(shape.layer.experts) * sizeof(int64_t), 0, 0};
    case TaskKind::serve_estimate:
    case TaskKind::serve_schedule:
      return {};
    case TaskKind::serve_swap:
      return {Op::copy, GroupKind::none, 0, 0, 0};  // priced per batch, by the copied experts
    default:
      return work_of(task, shape, {});
  }
}

std::vector<double> popularity_of_counts(std::span<const int64_t> counts) { return {counts.begin(), counts.end()}; }

LayerCase with_one_expert(LayerCase c) {
  c.layer.experts = c.parallel.ep;
  return c;
}

}  // namespace

std::span<const ServingVariant> serving_variants() { return kVariants; }

void check_served(const LayerCase& c) {
  const ParallelShape& p = c.parallel;
  require<Unsupported>(p.mp == 1 && p.esp == 1 && p.pp == 1 && p.ep == p.ranks() && p.ep > 1,
                       "serving: found {}, expected MP, ESP and PP 1 and all of several ranks in one EP group",
                       describe_groups(p));
  require<Unsupported>(c.layer.top_k == 1, "serving: found top-{}, expected one expert a token", c.layer.top_k);
  require<Unsupported>(c.layer.shared_hidden == 0 && !c.layer.capacity_factor,
                       "serving: found a shared expert or a capacity factor, expected neither");
}

bool same_most_popular(std::span<const double> estimate, std::span<const double> found, int count) {
  const std::vector<int> list = most_popular(estimate, count), right = most_popular(found, count);
  return std::ranges::is_permutation(list, right);
}

Plan serving_plan(const LayerCase& shape, std::span<const ServedLayer> layers) {
  check_served(shape);
  Plan plan;
  plan.schedule = "serving";
  plan.layers = static_cast<int>(layers.size());
  plan.shape = shape;
  plan.groups = groups_of(shape.parallel);
  plan.rows = capacity_rows(shape);
  ServingBuilder builder(plan.groups);
  for (size_t i = 0; i < layers.size(); ++i) builder.add(static_cast<int>(i), layers[i]);
  plan.structure = std::make_shared<const Structure>(builder.take());
  for (const Task& task : plan.structure->tasks) plan.works.push_back(served_work(task, shape));
  check_plan(plan);
  return plan;
}

struct Serving::Batch {
  const ServingVariant& variant;
  const RoutingTrace& trace;
  const PathProfile* profile;
  int64_t number;
  std::vector<ServedLayer> served;
  ServingResult& result;
};

Serving::Serving(const LayerPricer& pricer, const ServingSetup& setup)
    : pricer_(pricer),
      setup_(setup),
      one_expert_((check_served(pricer.shape()), with_one_expert(pricer.shape()))),
      expert_pricer_(pricer.profile(), one_expert_, pricer.options()),
      home_(uniform_placement(static_cast<int>(pricer.shape().layer.experts), pricer.shape().parallel.ep)) {
  const LayerShape& layer = pricer.shape().layer;
  const int ep = pricer.shape().parallel.ep;
  require<BadInput>(int64_t{ep} * setup.max_experts >= layer.experts,
                    "pack: found at most {} experts on each of {} devices, expected places for {}", setup.max_experts,
                    ep, layer.experts);
  expert_bytes_ = expert_gradient_bytes(one_expert_);
  if (setup_.costs.check_s == 0) {
    const double row_bytes = static_cast<double>(layer.model_dim * bytes_of(wire_type(layer)));
    setup_.costs.check_s =
        row_seconds(TaskKind::dispatch, static_cast<double>(layer.experts) * sizeof(int64_t) / row_bytes);
    setup_.costs.broadcast_s = setup_.costs.check_s;
  }
}

const Serving::Compiled& Serving::compiled(const std::vector<ServedLayer>& layers) {
  const auto found = compiled_.find(layers);
  if (found != compiled_.end()) return found->second;
  Plan plan = serving_plan(pricer_.shape(), layers);
  RankReplay replay(*plan.structure, plan.shape.parallel);
  return compiled_.emplace(layers, Compiled{std::move(plan), std::move(replay)}).first->second;
}

void Serving::count_swaps(PlacedLayer& placed, const ExpertPlacement* before_gate) const {
  const auto swapped_to = [&](const ExpertPlacement& placement, const ExpertPlacement* there) {
    std::vector<int> experts(placement.devices.size());
    for (size_t d = 0; d < experts.size(); ++d)
      for (const HostedExpert& hosted : placement.devices[d]) {
        const int device = static_cast<int>(d);
        experts[d] += !home_.holds(device, hosted.expert) && (there == nullptr || !there->holds(device, hosted.expert));
      }
    return experts;
  };
  if (before_gate != nullptr) placed.swapped[kBeforeGate] = swapped_to(*before_gate, nullptr);
  placed.swapped[kAfterGate] = swapped_to(placed.placement, before_gate);
}

PlacedLayer Serving::place(Batch& batch, int layer) const {
  const auto devices = static_cast<int>(home_.devices.size());
  std::vector<int64_t> counts = batch.trace.counts(layer, batch.number);
  for (int64_t& count : counts) count *= setup_.weight;
  if (batch.variant.balanced) {
    const auto experts = static_cast<int64_t>(counts.size());
    const int64_t tokens = batch.trace.batch_tokens * setup_.weight;
    for (int64_t e = 0; e < experts; ++e) counts[e] = tokens / experts + (e < tokens % experts);
  }
  ServedLayer& served = batch.served[layer];
  PlacedLayer placed{home_, {}, {}};
  const bool has_estimate = batch.variant.estimates && layer >= batch.profile->length();
  if (has_estimate) {
    batch.served[layer - 1].estimates_next = true;
    const std::vector<double> estimate = batch.profile->estimate(batch.trace, layer, batch.number);
    const std::vector<double> found = popularity_of_counts(counts);
    const int length = setup_.list_length;
    ++batch.result.estimated;
    batch.result.right_lists += most_popular(estimate, length) == most_popular(found, length);
    served.checks = batch.variant.fine_tunes;
    served.places_again = served.checks && !same_most_popular(estimate, found, length);
    batch.result.placed_again += served.places_again;
    placed.placement = place_experts(estimate, devices, setup_.max_experts);
  } else if (batch.variant.fine_tunes && !batch.variant.estimates) {
    served.checks = served.places_again = true;
  }
  const ExpertPlacement before = placed.placement;
  if (served.places_again) placed.placement = place_experts(popularity_of_counts(counts), devices, setup_.max_experts);
  count_swaps(placed, has_estimate ? &before : nullptr);
  placed.tokens = split_tokens(placed.placement, counts);
  return placed;
}

double Serving::row_seconds(TaskKind kind, double rows) const {
  return expert_pricer_.chunk_seconds(kind, Phase::forward, rows / one_expert_.parallel.ep);
}

double Serving::seconds(const Task& task, const PlacedLayer& layer, size_t rank) const {
  const ServingCosts& costs = setup_.costs;
  switch (task.kind) {
    case TaskKind::dispatch:
    case TaskKind::combine: {  // a link sends and receives at the same time, so the larger of the two counts
      int64_t received = 0;
      for (const int64_t tokens : layer.tokens[rank]) received += tokens;
      const int64_t own = pricer_.shape().layer.batch * pricer_.shape().layer.seq;
      return row_seconds(task.kind, static_cast<double>(std::max(own, received)));
    }
    case TaskKind::expert: {  // a device computes its experts one after another
      double sum = 0;
      for (const int64_t tokens : layer.tokens[rank])
        if (tokens > 0) sum += row_seconds(task.kind, static_cast<double>(tokens));
      return sum;
    }
    case TaskKind::serve_swap:
      return static_cast<double>(layer.swapped[task.chunk][rank] * expert_bytes_) / costs.swap_bytes_per_s;
    case TaskKind::serve_estimate:
      return costs.estimate_s;
    case TaskKind::serve_schedule:
      if (rank != 0) return 0;
      return task.chunk == kBeforeGate ? costs.schedule_s : costs.reschedule_s;
    case TaskKind::serve_check:
      return costs.check_s;
    case TaskKind::serve_broadcast:
      return costs.broadcast_s;
    default:
      return pricer_.dense_seconds(task.kind, task.phase);
  }
}

void Serving::add_memory(const std::vector<PlacedLayer>& layers, ServingResult& result) const {
  for (size_t d = 0; d < home_.devices.size(); ++d) {
    const auto home = static_cast<int64_t>(layers.size() * home_.devices[d].size());
    int64_t most = 0, before = 0;  // weights of a layer are copied while those of the previous layer are still in use
    for (const PlacedLayer& layer : layers) {
      int64_t own = 0;
      for (const std::vector<int>& swapped : layer.swapped) own += swapped.empty() ? 0 : swapped[d];
      most = std::max(most, before + own);
      before = own;
    }
    result.device_bytes = std::max(result.device_bytes, (home + most) * expert_bytes_);
  }
}

void Serving::add_times(const PlannedBatch& batch, ServingResult& result) {
  RankTimes times;
  const RankOutcome outcome = batch.replay->replay_rank_seconds(batch.seconds, &times);
  const double batch_s = outcome.makespan_s.front();
  result.batch_s.push_back(batch_s);
  result.idle.push_back(outcome.mean_waiting_s() / batch_s);
  result.most_idle.push_back(*std::ranges::max_element(outcome.rank_waiting_s) / batch_s);
  const size_t first = result.layer_s.size();
  result.layer_s.resize(first + static_cast<size_t>(batch.plan->layers));
  result.alltoall_s.resize(result.layer_s.size());
  for (const Task& task : batch.plan->tasks()) {
    const size_t layer = first + static_cast<size_t>(task.layer);
    double ready = times.ready(task.id, 0), last_ready = ready, end = times.end(task.id, 0);
    for (int rank = 1; rank < times.ranks; ++rank) {
      ready = std::min(ready, times.ready(task.id, rank));
      last_ready = std::max(last_ready, times.ready(task.id, rank));
      end = std::max(end, times.end(task.id, rank));
    }
    if (task.kind == TaskKind::gate) result.layer_s[layer] -= ready;
    if (task.kind == TaskKind::combine) result.layer_s[layer] += end;
    if (operation_of(task.kind) == TaskOperation::alltoall) result.alltoall_s[layer] += end - last_ready;
  }
}

PlannedBatch Serving::plan(const ServingVariant& variant, const RoutingTrace& trace, const PathProfile* profile,
                           int64_t number, ServingResult& counts) {
  const LayerShape& layer = pricer_.shape().layer;
  const size_t devices = home_.devices.size();
  const int64_t tokens = trace.batch_tokens * setup_.weight,
                expected = layer.batch * layer.seq * std::ssize(home_.devices);
  require<BadInput>(trace.experts == layer.experts && tokens == expected,
                    "routing: found {} experts and batches of {} tokens, expected {} and {}", trace.experts, tokens,
                    layer.experts, expected);
  require<BadInput>(!variant.estimates || (profile != nullptr && profile->layers() == trace.layers),
                    "routing: found no profile of {} layers, expected one", trace.layers);
  Batch batch{variant, trace, profile, number, std::vector<ServedLayer>(static_cast<size_t>(trace.layers)), counts};
  PlannedBatch planned;
  for (int i = 0; i < trace.layers; ++i) planned.layers.push_back(place(batch, i));
  const Compiled& compiled = this->compiled(batch.served);
  planned.plan = &compiled.plan;
  planned.replay = &compiled.replay;
  for (const Task& task : compiled.plan.tasks())
    for (size_t rank = 0; rank < devices; ++rank)
      planned.seconds.push_back(seconds(task, planned.layers[task.layer], rank));
  return planned;
}

ServingResult Serving::run(const ServingVariant& variant, const RoutingTrace& trace, const PathProfile* profile) {
  ServingResult result;
  for (int64_t number = 0; number < trace.batches(); ++number) {
    const PlannedBatch batch = plan(variant, trace, profile, number, result);
    add_times(batch, result);
    add_memory(batch.layers, result);
  }
  if (variant.places())
    result.host_bytes =
        int64_t{trace.layers} * trace.experts * expert_bytes_ + (variant.estimates ? profile->bytes() : 0);
  return result;
}

PriceNotes Serving::notes() const {
  PriceNotes notes = pricer_.notes();
  notes.insert(expert_pricer_.notes().begin(), expert_pricer_.notes().end());
  return notes;
}

}  // namespace moe
