#pragma once
// A binding whose results tell in which order its tasks ran, by work that every device knows.
#include <memory>
#include <vector>

#include "moe/exec/executor.h"
#include "tests/device/on_device.h"

namespace moe {

/// A task computes 1 + the sum of what those computed that it waits for: one that ran too early shows.
class Counting : public Binding {
 public:
  Counting(Device& device, size_t tasks)
      : stream_(device.make_stream("setup")), start_(tasks + 1, 0.0), cells_(device, tasks + 1), zeros_(device, tasks) {
    start_.back() = 1;
    cells_ = OnDevice<double>(device, *stream_, start_);
    zeros_ = OnDevice<double>(device, *stream_, std::vector<double>(tasks, 0.0));
    stream_->synchronize();
  }

  void issue(const Task& task, Stream& stream, Pace) override {
    double* done = cells_.data();
    Sum sum{.from = {done + start_.size() - 1}, .to = {done + task.id}, .elements = 1, .dtype = DType::float64};
    for (const int before : task.after) sum.from.push_back(done + before);
    stream.move({.copies = {}, .sum = sum});
  }
  bool can_issue_ahead() const override { return true; }
  int pass_variants() const override { return 1; }

  std::vector<double> done() {
    std::vector<double> cells = cells_.read(*stream_);
    cells.pop_back();
    return cells;
  }
  /// Forgets what was computed.
  void clear() {
    stream_->copy({cells_.data(), zeros_.data(), zeros_.bytes()});
    stream_->synchronize();
  }
  /// Returns what a pass in order computes.
  static std::vector<double> expected(const Structure& structure) {
    std::vector<double> all;
    for (const Task& task : structure.tasks) {
      double sum = 1;
      for (const int before : task.after) sum += all[before];
      all.push_back(sum);
    }
    return all;
  }

 private:
  std::unique_ptr<Stream> stream_;
  std::vector<double> start_;
  OnDevice<double> cells_, zeros_;
};

}  // namespace moe
