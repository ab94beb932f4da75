#include "moe/layer/served_layers.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "moe/base/check.h"
#include "moe/layer/binding/parts.h"
#include "moe/shape/volumes.h"

namespace moe {
namespace {

constexpr double kNone = -1;  // no expert, in a decision

// Returns a rank that has one expert only.
RankShape with_expert(const LayerCase& shape, int64_t expert) {
  RankShape rank = rank_shape(shape, 0);
  rank.experts = {expert, 1, shape.layer.experts};
  return rank;
}

HostExperts::StoredExpert make_stored_expert(const RankShape& rank, const LayerSeed& seed, const LayerMemory& memory) {
  HostExperts::StoredExpert held;
  held.expert = make_expert(name_of(rank.shape.layer.ffn), {.rank = rank, .seed = seed, .memory = memory});
  const int64_t elements = expert_gradient_bytes(rank.shape) / bytes_of(rank.dtype()) * rank.shape.parallel.ep;
  const Tensor gradients({elements / rank.experts.total}, rank.dtype());  // only where they would be
  for (const Parameter& p : held.expert->parameters(gradients)) held.weights.push_back(p.value);
  return held;
}

void copy_rows(TensorView from, int64_t row, TensorView to, int64_t to_row, int64_t count, int64_t width) {
  const int64_t bytes = width * bytes_of(from.dtype());
  if (count > 0)
    std::memcpy(to.as<std::byte>() + to_row * bytes, from.as<std::byte>() + row * bytes,
                static_cast<size_t>(count * bytes));
}

int64_t round_up_to_block(int64_t rows) {
  constexpr int64_t kBlock = ServedLayers::kRowBlock;
  return (rows + kBlock - 1) / kBlock * kBlock;
}

}  // namespace

HostExperts::HostExperts(const LayerCase& shape, int layers, const LayerSeed& seed)
    : experts_per_layer_(static_cast<int>(shape.layer.experts)) {
  for (int layer = 0; layer < layers; ++layer) {
    LayerSeed own = seed;
    own.layer += static_cast<uint64_t>(layer);
    for (int expert = 0; expert < experts_per_layer_; ++expert)
      experts_.push_back(make_stored_expert(with_expert(shape, expert), own, {}));
  }
}

ServedLayers::ServedLayers(const ServedSetup& setup, Communicator& world)
    : setup_(setup),
      home_(uniform_placement(static_cast<int>(setup.shape.layer.experts), setup.shape.parallel.ep)),
      comms_(LayerComms::split(world, setup.shape.parallel)),
      passes_(static_cast<size_t>(setup.layers)) {
  const LayerShape& shape = setup.shape.layer;
  check_served(setup.shape);
  require<Unsupported>(shape.hook == "none" && shape.dispatcher == "alltoall",
                       "serving: found hook {} and dispatcher {}, expected none and alltoall", shape.hook,
                       shape.dispatcher);
  max_hosted_ = static_cast<size_t>(std::max<int64_t>(shape.experts / ranks(), setup.max_experts));
  const LayerMemory shared;  // experts compute one after another
  for (int i = 0; i < setup.layers; ++i) {
    LayerSeed seed = setup.seed;
    seed.layer += static_cast<uint64_t>(i);
    SharedLayerTensors shared_tensors;
    shared_tensors.before = i == 0 ? nullptr : &layers_.back()->state().buffers;
    shared_tensors.last = i + 1 == setup.layers;
    layers_.push_back(std::make_unique<MoeLayer>(rank_shape(setup.shape, world.rank()), seed, comms_,
                                                 cpu_layer_device(), shared_tensors));
    layers_.back()->begin_step(0, false);
    auto& at_home = home_experts_.emplace_back();
    const ShardRange& experts = layers_.back()->shape().experts;
    for (int64_t e = experts.first; e < experts.first + experts.count; ++e) {
      at_home.push_back(make_stored_expert(with_expert(setup.shape, e), seed, shared));
      at_home.back().expert->reserve(kRowBlock);
    }
  }
  for (auto& slots : slots_)
    for (size_t i = 0; i < max_hosted_; ++i) {
      slots.push_back({make_stored_expert(with_expert(setup.shape, 0), setup.seed, shared)});
      slots.back().stored_expert.expert->reserve(kRowBlock);
    }
  const auto experts = static_cast<size_t>(shape.experts), all = static_cast<size_t>(ranks()) * experts;
  for (Pass& pass : passes_) {
    pass.own_counts.resize(experts);
    pass.counts.resize(all);
    pass.own_estimate.resize(experts);
    pass.estimates.resize(all);
    for (std::vector<double>& decision : pass.decisions) decision = encode(home_);
  }
  chosen_ = {setup.layers, static_cast<int>(shape.experts), shape.batch * shape.seq, {}};
}

void ServedLayers::begin_batch(std::span<const std::vector<int32_t>> wanted) {
  chosen_.choices.assign(layers_.size(), {});
  for (auto& slots : slots_)
    for (Slot& slot : slots) {
      slot.layer = -1;
      slot.was_used = false;
    }
  for (size_t i = 0; i < layers_.size(); ++i) {
    Routing& routing = layers_[i]->state().routing;
    routing.preset = !wanted.empty();
    if (routing.preset) routing.expert = wanted[i];
    passes_[i].is_estimated = false;
    std::ranges::fill(passes_[i].decisions[kAfterGate], kNone);
  }
}

int64_t ServedLayers::held_expert_count() const {
  int64_t held = setup_.layers * setup_.shape.layer.experts / ranks();
  for (const auto& slots : slots_) held += std::ranges::count(slots, true, &Slot::was_used);
  return held;
}

void ServedLayers::gate(int number) {
  LayerState& own = layer(number);
  if (own.parts.gate_norm) own.parts.gate_norm->forward(own.buffers.forward.gate_input, own.buffers.normed);
  own.parts.gate->forward(own.buffers.normed, own.routing);
  chosen_.choices[number] = own.routing.expert;
  std::ranges::fill(pass(number).own_counts, 0);
  for (const int32_t expert : own.routing.expert) ++pass(number).own_counts[expert];
}

void ServedLayers::estimate(int number) {
  std::ranges::copy(setup_.paths->estimate(chosen_, number, 0), pass(number).own_estimate.begin());
}

void ServedLayers::place_by_estimate(int number) {
  Pass& own = pass(number);
  const size_t experts = own.own_estimate.size();
  own.estimate.assign(experts, 0);
  for (size_t i = 0; i < own.estimates.size(); ++i) own.estimate[i % experts] += own.estimates[i];
  std::ranges::copy(encode(place_experts(own.estimate, ranks(), setup_.max_experts)),
                    own.decisions[kBeforeGate].begin());
}

void ServedLayers::check(int number, bool may_place) {
  Pass& own = pass(number);
  const size_t experts = own.own_counts.size();
  std::vector<double> found(experts);
  for (size_t i = 0; i < own.counts.size(); ++i) found[i % experts] += static_cast<double>(own.counts[i]);
  if (own.is_estimated && same_most_popular(own.estimate, found, setup_.list_length)) return;
  require<WrongResult>(may_place, "layer {}: the gate's popular experts are not the estimated ones, expected no check",
                       number);
  counts_.placed_again += own.is_estimated;
  std::ranges::copy(encode(place_experts(found, ranks(), setup_.max_experts)), own.decisions[kAfterGate].begin());
}

// A decision has max_hosted_ pairs of expert and share for each device. A decision without any expert means that the
// previous decision still applies.
std::vector<double> ServedLayers::encode(const ExpertPlacement& placement) const {
  std::vector<double> decision(placement.devices.size() * max_hosted_ * 2, kNone);
  for (size_t d = 0; d < placement.devices.size(); ++d)
    for (size_t i = 0; i < placement.devices[d].size(); ++i) {
      const HostedExpert& hosted = placement.devices[d][i];
      decision[(d * max_hosted_ + i) * 2] = hosted.expert;
      decision[(d * max_hosted_ + i) * 2 + 1] = hosted.share;
    }
  return decision;
}

ExpertPlacement ServedLayers::decode(const std::vector<double>& decision) const {
  ExpertPlacement placement;
  placement.devices.resize(home_.devices.size());
  for (size_t i = 0; i < decision.size(); i += 2)
    if (decision[i] >= 0)
      placement.devices[i / 2 / max_hosted_].push_back({static_cast<int>(decision[i]), decision[i + 1]});
  return placement;
}

ExpertPlacement ServedLayers::decided(int number, bool behind_gate) const {
  const Pass& own = passes_[number];
  if (behind_gate && std::ranges::any_of(own.decisions[kAfterGate], [](double d) { return d != kNone; }))
    return decode(own.decisions[kAfterGate]);
  return own.is_estimated ? decode(own.decisions[kBeforeGate]) : home_;
}

void ServedLayers::swap(int number, bool behind_gate) {
  const int device = comms_.communicator(GroupKind::ep).rank();
  const ExpertPlacement placement = decided(number, behind_gate);
  std::vector<Slot>& slots = slots_[number % 2];
  for (const HostedExpert& hosted : placement.devices[device]) {
    const int expert = hosted.expert;
    const auto has = [&](const Slot& slot) { return slot.layer == number && slot.expert == expert; };
    if (home_.holds(device, expert) || std::ranges::any_of(slots, has)) continue;
    Slot& slot = *std::ranges::find_if(
        slots, [&](const Slot& s) { return s.layer != number || !placement.holds(device, s.expert); });
    const auto weights = setup_.host.weights(number, expert);
    for (size_t i = 0; i < weights.size(); ++i)
      std::memcpy(slot.stored_expert.weights[i].data(), weights[i].data(), static_cast<size_t>(weights[i].bytes()));
    slot.layer = number;
    slot.expert = expert;
    slot.was_used = true;
  }
}

Expert& ServedLayers::find(int number, int expert) {
  const ShardRange& at_home = layer(number).shape.experts;
  if (expert >= at_home.first && expert < at_home.first + at_home.count)
    return *home_experts_[number][expert - at_home.first].expert;
  for (Slot& slot : slots_[number % 2])
    if (slot.layer == number && slot.expert == expert) return *slot.stored_expert.expert;
  throw WrongResult(fmt::format("layer {}: expert {} is not on device {}, which computes some of its rows", number,
                                expert, layer(number).shape.rank));
}

void ServedLayers::set_sizes(int number) {
  Pass& own = pass(number);
  LayerState& layer = this->layer(number);
  const auto rank = static_cast<size_t>(layer.shape.rank), ranks = home_.devices.size();
  const size_t experts = own.own_counts.size();
  const int64_t row_bytes = layer.shape.model_dim() * bytes_of(layer.shape.dtype());
  own.placement = decided(number, true);
  std::vector<int64_t> totals(experts);
  for (size_t i = 0; i < own.counts.size(); ++i) totals[i % experts] += own.counts[i];
  if (rank == 0 && own.is_estimated) {
    const std::vector<double> found(totals.begin(), totals.end());
    ++counts_.estimated;
    counts_.right_lists += most_popular(own.estimate, setup_.list_length) == most_popular(found, setup_.list_length);
  }
  // An expert's tokens go to its replicas in turn, rank after rank, and within a rank in the order of its tokens.
  const auto tokens = split_tokens(own.placement, totals);
  std::vector<std::vector<int>> replicas(experts);
  own.first_replica.assign(1, 0);
  for (const auto& device : own.placement.devices) {
    int next = own.first_replica.back();
    for (const HostedExpert& hosted : device) replicas[hosted.expert].push_back(next++);
    own.first_replica.push_back(next);
  }
  const auto all = static_cast<size_t>(own.first_replica.back());
  std::vector<int64_t> taken(experts);
  own.rows.assign(ranks * all, 0);
  for (size_t d = 0, replica = 0; d < ranks; ++d)
    for (size_t i = 0; i < own.placement.devices[d].size(); ++i, ++replica) {
      const auto e = static_cast<size_t>(own.placement.devices[d][i].expert);
      const int64_t begin = taken[e], end = taken[e] += tokens[d][i];
      int64_t first = 0;
      for (size_t r = 0; r < ranks; ++r) {
        const int64_t count = own.counts[r * experts + e];
        own.rows[r * all + replica] = std::max<int64_t>(0, std::min(end, first + count) - std::max(begin, first));
        first += count;
      }
    }
  own.send_bytes.assign(ranks, 0);
  own.receive_bytes.assign(ranks, 0);
  for (size_t r = 0; r < ranks; ++r) {
    for (int v = own.first_replica[r]; v < own.first_replica[r + 1]; ++v)
      own.send_bytes[r] += own.rows[rank * all + v] * row_bytes;
    for (int v = own.first_replica[rank]; v < own.first_replica[rank + 1]; ++v)
      own.receive_bytes[r] += own.rows[r * all + v] * row_bytes;
  }
  set_rows(number, replicas);
}

void ServedLayers::set_rows(int number, const std::vector<std::vector<int>>& replicas) {
  Pass& own = pass(number);
  LayerState& layer = this->layer(number);
  const Routing& gated = layer.routing;
  const auto rank = static_cast<size_t>(layer.shape.rank);
  const auto all = static_cast<size_t>(own.first_replica.back());
  const std::span<const int64_t> sent = std::span(own.rows).subspan(rank * all, all);
  const int64_t m = layer.shape.model_dim();
  RoutingShape shape{.tokens = gated.tokens, .group_tokens = gated.tokens, .choices = 1};
  shape.experts = static_cast<int64_t>(all);
  shape.rows = gated.tokens;
  own.routing = std::make_unique<Routing>(shape, gated.weight.view().dtype());
  std::memcpy(own.routing->weight.view().data(), gated.weight.view().data(),
              static_cast<size_t>(gated.weight.view().bytes()));
  std::vector<size_t> turn(replicas.size());
  for (size_t t = 0; t < gated.expert.size(); ++t) {
    const auto e = static_cast<size_t>(gated.expert[t]);
    const auto replica = [&] { return static_cast<size_t>(replicas[e][turn[e]]); };
    while (own.routing->filled[replica()] == sent[replica()]) ++turn[e];
    own.routing->expert[t] = static_cast<int32_t>(replica());
    own.routing->row[t] = static_cast<int32_t>(own.routing->filled[replica()]++);
  }
  RowLayout::Shape home;
  home.rows = gated.tokens;
  home.model_dim = m;
  home.streams = 1;
  home.experts = shape.experts;
  for (int d = 0; d < ranks(); ++d)
    for (int v = own.first_replica[d]; v < own.first_replica[d + 1]; ++v) home.cells.push_back({0, v, d});
  own.home = std::make_unique<RowLayout>(std::move(home));
  own.home->set_counts(sent);
  int64_t padded = 0;
  for (int v = own.first_replica[rank]; v < own.first_replica[rank + 1]; ++v) {
    int64_t rows = 0;
    for (size_t r = 0; r < home_.devices.size(); ++r) rows += own.rows[r * all + v];
    padded = std::max(padded, round_up_to_block(rows));
  }
  const int64_t received = std::reduce(own.receive_bytes.begin(), own.receive_bytes.end());
  const int64_t gathered = received / bytes_of(layer.shape.dtype());
  buffers_.clear();
  home_rows_ = buffer("home", gated.tokens * m);
  gathered_ = buffer("gathered", gathered);
  rows_in_ = buffer("rows in", padded * m);
  rows_out_ = buffer("rows out", padded * m);
}

TensorView ServedLayers::buffer(std::string_view name, int64_t elements) {
  const DType dtype = setup_.shape.layer.dtype;
  return *buffers_.emplace_back(rows_.grow_to(name, std::max<int64_t>(1, elements), dtype, cpu_memory()));
}

void ServedLayers::order(int number) {
  Pass& own = pass(number);
  LayerState& layer = this->layer(number);
  layer.parts.order->order(*own.routing, layer.buffers.normed, {home_rows_, *own.home});
}

// Rows arrived rank after rank; those of each rank are ordered by replica.
void ServedLayers::experts(int number) {
  const Pass& own = pass(number);
  const RankShape& shape = layer(number).shape;
  const int64_t m = shape.model_dim();
  const auto rank = static_cast<size_t>(shape.rank), all = static_cast<size_t>(own.first_replica.back());
  const int first = own.first_replica[rank], end = own.first_replica[rank + 1];
  for (int v = first; v < end; ++v) {
    int64_t rows = 0;
    const auto each_run = [&](const auto& visit) {
      int64_t at = 0;
      rows = 0;
      for (size_t r = 0; r < home_.devices.size(); ++r)
        for (int other = first; other < end; ++other) {
          const int64_t count = own.rows[r * all + other];
          if (other == v) visit(at, rows, count), rows += count;
          at += count;
        }
    };
    each_run([&](int64_t at, int64_t row, int64_t count) { copy_rows(gathered_, at, rows_in_, row, count, m); });
    if (rows == 0) continue;
    const int64_t padded = round_up_to_block(rows);
    std::memset(rows_in_.at(rows * m), 0, static_cast<size_t>((padded - rows) * m * bytes_of(shape.dtype())));
    Expert& expert = find(number, own.placement.devices[rank][v - first].expert);
    constexpr std::array kBlock{Rows{0, kRowBlock}};
    for (int64_t row = 0; row < padded; row += kRowBlock) {
      expert.begin_forward();
      expert.forward(rows_in_.part(row * m, {kRowBlock, m}), kBlock, rows_out_.part(row * m, {kRowBlock, m}));
    }
    each_run([&](int64_t at, int64_t row, int64_t count) { copy_rows(rows_out_, row, gathered_, at, count, m); });
  }
}

void ServedLayers::i_order(int number) {
  Pass& own = pass(number);
  LayerState& layer = this->layer(number);
  LayerBuffers& b = layer.buffers;
  const bool post = layer.parts.output_norm != nullptr;
  const TensorView sum = post ? b.summed : b.forward.moe_output;
  layer.parts.order->i_order(*own.routing, {home_rows_, *own.home}, sum);
  if (layer.shape.shape.layer.residual) layer.math().add(post ? b.normed : b.forward.gate_input, sum);
  if (post) layer.parts.output_norm->forward(sum, b.forward.moe_output);
}

ServingBinding::ServingBinding(ServedLayers& layers, const Plan& plan)
    : layers_(layers), plan_(plan), served_(layers.passes_.size()) {
  require_equal(plan.layers, static_cast<int>(layers.layers_.size()), "layers of the plan");
  layer::check_case(plan.shape, layers.setup_.shape, "served layers");
  for (const Task& task : plan_.tasks()) {
    names_.push_back(task.name());
    const auto layer = static_cast<size_t>(task.layer);
    if (task.kind == TaskKind::serve_estimate) served_[layer - 1].estimates_next = true;
    if (task.kind == TaskKind::serve_check) served_[layer].checks = true;
    if (task.kind == TaskKind::serve_schedule && task.chunk == kAfterGate) served_[layer].places_again = true;
  }
}

void ServingBinding::issue(const Task& task, Stream& stream, Pace pace) {
  using enum TaskKind;
  const CommCall call{stream, pace, names_[task.id]};
  const bool schedules = layers_.comms_.communicator(GroupKind::ep).rank() == 0;
  const int layer = task.layer;
  const auto computes = [&](auto method, auto... more) {
    stream.launch([this, method, layer, more...](void*) { (layers_.*method)(layer, more...); });
  };
  if (task.id == 0)
    for (size_t i = 1; i < served_.size(); ++i)
      layers_.pass(static_cast<int>(i)).is_estimated = served_[i - 1].estimates_next;
  switch (task.kind) {
    case attention:
      return stream.launch([&state = layers_.layer(layer), &own = plan_.tasks()[task.id]](void*) {
        layer::AttentionPart(state).attention(own);
      });
    case gate:
      return computes(&ServedLayers::gate);
    case serve_estimate:
      return computes(&ServedLayers::estimate);
    case serve_schedule:
      if (!schedules) return;
      if (task.chunk == kBeforeGate) return computes(&ServedLayers::place_by_estimate);
      return computes(&ServedLayers::check, true);
    case serve_swap:
      return computes(&ServedLayers::swap, task.chunk == kAfterGate);
    case order:
      return computes(&ServedLayers::order);
    case expert:
      return computes(&ServedLayers::experts);
    case i_order:
      return computes(&ServedLayers::i_order);
    default:
      return communicate(task, call);
  }
}

// Work that belongs to an AlltoAll comes before it, so that the task ends with its pace.
void ServingBinding::communicate(const Task& task, const CommCall& call) {
  using enum TaskKind;
  Communicator& ep = layers_.comms_.communicator(GroupKind::ep);
  const ServedLayer& served = served_[task.layer];
  ServedLayers::Pass& own = layers_.pass(task.layer);
  const CommCall beside{call.stream, {}, call.task};
  const auto bytes = [](const auto& numbers) { return static_cast<int64_t>(std::span(numbers).size_bytes()); };
  const auto decide = [&](std::vector<double>& decision, const CommCall& with) {
    ep.broadcast(decision.data(), bytes(decision), 0, with);
  };
  switch (task.kind) {
    case serve_check:
      return ep.allgather(own.own_counts.data(), own.counts.data(), bytes(own.own_counts), call);
    case serve_broadcast:
      if (ep.rank() == 0 && !served.places_again)
        call.stream.launch([this, layer = task.layer](void*) { layers_.check(layer, false); });
      return decide(own.decisions[kAfterGate], call);
    case dispatch:
      if (served.estimates_next) {
        ServedLayers::Pass& next = layers_.pass(task.layer + 1);
        ep.allgather(next.own_estimate.data(), next.estimates.data(), bytes(next.own_estimate), beside);
      }
      return ep.alltoallv(layers_.home_rows_.data(), own.send_bytes, layers_.gathered_.data(), own.receive_bytes, call);
    case combine:
      if (served.estimates_next) decide(layers_.pass(task.layer + 1).decisions[kBeforeGate], beside);
      return ep.alltoallv(layers_.gathered_.data(), own.receive_bytes, layers_.home_rows_.data(), own.send_bytes, call);
    default:
      throw WrongResult(fmt::format("{}: a task that serving does not know", task.name()));
  }
}

void ServingBinding::finish_task(const Task& task, Stream& stream) {
  const bool checks = served_[task.layer].checks;
  if (task.kind != (checks ? TaskKind::serve_broadcast : TaskKind::gate)) return;
  if (!checks) {
    ServedLayers::Pass& own = layers_.pass(task.layer);
    layers_.comms_.communicator(GroupKind::none)
        .allgather(own.own_counts.data(), own.counts.data(),
                   static_cast<int64_t>(std::span(own.own_counts).size_bytes()), {stream, {}, "counts of rows"});
  }
  stream.synchronize();
  layers_.set_sizes(task.layer);
}

}  // namespace moe
