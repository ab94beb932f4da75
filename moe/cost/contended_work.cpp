// Idea: at any time some set of works runs, each at the rate that contention gives it there. The least time of sets
// that together do all work is a linear program; its dual has a price for each work, and no set earns more than 1.
// Invariant: work may be broken off at any time and waits for nothing in its stretch, which makes the bound smaller.
// Source: lower bounds by sets of activities that can run at once (Mingozzi et al. 1998), here with rates.
#include "moe/cost/contended_work.h"

#include <utility>

#include "moe/cost/linear_program.h"
#include "moe/cost/slowdown.h"

namespace moe::cost {
namespace {

class Program {
 public:
  Program(const Contention& contention, size_t works) : slowdown_(contention), works_(works) {}

  // Adds a row of each set of `first`, from that index on, and of `second`: with at least one of `first`.
  void add_sets(std::span<const LaneWork> first, size_t first_at, std::span<const LaneWork> second, size_t second_at) {
    for (size_t set = 1; set < size_t{1} << (first.size() + second.size()); ++set) {
      if ((set & ((size_t{1} << first.size()) - 1)) == 0) continue;
      running_.clear();
      for (size_t i = 0; i < first.size(); ++i)
        if ((set >> i & 1) != 0) running_.emplace_back(first_at + i, &first[i]);
      for (size_t i = 0; i < second.size(); ++i)
        if ((set >> (first.size() + i) & 1) != 0) running_.emplace_back(second_at + i, &second[i]);
      if (lanes_differ()) add_row();
    }
  }

  double most(std::span<const double> gains) {
    program_.limits.assign(program_.rows.size(), 1);
    return cost::most(program_, gains);
  }

 private:
  bool lanes_differ() const {
    for (size_t i = 0; i < running_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (running_[i].second->lane == running_[j].second->lane) return false;
    return true;
  }

  void add_row() {
    const auto resource_of = [](const auto& each) { return each.second->resource; };
    std::vector<double>& row = program_.rows.emplace_back(works_, 0.0);
    for (const auto& [at, work] : running_) row[at] = slowdown_.rate(running_, resource_of, work->resource);
  }

  Slowdown slowdown_;
  size_t works_;
  std::vector<std::pair<size_t, const LaneWork*>> running_;
  LinearProgram program_;
};

}  // namespace

void add_work(std::vector<LaneWork>& works, const LaneWork& work) {
  for (LaneWork& known : works)
    if (known.lane == work.lane && known.resource == work.resource) {
      known.seconds += work.seconds;
      return;
    }
  works.push_back(work);
}

double least_contended_seconds(const Contention& contention, std::span<const std::vector<LaneWork>> stretches,
                               std::span<const LaneWork> beside) {
  std::vector<double> gains;
  for (const LaneWork& work : beside) gains.push_back(work.seconds);
  for (const auto& stretch : stretches)
    for (const LaneWork& work : stretch) gains.push_back(work.seconds);
  Program program(contention, gains.size());
  program.add_sets(beside, 0, {}, 0);
  size_t at = beside.size();
  for (const auto& stretch : stretches) {
    program.add_sets(stretch, at, beside, 0);
    at += stretch.size();
  }
  return program.most(gains);
}

}  // namespace moe::cost
