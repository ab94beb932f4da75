#include "moe/search/model_descent.h"

#include <algorithm>
#include <utility>

namespace moe::search {
namespace {

class Descent {
 public:
  Descent(ModelReplay& replay, const DescentMoves& moves, const ModelDecision& from)
      : replay_(replay), moves_(moves), best_(from), seconds_(replay.seconds(from)) {
    last_task_ = replay.tasks() + moves.most_tasks;
  }

  void run() {
    for (bool moved = true; moved && !spent();) {
      moved = degrees_of_all();
      if (!moves_.one_degree) moved |= degrees_of_each();
      moved |= bytes_of_all();
      moved |= bytes_of_each();
    }
  }

  const ModelDecision& best() const { return best_; }
  double seconds() const { return seconds_; }

 private:
  bool spent() const { return replay_.tasks() >= last_task_; }

  bool offer(const ModelDecision& d) {
    if (spent() || !replay_.sends_what_waits(d)) return false;
    const double seconds = replay_.seconds(d);
    if (!better(seconds, seconds_)) return false;
    best_ = d;
    seconds_ = seconds;
    return true;
  }

  bool degrees_of_all() {
    bool moved = false;
    for (const BackwardOption& option : moves_.backwards) {
      ModelDecision d = best_;
      for (size_t i = 0; i < d.backwards.size(); ++i)
        if (!replay_.is_dense(i)) d.backwards[i].degree = option.degree, d.backwards[i].order = option.order;
      if (moves_.one_degree) d.degree_forward = d.degree_backward = option.degree;
      moved |= offer(d);
      if (moves_.one_degree) continue;
      if (moves_.micro_batches) {
        d = best_;
        d.degree_backward = option.degree;
        d.order_backward = option.order;
        moved |= offer(d);
      }
      if (moves_.forward_too && best_.order_forward.empty()) {
        d = best_;
        d.degree_forward = option.degree;
        moved |= offer(d);
      }
    }
    return moved;
  }

  bool degrees_of_each() {
    bool moved = false;
    for (size_t i = 0; i < best_.backwards.size(); ++i)
      for (const BackwardOption& option : moves_.backwards) {
        if (replay_.is_dense(i)) break;
        ModelDecision d = best_;
        d.backwards[i].degree = option.degree;
        d.backwards[i].order = option.order;
        moved |= offer(d);
      }
    return moved;
  }

  // Counts places for bytes: of backward i the MoE part, 2 i, and beside the dense part, 2 i + 1; the last is the tail.
  size_t places() const { return 2 * best_.backwards.size() + 1; }
  bool is_place(size_t place) const { return place % 2 == 1 || place + 1 == places() || sends_in_moe(place / 2); }
  bool sends_in_moe(size_t backward) const { return moves_.in_moe && !replay_.is_dense(backward); }

  static auto& bytes_at(auto& decision, size_t place) {
    auto& b = decision.backwards[place / 2];
    return place % 2 == 0 ? b.gar_in_moe_bytes : b.gar_beside_dense_bytes;
  }

  // Returns how many bytes could leave a place; from the tail, those of all layers but the last.
  int64_t bytes_in(size_t place) const {
    if (place + 1 < places()) return bytes_at(best_, place);
    int64_t waiting = replay_.waiting_bytes();
    for (size_t i = 0; i + 1 < best_.backwards.size(); ++i) waiting += replay_.made_bytes(i);
    for (const BackwardDecision& b : best_.backwards) waiting -= b.gar_in_moe_bytes + b.gar_beside_dense_bytes;
    return waiting;
  }

  void move(ModelDecision& d, size_t from, size_t to, int64_t bytes) const {
    if (from + 1 < places()) bytes_at(d, from) -= bytes;
    if (to + 1 < places()) bytes_at(d, to) += bytes;
  }

  // Moves all of the bytes, then ever smaller shares; goes on with a share as long as that helps.
  bool bytes_between(size_t from, size_t to) {
    bool moved = false;
    const int64_t all = bytes_in(from), least = std::max(moves_.element_bytes, replay_.made_bytes() / 4096);
    for (int64_t bytes = all; bytes >= least; bytes = bytes / 2 / moves_.element_bytes * moves_.element_bytes)
      while (bytes <= bytes_in(from)) {
        ModelDecision d = best_;
        move(d, from, to, bytes);
        if (!offer(d)) break;
        moved = true;
      }
    return moved;
  }

  bool bytes_of_each() {
    bool moved = false;
    for (size_t from = 0; from < places(); ++from)
      for (size_t to = 0; to < places(); ++to) {
        const bool far = std::max(from, to) - std::min(from, to) > 4 && std::max(from, to) + 1 < places();
        if (from == to || far || !is_place(from) || !is_place(to)) continue;
        moved |= bytes_between(from, to);
      }
    return moved;
  }

  // Moves bytes from one place to the other in every layer at once, or between the tail and one place in every layer.
  bool bytes_of_all() {
    if (best_.backwards.size() < 2) return false;
    bool moved = false;
    const auto offer_all = [&](int from_moe, int from_dense, int64_t bytes) {
      ModelDecision d = best_;
      for (size_t i = 1; i < d.backwards.size(); ++i) {
        BackwardDecision& b = d.backwards[i];
        if (sends_in_moe(i)) b.gar_in_moe_bytes = std::max<int64_t>(0, b.gar_in_moe_bytes - from_moe * bytes);
        b.gar_beside_dense_bytes = std::max<int64_t>(0, b.gar_beside_dense_bytes - from_dense * bytes);
      }
      return offer(d);
    };
    const int64_t element = moves_.element_bytes, least = std::max(element, replay_.made_bytes() / 1024);
    for (int64_t bytes = replay_.made_bytes(); bytes >= least; bytes = bytes / 2 / element * element)
      for (const auto& [moe, dense] : {std::pair{1, -1}, {-1, 1}, {1, 0}, {0, 1}, {-1, 0}, {0, -1}}) {
        if (moe != 0 && !moves_.in_moe) continue;
        while (offer_all(moe, dense, bytes)) moved = true;
      }
    return moved;
  }

  ModelReplay& replay_;
  const DescentMoves& moves_;
  ModelDecision best_;
  double seconds_;
  int64_t last_task_;
};

}  // namespace

double descend(ModelReplay& replay, const DescentMoves& moves, ModelDecision& decision) {
  Descent descent(replay, moves, decision);
  descent.run();
  decision = descent.best();
  return descent.seconds();
}

}  // namespace moe::search
