#pragma once
// Chooses a layer's plan while the layer trains (FSMoE section 3.2).
//
// The first steps run the layer's tasks one after the other, at several degrees, so that each task is timed alone. Rows
// are fitted to the times, as in a cluster's profile, and every schedule is tuned with these rows. The best plans then
// run for a few steps each, and the fastest is kept. No step is lost, because each trains.
#include <functional>
#include <string>
#include <vector>

#include "moe/base/json.h"
#include "moe/comm/communicator.h"
#include "moe/exec/executor.h"
#include "moe/prices/profile.h"
#include "moe/schedule/schedule.h"

namespace moe {

class AutoPlan {
 public:
  /// `runs`: returns whether this layer can run a plan. All ranks make an AutoPlan, and call take() together.
  AutoPlan(const LayerCase& shape, Communicator& world_comm, std::function<bool(const Plan&)> runs);

  /// Returns the plan of the next step.
  const Plan& plan() const { return plans_.at(current_); }
  bool is_decided() const { return state_ == State::decided; }
  /// Takes the times of a step under plan() on this rank: those of its tasks, and of the whole step. Returns whether
  /// plan() has changed; it changes on all ranks or on none.
  bool take(const std::vector<TaskTime>& tasks, double seconds);
  /// Returns the steps so far, the rows with the mean seconds of a task at each degree, and the schedules by their
  /// predicted seconds, with the measured seconds of schedules that ran.
  Json report() const;

 private:
  enum class State : uint8_t { profiling, trying, decided };
  struct Ranked {
    std::string schedule;
    int degree_forward = 1, degree_backward = 1;
    double predicted_s = 0, measured_s = 0;  // 0: not run
  };
  struct MeasuredRow {
    std::string name;
    int chunks = 1;
    double seconds = 0;
  };

  void gather(const std::vector<TaskTime>& tasks, double seconds);
  Profile fitted();
  std::string ranked_plans();
  void begin_trying();
  void decide();

  LayerCase shape_;
  Communicator& world_comm_;
  std::function<bool(const Plan&)> runs_;
  State state_ = State::profiling;
  std::vector<Plan> plans_;  // plans that run in turn
  size_t current_ = 0;
  int steps_ = 0, steps_of_plan_ = 0;
  std::vector<std::vector<double>> task_s_;  // [plan][task], the shortest over timed steps
  std::vector<double> total_s_;              // [plan], likewise
  std::vector<MeasuredRow> rows_;
  std::vector<Ranked> ranking_;
};

}  // namespace moe
