#include "tests/search/wave_rules.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "moe/schedule/schedule.h"

namespace moe::wave_rules {
namespace {

using enum TaskKind;

class Rules {
 public:
  Rules(const Plan& plan, int keep, std::vector<std::string>& faults) : plan_(plan), keep_(keep), faults_(faults) {
    for (const Task& task : plan.tasks()) {
      if (sends_gradients(task.kind)) continue;
      const Key key{task.phase, task.micro_batch, task.layer, task.kind, task.chunk};
      if (!found_.emplace(key, task.id).second) faults.push_back(fmt::format("{} is there twice", task.name()));
      if (task.kind == dispatch || is_expert(task.kind))
        chunks_[{task.phase, task.micro_batch, task.layer}] = task.chunks;
    }
    for (int stage = 0; stage < stages(); ++stage)
      for (const Phase phase : {Phase::forward, Phase::backward}) passes_[{stage, phase}] = passes(stage, phase);
  }

  std::vector<Rule> all() {
    for (int m = 0; m < plan_.micro_batches; ++m)
      for (int layer = 0; layer < plan_.layers; ++layer) {
        forward(m, layer);
        backward(m, layer);
      }
    parts();
    memory();
    halves();
    messages();
    sums();
    slices();
    return std::move(rules_);
  }

 private:
  using Key = std::tuple<Phase, int, int, TaskKind, int>;

  bool spans(GroupKind group) const { return plan_.groups[group].size > 1; }
  int chunks(Phase phase, int m, int layer) const {
    const auto found = chunks_.find({phase, m, layer});
    return found == chunks_.end() ? 1 : found->second;
  }
  int task(Phase phase, int m, int layer, TaskKind kind, int chunk = 0) {
    const auto found = found_.find({phase, m, layer, kind, chunk});
    if (found != found_.end()) return found->second;
    faults_.push_back(fmt::format("{} {} of layer {}, micro-batch {}, chunk {} is missing", name_of(phase),
                                  name_of(kind), layer, m, chunk));
    return -1;
  }
  void rule(int before, int then, std::string_view text) {
    if (before >= 0 && then >= 0) rules_.push_back({before, then, std::string(text)});
  }
  // Returns those of a chain that a layer of these groups has.
  std::vector<TaskKind> there(std::initializer_list<std::pair<TaskKind, GroupKind>> chain) const {
    std::vector<TaskKind> kinds;
    for (const auto& [kind, group] : chain)
      if (group == GroupKind::none || spans(group)) kinds.push_back(kind);
    return kinds;
  }
  void in_order(Phase phase, int m, int layer, const std::vector<TaskKind>& kinds, int chunk = 0) {
    for (size_t i = 1; i < kinds.size(); ++i) {
      const auto at = [&](TaskKind kind) { return task(phase, m, layer, kind, is_chunked(kind) ? chunk : 0); };
      rule(at(kinds[i - 1]), at(kinds[i]), "data");
    }
  }
  std::vector<TaskKind> rows_chain(TaskKind from, TaskKind stage, TaskKind to) const {
    return there({{from, GroupKind::none},
                  {dispatch, GroupKind::ep},
                  {allgather, GroupKind::esp},
                  {stage, GroupKind::none},
                  {reducescatter, GroupKind::esp},
                  {combine, GroupKind::ep},
                  {to, GroupKind::none}});
  }
  int first_forward(int m, int layer) {
    return task(Phase::forward, m, layer, spans(GroupKind::mp) ? mp_allgather : attention);
  }
  int last_backward(int m, int layer) {
    return task(Phase::backward, m, layer, spans(GroupKind::mp) ? mp_reducescatter : attention_dx);
  }

  void forward(int m, int layer) {
    const Phase phase = Phase::forward;
    in_order(phase, m, layer,
             there({{mp_allgather, GroupKind::mp},
                    {attention, GroupKind::none},
                    {mp_reducescatter, GroupKind::mp},
                    {gate, GroupKind::none},
                    {order, GroupKind::none}}));
    for (int c = 0; c < chunks(phase, m, layer); ++c) in_order(phase, m, layer, rows_chain(order, expert, i_order), c);
    if (layer > 0) follows(phase, m, layer - 1, task(phase, m, layer - 1, i_order), layer, first_forward(m, layer));
    if (plan_.shape.layer.shared_hidden == 0) return;
    in_order(phase, m, layer,
             there({{attention, GroupKind::none},
                    {mp_reducescatter, GroupKind::mp},
                    {shared_allgather, GroupKind::mp},
                    {shared, GroupKind::none},
                    {shared_reducescatter, GroupKind::mp},
                    {i_order, GroupKind::none}}));
  }

  void backward(int m, int layer) {
    const Phase phase = Phase::backward;
    for (int c = 0; c < chunks(phase, m, layer); ++c) {
      in_order(phase, m, layer, rows_chain(i_order, expert_dx, order), c);
      in_order(phase, m, layer, {expert_dx, expert_dw}, c);
    }
    in_order(phase, m, layer,
             there({{order, GroupKind::none},
                    {gate, GroupKind::none},
                    {mp_allgather, GroupKind::mp},
                    {attention_dx, GroupKind::none},
                    {mp_reducescatter, GroupKind::mp}}));
    in_order(phase, m, layer, {attention_dx, attention_dw});
    rule(task(Phase::forward, m, layer, i_order), task(phase, m, layer, i_order), "its forward");
    if (layer + 1 < plan_.layers)
      follows(phase, m, layer + 1, last_backward(m, layer + 1), layer, task(phase, m, layer, i_order));
    if (plan_.shape.layer.shared_hidden == 0) return;
    if (layer + 1 < plan_.layers)
      follows(phase, m, layer + 1, last_backward(m, layer + 1), layer,
              task(phase, m, layer, spans(GroupKind::mp) ? shared_allgather : shared));
    in_order(phase, m, layer,
             there({{shared_allgather, GroupKind::mp},
                    {shared, GroupKind::none},
                    {shared_reducescatter, GroupKind::mp},
                    {gate, GroupKind::none}}));
  }

  std::vector<int> pass(Phase phase, int m, int layer) const {
    std::vector<int> ids;
    for (auto at = found_.lower_bound({phase, m, layer, TaskKind{}, 0}); at != found_.end(); ++at) {
      if (std::tuple(std::get<0>(at->first), std::get<1>(at->first), std::get<2>(at->first)) !=
          std::tuple(phase, m, layer))
        break;
      if (is_of_layer(std::get<3>(at->first))) ids.push_back(at->second);
    }
    return ids;
  }

  int stages() const { return plan_.shape.parallel.pp; }
  int chunks() const { return stages() * (stages() > 1 ? plan_.virtual_stages : 1); }  // of consecutive layers
  // Chunks have as many layers each, the first ones one more where that leaves some.
  int first_layer(int chunk) const {
    return plan_.layers / chunks() * chunk + std::min(chunk, plan_.layers % chunks());
  }
  int stage_of(int layer) const {
    int chunk = 0;
    while (first_layer(chunk + 1) <= layer) ++chunk;
    return chunk % stages();
  }

  // What a pass made goes to the next one, in another stage as a message.
  void follows(Phase phase, int m, int from, int made, int to, int then) {
    const bool moves = stage_of(from) != stage_of(to);
    if (!moves) return rule(made, then, "the layer beside it");
    const int sent = task(phase, m, from, send), received = task(phase, m, to, recv);
    rule(made, sent, "data of a message");
    rule(sent, received, "a message");
    rule(received, then, "a message's data");
  }

  // Returns the micro-batches and layers that a stage passes, in the order of interleaved 1F1B (of one chunk a stage:
  // of 1F1B): as many micro-batches at a time as there are stages, chunk by chunk.
  std::vector<std::pair<int, int>> passes(int stage, Phase phase) const {
    std::vector<std::pair<int, int>> all;
    const int at_once = chunks() > stages() ? stages() : 1;
    for (int group = 0; group < plan_.micro_batches; group += at_once)
      for (int i = stage; i < chunks(); i += stages()) {
        const int chunk = phase == Phase::forward ? i : stage + (chunks() - stages()) - (i - stage);
        for (int m = group; m < group + at_once; ++m)
          for (int l = first_layer(chunk); l < first_layer(chunk + 1); ++l)
            all.emplace_back(turned(phase, m),
                             phase == Phase::forward ? l : first_layer(chunk) + first_layer(chunk + 1) - 1 - l);
      }
    return all;
  }

  int sample_parts() const { return static_cast<int>(plan_.shape.layer.parts); }
  // Of the micro-batches that are parts of the same samples backwards take the last one first.
  int turned(Phase phase, int m) const {
    const int part = m % sample_parts();
    return phase == Phase::forward ? m : m - part + (sample_parts() - 1 - part);
  }

  // Attention of a part reads the keys and values of those before it; in a backward it adds to their gradients.
  void parts() {
    for (int m = 0; m < plan_.micro_batches; ++m)
      for (int layer = 0; layer < plan_.layers && (m + 1) % sample_parts() != 0; ++layer) {
        rule(task(Phase::forward, m, layer, attention), task(Phase::forward, m + 1, layer, attention), "keys before");
        rule(task(Phase::backward, m + 1, layer, attention_dx), task(Phase::backward, m, layer, attention_dx),
             "gradients of keys before");
      }
  }

  // A stage's n-th forward begins once its (n - keep)-th backward is over.
  void memory() {
    for (int stage = 0; stage < stages(); ++stage) {
      const auto &forwards = passes_.at({stage, Phase::forward}), &backwards = passes_.at({stage, Phase::backward});
      for (size_t n = static_cast<size_t>(keep_); n < forwards.size(); ++n) {
        const auto [done, done_layer] = backwards[n - keep_];
        for (const int before : pass(Phase::backward, done, done_layer)) {
          for (const int then : pass(Phase::forward, forwards[n].first, forwards[n].second))
            rule(before, then, "memory");
          const auto received = found_.find({Phase::forward, forwards[n].first, forwards[n].second, recv, 0});
          if (received != found_.end()) rule(before, received->second, "memory of a message");
        }
      }
    }
  }

  // On one stage a micro-batch's backward waits for the weights two layers behind it, of several stages as many passes
  // later as stages are before it, two layers at least.
  void halves() {
    for (int stage = 0; stage < stages(); ++stage) {
      const auto& backwards = passes_.at({stage, Phase::backward});
      const int chunk_rows = first_layer(stage + 1) - first_layer(stage);
      const auto late = static_cast<size_t>(std::max(2, stage * chunk_rows));
      for (size_t n = late; n < backwards.size(); ++n) {
        const auto [from, from_layer] = backwards[n - late];
        const auto [to, to_layer] = backwards[n];
        if (stages() == 1 && from != to) continue;
        for (const int before : pass(Phase::backward, from, from_layer)) {
          const TaskKind kind = plan_.tasks()[before].kind;
          if (kind != expert_dw && kind != attention_dw) continue;
          for (const int then : pass(Phase::backward, to, to_layer)) rule(before, then, "late weights");
        }
      }
    }
  }

  // Messages from a stage to the next one, or to the one before, keep the order of the passes that make them.
  void messages() {
    for (int stage = 0; stage < stages(); ++stage)
      for (const Phase phase : {Phase::forward, Phase::backward})
        for (const TaskKind kind : {send, recv}) {
          int last = -1;
          for (const auto& [m, layer] : passes_.at({stage, phase})) {
            const auto at = found_.find({phase, m, layer, kind, 0});
            if (at == found_.end()) continue;
            rule(last, at->second, "order of messages");
            last = at->second;
          }
        }
  }

  void sums() {
    std::map<std::pair<TaskKind, int>, std::vector<int>> adders;  // by kind and layer, as they should add
    for (const auto& [key, id] : found_) {
      const auto& [phase, m, layer, kind, chunk] = key;
      const bool norm_behind = kind == i_order && plan_.shape.layer.norm == Norm::post_layernorm;
      if (phase == Phase::backward &&
          (kind == expert_dw || kind == attention_dw || kind == gate || kind == shared || norm_behind))
        adders[{kind, layer}].push_back(id);
    }
    for (auto& [what, ids] : adders) {
      std::ranges::stable_sort(ids, {}, [&](int id) { return turned(Phase::backward, plan_.tasks()[id].micro_batch); });
      for (size_t i = 1; i < ids.size(); ++i) rule(ids[i - 1], ids[i], "order of sums");
    }
  }

  void slices() {
    std::vector<int64_t> begins{0};
    for (const Gradient& gradient : plan_.gradients) begins.push_back(begins.back() + gradient.bytes);
    std::vector<int> sent(plan_.slices.size());
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (const Task& task : plan_.tasks()) {
      if (!sends_gradients(task.kind)) continue;
      if (task.slice < 0 || task.slice >= std::ssize(plan_.slices) || sent[task.slice]++ > 0) {
        faults_.push_back(fmt::format("{} sends a slice that is not its own", task.name()));
        continue;
      }
      const GradientSlice& slice = plan_.slices[task.slice];
      const int64_t from = begins[slice.gradient] + slice.begin, to = from + slice.end - slice.begin;
      parts.emplace_back(from, to);
      for (size_t g = 0; g < plan_.gradients.size(); ++g)
        if (from < begins[g + 1] && to > begins[g]) made_before(plan_.gradients[g].layer, task.id);
    }
    std::ranges::sort(parts);
    int64_t end = 0;
    for (const auto& [from, to] : parts) {
      if (from != end) faults_.push_back(fmt::format("gradient bytes from {} follow those to {}", from, end));
      if (to <= from || to % bytes_of(plan_.shape.layer.dtype) != 0)
        faults_.push_back(fmt::format("gradient bytes {} to {} are no whole elements", from, to));
      end = to;
    }
    const std::vector<int64_t> tensors = gradient_tensors(plan_.shape);
    const int64_t all = std::accumulate(tensors.begin(), tensors.end(), int64_t{0}) * plan_.layers;
    if (const int64_t expected = plan_.shape.parallel.dp > 1 ? all : 0; end != expected)
      faults_.push_back(fmt::format("{} gradient bytes are sent of {}", end, expected));
  }

  void made_before(int layer, int slice) {
    for (int m = 0; m < plan_.micro_batches; ++m) {
      rule(task(Phase::backward, m, layer, attention_dw), slice, "gradients");
      rule(last_backward(m, layer), slice, "gradients");
      if (plan_.shape.layer.shared_hidden > 0) rule(task(Phase::backward, m, layer, shared), slice, "gradients");
    }
  }

  const Plan& plan_;
  int keep_;
  std::vector<std::string>& faults_;
  std::map<std::pair<int, Phase>, std::vector<std::pair<int, int>>> passes_;  // by stage and phase
  std::map<Key, int> found_;
  std::map<std::tuple<Phase, int, int>, int> chunks_;
  std::vector<Rule> rules_;
};

// A network of a rank carries one collective at a time, its cores compute one task at a time.
void check_lanes(const Plan& plan, const Times& times, std::vector<std::string>& faults) {
  std::map<std::pair<int, Network>, std::vector<int>> used;  // by stage; none: compute
  for (const Task& task : plan.tasks()) {
    if (task.kind == recv) continue;  // its send takes the time
    const Network network = plan.groups[task.group].network;
    const int stage = plan.structure->lanes[task.lane].stage;
    used[{stage, task.group == GroupKind::none ? Network::none : network}].push_back(task.id);
  }
  for (auto& [network, ids] : used) {
    std::ranges::sort(ids, {}, [&](int id) { return std::pair(times.begin_s[id], times.end_s[id]); });
    for (size_t i = 1; i < ids.size(); ++i)
      if (times.begin_s[ids[i]] < times.end_s[ids[i - 1]])
        faults.push_back(
            fmt::format("{} and {} run at once", plan.tasks()[ids[i - 1]].name(), plan.tasks()[ids[i]].name()));
  }
}

// Counts layers whose forward has begun and whose backward is not over.
void check_kept(const Plan& plan, const Times& times, int keep, std::vector<std::string>& faults) {
  std::map<std::tuple<int, int, int>, std::pair<double, double>> lives;  // by stage, micro-batch and layer
  for (const Task& task : plan.tasks()) {
    if (!is_of_layer(task.kind)) continue;
    const int stage = plan.structure->lanes[task.lane].stage;
    auto& [begin_s, end_s] =
        lives.try_emplace({stage, task.micro_batch, task.layer}, times.begin_s[task.id], times.end_s[task.id])
            .first->second;
    begin_s = std::min(begin_s, times.begin_s[task.id]);
    end_s = std::max(end_s, times.end_s[task.id]);
  }
  for (const auto& [cell, life] : lives) {
    const auto alive = std::ranges::count_if(lives, [&, stage = std::get<0>(cell)](const auto& other) {
      return std::get<0>(other.first) == stage && other.second.first <= life.first && life.first < other.second.second;
    });
    if (alive > keep) faults.push_back(fmt::format("{} layers' activations are kept, {} at most", alive, keep));
  }
}

}  // namespace

std::vector<Rule> rules_of(const Plan& plan, int keep, std::vector<std::string>& faults) {
  return Rules(plan, keep, faults).all();
}

double Times::makespan_s() const { return *std::ranges::max_element(end_s); }

Times times_of(const Plan& plan, std::span<const double> seconds) {
  const size_t n = plan.tasks().size();
  std::vector<std::optional<double>> end_s(n);
  Times times;
  times.begin_s.resize(n);
  std::vector<size_t> next(plan.structure->lanes.size());
  std::vector<double> free_s(next.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t lane = 0; lane < next.size(); ++lane) {
      const std::vector<int>& queue = plan.structure->lanes[lane].queue;
      if (next[lane] == queue.size()) continue;
      const Task& task = plan.tasks()[queue[next[lane]]];
      double begin_s = free_s[lane];
      bool ready = true;
      for (const int id : task.after) {
        ready = ready && end_s[id];
        if (ready) begin_s = std::max(begin_s, *end_s[id]);
      }
      if (!ready) continue;
      times.begin_s[task.id] = begin_s;
      end_s[task.id] = free_s[lane] = begin_s + seconds[task.id];
      ++next[lane];
      moved = true;
    }
  }
  for (const auto& end : end_s) {
    if (!end) return {};
    times.end_s.push_back(*end);
  }
  return times;
}

namespace {

struct PassTimes {
  Phase phase;
  int micro_batch, layer;
  double begin_s, end_s;
};

// Returns whether an order lets tasks of both passes run at once.
bool may_meet(const PassTimes& a, const PassTimes& b, IterationOrder order, int layers) {
  const bool same_phase = a.phase == b.phase, same_batch = a.micro_batch == b.micro_batch;
  switch (order) {
    case IterationOrder::none:
    case IterationOrder::in_turn:
      return false;
    case IterationOrder::late_weights:
      return same_phase && same_batch;
    case IterationOrder::two_forwards:
      return same_phase && a.micro_batch / 2 == b.micro_batch / 2;
    case IterationOrder::pairs: {
      if (same_phase) return false;
      const PassTimes &forward = a.phase == Phase::forward ? a : b, &backward = a.phase == Phase::forward ? b : a;
      return forward.micro_batch == backward.micro_batch + 1 && forward.layer + backward.layer == layers - 1;
    }
    case IterationOrder::any:
      return true;
  }
  return true;
}

}  // namespace

std::vector<std::string> meetings(const Plan& plan, IterationOrder order, const Times& times) {
  std::map<std::tuple<Phase, int, int>, PassTimes> passes;
  for (const Task& task : plan.tasks()) {
    if (!is_of_layer(task.kind) || sends_gradients(task.kind)) continue;
    PassTimes& pass = passes
                          .try_emplace({task.execution_phase(), task.micro_batch, task.layer},
                                       PassTimes{task.execution_phase(), task.micro_batch, task.layer,
                                                 times.begin_s[task.id], times.end_s[task.id]})
                          .first->second;
    pass.begin_s = std::min(pass.begin_s, times.begin_s[task.id]);
    pass.end_s = std::max(pass.end_s, times.end_s[task.id]);
  }
  std::vector<std::string> found;
  for (auto a = passes.begin(); a != passes.end(); ++a)
    for (auto b = std::next(a); b != passes.end(); ++b) {
      const bool at_once = a->second.begin_s < b->second.end_s && b->second.begin_s < a->second.end_s;
      if (at_once && !may_meet(a->second, b->second, order, plan.layers))
        found.push_back(fmt::format("{} of layer {}, micro-batch {}, and {} of layer {}, micro-batch {}, run at once",
                                    name_of(a->second.phase), a->second.layer, a->second.micro_batch,
                                    name_of(b->second.phase), b->second.layer, b->second.micro_batch));
    }
  return found;
}

std::vector<std::string> faults_of(const Plan& plan, int keep, std::span<const double> seconds) {
  std::vector<std::string> faults;
  const std::vector<Rule> rules = rules_of(plan, keep, faults);
  const Times times = times_of(plan, seconds);
  if (times.end_s.empty()) {
    faults.emplace_back("it cannot run to its end");
    return faults;
  }
  for (const Rule& rule : rules)
    if (times.begin_s[rule.then] < times.end_s[rule.before])
      faults.push_back(fmt::format("{}: {} begins before {} is over", rule.text, plan.tasks()[rule.then].name(),
                                   plan.tasks()[rule.before].name()));
  check_lanes(plan, times, faults);
  check_kept(plan, times, keep, faults);
  return faults;
}

}  // namespace moe::wave_rules
